"""The invariants hold in every schedule of a fixed row of seeds; and the simulation itself is fit
to say so. docs/simulation.md"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.simulation.plan import plan
from tests.simulation.run import story


def simulation(*arguments: str) -> str:
    """The output of ``python -m tests.simulation`` with these arguments, which must succeed."""
    command = [sys.executable, "-m", "tests.simulation", *arguments]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_invariants_hold_in_twenty_thousand_schedules(
    record_property: pytest.RecordProperty,  # type: ignore[name-defined]
) -> None:
    told = simulation("--count", "20000")
    record_property("told", told)
    assert "20000 schedules" in told


@pytest.mark.parametrize("seed", range(20, 30))
def test_a_seed_tells_the_same_story_each_time(seed: int) -> None:
    assert story(seed, whole=True) == story(seed, whole=True)
    assert plan(seed) == plan(seed)
