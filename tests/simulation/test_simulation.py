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


def test_invariants_hold_in_twenty_thousand_schedules() -> None:
    assert "20000 schedules" in simulation("--count", "20000")


def test_invariants_hold_with_json_watches_and_reports() -> None:
    assert "500 schedules" in simulation("--count", "500", "--wiring", "full")


def test_invariants_hold_with_the_adapter_to_slurmrestd() -> None:
    assert "300 schedules" in simulation("--count", "300", "--wiring", "http")


@pytest.mark.parametrize("wiring", ["light", "full", "http"])
def test_a_seed_tells_the_same_story_each_time(wiring: str) -> None:
    for seed in range(20, 26):
        assert plan(seed) == plan(seed)
        first = story(seed, whole=True, wiring=wiring)
        assert story(seed, whole=True, wiring=wiring) == first
