"""Parts of Kubernetes die, and people delete what is in use."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import httpx
import pytest

from tests.e2e.faults import HELD
from tests.e2e.jobs import gang, indexed_job, pod
from tests.e2e.site import (
    ML,
    PLAIN,
    Site,
    answers,
    eventually,
    node_of,
    nodes_of,
    state,
    uids,
)
from tests.harness import faulty
from tests.harness.kube import KubeError, Object

pytestmark = pytest.mark.e2e


def releases(site: Site, name: str) -> None:
    """Slurm may start the held job of that name."""
    site.slurm.exec("scontrol", "release", str(site.job(name, "PENDING")["job_id"]))


def in_rank_order(site: Site, name: str, pods: list[Object]) -> None:
    """They are where the one running Slurm job of that name wants them."""
    (job,) = (job for job in site.jobs(name) if state(job) in ("PENDING", "RUNNING"))
    assert [node_of(p) for p in pods] == [n for n in site.order if n in nodes_of(job)]
    assert {answers(p)["job-id"] for p in pods} == {str(job["job_id"])}


# -- the parts


@pytest.mark.parametrize("part", ["kube-apiserver", "etcd"])
@pytest.mark.usefixtures("bystanders")
def test_the_control_plane_is_killed(site: Site, part: str) -> None:
    """While nobody can be told, Slurm starts one gang and cancels another."""
    site.submit(ML, *gang("victim", 2), indexed_job("woken", 4, annotations=HELD))
    victims = uids(site.bound(2, prefix="victim"))
    site.gated(4, prefix="woken")
    job_id = site.job("victim", "RUNNING")["job_id"]
    site.job("woken", "PENDING")
    child = site.stack.control.children[part]
    child.kill()
    try:
        site.cancel(job_id)
        releases(site, "woken")
        site.job("woken", "RUNNING")
    finally:
        child.launch()
        eventually(lambda: answering(site), bool, 30, "the API server to answer")
    in_rank_order(site, "woken", site.bound(4, prefix="woken", seconds=40))
    site.gone(victims, seconds=20)
    site.submit(ML, indexed_job("next", 2))
    site.bound(2, prefix="next")
    assert site.states("woken") == ["RUNNING"]


def answering(site: Site) -> bool:
    try:
        site.kube.pods(ML)
    except (httpx.HTTPError, KubeError):
        return False
    return True


@pytest.mark.usefixtures("bystanders")
def test_kube_scheduler_is_killed_between_filter_and_bind(site: Site) -> None:
    """It asked for a node, was told, asked for the binding, and was gone when that was done."""
    sluice, scheduler = site.stack.sluice, site.stack.control.children["sluice-scheduler"]
    sluice.stop()
    sluice.start(site.settings, {faulty.VARIABLE: "bind stop 2"}, program=faulty.PROGRAM)
    try:
        site.submit(ML, indexed_job("train", 4))
        eventually(
            lambda: stat.state if (stat := sluice.child.stat()) else "gone",
            "T".__eq__,
            20,
            "Sluice to stop before the second binding",
        )
        scheduler.kill()
        os.kill(sluice.child.pid, signal.SIGCONT)
        scheduler.launch()
        in_rank_order(site, "train", site.bound(4, prefix="train"))
    finally:
        sluice.kill()
        sluice.start(site.settings)
    assert site.states("train") == ["RUNNING"]


@contextmanager
def killed(site: Site) -> Iterator[None]:
    site.stack.sluice.kill()
    try:
        yield
    finally:
        site.stack.sluice.start(site.settings)


AWAY: dict[str, Callable[[Site], AbstractContextManager[None]]] = {
    "hung": lambda site: site.paused(),
    "killed": killed,
}


@pytest.mark.parametrize("how", AWAY)
@pytest.mark.usefixtures("bystanders")
def test_pods_that_did_not_opt_in_need_no_extender(site: Site, how: str) -> None:
    """They are scheduled while it does not answer; ours wait, and start when it is back."""
    with AWAY[how](site):
        site.submit(PLAIN, pod("other", gpus=0, tolerations=[{"operator": "Exists"}]))
        site.submit(ML, indexed_job("train", 2))
        site.bound(1, PLAIN)
        site.gated(2, prefix="train")
    site.bound(2, prefix="train")


# -- what people do


def test_a_pod_is_deleted_by_force(site: Site) -> None:
    """Of a gang that runs: the one in its place gets its slot, at once and without a new Slurm job.
    Of a gang that waits: it goes on waiting, with the new pod."""
    site.submit(ML, indexed_job("runs", 4), indexed_job("waits", 4, annotations=HELD))
    before = {"runs": site.bound(4, prefix="runs"), "waits": site.gated(4, prefix="waits")}
    site.job("waits", "PENDING")
    lost = {pods[2]["metadata"]["uid"] for pods in before.values()}
    for pods in before.values():
        site.delete(ML, "Pod", pods[2]["metadata"]["name"], grace=0)
    site.gone(lost, seconds=40)  # a Job's pod that never ran goes when the pod collector turns
    pods = site.bound(4, prefix="runs")
    assert [node_of(p) for p in pods] == [node_of(p) for p in before["runs"]]
    assert len(uids(pods) & uids(before["runs"])) == 3
    site.gated(4, prefix="waits")
    releases(site, "waits")
    in_rank_order(site, "waits", site.bound(4, prefix="waits"))
    assert (site.states("runs"), site.states("waits")) == (["RUNNING"], ["RUNNING"])
    site.books_agree()


@pytest.mark.parametrize("sluice", ["there", "killed"])
@pytest.mark.usefixtures("bystanders")
def test_jobs_are_deleted_and_made_again_at_once(site: Site, sluice: str) -> None:
    """Names are used again; the owner's UID tells them apart, also for one who was not there."""
    site.submit(ML, indexed_job("runs", 4), indexed_job("waits", 4, annotations=HELD))
    before = uids([*site.bound(4, prefix="runs"), *site.gated(4, prefix="waits")])
    site.job("waits", "PENDING")
    with AWAY[sluice](site) if sluice in AWAY else nullcontext():
        for name, more in (("runs", {}), ("waits", HELD)):
            site.delete(ML, "Job", name)
            site.submit(ML, indexed_job(name, 4, annotations=more))
        site.gone(before)
    in_rank_order(site, "runs", site.bound(4, prefix="runs"))
    site.gated(4, prefix="waits")
    eventually(
        lambda: (site.states("runs"), site.states("waits")),
        (["CANCELLED", "RUNNING"], ["CANCELLED", "PENDING"]).__eq__,
        15,
        "the first Slurm job of each ended, the second as it should be",
    )


def collect(site: Site, name: str) -> None:
    """What the pod collector does a minute later with a pod whose node is gone."""
    why = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "DeletionByPodGC",
        "message": "PodGC: node no longer exists",
    }
    path = f"/api/v1/namespaces/{ML}/pods/{name}/status"
    site.kube.patch(path, {"status": {"phase": "Failed", "conditions": [why]}})
    site.delete(ML, "Pod", name, grace=0)


@pytest.fixture
def node_comes_back(site: Site) -> Iterator[str]:
    """The name of a node that may be deleted."""
    name = "node-05"
    yield name
    if site.kube.find(f"/api/v1/nodes/{name}") is None:
        (node,) = (node for node in site.stack.nodes if node.name == name)
        site.kube.create("/api/v1/nodes", site.stack.fabric.manifest(node))


@pytest.mark.usefixtures("bystanders")
def test_a_node_is_deleted_under_a_gang(site: Site, node_comes_back: str) -> None:
    """Its pod goes with it, and the gang cannot be whole there: it starts anew elsewhere. Slurm has
    the node still, and no gang is placed on it."""
    gone = node_comes_back
    site.submit(ML, indexed_job("train", 2))
    before = site.bound(2, prefix="train")
    (lost,) = (p for p in before if node_of(p) == gone)
    site.kube.delete(f"/api/v1/nodes/{gone}")
    collect(site, lost["metadata"]["name"])
    site.gone(uids(before), seconds=90)
    pods = site.bound(2, prefix="train", seconds=60)
    assert gone not in map(node_of, pods)
    assert site.states("train") == ["CANCELLED", "RUNNING"]
    site.submit(ML, indexed_job("next", 9))
    assert gone not in map(node_of, site.bound(9, prefix="next"))
