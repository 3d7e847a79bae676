"""Runs schedules until one breaks an invariant; says which in JSON. For mutants.py."""

from __future__ import annotations

import gc
import json
import sys
from itertools import chain

from tests.simulation import standins
from tests.simulation.plan import plan
from tests.simulation.replica import wire
from tests.simulation.world import simulate


def hunt(wiring: str, most: int, seeds: list[int]) -> dict[str, object]:
    """The first schedule that breaks something: ``seeds``, then 0, 1, 2, …"""
    gc.disable()
    count = seed = 0
    with standins.installed():
        wire(wiring)
        for count, seed in enumerate(chain(seeds, range(most)), start=1):
            if violation := simulate(plan(seed), wiring=wiring).violation:
                return {"invariant": violation.invariant, "seed": seed, "schedules": count}
            if count % 100 == 0:
                gc.collect()
    return {"invariant": "", "seed": seed, "schedules": count}


if __name__ == "__main__":
    print(json.dumps(hunt(sys.argv[1], int(sys.argv[2]), [int(seed) for seed in sys.argv[3:]])))
