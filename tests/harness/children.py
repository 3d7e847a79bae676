"""Child processes of a run: each in a group of its own, logged, recorded, and ended by pid."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from tests.harness import process
from tests.harness.command import dies_with_us
from tests.harness.errors import HarnessError, tail
from tests.harness.process import Identity
from tests.harness.progress import step
from tests.harness.runs import RUN_VARIABLE, Run

# The kernel ends a child when the *thread* that started it ends: one thread starts them all.
_starter = ThreadPoolExecutor(1, thread_name_prefix="starter")


class Child:
    """A program that runs until it is stopped; it may be started again after that."""

    def __init__(
        self,
        run: Run,
        name: str,
        argv: Sequence[str | Path],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        patience_seconds: float = 5.0,
        ready: Callable[[], bool] | None = None,
    ) -> None:
        """``ready`` tells whether it answers; an exception of it means "not yet"."""
        self.name = name
        self.log = run.directory / "logs" / f"{name}.log"
        self._run = run
        self._argv = [str(part) for part in argv]
        self._env = dict(os.environ if env is None else env) | {RUN_VARIABLE: run.id}
        self._cwd = cwd
        self._patience = patience_seconds
        self._ready = ready
        self._process: subprocess.Popen[bytes] | None = None
        self._identity: Identity | None = None

    @property
    def pid(self) -> int:
        """Raises HarnessError when it was not started."""
        if self._process is None:
            raise HarnessError(f"{self.name} is not running: start it first.")
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> Child:
        """Start it; its log is appended to. Raises HarnessError when it runs or cannot start."""
        if self.alive:
            raise HarnessError(f"{self.name} runs already (pid {self.pid}): stop it first.")
        self.log.parent.mkdir(exist_ok=True)
        try:
            _starter.submit(self._start).result()
        except OSError as error:
            raise HarnessError(f"{self.name} cannot start: {error}.") from error
        return self

    def _start(self) -> None:
        if self._run.closing:
            raise HarnessError(f"{self.name} was not started: the run is ending.")
        with open(self.log, "ab") as log:
            self._process = subprocess.Popen(
                dies_with_us(self._argv), env=self._env, cwd=self._cwd, process_group=0,
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip
        with suppress(ProcessLookupError):
            self._identity = process.identity(self._process.pid)
            self._run.record_child(self._identity)

    def launch(self) -> Child:
        """Start it and wait until it answers. Raises HarnessError."""
        self.start().await_ready()
        return self

    def await_ready(self, seconds: float = 60.0) -> None:
        """Wait until it answers.

        Raises HarnessError, with the end of the log, when the program ends first or time is up.
        """
        deadline = time.monotonic() + seconds
        with step(f"waiting for {self.name}"):
            while True:
                if not self.alive:
                    code = self._process.returncode if self._process else None
                    raise HarnessError(
                        f"{self.name} ended with exit code {code} before it was ready: its log "
                        f"says why. Log: {self.log}{tail(self.log)}"
                    )
                with suppress(Exception):
                    if self._ready is None or self._ready():
                        return
                if time.monotonic() > deadline:
                    raise HarnessError(
                        f"{self.name} is not ready after {seconds:.0f} s: its log says what it "
                        f"waits for. Log: {self.log}{tail(self.log)}"
                    )
                time.sleep(0.05)

    def stop(self) -> int | None:
        """SIGTERM, then SIGKILL after the patience; its exit code, None when it never ran."""
        if self._process is None:
            return None
        if self._identity is not None and self.alive:
            self._identity.signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                return process.reap(self._process, self._patience)
            self._identity.signal(signal.SIGKILL)
        return process.reap(self._process, 10)

    def kill(self) -> None:
        """SIGKILL to its group, as a crash."""
        if self._process is not None:
            if self._identity is not None and self.alive:
                self._identity.signal(signal.SIGKILL)
            process.reap(self._process, 10)

    def stat(self) -> process.Stat | None:
        """CPU seconds and memory of the process; None when it is gone."""
        return process.read_stat(self._process.pid) if self._process is not None else None
