"""decide(): a gang that ends as a whole and comes again, and a job that Slurm puts back."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from extender.domain.decision import (
    Confirm,
    Decision,
    End,
    Evict,
    GangState,
    Mark,
    Release,
    Submit,
    Trace,
)
from extender.domain.lifecycle import (
    INCOMPLETE_GRACE_SECONDS,
    OVERDUE_SECONDS,
    decide,
)
from extender.domain.model import Gang, GangKind, Job, JobState, Pod, Resources
from extender.domain.recovery import FELL_PATIENCE_SECONDS
from tests.builders import GIB, gang, job, nodes, placed, pod, share, stamp, workload

NODES = nodes("n0", "n1", "n2")
TWO = (share("n0"), share("n1"))
LATER = 300.0


def seen(g: Gang, *jobs: Job, now: float = 400.0) -> Decision:
    return decide(g, jobs, NODES, now, certain=True)


def running(*shares: Any, **more: Any) -> Job:
    told = more.pop("stamp", None) or stamp(2, started=True, **more.pop("told", {}))
    return job(JobState.RUNNING, *(shares or TWO), stamp=told, **more)


def failed(*codes: int, **more: Any) -> list[Pod]:
    return [
        placed(i, f"n{i}", uid=f"old-{i}", phase="Failed", exit_code=code, **more)
        for i, code in enumerate(codes)
    ]


def again(*ranks: int) -> list[Pod]:
    return [pod(i, uid=f"new-{i}", created=LATER) for i in ranks]


def alive() -> list[Pod]:
    return [placed(i, f"n{i}", node=f"n{i}", phase="Running") for i in range(2)]


# -- one pod is replaced


def test_one_pod_of_a_running_gang_is_replaced_in_the_same_job() -> None:
    first, second = alive()
    broken = msgspec.structs.replace(second, uid="old", phase="Failed")
    (release,) = seen(gang(first, broken, *again(1), size=2), running()).actions
    assert isinstance(release, Release)
    assert (release.pod.uid, release.node, release.job_id) == ("new-1", "n1", 7)


def test_a_pod_made_anew_while_the_gang_was_queued_is_no_restart() -> None:
    """Nothing has run yet: its place in the queue, and what came of it, stay."""
    early = [pod(i, uid=f"new-{i}", created=150.0) for i in range(2)]
    releases = seen(gang(*early), running()).actions
    assert [type(a) for a in releases] == [Release, Release]


# -- the gang restarts as a whole


def test_a_gang_that_restarts_as_a_whole_is_a_new_attempt() -> None:
    ended = gang(*failed(3, 3), *again(0, 1), size=2)
    (end,) = seen(ended, running()).actions
    assert isinstance(end, End)
    assert (end.exit_code, end.finished) == (3, True)
    over = job(JobState.FAILED, stamp=stamp(2, outcome=end.why))
    (submit,) = seen(ended, over).actions
    assert isinstance(submit, Submit)
    assert (submit.attempt, [p.uid for p in submit.pods]) == (2, ["new-0", "new-1"])


def test_so_is_one_whose_pods_were_deleted() -> None:
    (end,) = seen(gang(*again(0, 1)), running()).actions
    assert isinstance(end, End)
    assert not end.finished


def test_it_waits_for_the_old_pods_to_be_gone() -> None:
    """A terminating pod still holds its GPUs."""
    going = [msgspec.structs.replace(p, deleting=True) for p in alive()]
    assert seen(gang(*going, *again(0, 1), size=2), running()).actions == ()


# -- with hold-on-restart

HOLD = {"hold": 60.0}


def test_the_nodes_are_kept_from_the_end_of_all_pods_on() -> None:
    decision = seen(gang(*failed(3, 3)), running(told=HOLD), now=400.0)
    (mark,) = decision.actions
    assert isinstance(mark, Mark)
    assert (decision.state, mark.stamp.held) == (GangState.RESTARTING, 400.0)


KEPT = {**HOLD, "held": 400.0}


def test_they_are_kept_while_pods_are_missing() -> None:
    for pods in ([], failed(3, 3), [*failed(3, 3), *again(0)]):
        whole = gang(*pods, size=2)
        decision = seen(whole, running(told=KEPT), now=459.0)
        assert (decision.state, decision.actions) == (GangState.RESTARTING, ())


def test_and_given_back_when_the_time_is_over() -> None:
    for pods in ([], failed(3, 3), [*failed(3, 3), *again(0)]):
        (end,) = seen(gang(*pods, size=2), running(told=KEPT), now=461.0).actions
        assert isinstance(end, End)


def test_the_next_attempt_starts_in_the_same_allocation() -> None:
    whole = gang(*failed(3, 3), *again(0, 1), size=2)
    (mark,) = seen(whole, running(told=KEPT), now=410.0).actions
    assert isinstance(mark, Mark)
    told = mark.stamp
    assert (told.attempt, told.after, told.newest, told.held) == (2, 100.0, LATER, 0.0)
    releases = seen(whole, running(stamp=told), now=411.0).actions
    assert [(r.pod.uid, r.node) for r in releases if isinstance(r, Release)] == [
        ("new-0", "n0"),
        ("new-1", "n1"),
    ]


def test_only_the_last_attempt_says_how_it_ended() -> None:
    done = [placed(i, f"n{i}", uid=f"new-{i}", created=LATER, phase="Succeeded") for i in range(2)]
    told = stamp(2, started=True, attempt=2, after=100.0, **HOLD)
    (end,) = seen(gang(*failed(3, 3), *done, size=2), running(stamp=told)).actions
    assert isinstance(end, End)
    assert end.exit_code == 0


@pytest.mark.parametrize(
    "owner", [None, {"deleting": True}, {"suspended": True}, {"finished": True}]
)
def test_nothing_is_kept_for_a_job_that_makes_no_more_pods(owner: dict[str, bool] | None) -> None:
    job_ = workload(2, **owner) if owner else None
    (end,) = seen(gang(*failed(3, 3), workload=job_), running(told=HOLD)).actions
    assert isinstance(end, End)


def test_nor_when_all_ranks_have_succeeded() -> None:
    done = [placed(i, f"n{i}", phase="Succeeded") for i in range(2)]
    (end,) = seen(gang(*done), running(told=HOLD)).actions
    assert isinstance(end, End)


def test_nor_in_the_queue() -> None:
    queued = job(stamp=stamp(2, **HOLD))
    (end,) = seen(gang(size=2), queued).actions
    assert isinstance(end, End)


# -- the exit code


def test_the_exit_code_is_that_of_the_pod_that_failed_first() -> None:
    """The others were ended because of it."""
    ends = ((143, 20.0), (7, 10.0), (143, 20.0))
    pods = [
        placed(i, f"n{i}", phase="Failed", exit_code=code, failed_at=at)
        for i, (code, at) in enumerate(ends)
    ]
    (end,) = seen(gang(*pods), running()).actions
    assert isinstance(end, End)
    assert end.exit_code == 7


def test_pods_that_were_deleted_did_not_finish() -> None:
    """As the kubelet ends them: by SIGTERM, and Failed before they are gone. That is no failure of
    the gang, and no success either."""
    pods = [
        placed(i, f"n{i}", phase="Failed", exit_code=143, failed_at=20.0, deleting=True)
        for i in range(2)
    ]
    (end,) = seen(gang(*pods), running()).actions
    assert isinstance(end, End)
    assert (end.exit_code, end.finished, end.why) == (0, False, "its pods were deleted")


def test_what_failed_counts_also_when_the_others_are_deleted_for_it() -> None:
    failed = placed(0, "n0", phase="Failed", exit_code=7, failed_at=20.0)
    ended = placed(1, "n1", phase="Failed", exit_code=143, failed_at=20.0, deleting=True)
    (end,) = seen(gang(ended, failed), running()).actions
    assert isinstance(end, End)
    assert (end.exit_code, end.finished) == (7, True)


# -- between two attempts


def test_a_gang_whose_job_makes_other_pods_is_not_done() -> None:
    over = job(JobState.PREEMPTED, stamp=stamp(2, outcome="x"))
    for pods in (failed(143, 143), []):
        decision = seen(gang(*pods, size=2), over)
        assert (decision.state, decision.actions) == (GangState.FORMING, ())
        assert decision.reason == (
            "All pods have ended. Slurm job 7 is PREEMPTED. Job 'train' makes others in their place."
        )
    ended = workload(2, finished=True)
    assert seen(gang(*failed(1, 1), workload=ended), over).state is GangState.DONE


# -- slurmctld forgets a start


def fallen(**more: Any) -> Job:
    return job(stamp=stamp(2, **more))


def test_a_job_that_falls_back_is_to_start_on_the_nodes_of_its_pods() -> None:
    (mark,) = seen(gang(*alive()), fallen(started=True)).actions
    assert isinstance(mark, Mark)
    assert (mark.nodes, mark.stamp.fell, mark.stamp.started) == (("n0", "n1"), 400.0, False)


def test_its_pods_run_on_meanwhile() -> None:
    patient = 400.0 + FELL_PATIENCE_SECONDS - 1
    assert seen(gang(*alive()), fallen(fell=400.0), now=patient).actions == ()


def test_when_it_runs_there_again_all_is_well_and_the_start_is_saved() -> None:
    decision = seen(gang(*alive()), running(stamp=stamp(2, fell=400.0)))
    assert decision.state is GangState.RUNNING
    assert [type(a) for a in decision.actions] == [Confirm]


def test_pods_whose_nodes_slurm_gave_to_others_go() -> None:
    late = 400.0 + FELL_PATIENCE_SECONDS
    leaving = seen(gang(*alive()), fallen(fell=400.0), now=late).actions
    assert [type(a) for a in leaving] == [Evict, Evict]


def test_and_the_job_that_waits_for_those_nodes_is_given_up() -> None:
    (end,) = seen(gang(*again(0, 1)), fallen(fell=400.0)).actions
    assert isinstance(end, End)


def test_pods_off_the_nodes_of_their_job_go() -> None:
    """It was started again elsewhere, or an administrator shrank it."""
    decision = seen(gang(*alive()), running(share("n0"), share("n2")))
    assert [a.pod.name for a in decision.actions if isinstance(a, Evict)] == ["train-1"]


def test_pods_beyond_what_their_job_holds_of_a_node_go() -> None:
    """It was started again on the same nodes, with the larger part on the other one."""
    half = {"cpus": 4, "memory_mib": 8192, "gpus": 4}
    small: dict[str, Any] = {"resources": Resources(4000, 8 * GIB, 4)}
    pods = [
        placed(0, "n0", node="n0", **small),
        placed(1, "n0", **small),
        placed(2, "n1", node="n1", **small),
    ]
    again = running(share("n0", 1, **half), share("n1", 2, **half), stamp=stamp(3, fell=400.0))
    (evict,) = seen(gang(*pods), again).actions
    assert isinstance(evict, Evict)
    assert evict.pod is pods[1]


# -- Slurm requeues


def test_pods_of_a_job_that_slurm_requeued_go() -> None:
    requeued = job(stamp=stamp(2, started=True), restarts=1)
    leaving = seen(gang(*alive()), requeued).actions
    assert [(type(a), a.state) for a in leaving if isinstance(a, Evict)] == [
        (Evict, JobState.PREEMPTED)
    ] * 2


def test_its_next_start_is_a_new_attempt() -> None:
    requeued = job(stamp=stamp(2, started=True), restarts=1)
    whole = gang(*failed(143, 143), *again(0, 1), size=2)
    (mark,) = seen(whole, requeued).actions
    assert isinstance(mark, Mark)
    assert (mark.stamp.attempt, mark.stamp.restarts) == (2, 1)
    started = running(stamp=mark.stamp, started=500.0, restarts=1)
    kinds = [type(a) for a in seen(whole, started, now=501.0).actions]
    assert kinds == [Release, Release]


# -- nodes and pods that are lost


def test_a_pod_that_never_goes_does_not_hold_up_the_next_attempt() -> None:
    """Its node is dead; the next attempt keeps off it."""
    stuck = [msgspec.structs.replace(p, deleting=True, gone_by=300.0) for p in alive()[:1]]
    whole = gang(*stuck, *again(0, 1), size=2)
    over = job(JobState.NODE_FAIL, size=2)
    assert seen(whole, over, now=300.0 + OVERDUE_SECONDS).state is GangState.ENDING
    (submit,) = seen(whole, over, now=301.0 + OVERDUE_SECONDS).actions
    assert isinstance(submit, Submit)
    assert submit.avoid == ("n0",)


def test_a_gang_that_lost_a_node_starts_anew_elsewhere() -> None:
    """Kubernetes deleted it: the pod made in place of the lost one has nowhere to go."""
    first, _ = alive()
    whole = gang(first, *again(1), size=2)
    gone = running(share("n0"), share("n9"))
    waits = seen(whole, gone, now=LATER + INCOMPLETE_GRACE_SECONDS - 1)
    assert (waits.state, waits.actions) == (GangState.STARTING, ())
    (evict,) = seen(whole, gone, now=LATER + INCOMPLETE_GRACE_SECONDS).actions
    assert isinstance(evict, Evict)
    assert evict.pod is first


def test_a_node_that_is_away_for_a_moment_costs_nobody_a_pod() -> None:
    """The other pod has waited for long, for another reason: that is not the node's absence."""
    first, _ = alive()
    whole = gang(first, *again(1), size=2)
    late = LATER + 10 * INCOMPLETE_GRACE_SECONDS

    def at(now: float) -> Decision:
        gone = running(share("n0"), share("n9"))
        return decide(whole, [gone], NODES, now, certain=True, gone_since=lambda _: late)

    assert at(late + INCOMPLETE_GRACE_SECONDS - 1).actions == ()
    assert [type(a) for a in at(late + INCOMPLETE_GRACE_SECONDS).actions] == [Evict]


def test_of_two_jobs_with_pods_the_one_too_many_loses_its_pods_first() -> None:
    ours = placed(0, "n0", 7, node="n0")
    theirs = placed(1, "n1", 9, node="n1")
    nine = running(share("n1"), id=9)
    decision = seen(gang(ours, theirs), running(share("n0"), id=7), nine)
    assert [type(a) for a in decision.actions if isinstance(a, Evict | End)] == [Evict]
    done = msgspec.structs.replace(theirs, phase="Failed")
    decision = seen(gang(ours, done), running(share("n0"), id=7), nine)
    assert [a.job.id for a in decision.actions if isinstance(a, End)] == [9]


def test_named_gangs_restart_as_jobs_do() -> None:
    first = [pod(None, job=n, created=LATER) for n in ("a", "b")]
    whole = gang(*first, kind=GangKind.PODS, size=2)
    (end,) = seen(whole, running()).actions
    assert isinstance(end, End)
    kept = seen(whole, running(told=KEPT), now=410.0).actions
    assert [type(a) for a in kept] == [Mark]


# -- slurmctld loses a job


def lost(at: float = 380.0) -> Job:
    return job(JobState.LOST, stamp=stamp(2), ended=at)


def test_that_a_job_is_lost_has_to_be_certain() -> None:
    decision = seen(gang(*alive()), lost(at=398.0))
    assert (decision.state, decision.actions) == (GangState.LOST, (Trace(7),))


def test_another_takes_the_place_of_a_lost_one_on_the_same_nodes() -> None:
    (submit,) = seen(gang(*alive()), lost()).actions
    assert isinstance(submit, Submit)
    assert (submit.attempt, submit.nodes, submit.fell) == (2, ("n0", "n1"), 400.0)


def test_it_takes_the_pods_over_as_they_are() -> None:
    eight = running(id=8, stamp=stamp(2, attempt=2, fell=400.0, started=True))
    taken = seen(gang(*alive()), lost(), eight).actions
    assert [(r.rank, r.node, r.job_id) for r in taken if isinstance(r, Release)] == [
        (0, "n0", 8),
        (1, "n1", 8),
    ]
    ours = [placed(i, f"n{i}", 8, node=f"n{i}", phase="Running") for i in range(2)]
    decision = seen(gang(*ours), lost(), eight)
    assert (decision.state, decision.actions) == (GangState.RUNNING, ())


def test_pods_wait_for_it_as_long_as_for_one_that_fell() -> None:
    eight = job(id=8, stamp=stamp(2, attempt=2, fell=400.0))
    assert seen(gang(*alive()), lost(), eight, now=401.0).actions == ()
    late = seen(gang(*alive()), lost(), eight, now=400.0 + FELL_PATIENCE_SECONDS).actions
    assert [type(a) for a in late] == [Evict, Evict]


def test_nothing_takes_the_place_of_a_job_whose_pods_go_or_whose_nodes_are_gone() -> None:
    going = [msgspec.structs.replace(p, deleting=True) for p in alive()]
    astray = [*alive()[:1], placed(1, "n9", node="n9")]
    for pods in (going, astray):
        assert [type(a) for a in seen(gang(*pods), lost()).actions] == [Trace]


def test_a_queued_job_that_was_lost_is_simply_submitted_again() -> None:
    (submit,) = seen(gang(pod(0), pod(1)), lost()).actions
    assert isinstance(submit, Submit)
    assert (submit.attempt, submit.nodes) == (2, ())
