"""Makes slurmctld save that jobs have started, with one update for all that started together.

slurmctld keeps a start by backfill in memory only until some call makes it save, and a save writes
all of its jobs (job_mgr.c, dump_all_job_state). So one job is updated for many.
"""

from __future__ import annotations

import asyncio

import msgspec

from extender.control.jobs import JobTable
from extender.domain.model import Job, Stamp
from extender.slurm.port import Slurm

_GATHER_SECONDS = 0.05


class Starts:
    """``saved`` returns when slurmctld has been told to save after the job was seen running."""

    def __init__(self, jobs: JobTable, slurm: Slurm) -> None:
        self._jobs = jobs
        self._slurm = slurm
        self._waiting: list[Job] = []
        self._next: asyncio.Task[None] | None = None  # gathers still; not a save under way

    async def saved(self, job: Job) -> None:
        """Raises ``SlurmError`` when the update failed: nothing is known to be saved then."""
        self._waiting.append(job)
        if self._next is None:
            self._next = asyncio.create_task(self._save())
        await asyncio.shield(self._next)

    async def _save(self) -> None:
        await asyncio.sleep(_GATHER_SECONDS)
        waiting, self._waiting, self._next = self._waiting, [], None
        together = [job for job in waiting if self._jobs.has(job)]
        first = next((job for job in together if job.stamp), None)
        if first is not None and first.stamp is not None:
            await self._slurm.mark(first.id, _started(first.stamp))
        for job in together:
            current = self._jobs.get(job.id)
            if current and current.stamp:
                self._jobs.put(msgspec.structs.replace(current, stamp=_started(current.stamp)))


def _started(stamp: Stamp) -> Stamp:
    return msgspec.structs.replace(stamp, started=True, fell=0.0)
