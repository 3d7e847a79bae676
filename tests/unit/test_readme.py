"""The README says what is so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from extender.domain import wellknown as names
from extender.domain.decision import GangState

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


@pytest.mark.parametrize("name", sorted(names.REQUESTS | names.ANSWERS))
def test_every_annotation_is_there(name: str) -> None:
    assert f"`{name}`" in README


def test_no_annotation_is_there_that_does_not_exist() -> None:
    known = {v for k, v in vars(names).items() if k.isupper() and isinstance(v, str)}
    told = set(re.findall(r"sluice\.dev/[a-zA-Z-]+", README))
    assert told - known == set()


def test_every_link_leads_somewhere() -> None:
    links = re.findall(r"\]\(([^)#]+)\)", README)
    assert [link for link in links if "://" not in link and not (ROOT / link).exists()] == []


def test_every_make_target_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"make ([a-z-]+)(?:`|  )", README)) <= targets


def test_the_job_in_the_readme_is_one() -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)
    job = yaml.safe_load(text)
    assert job["kind"] == "Job"
    assert job["spec"]["parallelism"] == job["spec"]["completions"]


def test_states_that_are_named_exist() -> None:
    assert set(re.findall(r"state `(\w+)`", README)) <= {str(s) for s in GangState}


@pytest.mark.parametrize("page", ["README.md", "docs/endings.md", "docs/simulation.md"])
def test_tests_that_are_named_exist(page: str) -> None:
    told = set(re.findall(r"`(test_\w+)`", (ROOT / page).read_text()))
    code = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    assert told - set(re.findall(r"def (test_\w+)", code)) == set()
