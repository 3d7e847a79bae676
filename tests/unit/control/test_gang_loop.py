"""What fails is tried again, with patience, and does not pass for a refusal."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest

from extender.control import gangs
from extender.control.actions import Actions
from extender.control.cluster import Cluster
from extender.control.gangs import GangLoop
from extender.control.jobs import JobTable
from extender.control.journal import Journal
from extender.control.lease import Alone, Leadership
from extender.control.reports import Reports
from extender.domain.decision import Action, GangState
from extender.domain.grace import Limits
from extender.domain.model import Gang, Job, JobState, Namespace
from extender.kube.client import KubeError
from extender.slurm.port import Slurm, SlurmRefused
from tests.builders import job, pod, share, stamp, workload


class Failing:
    """Actions that all fail in one way, and say how often they were asked for."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.asked = 0

    async def carry_out(self, _gang: Gang, _actions: Sequence[Action]) -> None:
        self.asked += 1
        raise ExceptionGroup("actions failed", [self.error])


class StandsBy:
    def __init__(self) -> None:
        self.held, self.status = False, "stands by"


def world(
    error: Exception, *known: Job, lease: Leadership | None = None
) -> tuple[GangLoop, Journal, Failing]:
    loop = GangLoop(settle_seconds=0)
    cluster = Cluster("sluice", loop.touch)
    cluster.namespace_seen(Namespace("ml"))
    cluster.workload_seen(workload(2))
    for i in range(2):
        cluster.pod_seen(pod(i))
    jobs = JobTable(
        cast(Slurm, None),
        loop.touch,
        loop.touch_all,
        fast_seconds=1,
        slow_seconds=1,
        resync_seconds=1,
    )
    jobs._doubts = 0
    for one in known:
        jobs.put(one)
    journal, actions = Journal(lambda: 1.0), Failing(error)
    reports = Reports(
        cluster,
        journal,
        cast(Any, None),
        event_interval_seconds=60,
        limits=lambda: Limits(kill_wait=30),
    )
    loop.wire(
        cluster, jobs, journal, cast(Actions, actions), reports, lambda: True, lease or Alone()
    )
    return loop, journal, actions


async def running_for(loop: GangLoop, seconds: float) -> None:
    run = asyncio.create_task(loop.run())
    await asyncio.sleep(seconds)
    run.cancel()


async def test_a_gang_that_fails_for_ever_is_not_tried_ever_more_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gangs, "_SWEEP_SECONDS", 0.005)
    monkeypatch.setattr(gangs, "_RETRY_SECONDS", 0.1)
    monkeypatch.setattr(gangs, "_RETRY_MOST_SECONDS", 0.1)
    loop, _, actions = world(KubeError(422, "Invalid", "no"))
    await running_for(loop, 1.0)
    assert 2 <= actions.asked <= 20


async def test_a_refused_mark_is_no_refusal_of_the_gang() -> None:
    """The job ended just before its start was to be confirmed."""
    live = job(JobState.RUNNING, share("n0"), share("n1"), stamp=stamp(2))
    loop, journal, actions = world(SlurmRefused("job 7 has ended"), live)
    await running_for(loop, 0.1)
    assert actions.asked == 1
    last = journal.last("train-uid")
    assert last is not None
    assert last.state is not GangState.INVALID
    assert loop._refused == {}


async def test_a_refused_submit_is_told() -> None:
    loop, journal, _ = world(SlurmRefused("no such account"))
    await running_for(loop, 0.1)
    last = journal.last("train-uid")
    assert last is not None
    assert (last.state, last.reason) == (GangState.INVALID, "no such account")


async def test_nothing_is_written_by_what_was_known_before_it_led() -> None:
    """What the leader before it wrote into the stamps, as why it ended a job, shows in a list."""
    live = job(JobState.RUNNING, share("n0"), share("n1"), stamp=stamp(2))
    loop, _, actions = world(KubeError(422, "Invalid", "no"), live)
    loop.begin()
    await running_for(loop, 0.1)
    assert actions.asked == 0
    loop._jobs._doubts = 0
    loop.touch_all()
    await running_for(loop, 0.1)
    assert actions.asked == 1


async def test_who_begins_to_lead_tells_of_gangs_that_wait_already() -> None:
    """The one before it may have been killed before it had told why they wait."""
    lease = StandsBy()
    loop, _, _ = world(KubeError(422, "Invalid", "no"), job(stamp=stamp(2)), lease=lease)
    await running_for(loop, 0.05)
    assert loop._reports._patience == {}
    lease.held = True
    loop.begin()
    assert list(loop._reports._patience) == ["train-uid"]


async def test_who_stands_by_keeps_nothing_of_gangs_that_are_gone() -> None:
    over = job(JobState.CANCELLED, stamp=stamp(2))
    loop, journal, _ = world(KubeError(422, "Invalid", "no"), over, lease=StandsBy())
    loop.touch("train-uid")
    await running_for(loop, 0.05)
    assert journal.last("train-uid")
    for i in range(2):
        loop._cluster.pod_gone(pod(i))
    loop._cluster.workload_gone(workload(2))
    await running_for(loop, 0.05)
    assert loop._jobs.gang_ids() == []
    assert (journal._last, journal._steps) == ({}, {})


async def test_gangs_that_failed_together_are_tried_again_apart() -> None:
    """After a second, then two, four … each give or take a third."""
    loop, now = GangLoop(settle_seconds=0), asyncio.get_running_loop().time()
    for pause in (1.0, 2.0, 4.0):
        for gang_id in map(str, range(30)):
            loop._retry(gang_id)
        due = sorted(timer.when() - now for timer in loop._timers.values())
        assert 0.6 * pause < due[0] < 0.9 * pause
        assert 1.1 * pause < due[-1] < 1.4 * pause + 0.5
    for gang_id in map(str, range(30)):
        loop._cancel_timer(gang_id)
