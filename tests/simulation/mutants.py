"""Shows that the simulation can fail: faults put into the code on purpose, each of which is to break
an invariant. ``python -m tests.simulation.mutants`` (make mutants).

Each is put into a copy of ``extender``, where schedules run until one breaks something.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from msgspec import Struct

ROOT = Path(__file__).resolve().parents[2]
MOST_SCHEDULES = 3000


class Mutant(Struct, frozen=True):
    """``old`` stands once in ``file``; with ``new`` in its place one of ``breaks`` is broken.

    ``seeds`` are tried first: schedules that have caught it before. They spare time and nothing
    else, for a mutant that they no longer catch is looked for in others.
    """

    name: str
    file: str
    old: str
    new: str
    breaks: tuple[str, ...]
    seeds: tuple[int, ...] = ()
    wiring: str = "light"


class Caught(Struct, frozen=True):
    mutant: Mutant
    invariant: str  # "" when it survived
    seed: int
    schedules: int
    seconds: float

    @property
    def well(self) -> bool:
        """By an invariant that was expected."""
        return self.invariant in self.mutant.breaks


def hunt(mutant: Mutant, most: int = MOST_SCHEDULES) -> Caught:
    """Run schedules on the mutated code until one breaks an invariant."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        copy = Path(folder)
        for part in ("extender", "tests/simulation", "tests/fakes"):
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / part, copy / part, ignore=ignored)
        shutil.copy(ROOT / "tests/__init__.py", copy / "tests")
        mutate(copy / mutant.file, mutant)
        command = [sys.executable, "-m", "tests.simulation.hunt", mutant.wiring, str(most)]
        done = subprocess.run(
            [*command, *map(str, mutant.seeds)],
            cwd=copy,
            env={**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": str(copy)},
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        raise RuntimeError(f"mutant {mutant.name!r} could not be run:\n{done.stderr}")
    told = json.loads(done.stdout.splitlines()[-1])
    seconds = time.monotonic() - began
    return Caught(mutant, told["invariant"], told["seed"], told["schedules"], seconds)


def mutate(path: Path, mutant: Mutant) -> None:
    text = path.read_text()
    if text.count(mutant.old) != 1:
        raise ValueError(
            f"mutant {mutant.name!r}: its text stands {text.count(mutant.old)} times in "
            f"{mutant.file}, which has changed: write the mutant anew"
        )
    path.write_text(text.replace(mutant.old, mutant.new))


def main(arguments: Sequence[str] | None = None) -> int:
    from tests.simulation.mutations import MUTANTS

    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("names", nargs="*", help="of mutants; all when left out")
    parser.add_argument("--most", type=int, default=MOST_SCHEDULES, help="schedules for each")
    parser.add_argument("--workers", type=int, default=2)
    asked = parser.parse_args(arguments)
    chosen = [m for m in MUTANTS if not asked.names or m.name in asked.names]
    print(f"{'mutant':<46} {'caught by':<20} {'seed':>7} {'schedules':>9} {'seconds':>7}")
    survived = 0
    with ThreadPoolExecutor(asked.workers) as pool:
        for caught in pool.map(lambda mutant: hunt(mutant, asked.most), chosen):
            survived += not caught.well
            print(_line(caught), flush=True)
    print(f"{len(chosen) - survived} of {len(chosen)} mutants were caught")
    return 1 if survived else 0


def _line(caught: Caught) -> str:
    by = caught.invariant or "SURVIVED"
    if caught.invariant and not caught.well:
        by = f"NOT EXPECTED: {by}"
    return (
        f"{caught.mutant.name:<46} {by:<20} {caught.seed:>7} {caught.schedules:>9} "
        f"{caught.seconds:>7.1f}"
    )


if __name__ == "__main__":
    sys.exit(main())
