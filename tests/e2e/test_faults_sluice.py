"""Sluice is stopped, or killed at any call that it makes: what is started again finishes the work.

While it was stopped, everything happened that it has to act on. It is started with a fault point,
dies there, starts with the next one, dies, and is started as it is.
"""

from __future__ import annotations

import json
from collections import Counter

import pytest

from tests.e2e.faults import HELD
from tests.e2e.jobs import gang, indexed_job
from tests.e2e.site import (
    ML,
    Site,
    eventually,
    node_of,
    nodes_of,
    state,
    steadily,
    uids,
)
from tests.harness import faulty

pytestmark = pytest.mark.e2e

STORIES = {
    "nothing": [],
    "it begins to lead": ["lead before 1", "lead after 1"],
    "it reads Slurm's books": ["nodes after 1", "jobs before 1", "jobs after 1"],
    "it makes a node in Slurm": ["create_nodes before 1", "create_nodes after 1"],
    "it submits": ["submit before 2", "submit after 1", "states after 1"],
    "it sees a gang start": ["mark before 1", "mark after 1", "job before 1", "job after 1"],
    "it ends a job whose pods are gone": ["end before 1", "end after 1"],
    "it ends a job whose pods have ended": ["finish before 1", "finish after 1"],
    "it releases pods": ["release before 2", "release after 2"],
    "it binds pods": ["bind before 2", "bind after 1"],
    "it deletes pods": ["disrupt before 1", "disrupt after 1", "delete before 1", "delete after 1"],
    "it tells people": ["condition before 1", "event before 1", "event after 1"],
}
"""The points at which it dies, one after the other, each in a process of its own."""


def happens(site: Site) -> None:
    """While Sluice is away: scancel, pods end, a Job is deleted, Slurm loses a node and starts a gang
    that waited, and two gangs come, one of which has to wait."""
    site.cancel(site.job("victim", "RUNNING")["job_id"])
    for pod in ("done-0", "done-1"):
        site.finish(pod)
    site.delete(ML, "Job", "gone")
    site.slurm.exec("scontrol", "delete", "nodename=node-15")
    site.slurm.exec("scontrol", "release", str(site.job("woken", "PENDING")["job_id"]))
    site.job("woken", "RUNNING")
    site.submit(ML, indexed_job("train", 4), indexed_job("later", 2, annotations=HELD))


def is_dealt_with(site: Site) -> None:
    """Wait until all of it is done; nothing of it twice."""
    for name, size in (("train", 4), ("woken", 2)):
        pods = site.bound(size, prefix=name)
        job = site.job(name, "RUNNING")
        assert [node_of(p) for p in pods] == [n for n in site.order if n in nodes_of(job)]
    site.gated(2, prefix="later")
    site.job("later", "PENDING")
    assert asked(site) == {"train": 1, "later": 1}
    assert [state(j) for name in ("done", "gone", "victim") for j in site.ended(name)] == [
        "COMPLETED",
        "CANCELLED",
        "CANCELLED",
    ]
    site.gone(uids([*site.pods(prefix="victim"), *site.pods(prefix="gone")]))
    assert "node-15" in {node["name"] for node in site.slurm.nodes()}


def die(site: Site, faults: list[str]) -> None:
    """Start Sluice with each of the faults, and wait until it has killed itself there."""
    sluice = site.stack.sluice
    env = {faulty.VARIABLE: "; ".join(faults)}
    sluice.start(site.settings, env, wait=False, program=faulty.PROGRAM)
    try:
        eventually(lambda: sluice.alive, lambda alive: not alive, 30, f"Sluice to die: {faults}")
    finally:
        sluice.kill()


def asked(site: Site) -> Counter[str]:
    """How often a Slurm job was asked for, by its name."""
    return Counter(json.loads(call.body)["job"]["name"] for call in site.tap.submits())


@pytest.mark.parametrize("story", STORIES)
@pytest.mark.usefixtures("bystanders")
def test_killed_while(site: Site, story: str) -> None:
    site.submit(ML, indexed_job("woken", 2, annotations=HELD), indexed_job("gone", 2))
    site.submit(ML, *gang("victim", 2), *gang("done", 2))
    for name in ("gone", "victim", "done"):
        site.bound(2, prefix=name)
    site.stack.sluice.stop()
    site.tap.forget()
    happens(site)
    if STORIES[story]:
        die(site, STORIES[story])
    site.stack.sluice.start(site.settings)
    is_dealt_with(site)


# -- a submit without an answer


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
    site.tap.forget()
    site.stack.sluice.start(site.settings)
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
