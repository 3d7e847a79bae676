"""What was decided is carried out against a slurmrestd, also when the list of nodes is old."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from extender.control import metrics
from extender.control.actions import Actions
from extender.control.cluster import Cluster
from extender.control.jobs import JobTable
from extender.control.journal import Journal
from extender.control.nodes import NodeLoop
from extender.control.scheduling import Scheduling
from extender.domain import wellknown as names
from extender.domain.decision import End, Evict, Nodes, Release, Submit
from extender.domain.model import JobState, Namespace
from extender.domain.policy import Defaults
from extender.slurm import nodeconf
from extender.slurm.port import SlurmRefused
from extender.slurm.rest import RestSlurm
from extender.slurm.tokens import FixedToken
from tests.builders import gang, job, nodes, placed, pod, share
from tests.fakes.apiserver import FakeApiServer, serving
from tests.fakes.slurmrestd import FakeSlurmrestd
from tests.unit.slurm.contract import specs

GANG = gang(pod(0), pod(1))
SUBMIT = Submit(1, GANG.pods, 2)


class World:
    """Actions between a Kubernetes of nodes n0 and n1 and a Slurm that has them, too."""

    def __init__(self, kube: Any, api: FakeApiServer) -> None:
        self.api = api
        self.restd = FakeSlurmrestd()
        self.create("n0", "n1")
        self.slurm = RestSlurm(
            "http://slurmrestd",
            FixedToken(self.restd.token()),
            cluster="kubernetes",
            transport=self.restd.transport,
        )
        self.cluster = Cluster("sluice", lambda _: None)
        self.cluster.namespace_seen(Namespace("ml", {}, {names.USER: "alice"}))
        self.cluster.nodes.update(nodes("n0", "n1", cpu_milli=16000))
        self.jobs = JobTable(
            self.slurm,
            lambda _: None,
            lambda: None,
            fast_seconds=1,
            slow_seconds=1,
            resync_seconds=1,
        )
        self.nodes = NodeLoop(
            self.cluster,
            self.slurm,
            kube,
            lambda: None,
            manage=True,
            taint=False,
            feature="k8s",
            root="root",
            sockets=1,
            resync_seconds=1,
        )
        self.actions = Actions(
            self.cluster,
            self.jobs,
            self.nodes,
            Scheduling("sluice", self.cluster, self.jobs, kube, 1),
            Journal(lambda: 1.0),
            self.slurm,
            kube,
            cluster_name="kubernetes",
            defaults=Defaults(),
            patches=1,
        )

    def create(self, *names_: str) -> None:
        for line in nodeconf.lines(specs(*names_)):
            self.restd.slurmctld.create(line)

    def excluded(self) -> list[list[str]]:
        """What each submit left out."""
        asked = [body["job"] for body in self.restd.bodies if "job" in body]
        return [job.get("excluded_nodes", []) for job in asked]


@pytest.fixture
async def world() -> AsyncIterator[World]:
    api = FakeApiServer()
    async with serving(api) as kube:
        world = World(kube, api)
        await world.nodes.relist()
        yield world
        await world.slurm.close()


async def test_a_node_that_kubernetes_does_not_have_is_left_out(world: World) -> None:
    world.create("ghost")
    await world.nodes.relist()
    await world.actions.carry_out(GANG, [SUBMIT])
    assert world.excluded() == [["ghost"]]


async def test_a_node_that_left_slurm_does_not_stop_the_submit(world: World) -> None:
    """Slurm refuses a job that excludes a node which it does not have."""
    world.create("gone")
    await world.nodes.relist()
    del world.restd.slurmctld.nodes["gone"]
    await world.actions.carry_out(GANG, [SUBMIT])
    assert world.excluded() == [["gone"], []]
    assert len(world.restd.slurmctld.jobs) == 1


async def test_a_stranger_that_was_allocated_is_left_out_the_next_time(world: World) -> None:
    """It joined Slurm after the list was read; asking again would only get it again."""
    world.create("ghost")
    await world.actions.carry_out(GANG, [SUBMIT])
    (live,) = world.jobs.live()
    lost = job(JobState.RUNNING, share("n0"), share("ghost"), id=live.id, stamp=live.stamp)
    await world.actions.carry_out(
        GANG,
        [
            End(lost, 0, "ghost is unknown"),
        ],
    )
    await world.actions.carry_out(GANG, [Submit(2, GANG.pods, 2)])
    assert world.excluded() == [[], ["ghost"]]


async def test_a_stamp_that_is_refused_does_not_keep_the_nodes(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A site's job_submit plugin may forbid changes, and its limits may be narrower."""
    await world.actions.carry_out(GANG, [SUBMIT])
    (live,) = world.jobs.live()

    async def refused(*_: Any) -> None:
        raise SlurmRefused("admin_comment is too long")

    monkeypatch.setattr(world.slurm, "mark", refused)
    await world.actions.carry_out(GANG, [End(live, 0, "its pods are gone")])
    assert world.jobs.live() == []


async def test_other_refusals_are_not_repeated(world: World) -> None:
    world.cluster.namespace_seen(Namespace("ml", {}, {names.USER: "alice", names.ACCOUNT: "no"}))
    with pytest.raises(ExceptionGroup) as failed:
        await world.actions.carry_out(GANG, [SUBMIT])
    assert failed.group_contains(SlurmRefused, match="account 'no' does not exist in Slurm")
    assert len(world.excluded()) == 1


async def test_how_long_a_gang_waited_is_counted_once(world: World) -> None:
    def counted() -> float:
        return metrics.registry.get_sample_value("sluice_gang_wait_seconds_count") or 0.0

    before = counted()
    there = Nodes(("n0", "n1"), "n[0-1]")
    first, second = (Release(p, 7, "n0", i, 2, there) for i, p in enumerate(GANG.pods))
    await world.actions.carry_out(GANG, [first, second])
    assert counted() == before + 1
    await world.actions.carry_out(gang(placed(0, "n0"), pod(1)), [second])
    assert counted() == before + 1


async def test_a_pod_is_told_why_before_it_is_deleted(world: World) -> None:
    """As Kubernetes' own disruptions do, so that a Job need not count it as failed."""
    for doomed in GANG.pods:
        world.api.add(doomed.namespace, doomed.name, doomed.uid)
    why = "Slurm job 7 is PREEMPTED"
    preempted = [Evict(doomed, why, JobState.PREEMPTED) for doomed in GANG.pods]
    await world.actions.carry_out(GANG, preempted)
    for body in world.api.bodies[:2]:
        told = {c["type"]: (c["status"], c["reason"]) for c in body["status"]["conditions"]}
        assert told == dict.fromkeys(
            (names.DISRUPTION_TARGET, names.PREEMPTED), ("True", "SlurmPreempted")
        )
        assert {c["message"] for c in body["status"]["conditions"]} == {why}


async def test_all_pods_are_told_before_the_first_is_deleted(world: World) -> None:
    """The others may fail as soon as one is gone, and are not to be counted as failed."""
    for doomed in GANG.pods:
        world.api.add(doomed.namespace, doomed.name, doomed.uid)
    evictions = [Evict(p, "Slurm job 7 is TIMEOUT", JobState.TIMEOUT) for p in GANG.pods]
    await world.actions.carry_out(GANG, evictions)
    verbs = [call.split()[0] for call in world.api.calls]
    assert verbs == ["PATCH", "PATCH", "DELETE", "DELETE"]


async def test_no_pod_is_deleted_while_another_could_not_be_told(world: World) -> None:
    world.api.add("ml", "train-0", "train-0-uid")
    world.api.lose_answers = True
    evictions = [Evict(p, "Slurm job 7 is TIMEOUT", JobState.TIMEOUT) for p in GANG.pods]
    with pytest.raises(ExceptionGroup, match="actions failed"):
        await world.actions.carry_out(GANG, evictions)
    assert world.api.pods.keys() == {("ml", "train-0")}
    world.api.lose_answers = False
    await world.actions.carry_out(GANG, evictions)
    assert not world.api.pods


async def test_a_pod_that_is_gone_needs_no_eviction(world: World) -> None:
    gone = [Evict(p, "Slurm job 7 is TIMEOUT", JobState.TIMEOUT) for p in GANG.pods]
    await world.actions.carry_out(GANG, gone)
