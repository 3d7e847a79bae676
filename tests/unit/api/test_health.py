"""Probes and metrics."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from extender.api.app import create_api
from extender.domain.views import PartStatus, moment
from tests.unit.api.fakes import Memory, api, ask, call, pod


@pytest.mark.parametrize(
    ("stall", "status", "text"),
    [("", 200, "ok\n"), ("the gang loop stands still", 503, "the gang loop stands still\n")],
)
def test_livez(stall: str, status: int, text: str) -> None:
    memory = Memory()
    memory.stall = stall
    response = call(api(memory), "GET", "/livez")
    assert (response.status_code, response.text) == (status, text)


def test_readyz_names_every_part_and_why() -> None:
    memory = Memory()
    memory.status = [
        PartStatus("kubernetes", True, since=moment(1_796_000_000)),
        PartStatus("slurm", False, "slurmrestd does not answer", moment(1_796_000_000.25)),
    ]
    response = call(api(memory), "GET", "/readyz")
    assert response.status_code == 503
    assert response.json() == {
        "ready": False,
        "parts": [
            {"name": "kubernetes", "ready": True, "why": "", "since": "2026-11-30T00:53:20Z"},
            {
                "name": "slurm",
                "ready": False,
                "why": "slurmrestd does not answer",
                "since": "2026-11-30T00:53:20.250000Z",
            },
        ],
    }
    memory.status = memory.status[:1]
    assert call(api(memory), "GET", "/readyz").status_code == 200


def test_metrics_count_verdicts_and_failures() -> None:
    app = api(Memory())

    def value(line: str) -> float:
        text = call(app, "GET", "/metrics").text
        return sum(float(found.split()[-1]) for found in text.splitlines() if line in found)

    passed, failed = 'verdicts_total{verdict="pass"}', 'failures_total{verb="filter"}'
    before = value(passed), value(failed)
    ask(app, "filter", {"Pod": pod(), "NodeNames": []})
    ask(app, "filter", b"{")
    assert (value(passed), value(failed)) == (before[0] + 1, before[1] + 1)
    assert value('sluice_extender_seconds_count{verb="filter"}') >= 2


def test_two_applications_may_share_a_registry() -> None:
    registry, memory = CollectorRegistry(), Memory()
    for _ in range(2):
        create_api(memory, memory, memory, registry, body_limit_bytes=1)
