"""Processes as Linux knows them: identity that survives pid reuse, and a certain end."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

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

    def signal(self, sig: signal.Signals) -> None:
        """Signal it, and the process group when it leads one; nothing happens when it is gone."""
        if not self.alive:
            return
        with suppress(ProcessLookupError, PermissionError):
            if os.getpgid(self.pid) == self.pid:
                os.killpg(self.pid, sig)
            else:
                os.kill(self.pid, sig)


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


def added(one: Stat, other: Stat) -> Stat:
    """Two processes of the same program as one: CPU and memory added."""
    return replace(
        one,
        cpu_seconds=one.cpu_seconds + other.cpu_seconds,
        rss_mib=one.rss_mib + other.rss_mib,
    )


def carrying(variable: str, value: str) -> list[Identity]:
    """All our processes that were started with ``variable=value`` in their environment."""
    wanted = f"{variable}={value}".encode()
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if wanted in (path / "environ").read_bytes().split(b"\0"):
                found.append(identity(int(path.name)))
    return [process for process in found if process.alive]


def end(find: Callable[[], list[Identity]], patience_seconds: float = 5.0) -> None:
    """End what ``find`` finds: SIGTERM to each once, and SIGKILL to what is there afterwards."""
    told: set[Identity] = set()
    for sig, patience in ((signal.SIGTERM, patience_seconds), (signal.SIGKILL, 5.0)):
        told.clear()
        deadline = time.monotonic() + patience
        while living := [process for process in find() if process.alive]:
            for process in living:
                if process not in told:
                    process.signal(sig)
                    told.add(process)
            if time.monotonic() > deadline:
                break
            time.sleep(0.02)
        else:
            return


def reap(child: subprocess.Popen[Any], timeout_seconds: float) -> int:
    """Wait for a group leader to end, kill what is left of its group, and collect it.

    Its pid cannot have a new owner meanwhile, because it is not collected before. Raises
    subprocess.TimeoutExpired.
    """
    deadline = time.monotonic() + timeout_seconds
    options = os.WEXITED | os.WNOWAIT | os.WNOHANG
    while child.returncode is None and os.waitid(os.P_PID, child.pid, options) is None:
        if time.monotonic() > deadline:
            raise subprocess.TimeoutExpired(child.args, timeout_seconds)
        time.sleep(0.01)
    if child.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
    return child.wait(timeout_seconds)
