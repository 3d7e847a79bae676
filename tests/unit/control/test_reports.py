"""Events: each thing is said once, however often it comes back."""

from __future__ import annotations

from typing import Any, cast

import pytest

from extender.control.cluster import Cluster
from extender.control.journal import Journal
from extender.control.reports import Reports
from extender.domain.decision import Decision, GangState
from extender.domain.grace import Limits
from extender.domain.model import Gang, JobState, Pod
from tests.builders import gang, job, pod

BEHIND = Decision(GangState.INVALID, "It waits behind others.")
NEXT = Decision(GangState.INVALID, "It is next in line.")


@pytest.fixture
def reports() -> Reports:
    cluster = Cluster("sluice", lambda _: None)
    return Reports(
        cluster,
        Journal(lambda: 1.0),
        cast(Any, None),
        event_interval_seconds=60,
        limits=lambda: Limits(kill_wait=30),
    )


def test_reasons_that_take_turns_are_said_once_each(reports: Reports) -> None:
    for _ in range(100):
        reports.decided(gang(pod(0)), BEHIND)
        reports.decided(gang(pod(0)), NEXT)
    assert reports._events.qsize() == 4  # of the Job and of a pod


def test_nothing_is_kept_of_a_gang_that_is_forgotten(reports: Reports) -> None:
    reports.decided(gang(pod(0)), BEHIND)
    reports.forget("train-uid")
    assert reports._said == {}


def queue(*pods: Pod) -> tuple[Gang, Decision]:
    """A gang in Slurm's queue."""
    return gang(*pods), Decision(GangState.QUEUED, "It waits.", job=job(JobState.PENDING))


async def test_of_pods_that_take_too_long_to_end_one_warning_is_written(reports: Reports) -> None:
    for _ in range(3):
        reports.decided(*queue(pod(0), pod(1, grace_seconds=120)))
    bodies = [reports._events.get_nowait() for _ in range(reports._events.qsize())]
    assert [(b["type"], b["reason"], b["involvedObject"]["kind"]) for b in bodies] == [
        ("Warning", "GraceTooLong", "Job"),
        ("Warning", "GraceTooLong", "Pod"),
    ]
    assert "take 120 s to end" in bodies[0]["message"]
    reports.forget("train-uid")
    assert reports._warned == {}


async def test_nothing_is_written_of_pods_that_end_in_time(reports: Reports) -> None:
    reports.decided(*queue(pod(0, grace_seconds=30)))
    assert reports._events.empty()
