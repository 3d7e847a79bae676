"""docs/endings.md says what is so, and names tests that are there."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from extender.domain import wellknown as names
from extender.domain.endings import disruption_of
from extender.domain.model import JobState

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "endings.md").read_text()
ENDS = [state for state in JobState if state.ended]


def test_every_test_that_is_named_exists() -> None:
    sources = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    there = set(re.findall(r"def (test_\w+)\(", sources))
    assert set(re.findall(r"`(test_\w+)`", PAGE)) - there == set()


def test_every_state_has_a_row_with_its_condition() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| `")]
    for state in ENDS:
        assert any(f"`{state}`" in r and f"`{disruption_of(state).condition}`" in r for r in rows)


def test_the_example_matches_conditions_that_exist() -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    rules = yaml.safe_load(text)["spec"]["podFailurePolicy"]["rules"]
    matched = {c["type"] for rule in rules for c in rule["onPodConditions"]}
    assert matched <= {disruption_of(s).condition for s in ENDS} | {names.DISRUPTION_TARGET}
