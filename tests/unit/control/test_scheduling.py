"""What kube-scheduler is told, and bindings: idempotent, and never against Slurm."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from extender.control.cluster import Cluster
from extender.control.jobs import JobTable
from extender.control.scheduling import Scheduling
from extender.domain import wellknown as names
from extender.domain.model import Job, JobState, Namespace, Pod
from extender.domain.views import Verdict, VerdictKind
from tests.builders import job, placed, pod, share, stamp, workload
from tests.fakes.apiserver import FakeApiServer, serving

RUNNING = job(JobState.RUNNING, share("n0"), share("n1"), size=2)


class World:
    """Scheduling with the memory that it reads, and an API server that it writes to."""

    def __init__(self, kube: Any, api: FakeApiServer) -> None:
        self.api = api
        self.cluster = Cluster("sluice", lambda _: None)
        self.jobs = JobTable(
            None,  # type: ignore[arg-type]  # nothing here asks Slurm
            lambda _: None,
            lambda: None,
            fast_seconds=1,
            slow_seconds=1,
            resync_seconds=1,
        )
        self.scheduling = Scheduling("sluice", self.cluster, self.jobs, kube, binds=4)
        self.cluster.namespace_seen(Namespace("ml", {names.MANAGED: "true"}))
        self.cluster.workload_seen(workload(2))

    def see(self, *pods: Pod) -> None:
        for p in pods:
            self.cluster.pod_seen(p)
            self.api.add(p.namespace, p.name, p.uid)

    def verdict(self, p: Pod, scheduler: str = "sluice") -> Verdict:
        return self.scheduling.verdict(p.namespace, p.name, p.uid, scheduler)

    async def bind(self, p: Pod, node: str) -> str:
        return await self.scheduling.bind(p.namespace, p.name, p.uid, node)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    api = FakeApiServer()
    async with serving(api) as kube:
        yield World(kube, api)


async def test_pods_of_other_schedulers_pass(world: World) -> None:
    assert world.verdict(pod(0), "default-scheduler").kind is VerdictKind.PASS


async def test_a_waiting_pod_waits_with_a_constant_message(world: World) -> None:
    world.see(pod(0), pod(1))
    assert world.verdict(pod(0)).kind is VerdictKind.WAIT
    assert world.verdict(pod(0)).message == world.verdict(pod(1)).message


async def test_a_pod_that_did_not_opt_in_is_told_what_to_do(world: World) -> None:
    world.see(pod(0, namespace="other", gates=()))
    verdict = world.verdict(pod(0, namespace="other", gates=()))
    assert verdict.kind is VerdictKind.WAIT
    assert "sluice.dev/managed=true" in verdict.message


async def test_a_pod_not_seen_yet_waits(world: World) -> None:
    assert world.verdict(pod(0)).kind is VerdictKind.WAIT


async def test_a_placed_pod_gets_its_node(world: World) -> None:
    world.jobs.put(RUNNING)
    world.see(placed(0, "n0"))
    assert world.verdict(placed(0, "n0")) == Verdict(VerdictKind.NODE, "n0")


async def test_a_released_pod_gets_its_node_before_the_watch_tells(world: World) -> None:
    world.jobs.put(RUNNING)
    world.see(pod(0))
    world.scheduling.expect(pod(0), "n0", 7)
    assert world.verdict(pod(0)) == Verdict(VerdictKind.NODE, "n0")


LIES = [
    ("a job that does not exist", placed(0, "n0", job_id=99), RUNNING),
    ("a node of another job", placed(0, "n5"), RUNNING),
    ("another gang's job", placed(0, "n0"), job(JobState.RUNNING, share("n0"), stamp=stamp(id="theirs"))),
    ("a gang of another namespace", placed(0, "n0", namespace="other"), RUNNING),
    ("a job that has ended", placed(0, "n0"), job(JobState.CANCELLED, share("n0"))),
    ("a job that waits", placed(0, "n0"), job(JobState.PENDING)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("pretender", "held"), [(p, j) for _, p, j in LIES], ids=[n for n, _, _ in LIES]
)
async def test_annotations_are_believed_only_as_far_as_slurm_agrees(
    world: World, pretender: Pod, held: Job
) -> None:
    world.jobs.put(held)
    world.see(pretender)
    assert world.verdict(pretender).kind in (VerdictKind.WAIT, VerdictKind.RETRY)
    assert "holds no node" in await world.bind(pretender, pretender.annotations[names.NODE])
    assert world.api.calls == []


async def test_bind_twice_is_one_binding(world: World) -> None:
    world.jobs.put(RUNNING)
    world.see(placed(0, "n0"))
    assert [await world.bind(placed(0, "n0"), "n0") for _ in range(2)] == ["", ""]
    assert world.api.pods["ml", "train-0"]["spec"]["nodeName"] == "n0"


async def test_a_binding_whose_answer_was_lost_is_found(world: World) -> None:
    world.api.lose_answers = True
    world.jobs.put(RUNNING)
    world.see(placed(0, "n0"))
    assert await world.bind(placed(0, "n0"), "n0") == ""


async def test_many_binds_at_once(world: World) -> None:
    world.jobs.put(RUNNING)
    world.see(*(placed(i, f"n{i}") for i in range(2)))
    binds = [world.bind(placed(i % 2, f"n{i % 2}"), f"n{i % 2}") for i in range(8)]
    assert await asyncio.gather(*binds) == [""] * 8


async def test_another_node_is_refused_by_name(world: World) -> None:
    world.jobs.put(RUNNING)
    world.see(placed(0, "n0"))
    assert "on node n0, not on n1 (job 7)" in await world.bind(placed(0, "n0"), "n1")


async def test_another_pod_of_the_same_name_is_refused(world: World) -> None:
    world.api.add("ml", "train-0", "new-uid")
    assert "does not exist any more" in await world.bind(pod(0), "n0")


async def test_a_pod_that_is_going_is_not_bound(world: World) -> None:
    world.jobs.put(RUNNING)
    going = msgspec.structs.replace(placed(0, "n0"), deleting=True)
    world.see(going)
    assert "is being deleted" in await world.bind(going, "n0")


async def test_pods_of_other_profiles_of_the_same_process_are_bound(world: World) -> None:
    world.api.add("web", "nginx", "u", scheduler="default-scheduler")
    assert await world.scheduling.bind("web", "nginx", "u", "n7") == ""
    assert world.api.pods["web", "nginx"]["spec"]["nodeName"] == "n7"


async def test_a_bind_to_nowhere_says_why(world: World) -> None:
    world.jobs.put(RUNNING)
    world.cluster.pod_seen(placed(0, "n0"))
    assert "pods train-0 not found" in await world.bind(placed(0, "n0"), "n0")


async def test_no_pod_is_bound_before_its_answers_are_written(world: World) -> None:
    """A pod without a gate: bound without answers, nobody would know it for Slurm's."""
    ungated = pod(0, gates=())
    world.see(ungated)
    world.jobs.put(RUNNING)
    world.scheduling.expect(ungated, "n0", 7)
    assert world.verdict(ungated).node == "n0"
    assert "not written yet" in await world.bind(ungated, "n0")
    world.see(placed(0, "n0"))
    assert await world.bind(ungated, "n0") == ""


@pytest.mark.parametrize("known", [None, job(JobState.PENDING, size=2)])
def test_a_released_pod_whose_job_is_not_known_to_run_is_asked_for_again(
    world: World, known: Job | None
) -> None:
    """Nothing about the pod will change that could wake kube-scheduler up."""
    world.see(placed(0, "n0"))
    if known:
        world.jobs.put(known)
    assert world.verdict(placed(0, "n0")).kind is VerdictKind.RETRY
