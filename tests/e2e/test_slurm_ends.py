"""Slurm ends a gang's job: what its pods and its Job get, by Slurm's state.

docs/endings.md has it as a table. BOOT_FAIL needs nodes that Slurm powers up: it is in the unit
tests only.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from extender.domain import wellknown as names
from tests.e2e.ends import (
    cancel,
    complete,
    conditions,
    fail,
    failed,
    lose_a_node,
    miss_the_deadline,
    outcome,
    repaired,
    run_out_of_memory,
    run_out_of_time,
    workload,
)
from tests.e2e.jobs import gang, indexed_job, plain_job
from tests.e2e.site import ML, Site, eventually, number, state, steadily, told, uids
from tests.harness.kube import Object
from tests.harness.kwok import STOP_TIME_ANNOTATION

pytestmark = pytest.mark.e2e

BACK_SECONDS = 40.0
"""The Job controller waits 20 s after two pods have failed, also when it ignores them."""


def rule(action: str, *kinds: str) -> Object:
    return {"action": action, "onPodConditions": [{"type": k, "status": "True"} for k in kinds]}


def ruled(job: Object, *rules: Object) -> Object:
    """The Job with a podFailurePolicy of its own."""
    job["spec"]["podFailurePolicy"] = {"rules": list(rules)}
    return job


@pytest.mark.parametrize(
    ("end", "slurm", "condition", "sacct"),
    [
        pytest.param(cancel, "CANCELLED", names.CANCELLED, "0:0", id="cancelled"),
        pytest.param(run_out_of_time, "TIMEOUT", names.TIMEOUT, "0:0", id="timeout"),
        pytest.param(
            run_out_of_memory, "OUT_OF_MEMORY", names.OUT_OF_MEMORY, "0:125", id="out of memory"
        ),
        pytest.param(complete, "COMPLETED", names.COMPLETED, "0:0", id="completed by hand"),
        pytest.param(fail, "FAILED", names.FAILED, "3:0", id="failed by hand"),
    ],
)
def test_slurm_s_final_word_fails_the_job(
    site: Site, end: Callable[[Site, int], None], slurm: str, condition: str, sacct: str
) -> None:
    """Once, and not after six more tries. The pods are told on which condition."""
    site.submit(ML, indexed_job("train", 2))
    pods = site.bound(2)
    job_id = site.job("train", "RUNNING")["job_id"]
    with site.watch() as watch:
        end(site, job_id)
        site.gone(uids(pods), seconds=45)
    why = f"Slurm job {job_id} is {slurm}"
    for events in watch.by_pod().values():
        last = events[-1].pod
        seen = {k: (c.get("reason"), c.get("message")) for k, c in conditions(last).items()}
        reason = f"Slurm{condition.removeprefix(names.PREFIX)}"
        assert seen[names.DISRUPTION_TARGET] == seen[condition] == (reason, why)
        assert last["status"]["phase"] == "Failed"
    reason = failed(site, "train")
    assert reason.startswith("PodFailurePolicy: ")
    assert f"has condition {condition} matching FailJob rule" in reason
    assert ("Ending", f"{why}; its pods are ending.") in site.events(about="train")
    assert outcome(site, job_id) == (slurm, sacct)
    steadily(lambda: site.states("train"), lambda s: s == [slurm], 1, "no other try")


@pytest.mark.parametrize(
    ("end", "slurm", "condition", "sacct"),
    [
        pytest.param(cancel, "CANCELLED", names.CANCELLED, "0:0", id="cancelled"),
        pytest.param(miss_the_deadline, "DEADLINE", names.DEADLINE, "1:0", id="deadline"),
    ],
)
def test_a_job_that_never_started_fails_at_once(
    site: Site, end: Callable[[Site, int], None], slurm: str, condition: str, sacct: str
) -> None:
    """Its pods were never on a node: nobody has to wait until PodGC finds them."""
    site.fill()
    site.submit(ML, indexed_job("train", 4))
    site.gated(4)
    job_id = site.job("train", "PENDING")["job_id"]
    end(site, job_id)
    eventually(lambda: site.states("train"), lambda s: s == [slurm], 40, slurm)
    assert f"has condition {condition} matching FailJob rule" in failed(site, "train", seconds=8)
    assert not site.pods()
    assert outcome(site, job_id) == (slurm, sacct)


def test_a_preempted_gang_comes_back_and_runs(site: Site) -> None:
    """Not counted: it may not fail once."""
    site.fill(14)
    site.submit(ML, indexed_job("victim", 2, retries=0))
    before = uids(site.bound(2))
    high = {names.QOS: "high"}
    site.submit(ML, indexed_job("urgent", 16, annotations=high))
    site.gone(before, seconds=30)
    eventually(lambda: site.states("urgent"), lambda s: s == ["RUNNING"], 30, "urgent to run")
    (first,) = site.jobs("victim")
    assert outcome(site, first["job_id"]) == ("PREEMPTED", "0:0")
    site.delete(ML, "Job", "urgent")
    pods = site.bound(2, prefix="victim", seconds=BACK_SECONDS)
    assert not uids(pods) & before
    status = workload(site, "victim")["status"]
    assert (status["active"], status.get("failed", 0)) == (2, 0)
    assert site.states("victim") == ["PREEMPTED", "RUNNING"]


def test_after_a_node_failure_the_gang_runs_on_other_nodes(site: Site) -> None:
    with repaired(site):
        site.submit(ML, indexed_job("train", 2, retries=0))
        before = uids(site.bound(2))
        job_id = site.job("train", "RUNNING")["job_id"]
        lose_a_node(site, job_id)
        site.gone(before)
        assert outcome(site, job_id) == ("NODE_FAIL", "1:0")
        site.bound(2, seconds=BACK_SECONDS)
        first, second = site.jobs("train")
        assert (state(first), state(second)) == ("NODE_FAIL", "RUNNING")
        assert workload(site, "train")["status"].get("failed", 0) == 0
        assert ("Ending", f"Slurm job {job_id} is NODE_FAIL; its pods are ending.") in (
            site.events()
        )


def test_each_rank_s_own_failures_make_a_large_gang_come_back_soon(site: Site) -> None:
    """The Job controller doubles its wait with every pod that failed: 80 s after four, 10 min after
    seven. With a backoffLimitPerIndex it counts by rank, and waits 10 s."""
    job = indexed_job("train", 4)
    job["spec"] |= {"backoffLimitPerIndex": 0, "maxFailedIndexes": 0}
    del job["spec"]["backoffLimit"]
    site.submit(ML, ruled(job, rule("Ignore", names.DISRUPTION_TARGET)))
    before = uids(site.bound(4))
    site.cancel(site.job("train", "RUNNING")["job_id"])
    eventually(
        lambda: [told(p) for p in site.pods() if p["metadata"]["uid"] not in before],
        lambda seen: len(seen) == 4 and all(t.startswith("on ") for t in seen),
        25,
        "four other pods bound",
    )


def test_a_job_decides_for_itself_what_slurm_s_end_means(site: Site) -> None:
    """Here: at its time limit it begins again from its checkpoint; scancel is an end."""
    policy = (rule("FailJob", names.CANCELLED), rule("Ignore", names.DISRUPTION_TARGET))
    site.submit(ML, ruled(indexed_job("train", 2, retries=0), *policy))
    before = uids(site.bound(2))
    run_out_of_time(site, site.job("train", "RUNNING")["job_id"])
    site.gone(before, seconds=45)
    pods = site.bound(2, seconds=BACK_SECONDS)
    assert not uids(pods) & before
    assert site.states("train") == ["TIMEOUT", "RUNNING"]
    cancel(site, site.jobs("train")[1]["job_id"])
    assert f"has condition {names.CANCELLED} matching FailJob rule" in failed(site, "train")


def test_of_a_bag_of_pods_only_the_one_that_was_cancelled_fails(site: Site) -> None:
    """Each is a Slurm job of its own. One failure is counted, and the pod is made again."""
    site.submit(ML, plain_job("bag", 2, retries=1))
    kept, lost = site.bound(2)
    site.cancel(int(lost["metadata"]["annotations"][names.JOB_ID]))
    site.gone(uids([lost]))
    pods = site.bound(2, seconds=BACK_SECONDS)
    assert uids([kept]) < uids(pods)
    assert workload(site, "bag")["status"]["failed"] == 1


def test_a_job_that_restarts_in_place_counts_every_end(site: Site) -> None:
    """Kubernetes allows no podFailurePolicy with restartPolicy OnFailure."""
    site.submit(ML, indexed_job("train", 2, retries=1, restartPolicy="OnFailure"))
    site.bound(2)
    site.cancel(site.job("train", "RUNNING")["job_id"])
    assert failed(site, "train").startswith("BackoffLimitExceeded: ")


def test_a_pod_that_ends_well_within_its_grace_is_done(site: Site) -> None:
    """Kubernetes counts its rank as succeeded: after SIGTERM a program that is not done has to end
    with something but 0."""
    stop = {STOP_TIME_ANNOTATION: "1h"}
    site.submit(ML, indexed_job("train", 2, annotations=stop, terminationGracePeriodSeconds=300))
    pods = site.bound(2)
    site.cancel(site.job("train", "RUNNING")["job_id"])
    eventually(
        lambda: [p["metadata"].get("deletionGracePeriodSeconds") for p in site.pods()],
        lambda seen: seen == [300, 300],
        5,
        "both pods deleted with their own grace",
    )
    for one in pods:
        site.finish(one["metadata"]["name"])
    eventually(
        lambda: conditions(workload(site, "train")), lambda c: "Complete" in c, 10, "the Job done"
    )


def test_the_next_pods_wait_until_the_old_ones_have_ended(site: Site) -> None:
    """Slurm gives the nodes out at once; kube-scheduler keeps the pods off until GPUs are free."""
    stop = {STOP_TIME_ANNOTATION: "4s"}
    site.submit(ML, indexed_job("old", 16, annotations=stop, terminationGracePeriodSeconds=30))
    old = site.bound(16)
    site.submit(ML, indexed_job("new", 16))
    job_id = site.job("old", "RUNNING")["job_id"]
    site.cancel(job_id)
    new = site.job("new", "RUNNING", seconds=10)
    before = site.slurm.job(job_id)
    assert before is not None
    assert (number(new["start_time"]) or 0) - (number(before["end_time"]) or 0) <= 2
    assert uids(site.pods(prefix="old")) == uids(old)
    assert {told(p) for p in site.pods(prefix="new")} <= {"gated", "unbound"}
    site.bound(16, prefix="new", seconds=30)
    site.gone(uids(old))


def test_pods_without_a_job_are_told_and_deleted(site: Site) -> None:
    site.submit(ML, *gang("pair", 2))
    running = uids(site.bound(2))
    job_id = site.job("pair", "RUNNING")["job_id"]
    with site.watch() as watch:
        site.cancel(job_id)
        site.gone(running, seconds=5)
    for events in watch.by_pod().values():
        found = conditions(events[-1].pod)
        assert found[names.CANCELLED]["message"] == f"Slurm job {job_id} is CANCELLED"
    eventually(
        lambda: site.events(about="pair-0"),
        lambda seen: ("Ending", f"Slurm job {job_id} is CANCELLED; its pods are ending.") in seen,
        5,
        "an Event that says why",
    )
