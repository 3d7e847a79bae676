"""Run directories: what a run has started, and how to end it when its owner cannot.

A run is a directory under /tmp/sluice-<uid>/runs that records its owner (pid and start time, so
that a reused pid fools nobody), its children and its Docker engine. Whoever finds a run whose
owner is dead may end what it left: the run's own reaper does so at once, a janitor at the start of
the next run.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.harness import process
from tests.harness.process import Identity

LABEL = "dev.sluice.run"  # on containers
RUN_VARIABLE = "HARNESS_RUN"  # in the environment of processes
KEEP_LOGS_SECONDS = 24 * 3600.0


def runs_directory() -> Path:
    """Where this user's runs are. ``SLUICE_RUNS`` chooses another place."""
    chosen = os.environ.get("SLUICE_RUNS")
    return (
        Path(chosen) if chosen else Path(tempfile.gettempdir()) / f"sluice-{os.getuid()}" / "runs"
    )


@dataclass
class Run:
    """A run and its directory."""

    directory: Path
    closing: bool = False  # nothing may be started any more
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @property
    def id(self) -> str:
        return self.directory.name

    @classmethod
    def create(cls) -> Run:
        """A new run owned by this process."""
        name = time.strftime("%m%d-%H%M%S-") + secrets.token_hex(2)
        directory = runs_directory() / name
        directory.mkdir(parents=True, mode=0o700)
        run = cls(directory)
        run._append("owner", process.identity(os.getpid()))
        return run

    def record_child(self, child: Identity) -> None:
        """Remember a process group to end; before anything can go wrong with it."""
        self._append("children", child)

    def record_engine(self, host: str) -> None:
        """Remember the Docker engine that holds this run's containers."""
        (self.directory / "engine").write_text(host)

    def owner(self) -> Identity | None:
        """The process that answers for this run; None when its record is not readable."""
        found = self._read("owner")
        return found[-1] if found else None

    def children(self) -> list[Identity]:
        return self._read("children")

    def end_processes(self, patience_seconds: float = 5.0) -> None:
        """End every recorded child that still lives, and whatever carries this run's name.

        The name finds the children of children whose own parent is dead.
        """

        def find() -> list[Identity]:
            return self.children() + process.carrying(RUN_VARIABLE, self.id)

        process.end(find, patience_seconds)

    def remove_containers(self) -> None:
        """Remove this run's containers by their label. Silent when Docker does not answer."""
        with suppress(OSError, subprocess.SubprocessError):
            host = (self.directory / "engine").read_text()
            env = os.environ | {"DOCKER_HOST": host}
            found = subprocess.run(
                ["docker", "ps", "--all", "--quiet", "--filter", f"label={LABEL}={self.id}"],
                env=env, capture_output=True, text=True, check=True, timeout=30,
            )  # fmt: skip
            if found.stdout.split():
                subprocess.run(
                    ["docker", "rm", "--force", "--volumes", *found.stdout.split()],
                    env=env, capture_output=True, check=True, timeout=60,
                )  # fmt: skip

    def finish(self, keep: bool) -> None:
        """Everything has ended: remove the directory, or keep it for its logs."""
        if keep:
            shutil.rmtree(self.directory / "etcd", ignore_errors=True)  # 130 MB that nobody reads
            (self.directory / "ended").touch()
        else:
            shutil.rmtree(self.directory, ignore_errors=True)

    def _append(self, name: str, who: Identity) -> None:
        line = json.dumps([who.pid, who.started_ticks]) + "\n"
        with self._lock, open(self.directory / name, "a") as file:
            file.write(line)

    def _read(self, name: str) -> list[Identity]:
        found = []
        with suppress(OSError):
            for line in (self.directory / name).read_text().splitlines():
                with suppress(ValueError, TypeError):  # a line that was cut off
                    found.append(Identity(*json.loads(line)))
        return found


def clean_dead_runs() -> list[str]:
    """End what dead runs of this user left, and drop old logs. The ids of runs that were dead."""
    dead = []
    for directory in sorted(runs_directory().glob("*")):
        run = Run(directory)
        owner = run.owner()
        age = time.time() - directory.stat().st_mtime if directory.exists() else 0.0
        if owner is None and age < 60:
            continue  # being made
        if owner is not None and owner.alive:
            continue
        if (directory / "ended").exists():
            if age > KEEP_LOGS_SECONDS:
                run.finish(keep=False)
            continue
        run.end_processes()
        run.remove_containers()
        run.finish(keep=True)
        dead.append(run.id)
    return dead
