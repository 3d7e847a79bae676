"""Progress lines on standard error: what is being done and for how long.

A step shows itself after two seconds: on a terminal as one line that is rewritten, elsewhere as a
line at once and then every ten seconds. Steps may run in parallel threads.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

QUIET_SECONDS = 2.0
LINE_EVERY_SECONDS = 10.0


class Step:
    """A running step; ``note`` changes the text behind its name ("412 of 1504 packages")."""

    def __init__(self, what: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.what = what
        self.note = ""
        self.started = clock()
        self.shown_at = 0.0  # seconds after the start; 0 while not shown yet

    def text(self, now: float) -> str:
        """The line for this step at ``now`` (seconds on the step's clock)."""
        note = f" ({self.note})" if self.note else ""
        return f"{now - self.started:4.0f} s  {self.what}{note}"


class Board:
    """All running steps, printed by one thread that lives while there are any."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream
        self._steps: list[Step] = []
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def stream(self) -> TextIO:
        return self._stream or sys.stderr

    @contextmanager
    def step(self, what: str) -> Iterator[Step]:
        """Show ``what`` while the body runs, and how long it took when that was long."""
        step = Step(what)
        with self._lock:
            self._steps.append(step)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="progress", daemon=True)
                self._thread.start()
        outcome = "failed"
        try:
            yield step
            outcome = "done"
        finally:
            with self._lock:
                self._steps.remove(step)
                took = time.monotonic() - step.started
                if step.shown_at or took >= QUIET_SECONDS:
                    self._print(f"{took:4.0f} s  {what}: {outcome}", end="\n")
                self._wake.set()

    def say(self, text: str) -> None:
        """A line of its own, above the running steps."""
        with self._lock:
            self._print(text, end="\n")

    def _run(self) -> None:
        while True:
            tty = _is_terminal(self.stream)
            self._wake.wait(0.5 if tty else 1.0)
            with self._lock:
                self._wake.clear()
                if not self._steps:
                    self._thread = None
                    return
                self._show(time.monotonic(), tty)

    def _show(self, now: float, tty: bool) -> None:
        slow = [s for s in self._steps if now - s.started >= QUIET_SECONDS]
        if tty and slow:
            for step in slow:
                step.shown_at = now - step.started
            more = f"  [+{len(slow) - 1} more]" if len(slow) > 1 else ""
            width = (os.get_terminal_size(self.stream.fileno()).columns or 80) - 1
            self._print(slow[-1].text(now)[: width - len(more)] + more, end="")
            return
        for step in slow:
            elapsed = now - step.started
            if not step.shown_at or elapsed - step.shown_at >= LINE_EVERY_SECONDS:
                step.shown_at = elapsed
                self._print(step.text(now), end="\n")

    def _print(self, text: str, end: str) -> None:
        stream = self.stream
        try:
            if _is_terminal(stream):
                text = "\r\x1b[2K" + text
            stream.write(text + end)
            stream.flush()
        except (OSError, ValueError):  # the stream is gone: progress must not break the work
            return


def _is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty()
    except (OSError, ValueError):
        return False


board = Board()
step = board.step
say = board.say
