"""slurmctld is killed and has forgotten: a start, a submit, an end, a whole job.

Whatever it has forgotten, pods that run are left alone, and in the end one Slurm job holds exactly
their nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from extender.domain import wellknown as names
from tests.e2e.faults import Bystanders, forgotten, saved_at
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
    uids,
)
from tests.harness.kube import Object

pytestmark = pytest.mark.e2e


def waits(site: Site, **more: Any) -> int:
    """A gang of four called train waits in Slurm's queue; its job."""
    site.submit(ML, indexed_job("train", 4, **more))
    site.gated(4, prefix="train")
    return int(site.job("train", "PENDING")["job_id"])


def train(site: Site) -> list[Object]:
    return site.pods(prefix="train")


def run_on_unharmed(site: Site, before: list[Object]) -> None:
    """The pods of train are the same, and the one Slurm job that they name holds their nodes."""
    where = sorted(map(node_of, before))

    def held() -> list[tuple[str, list[str]]]:
        living = [job for job in site.jobs("train") if state(job) in ("PENDING", "RUNNING")]
        return [(str(job["job_id"]), sorted(nodes_of(job))) for job in living]

    eventually(
        lambda: (held(), {answers(p)["job-id"] for p in train(site)}),
        lambda seen: [(job_id, where) for job_id in seen[1]] == seen[0],
        30,
        f"one Slurm job, named by all pods, that holds {where}",
    )
    assert uids(train(site)) == uids(before)


@contextmanager
def limited(site: Site, qos: str) -> Iterator[Callable[[], object]]:
    """The QOS is full until the function is called. That is kept in accounting's database, so that
    slurmctld does not forget it."""

    def cpus(count: int) -> None:
        site.slurm.exec("sacctmgr", "-i", "modify", "qos", qos, "set", f"GrpTRES=cpu={count}")

    def lift() -> None:
        cpus(-1)
        site.slurm.exec("scontrol", "update", "partitionname=gpu", "state=up")  # look at the queue

    cpus(4)
    try:
        yield lift
    finally:
        cpus(-1)


# -- a start


@pytest.mark.usefixtures("bystanders")
def test_a_start_is_saved_at_once(site: Site) -> None:
    """Slurm does not save by itself that it has started a job; Sluice makes it."""
    filler = site.fill(12)
    waits(site)
    site.cancel(filler)
    pods = site.bound(4, prefix="train")
    job = site.job("train", "RUNNING")
    started = number(job["start_time"]) or 0
    eventually(lambda: saved_at(site), lambda at: at > started + 1, 10, "the start to be saved")
    site.slurm.kill("slurmctld")
    site.slurm.launch("slurmctld")
    (after,) = site.jobs("train")
    assert (state(after), after["start_time"]) == ("RUNNING", job["start_time"])
    run_on_unharmed(site, pods)


@pytest.mark.usefixtures("bystanders")
def test_a_start_that_was_forgotten_is_made_again(site: Site) -> None:
    """The job is in the queue again and its nodes are free: it is told to take the same."""
    with limited(site, "high") as lift:
        job_id = waits(site, annotations={names.QOS: "high"})
        with forgotten(site, job_id):
            lift()
            pods = site.bound(4, prefix="train")
            site.tap.forget()
    run_on_unharmed(site, pods)
    assert len(site.jobs("train")) == 1
    assert [c for c in site.tap.calls("POST", f"/job/{job_id}") if "required_nodes" in c.body]


@pytest.mark.usefixtures("bystanders")
def test_pods_stay_while_another_job_has_their_nodes_for_a_time(site: Site) -> None:
    """The end of the job before was forgotten, too: it holds the nodes again."""
    filler = site.fill(12)
    job_id = waits(site)
    with forgotten(site, job_id):
        site.cancel(filler)
        pods = site.bound(4, prefix="train")
    assert site.states("filler") == ["RUNNING"]
    steadily(lambda: uids(train(site)), uids(pods).__eq__, 3, "the pods run on")
    site.cancel(filler)
    run_on_unharmed(site, pods)
    assert len(site.jobs("train")) == 1


# -- a submit


@pytest.mark.usefixtures("bystanders")
def test_a_submit_that_was_forgotten_is_made_again(site: Site) -> None:
    """Its number has been given to another job by then, which is none of Sluice's business."""
    filler = site.fill(12)
    with ExitStack() as while_paused:
        with forgotten(site, filler):
            job_id = waits(site)
            pods = train(site)
            while_paused.enter_context(site.paused())
        assert site.jobs("train") == []
        assert site.queue(12, "other") == job_id
    again = site.job("train", "PENDING")
    assert again["job_id"] != job_id
    assert site.states("other") == ["PENDING"]
    site.cancel(job_id)
    site.cancel(filler)
    assert uids(site.bound(4, prefix="train", seconds=30)) == uids(pods)
    assert len(site.jobs("train")) == 1


# -- an end


@pytest.mark.usefixtures("bystanders")
def test_a_job_that_comes_back_to_life_is_ended_again(site: Site) -> None:
    """Its pods ended long ago. Sluice does not even see that slurmctld was away."""
    site.submit(ML, *gang("train", 4))
    site.bound(4, prefix="train")
    job_id = site.job("train", "RUNNING")["job_id"]
    with ExitStack() as while_paused:
        with forgotten(site, job_id):
            for pod in train(site):
                site.finish(pod["metadata"]["name"])
            site.ended("train")
            while_paused.enter_context(site.paused())
        assert site.states("train") == ["RUNNING"]
    try:
        (ended,) = site.ended("train")
        assert state(ended) == "COMPLETED"
    finally:
        site.cancel(job_id)


# -- a whole job


@pytest.mark.parametrize("accounting", ["there", "away"])
def test_a_job_that_was_forgotten_while_its_pods_run(
    site: Site, bystanders: Bystanders, accounting: str
) -> None:
    """Another takes its place, on the same nodes; not before accounting can be asked."""
    with ExitStack() as while_paused:
        with forgotten(site, bystanders.waiting_job):
            site.submit(ML, indexed_job("train", 4))
            pods = site.bound(4, prefix="train")
            while_paused.enter_context(site.paused())
        if accounting == "away":
            site.slurm.kill("slurmdbd")
    try:
        if accounting == "away":
            steadily(lambda: uids(train(site)), uids(pods).__eq__, 3, "the pods run on")
    finally:
        site.slurm.launch("slurmdbd")
    run_on_unharmed(site, pods)


@pytest.mark.usefixtures("bystanders")
def test_an_attempt_that_was_forgotten(site: Site) -> None:
    """The one before it is alive again, and holds nodes for nobody."""
    site.submit(ML, *gang("train", 4))
    before = site.bound(4, prefix="train")
    job_id = site.job("train", "RUNNING")["job_id"]
    with forgotten(site, job_id):
        site.cancel(job_id)
        site.gone(uids(before))
        site.submit(ML, *gang("train", 4))
        pods = site.bound(4, prefix="train")
        assert site.states("train") == ["CANCELLED", "RUNNING"]
    run_on_unharmed(site, pods)
