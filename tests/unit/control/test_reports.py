"""Events: each thing is said once, however often it comes back."""

from __future__ import annotations

from typing import Any, cast

import pytest

from extender.control.cluster import Cluster
from extender.control.journal import Journal
from extender.control.reports import Reports
from extender.domain.decision import Decision, GangState
from tests.builders import gang, pod

BEHIND = Decision(GangState.INVALID, "It waits behind others.")
NEXT = Decision(GangState.INVALID, "It is next in line.")


@pytest.fixture
def reports() -> Reports:
    cluster = Cluster("sluice", lambda _: None)
    return Reports(cluster, Journal(lambda: 1.0), cast(Any, None), event_interval_seconds=60)


def test_reasons_that_take_turns_are_said_once_each(reports: Reports) -> None:
    for _ in range(100):
        reports.decided(gang(pod(0)), BEHIND)
        reports.decided(gang(pod(0)), NEXT)
    assert reports._events.qsize() == 4  # of the Job and of a pod


def test_nothing_is_kept_of_a_gang_that_is_forgotten(reports: Reports) -> None:
    reports.decided(gang(pod(0)), BEHIND)
    reports.forget("train-uid")
    assert reports._said == {}
