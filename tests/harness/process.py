"""Processes as Linux knows them: identity that survives pid reuse, and a certain end."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Identity:
    """A pid and the moment its process started (ticks since boot): together never used twice."""

    pid: int
    started_ticks: int

    @property
    def alive(self) -> bool:
        """It runs: not gone, not a zombie, and not another process with the same pid."""
        stat = read_stat(self.pid)
        return stat is not None and stat.started_ticks == self.started_ticks and stat.state != "Z"

    def signal_group(self, sig: signal.Signals) -> None:
        """Signal the process group that it leads; nothing happens when it is not alive."""
        if self.alive:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, sig)


@dataclass(frozen=True)
class Stat:
    """From /proc/<pid>/stat: CPU time used so far in seconds, resident memory in MiB."""

    name: str
    state: str
    cpu_seconds: float
    started_ticks: int
    rss_mib: float


def identity(pid: int) -> Identity:
    """The identity of a running process. Raises ProcessLookupError when there is none."""
    stat = read_stat(pid)
    if stat is None:
        raise ProcessLookupError(f"no process {pid}")
    return Identity(pid, stat.started_ticks)


def read_stat(pid: int) -> Stat | None:
    """The process's numbers, or None when it is gone."""
    try:
        return parse_stat(Path(f"/proc/{pid}/stat").read_text())
    except OSError:
        return None


def parse_stat(text: str) -> Stat:
    """Read the content of a /proc/<pid>/stat (proc_pid_stat(5))."""
    head, _, rest = text.rpartition(")")
    fields = rest.split()
    return Stat(
        name=head.split("(", 1)[1],
        state=fields[0],
        cpu_seconds=(int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND,
        started_ticks=int(fields[19]),
        rss_mib=int(fields[21]) * os.sysconf("SC_PAGE_SIZE") / 2**20,
    )


def end(processes: list[Identity], patience_seconds: float = 5.0) -> None:
    """End the groups of these processes: SIGTERM to all, then SIGKILL to what is left."""
    for sig, patience in ((signal.SIGTERM, patience_seconds), (signal.SIGKILL, 5.0)):
        for process in processes:
            process.signal_group(sig)
        deadline = time.monotonic() + patience
        while any(p.alive for p in processes) and time.monotonic() < deadline:
            time.sleep(0.02)
        if not any(p.alive for p in processes):
            return
