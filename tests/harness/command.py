"""Run a program to its end for a build step, with its output in a log and its end guaranteed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from tests.harness.errors import HarnessError, tail
from tests.harness.process import reap

TERM_SECONDS = 30.0
_running: set[subprocess.Popen[str]] = set()


def dies_with_us(argv: Sequence[str], sig: str = "KILL") -> list[str]:
    """``argv`` through setpriv(1), so that the kernel signals it when the starting thread ends."""
    setpriv = shutil.which("setpriv") or "/usr/bin/setpriv"
    if not os.path.exists(setpriv):
        return list(argv)
    return [setpriv, "--pdeathsig", sig, "--", *argv]


def run(
    argv: Sequence[str],
    *,
    what: str,
    log: Path,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    on_line: Callable[[str], None] | None = None,
    hint: str = "",
) -> None:
    """Run ``argv``; its output goes to ``log`` and line by line to ``on_line``.

    Raises HarnessError with the end of the log and ``hint`` when it fails or is missing. On any
    exception, Ctrl-C included, its whole process group is ended before the exception goes on.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    try:
        # setpriv would start and then not find it
        if shutil.which(argv[0], path=(env or os.environ).get("PATH")) is None:
            raise FileNotFoundError("there is no such program")
        process = subprocess.Popen(
            dies_with_us(argv, "TERM"),
            env=dict(env) if env is not None else None,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            process_group=0,
        )
    except OSError as error:
        raise HarnessError(f"{what} failed: cannot start {argv[0]}: {error}. {hint}") from error
    _running.add(process)
    try:
        with open(log, "a") as copy:
            assert process.stdout is not None
            for line in process.stdout:
                copy.write(line)
                if on_line is not None:
                    on_line(line.rstrip())
        code = process.wait()
    except BaseException:
        _end_group(process)
        raise
    finally:
        _running.discard(process)
    if code != 0:
        raise HarnessError(
            f"{what} failed: {Path(argv[0]).name} ended with exit code {code}. "
            f"{hint}{' ' if hint else ''}Log: {log}{tail(log)}"
        )


def cancel() -> None:
    """End every ``run`` of other threads; they raise HarnessError."""
    for process in list(_running):
        _end_group(process)


def _end_group(process: subprocess.Popen[str]) -> None:
    for sig, patience in ((signal.SIGTERM, TERM_SECONDS), (signal.SIGKILL, 5.0)):
        with suppress(ProcessLookupError, subprocess.TimeoutExpired):
            if process.returncode is None:
                os.killpg(process.pid, sig)
            reap(process, patience)
            return
