"""Sluice, slurmctld or the token goes away and comes back: nothing is lost, nothing done twice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

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
    steadily,
    told,
    uids,
)

pytestmark = pytest.mark.e2e

END: dict[str, Callable[[Site], object]] = {
    "stopped": lambda site: site.stack.sluice.stop(),
    "killed": lambda site: site.stack.sluice.kill(),
}


def come_back(site: Site) -> None:
    site.tap.forget()
    site.stack.sluice.start(site.settings)


# -- Sluice itself


@pytest.mark.parametrize("how", END)
def test_a_new_process_adopts_what_it_finds(site: Site, how: str) -> None:
    """A running gang runs on. A queued one is released though Slurm started it while nobody
    looked. Of the gangs whose pods ended or were deleted meanwhile the Slurm jobs end."""
    site.submit(ML, indexed_job("running", 4), *gang("finished", 2), indexed_job("deleted", 2))
    site.bound(8)
    running = uids(site.pods(prefix="running"))
    filler = site.fill(8)
    site.submit(ML, indexed_job("queued", 4))
    site.gated(4, prefix="queued")
    site.job("queued", "PENDING")

    END[how](site)
    site.cancel(filler)
    for name in ("finished-0", "finished-1"):
        site.finish(name)
    site.delete(ML, "Job", "deleted")
    allocated = site.job("queued", "RUNNING")
    steadily(
        lambda: {told(p) for p in site.pods(prefix="queued")},
        lambda seen: seen == {"gated"},
        1,
        "nobody is there to release them",
    )

    come_back(site)
    pods = site.bound(4, prefix="queued")
    assert [node_of(p) for p in pods] == [n for n in site.order if n in nodes_of(allocated)]
    assert [state(j) for name in ("finished", "deleted") for j in site.ended(name)] == [
        "COMPLETED",
        "CANCELLED",
    ]
    assert uids(site.pods(prefix="running")) == running
    assert site.states("running") == ["RUNNING"]
    assert site.states("queued") == ["RUNNING"]
    assert site.tap.submits() == []


def test_killed_between_submit_and_answer_it_submits_nothing_twice(site: Site) -> None:
    """The Slurm job knows its gang; a new process looks before it submits."""
    site.fill(16)
    site.tap.lose_answers_of("/job/submit")
    try:
        site.submit(ML, indexed_job("train", 4))
        site.job("train", "PENDING")
        site.stack.sluice.kill()
    finally:
        site.tap.lose_answers_of("")
    come_back(site)
    steadily(lambda: site.states("train"), lambda s: s == ["PENDING"], 2, "one Slurm job")
    assert site.tap.submits() == []


def test_an_answer_that_was_lost_is_looked_up(site: Site) -> None:
    """Nobody was killed: the connection broke after slurmctld had taken the job."""
    site.tap.lose_answers_of("/job/submit")
    try:
        site.submit(ML, indexed_job("train", 4))
        eventually(site.tap.submits, bool, 10, "the submit")
    finally:
        site.tap.lose_answers_of("")
    site.bound(4)
    assert site.states("train") == ["RUNNING"]
    assert len(site.tap.submits()) == 1


def test_pods_that_did_not_opt_in_need_no_sluice(site: Site) -> None:
    """With the extender down they are scheduled all the same; ours wait and lose nothing."""
    site.submit(ML, indexed_job("before", 2))
    placed = uids(site.bound(2))
    site.stack.sluice.kill()
    site.submit(PLAIN, pod("other", gpus=0, tolerations=[{"operator": "Exists"}]))
    site.submit(ML, indexed_job("after", 2))
    site.bound(1, PLAIN)
    site.gated(2, prefix="after")
    assert placed <= uids(site.pods())
    come_back(site)
    site.bound(2, prefix="after")


# -- Slurm


def test_slurmctld_stops_for_a_while(site: Site) -> None:
    """No pod is deleted because Slurm does not answer; what comes meanwhile waits its turn."""
    site.submit(ML, indexed_job("before", 2))
    running = uids(site.bound(2))
    site.slurm.stop("slurmctld")
    try:
        site.submit(ML, indexed_job("during", 2))
        site.gated(2, prefix="during")
        steadily(lambda: uids(site.pods(prefix="before")), running.__eq__, 3, "the pods run on")
        assert {told(p) for p in site.pods(prefix="during")} == {"gated"}
    finally:
        site.slurm.launch("slurmctld")
    site.bound(2, prefix="during", seconds=60)
    assert uids(site.pods(prefix="before")) == running
    assert site.states("before") == ["RUNNING"]
    assert site.states("during") == ["RUNNING"]


def test_slurmrestd_is_started_again(site: Site) -> None:
    site.submit(ML, indexed_job("before", 2))
    running = uids(site.bound(2))
    site.slurm.kill("slurmrestd")
    try:
        site.submit(ML, indexed_job("during", 2))
        site.gated(2, prefix="during")
        steadily(lambda: uids(site.pods(prefix="before")), running.__eq__, 2, "the pods run on")
    finally:
        site.slurm.launch("slurmrestd")
    site.bound(2, prefix="during", seconds=30)
    assert site.states("before") == ["RUNNING"]
    assert site.states("during") == ["RUNNING"]


# -- the token


def test_a_token_that_expired_is_replaced_without_a_restart(site: Site) -> None:
    """A gang that runs is not touched; one that came meanwhile starts soon after."""
    token = site.slurm.token_file
    good = token.read_text()
    site.submit(ML, indexed_job("before", 2))
    running = uids(site.bound(2))
    try:
        replace(token, site.slurm.token(lifespan_seconds=-60))
        site.submit(ML, indexed_job("during", 2))
        site.gated(2, prefix="during")
        eventually(
            lambda: site.ask("/readyz").text, lambda text: "token" in text, 10, "/readyz to say so"
        )
        steadily(lambda: uids(site.pods(prefix="before")), running.__eq__, 1.5, "the pods run on")
        assert site.jobs("during") == []
    finally:
        replace(token, good)
    site.bound(2, prefix="during", seconds=30)
    assert len(site.jobs("during")) == 1
    assert {answers(p)["job-id"] for p in site.pods(prefix="before")} == {
        str(site.job("before", "RUNNING")["job_id"])
    }
    eventually(site.stack.sluice.ready, bool, 15, "ready again")


def replace(token: Path, text: str) -> None:
    """As a rotated Secret is: another file under the same name."""
    fresh = token.with_suffix(".new")
    fresh.write_text(text)
    fresh.replace(token)
