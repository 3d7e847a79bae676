"""Runs schedules: one with its story, or many over several processes."""

from __future__ import annotations

import gc
import multiprocessing
import os
import sys
import time
from collections.abc import Iterable, Iterator

from msgspec import Struct

from tests.simulation import standins
from tests.simulation.judge import Violation
from tests.simulation.plan import Plan, plan
from tests.simulation.replica import wire
from tests.simulation.shrink import shrink
from tests.simulation.world import simulate

CHUNK = 100
"""Schedules between two collections of garbage, and between two reports of a worker."""


class Batch(Struct, frozen=True):
    """What became of a row of schedules."""

    count: int
    cpu_seconds: float
    broken: tuple[tuple[int, Violation], ...]  # seeds and what they broke


def check_hash_seed() -> None:
    """Sets of texts are walked in one order only when this is fixed, and schedules are to replay:
    start again with it when it is not."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def batch(seeds: Iterable[int], wiring: str = "light") -> Batch:
    """Run these schedules in this process."""
    began, count, broken = time.process_time(), 0, []
    gc.collect()
    gc.disable()  # a schedule's garbage is collected with that of the others
    try:
        with standins.installed():
            wire(wiring)
            for seed in seeds:
                count += 1
                if violation := simulate(plan(seed), wiring=wiring).violation:
                    broken.append((seed, violation))
    finally:
        gc.enable()
    return Batch(count, time.process_time() - began, tuple(broken))


def many(first: int, count: int | None, workers: int, wiring: str = "light") -> Iterator[Batch]:
    """Run ``count`` schedules from that seed on, or without end, in so many processes."""
    chunks = _chunks(first, count)
    if workers == 1:
        for chunk in chunks:
            yield batch(chunk, wiring)
        return
    gc.collect()
    gc.freeze()
    with multiprocessing.get_context("fork").Pool(workers) as pool:
        rows = ((chunk, wiring) for chunk in chunks)
        # By hand, since Pool.imap reads all of an endless row at once.
        waiting = [pool.apply_async(batch, row) for row in _first(rows, 2 * workers)]
        while waiting:
            done = waiting.pop(0).get()
            waiting += [pool.apply_async(batch, row) for row in _first(rows, 1)]
            yield done


def _first(rows: Iterator[tuple[range, str]], count: int) -> list[tuple[range, str]]:
    return [row for _, row in zip(range(count), rows, strict=False)]


def _chunks(first: int, count: int | None) -> Iterator[range]:
    last = None if count is None else first + count
    while last is None or first < last:
        end = first + CHUNK if last is None else min(first + CHUNK, last)
        yield range(first, end)
        first = end


def story(seed: int, *, wiring: str = "light", whole: bool = False) -> tuple[str, Violation | None]:
    """What happens in a schedule, step by step; of one that breaks an invariant the shortest that
    was found, unless the ``whole`` is asked for."""
    with standins.installed():
        wire(wiring)
        made = plan(seed)
        violation = simulate(made, wiring=wiring).violation
        if violation and not whole:
            made = smallest(made, violation, wiring)
        outcome = simulate(made, wiring=wiring, tells=True)
    lines = [
        *outcome.story,
        f"{outcome.steps} steps, at rest {outcome.settled_after:.0f} s after the last fault",
    ]
    if outcome.violation:
        lines.append(f"seed {seed} breaks {outcome.violation}")
    return "\n".join(lines), outcome.violation


def smallest(made: Plan, violation: Violation, wiring: str) -> Plan:
    """The shortest schedule found that breaks the same invariant."""

    def breaks(candidate: Plan) -> bool:
        found = simulate(candidate, wiring=wiring).violation
        return found is not None and found.invariant == violation.invariant

    return shrink(made, breaks)
