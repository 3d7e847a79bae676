"""End a run when its owner dies without doing so itself.

`python -m tests.harness.reaper <run directory>`, with the read end of a pipe as standard input:
the pipe closes when the owner exits, however it does. A run that was ended properly is gone or
marked by then, and nothing is left to do.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

from tests.harness.runs import Run

PATIENCE_SECONDS = 2.0
SECOND_LOOK_SECONDS = 2.0
ROOT = Path(__file__).parents[2]


class Reaper:
    """The owner's side: start it first, ``close`` it last."""

    def __init__(self, run: Run, engine_lock: IO[str] | None) -> None:
        # The reaper shares the engine's user lock, so that the engine outlives the owner until
        # the containers are removed.
        fds = [engine_lock.fileno()] if engine_lock is not None else []
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.harness.reaper", str(run.directory)],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True, pass_fds=fds,
        )  # fmt: skip

    def close(self) -> None:
        """The run has ended: let the reaper see it and go."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)


def main(directory: Path) -> int:
    for sig in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(sig, lambda *_: None)  # not SIG_IGN: docker would inherit it
    sys.stdin.buffer.read()  # until the owner is gone
    run = Run(directory)
    if directory.exists() and not (directory / "ended").exists():
        run.end_processes(PATIENCE_SECONDS)
        run.remove_containers()
        time.sleep(SECOND_LOOK_SECONDS)  # Docker may have been making one just then
        run.remove_containers()
        run.finish(keep=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
