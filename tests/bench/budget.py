"""Time for measuring: a part makes as many runs as it was asked for, or as its time allows."""

from __future__ import annotations

import time
from collections.abc import Iterator

from tests.harness.progress import say


class Budget:
    """Seconds for one part of the benchmark, from now on. The first run is made in any case."""

    def __init__(self, seconds: float) -> None:
        self._ends = time.monotonic() + seconds

    def runs(self, wanted: int, what: str, share: float = 1.0) -> Iterator[int]:
        """0, 1, … up to ``wanted`` runs, fewer when another one as long as the last would take more
        than this ``share`` of the time that is left now."""
        started = time.monotonic()
        ends = started + share * (self._ends - started)
        for run in range(wanted):
            began = time.monotonic()
            if run and began + (began - started) / run > ends:
                say(f"{what}: {run} runs of {wanted}, there is no time for more")
                return
            yield run
