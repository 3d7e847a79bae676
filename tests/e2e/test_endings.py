"""How a gang ends: pods finish, somebody cancels, deletes or makes again, a pod fails.

The Slurm job follows the pods and the pods follow the Slurm job.
"""

from __future__ import annotations

import pytest

from extender.domain import wellknown as names
from tests.e2e.ends import accounted
from tests.e2e.jobs import gang, indexed_job
from tests.e2e.site import (
    ML,
    Site,
    answers,
    eventually,
    node_of,
    nodes_of,
    number,
    state,
    steadily,
    told,
    uids,
)

pytestmark = pytest.mark.e2e


def test_when_its_pods_have_ended_the_next_gang_gets_the_nodes(site: Site) -> None:
    site.submit(ML, indexed_job("first", 16, run="3s"))
    site.bound(16, prefix="first")
    site.submit(ML, indexed_job("second", 16))
    site.job("second", "PENDING")
    (first,) = site.ended("first")
    site.bound(16, prefix="second")
    second = site.job("second", "RUNNING")
    phases = {p["status"]["phase"] for p in site.pods(prefix="first")}
    assert phases == {"Succeeded"}
    assert (number(first["end_time"]) or 0) <= (number(second["start_time"]) or 0)
    record = accounted(site, first["job_id"])
    assert (record["User"], record["Account"], record["NodeList"]) == (
        "alice", "ml", "node-[00-15]",
    )  # fmt: skip
    assert (record["State"], record["ExitCode"]) == ("COMPLETED", "0:0")


def test_the_nodes_are_held_until_the_last_pod_has_ended(site: Site) -> None:
    site.submit(ML, *gang("pair", 2))
    site.bound(2)
    site.finish("pair-0")
    steadily(lambda: site.states("pair"), lambda s: s == ["RUNNING"], 1.5, "one pod still runs")
    site.finish("pair-1")
    site.ended("pair")
    site.idle()


def test_scancel_of_a_queued_gang_takes_its_pods_along(site: Site) -> None:
    site.fill()
    site.submit(ML, *gang("pair", 2))
    waiting = uids(site.gated(2))
    site.cancel(site.job("pair", "PENDING")["job_id"])
    site.gone(waiting, seconds=5)
    assert site.states("pair") == ["CANCELLED"]


@pytest.mark.parametrize("when", ["queued", "starting", "running"])
def test_deleting_the_job_ends_the_slurm_job(site: Site, when: str) -> None:
    if when == "queued":
        site.fill()
    site.submit(ML, indexed_job("train", 4))
    if when == "running":
        site.bound(4)
    elif when == "queued":
        site.gated(4)
        site.job("train", "PENDING")
    else:
        eventually(lambda: site.states("train"), bool, 10, "the submit")
    site.delete(ML, "Job", "train")
    (ended,) = site.ended("train")
    assert state(ended) == "CANCELLED"
    eventually(site.pods, lambda pods: not pods, 10, "no pod left")
    if when != "queued":
        site.idle()
    steadily(lambda: len(site.jobs("train")), lambda n: n == 1, 1, "no second Slurm job")


def test_a_job_made_again_under_its_name_at_once_is_another_gang(site: Site) -> None:
    """Names are used again; the owner's UID is the identity."""
    site.submit(ML, indexed_job("train", 4))
    before = uids(site.bound(4))
    first = site.job("train", "RUNNING")
    site.delete(ML, "Job", "train")
    site.submit(ML, indexed_job("train", 4))
    site.gone(before)
    pods = site.bound(4)
    eventually(
        lambda: site.states("train"),
        lambda states: states == ["CANCELLED", "RUNNING"],
        10,
        "the first Slurm job ended, the second running",
    )
    ended, second = site.jobs("train")
    assert ended["job_id"] == first["job_id"]
    assert {answers(p)["job-id"] for p in pods} == {str(second["job_id"])}
    assert sorted(map(node_of, pods)) == sorted(nodes_of(second))


def test_a_gang_made_again_under_its_name_is_not_taken_for_the_old_one(site: Site) -> None:
    """Pods that name their gang have no owner whose UID would tell: it is asked for anew, with
    what the new pods ask for."""
    site.submit(ML, *gang("pair", 2, annotations={names.TIME_LIMIT: "30"}))
    before = site.bound(2)
    with site.paused():  # it sees the old pods and the new ones at once
        for old in before:
            site.delete(ML, "Pod", old["metadata"]["name"], grace=0)
        site.gone(uids(before))
        site.submit(ML, *gang("pair", 2, annotations={names.TIME_LIMIT: "45"}))
    pods = site.bound(2)
    first, second = site.jobs("pair")
    assert (state(first), state(second)) == ("CANCELLED", "RUNNING")
    assert number(second["time_limit"]) == 45
    assert {answers(p)["job-id"] for p in pods} == {str(second["job_id"])}


def test_a_job_that_is_suspended_gives_its_nodes_back(site: Site) -> None:
    """And asks again when it is resumed."""
    path = "/apis/batch/v1/namespaces/ml/jobs/train"
    site.submit(ML, indexed_job("train", 4))
    site.bound(4)
    site.kube.patch(path, {"spec": {"suspend": True}})
    site.ended("train")
    eventually(site.pods, lambda pods: not pods, 10, "no pod left")
    site.kube.patch(path, {"spec": {"suspend": False}})
    pods = site.bound(4)
    first, second = site.jobs("train")
    assert (state(first), state(second)) == ("CANCELLED", "RUNNING")
    assert {answers(p)["job-id"] for p in pods} == {str(second["job_id"])}


def test_slurm_preempts_and_kubernetes_follows(site: Site) -> None:
    """QOS high preempts normal: Slurm chooses the victim, its pods make room."""
    site.submit(ML, *gang("victim", 16))
    victims = uids(site.bound(16))
    site.submit(ML, indexed_job("urgent", 4, annotations={names.QOS: "high"}))
    urgent = site.bound(4, prefix="urgent", seconds=30)
    site.gone(victims)
    assert site.states("victim") == ["PREEMPTED"]
    assert sorted(map(node_of, urgent)) == sorted(nodes_of(site.job("urgent", "RUNNING")))


def test_the_job_controller_makes_a_broken_pod_anew(site: Site) -> None:
    """Its successor returns to its node, for the others run on and the allocation is theirs."""
    site.submit(ML, indexed_job("mended", 4))
    broken = site.bound(4)[2]
    site.finish(broken["metadata"]["name"], exit_code=1)

    # the Job controller waits 10 s after one failure
    eventually(
        lambda: [told(p) for p in site.pods(prefix="mended-2-")],
        lambda seen: seen == [f"on {node_of(broken)}"] * 2,
        30,
        "the broken pod and its successor on one node",
    )
    assert site.states("mended") == ["RUNNING"]
