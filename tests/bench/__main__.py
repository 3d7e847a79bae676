"""The benchmark: python -m tests.bench [--runs 5] [--sizes 4,16,64,256] [--only NAME …] [--quick]

Measures on the real stack with 1,000 nodes, prints a table and writes build/bench.json. Every number
in both was measured in this run. Nothing is judged: slow is not an error.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.bench import filter_load, gangs, report, singles, slurm_alone, waiting, writes
from tests.bench.arena import FABRIC, Arena, load
from tests.bench.budget import Budget
from tests.harness.errors import HarnessError
from tests.harness.progress import say

RESULT = Path(__file__).parents[2] / "build" / "bench.json"
PARTS = ("writes", "slurm", "gangs", "singles", "waiting", "filter", "crowd")
# For the runs of a part; the others take as long as they take. 15 minutes hold everything.
SECONDS = {"writes": 45.0, "slurm": 30.0, "gangs": 300.0, "singles": 120.0}


def main() -> int:
    given = arguments()
    started = time.monotonic()
    results: dict[str, Any] = {"machine": machine(), "runs": given.runs}
    with Arena.open(given.patience) as arena:
        arena.learn_idle()
        results["idle_cores"] = {n: round(v, 3) for n, v in arena.idle.items()}
        for name, part in parts(arena, given).items():
            if name != "writes" and not arena.stack.sluice.alive:
                arena.start_sluice()
            say(f"--- {name}, {time.monotonic() - started:.0f} s after the start")
            results[name] = part()
            save(results)
    results["seconds"] = round(time.monotonic() - started)
    save(results)
    print(report.text(results))
    say(f"{RESULT} was written; it took {results['seconds']} s")
    return 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="of each measurement (default: 5)")
    parser.add_argument("--sizes", type=sizes, default=[4, 16, 64, 256], help="of gangs, in pods")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS[:-1], metavar="NAME",
                        help=f"measure only some of: {', '.join(PARTS)} (all but the last)")  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="two runs, and less waiting")
    parser.add_argument("--patience", type=float, default=10.0, metavar="SECONDS",
                        help="how long to wait before each run for the machine to be quiet (10)")  # fmt: skip
    given = parser.parse_args()
    if given.quick:
        given.runs = min(given.runs, 2)
    return given


def sizes(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def parts(arena: Arena, given: argparse.Namespace) -> dict[str, Callable[[], Any]]:
    """The measurements asked for, by name, in the order in which they have to be made."""
    runs, sizes = given.runs, given.sizes
    seconds = 30.0 if given.quick else 60.0
    every: dict[str, Callable[[], Any]] = {
        "writes": lambda: writes.measure(arena, 256, runs, Budget(SECONDS["writes"])),
        "slurm": lambda: slurm_alone.measure(arena, sizes, 500, runs, Budget(SECONDS["slurm"])),
        "gangs": lambda: gangs.measure(arena, sizes, runs, Budget(SECONDS["gangs"])),
        "singles": lambda: singles.measure(arena, 500, runs, Budget(SECONDS["singles"])),
        "waiting": lambda: waiting.measure(arena, pods=2000, gang=16, seconds=seconds),
        "crowd": lambda: waiting.measure(arena, 10_000, gang=16, seconds=seconds, running=2000),
        "filter": lambda: filter_load.measure(arena, nodes=5000, pods=10_000),
    }
    return {name: every[name] for name in PARTS if name in given.only}


def machine() -> dict[str, Any]:
    """Where and when this was measured."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.partition(":")[2].strip() for line in lines if "model name" in line), "")
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "cpus": os.cpu_count(),
        "cpu_model": model,
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "nodes": FABRIC.count,
        "nodes_a_leaf": FABRIC.nodes_per_leaf,
        "leaves_a_spine": FABRIC.leaves_per_spine,
        "load_before": load(),
    }


def save(results: dict[str, Any]) -> None:
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except HarnessError as problem:
        sys.exit(f"error: {problem}")
    except KeyboardInterrupt:
        sys.exit(130)
