"""Keeps what Slurm says of how long a job may take to end."""

from __future__ import annotations

import asyncio

import structlog

from extender.domain.grace import Limits
from extender.slurm.port import Slurm, SlurmError

_log = structlog.get_logger(__name__)


class LimitLoop:
    """``now`` is what was read last; before that, KillWait as the settings have it. Only warnings
    hang on it: what cannot be read is asked for again at the next turn, and stops nothing."""

    def __init__(self, slurm: Slurm, *, kill_wait_seconds: int, resync_seconds: float) -> None:
        self._slurm = slurm
        self._resync = resync_seconds
        self.now = Limits(kill_wait=kill_wait_seconds)
        self._settings = self.now

    async def run(self) -> None:
        """Read until cancelled."""
        while True:
            try:
                self.now = await self._slurm.limits(self._settings.kill_wait)
            except SlurmError as error:
                _log.info("limits not read", why=str(error))
            await asyncio.sleep(self._resync)
