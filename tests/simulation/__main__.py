"""python -m tests.simulation: run many schedules, or tell the story of one. docs/simulation.md"""

from __future__ import annotations

import argparse
import secrets
import sys
import time

from tests.simulation.run import check_hash_seed, many, story

TOLD = 3
"""Of so many seeds that break something the story is told."""
ENOUGH = 20
"""After so many it stops."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="tell the story of this schedule")
    parser.add_argument("--whole", action="store_true", help="do not shorten its story")
    parser.add_argument("--count", type=int, default=1000, help="how many schedules to run")
    parser.add_argument("--base", type=int, default=0, help="the first seed")
    parser.add_argument("--soak", action="store_true", help="new seeds until stopped")
    parser.add_argument("--workers", type=int, default=2, help="processes")
    parser.add_argument("--wiring", choices=("light", "full", "http"), default="light")
    asked = parser.parse_args()
    if asked.seed is not None:
        told, violation = story(asked.seed, wiring=asked.wiring, whole=asked.whole)
        print(told)
        return 1 if violation else 0
    first = secrets.randbelow(1 << 40) if asked.soak else asked.base
    return _run(first, None if asked.soak else asked.count, asked.workers, asked.wiring)


def _run(first: int, count: int | None, workers: int, wiring: str) -> int:
    began = said = time.monotonic()
    done, cpu, broken = 0, 0.0, 0
    try:
        for row in many(first, count, workers, wiring):
            done += row.count
            cpu += row.cpu_seconds
            for seed, violation in row.broken:
                broken += 1
                print(f"seed {seed} breaks {violation}", flush=True)
                if broken <= TOLD:
                    print(story(seed, wiring=wiring)[0], flush=True)
            if broken >= ENOUGH:
                break
            if count is None and time.monotonic() - said > 10:
                said = time.monotonic()
                print(_summary(done, said - began, cpu, broken, first), flush=True)
    except KeyboardInterrupt:
        pass
    print(_summary(done, time.monotonic() - began, cpu, broken, first))
    return 1 if broken else 0


def _summary(done: int, seconds: float, cpu: float, broken: int, first: int) -> str:
    return (
        f"{done} schedules from seed {first} in {seconds:.1f} s "
        f"({done / max(seconds, 0.001):.0f} a second, {1000 * cpu / max(done, 1):.1f} ms of CPU "
        f"each): {broken} broke an invariant"
    )


if __name__ == "__main__":
    check_hash_seed()
    sys.exit(main())
