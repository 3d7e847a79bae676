"""How a gang ends: pods finish, somebody cancels, deletes or makes again, a pod fails.

The Slurm job follows the pods and the pods follow the Slurm job.
"""

from __future__ import annotations

import pytest

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


def accounted(site: Site, job_id: int) -> dict[str, str]:
    """The accounting record of a job, as soon as it knows of the end."""
    (record,) = eventually(
        lambda: site.slurm.sacct(f"--jobs={job_id}"),
        lambda found: [r for r in found if r["State"] not in ("PENDING", "RUNNING")],
        10,
        f"the accounting record of job {job_id}",
    )
    return record


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


def test_scancel_takes_the_pods_along(site: Site) -> None:
    site.submit(ML, *gang("pair", 2))
    running = uids(site.bound(2))
    site.cancel(site.job("pair", "RUNNING")["job_id"])
    site.gone(running, seconds=5)
    assert site.states("pair") == ["CANCELLED"]
    eventually(
        site.events,
        lambda seen: any(r == "Ending" and "is CANCELLED" in message for r, message in seen),
        5,
        "an Event that says why",
    )


def test_scancel_of_a_queued_gang_takes_its_pods_along(site: Site) -> None:
    site.fill()
    site.submit(ML, *gang("pair", 2))
    waiting = uids(site.gated(2))
    site.cancel(site.job("pair", "PENDING")["job_id"])
    site.gone(waiting, seconds=5)
    assert site.states("pair") == ["CANCELLED"]


def test_after_scancel_a_job_tries_again_as_a_whole(site: Site) -> None:
    """The Job controller makes new pods: they are a new gang with a Slurm job of its own."""
    site.submit(ML, indexed_job("train", 2))
    before = uids(site.bound(2))
    first = site.job("train", "RUNNING")
    site.cancel(first["job_id"])
    site.gone(before, seconds=5)
    pods = site.bound(2, seconds=30)  # the Job controller waits 10 s before it tries again
    assert not uids(pods) & before
    cancelled, second = site.jobs("train")
    assert (state(cancelled), state(second)) == ("CANCELLED", "RUNNING")
    assert {answers(p)["job-id"] for p in pods} == {str(second["job_id"])}


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


def test_a_job_that_fails_ends_its_slurm_job(site: Site) -> None:
    """With the exit code of the pod that failed; the other pod is deleted by the Job controller."""
    site.submit(ML, indexed_job("doomed", 2, retries=0))
    pods = site.bound(2)
    site.finish(pods[0]["metadata"]["name"], exit_code=3)
    (ended,) = site.ended("doomed")
    site.idle()
    record = accounted(site, ended["job_id"])
    assert (record["State"], record["ExitCode"]) == ("FAILED", "3:0")


def test_a_pod_that_is_replaced_returns_to_its_node(site: Site) -> None:
    """While the other pods of the gang run on, the allocation is theirs."""
    site.submit(ML, indexed_job("train", 4))
    pods = site.bound(4)
    broken = pods[2]
    site.finish(broken["metadata"]["name"], exit_code=1)
    eventually(
        lambda: [told(p) for p in site.pods(prefix="train-2-")],
        lambda seen: seen == [f"on {node_of(broken)}"] * 2,
        30,
        "the broken pod and its successor on one node",
    )
    assert site.states("train") == ["RUNNING"]
