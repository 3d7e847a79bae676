"""Sluice itself, run as its own process against the stack."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.harness.children import Child
from tests.harness.errors import HarnessError
from tests.harness.runs import Run

ROOT = Path(__file__).parents[2]
PROGRAM = ("-m", "extender")


class Sluice:
    """One replica of the service: `python -m extender serve`, always on the same port."""

    def __init__(
        self, run: Run, port: int, settings: Mapping[str, Any], name: str = "sluice"
    ) -> None:
        """``name`` is that of its log and of its configuration file."""
        self.base_url = f"http://127.0.0.1:{port}"
        self.config_file = run.directory / f"{name}.yaml"
        self._name = name
        self._run = run
        self._settings = deepcopy(dict(settings))
        self._child: Child | None = None

    @property
    def log(self) -> Path:
        return self._run.directory / "logs" / f"{self._name}.log"

    @property
    def child(self) -> Child:
        """Raises HarnessError when it was never started."""
        if self._child is None:
            raise HarnessError("Sluice was not started: call stack.sluice.start() first.")
        return self._child

    @property
    def alive(self) -> bool:
        return self._child is not None and self._child.alive

    def start(
        self,
        settings: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
        *,
        ready_seconds: float = 60.0,
        wait: bool = True,
        program: Sequence[str] = PROGRAM,
    ) -> Sluice:
        """Start it with config/sluice.yaml, the stack's values, and ``settings`` merged over both.

        Returns when /readyz answers 200 (unless ``wait`` is false). ``program``: Python's arguments
        for another entry point with the same commands. Raises HarnessError.
        """
        shipped = yaml.safe_load((ROOT / "config" / "sluice.yaml").read_text()) or {}
        content = merge(merge(shipped, self._settings), settings or {})
        self.config_file.write_text(yaml.safe_dump(content, sort_keys=False))
        self._child = Child(
            self._run,
            self._name,
            [sys.executable, *program, "serve", "--config", self.config_file],
            env=os.environ | dict(env or {}),
            cwd=ROOT,
            patience_seconds=15.0,
            ready=self.ready,
        ).start()
        if wait:
            self._child.await_ready(ready_seconds)
        return self

    def ready(self) -> bool:
        """Whether /readyz answers 200 now."""
        try:
            return httpx.get(f"{self.base_url}/readyz", timeout=2).status_code == 200
        except httpx.HTTPError:
            return False

    def stop(self) -> None:
        """End it in good order; nothing happens when it does not run."""
        if self._child is not None:
            self._child.stop()

    def kill(self) -> None:
        """SIGKILL, as a crash."""
        self.child.kill()


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """``base`` with ``over`` on top; mappings are merged key by key, anything else is replaced."""
    result = dict(base)
    for key, value in over.items():
        below = result.get(key)
        both = isinstance(value, Mapping) and isinstance(below, Mapping)
        result[key] = merge(below, value) if both else value  # type: ignore[arg-type]
    return result
