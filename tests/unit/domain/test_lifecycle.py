"""decide(): every situation of one gang, and what is done about it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from extender.domain import wellknown as names
from extender.domain.decision import (
    Confirm,
    Decision,
    End,
    Evict,
    GangState,
    Look,
    Nodes,
    Release,
    Submit,
    Trace,
)
from extender.domain.lifecycle import (
    INCOMPLETE_GRACE_SECONDS,
    decide,
)
from extender.domain.model import Gang, GangKind, Job, JobState, Pod, Resources, Workload
from tests.builders import gang, job, nodes, placed, pod, share, stamp, workload

NODES = nodes("n0", "n1", "n2", "n3")
ALL = tuple(share(name) for name in NODES)
NOW = 201.0


def four(**more: Any) -> Gang:
    return gang(*(pod(i, **more) for i in range(4)))


def running(*shares: Any, **more: Any) -> Job:
    return job(JobState.RUNNING, *(shares or ALL), **more)


def seen(g: Gang, *jobs: Job, certain: bool = True, now: float = NOW) -> Decision:
    return decide(g, jobs, NODES, now, certain=certain)


# -- forming and submitting


def test_a_complete_gang_is_submitted_once_as_one_job() -> None:
    decision = seen(four())
    assert decision.state is GangState.SUBMITTING
    (submit,) = decision.actions
    assert isinstance(submit, Submit)
    assert (submit.attempt, len(submit.pods)) == (1, 4)


def test_an_incomplete_gang_asks_for_nothing() -> None:
    decision = seen(gang(pod(0), pod(1), size=3))
    assert (decision.state, decision.actions) == (GangState.FORMING, ())
    assert decision.reason.startswith("2 of 3 pods exist")


def test_nothing_is_submitted_before_slurm_was_read() -> None:
    assert seen(four(), certain=False) == Decision(
        GangState.CHECKING, "Sluice is reading Slurm's list of jobs."
    )


def test_what_is_wrong_with_a_gang_is_said_and_nothing_is_done() -> None:
    decision = seen(gang(pod(0), problem="the sizes disagree"))
    assert decision == Decision(GangState.INVALID, "The sizes disagree.")


def test_pods_that_are_going_do_not_count() -> None:
    decision = seen(gang(pod(0), pod(1, deleting=True), size=2))
    assert (decision.state, decision.actions) == (GangState.FORMING, ())


def test_two_pods_of_one_index_count_once() -> None:
    old, new = pod(0, uid="old", created=1.0), pod(0, uid="new", created=2.0)
    (submit,) = seen(gang(old, new, pod(1), size=2)).actions
    assert isinstance(submit, Submit)
    assert [p.uid for p in submit.pods] == ["new", "train-1-uid"]


def test_ranks_that_succeeded_are_not_asked_for_again() -> None:
    done = pod(0, phase="Succeeded", gates=())
    (submit,) = seen(gang(done, pod(1, created=300.0), size=2), job(JobState.FAILED)).actions
    assert isinstance(submit, Submit)
    assert [p.name for p in submit.pods] == ["train-1"]


def test_nor_ranks_whose_succeeded_pods_are_gone() -> None:
    """The Job counts them still, and makes only the others anew."""
    owner = workload(4, completed=frozenset({0, 1}))
    rest = gang(pod(2), pod(3), size=4, workload=owner)
    (submit,) = seen(rest, job(JobState.NODE_FAIL, stamp=stamp(newest=50.0))).actions
    assert isinstance(submit, Submit)
    assert len(submit.pods) == 2


def named(*names_: str, **more: Any) -> tuple[Pod, ...]:
    """Pods that name their gang and have no owner."""
    return tuple(pod(None, job=name, **more) for name in names_)


def named_gang(*pods: Pod) -> Gang:
    return gang(*pods, size=2, kind=GangKind.PODS)


def test_what_is_left_of_an_earlier_gang_of_the_name_does_not_count() -> None:
    ended = named("a", "b", phase="Succeeded", gates=())
    half = named_gang(*ended, *named("c", created=300.0))
    assert seen(half, job(JobState.COMPLETED)).actions == ()
    (submit,) = seen(
        named_gang(*ended, *named("c", "d", created=300.0)), job(JobState.COMPLETED)
    ).actions
    assert isinstance(submit, Submit)
    assert [p.name for p in submit.pods] == ["c", "d"]


def test_an_earlier_gang_of_the_name_does_not_say_how_large_ranks_are() -> None:
    ended = named("a", "b", phase="Succeeded", gates=())
    later = named("c", "d", resources=Resources(1000, 2**30, 4), created=300.0)
    half = share("n0", 2, cpus=1, memory_mib=1024, gpus=4)
    releases = seen(
        named_gang(*ended, *later), running(half, stamp=stamp(2, newest=300.0, started=True))
    ).actions
    assert [r.node for r in releases if isinstance(r, Release)] == ["n0", "n0"]


@pytest.mark.parametrize("live", [job(size=2), running(share("n0"), share("n1"), size=2)])
def test_pods_made_later_under_the_name_are_asked_for_anew(live: Job) -> None:
    (end,) = seen(named_gang(*named("a", "b", created=300.0)), live).actions
    assert isinstance(end, End)
    assert end.job is live


def test_one_pod_made_later_joins_the_gang() -> None:
    first, second = named("a"), named("b", created=300.0)
    releases = seen(named_gang(*first, *second), running(share("n0"), share("n1"), size=2)).actions
    assert [r.node for r in releases if isinstance(r, Release)] == ["n0", "n1"]


# -- in the queue


def test_a_queued_gang_holds_nothing_and_hears_slurms_reason() -> None:
    decision = seen(four(), job(reason="Resources"))
    assert (decision.state, decision.actions) == (GangState.QUEUED, ())
    assert decision.reason == (
        "Slurm job 7 is next in line and waits for enough free nodes (Slurm: Resources)."
    )


def test_a_queued_gang_whose_pods_are_gone_leaves_the_queue() -> None:
    (end,) = seen(gang(size=4), job()).actions
    assert isinstance(end, End)
    assert end.why == "its pods are gone"


def test_a_queued_gang_whose_pods_are_going_leaves_the_queue() -> None:
    assert isinstance(seen(four(deleting=True), job()).actions[0], End)


# -- allocated


def test_an_allocation_is_read_before_it_is_used() -> None:
    decision = seen(four(), job(JobState.RUNNING))
    assert decision.actions == (Look(7),)


def test_all_pods_are_released_together_in_rank_order() -> None:
    decision = seen(four(), running(*reversed(ALL)))
    releases = [a for a in decision.actions if isinstance(a, Release)]
    assert [(r.pod.name, r.rank, r.node) for r in releases] == [
        (f"train-{i}", i, f"n{i}") for i in range(4)
    ]
    assert {r.nodes for r in releases} == {Nodes(("n0", "n1", "n2", "n3"), "n[0-3]")}
    assert {(r.job_id, r.ranks) for r in releases} == {(7, 4)}


def test_the_start_is_confirmed_once() -> None:
    fresh, saved = running(confirmed=False), running()
    assert seen(four(), fresh).actions[0] == Confirm(fresh)
    assert not any(isinstance(a, Confirm) for a in seen(four(), saved).actions)


def test_a_start_that_is_given_back_at_once_is_not_confirmed() -> None:
    """Both are writes of the stamp: the later one would take the reason for the end out again."""
    decision = seen(four(), running(*ALL[:3], share("n9"), confirmed=False))
    assert [type(a) for a in decision.actions] == [End]


def test_no_pod_is_released_while_one_is_missing() -> None:
    decision = seen(gang(*(pod(i) for i in range(3)), size=4), running())
    assert (decision.state, decision.actions) == (GangState.STARTING, ())


def test_an_allocation_does_not_wait_for_ever_for_a_missing_pod() -> None:
    late = 200.0 + INCOMPLETE_GRACE_SECONDS
    decision = seen(gang(*(pod(i) for i in range(3)), size=4), running(), now=late)
    (end,) = decision.actions
    assert isinstance(end, End)
    assert "only 3 of 4 pods are there" in end.why


def test_a_node_unknown_to_kubernetes_is_never_used() -> None:
    decision = seen(four(), running(*ALL[:3], share("n9")))
    assert [type(a) for a in decision.actions] == [End]
    assert "n9, which Kubernetes does not have" in decision.reason


def test_the_release_goes_on_where_a_crash_left_it() -> None:
    half = gang(placed(0, "n0"), placed(1, "n1"), pod(2), pod(3))
    releases = seen(half, running()).actions
    assert [(r.rank, r.node) for r in releases if isinstance(r, Release)] == [(2, "n2"), (3, "n3")]


def test_a_replaced_pod_returns_to_its_own_slot() -> None:
    before = placed(1, "n1", uid="old", phase="Failed", exit_code=3)
    after = pod(1, created=300.0)
    whole = gang(placed(0, "n0"), before, after, placed(2, "n2"), placed(3, "n3"), size=4)
    (release,) = seen(whole, running()).actions
    assert isinstance(release, Release)
    assert (release.pod.uid, release.rank, release.node) == (after.uid, 1, "n1")


def test_the_slot_of_a_pod_that_is_still_ending_is_not_given_away() -> None:
    whole = gang(placed(0, "n0", deleting=True, uid="old"), pod(0, created=300.0), size=1)
    decision = seen(whole, running(share("n0"), size=1))
    assert decision.actions == ()


def test_a_lone_pod_has_rank_0_whatever_its_index() -> None:
    lone = gang(pod(5), size=1, kind=GangKind.POD, id="train-5-uid")
    (release,) = seen(lone, running(share("n2"), size=1)).actions
    assert isinstance(release, Release)
    assert (release.rank, release.node) == (0, "n2")


def test_a_pod_too_many_waits_and_is_told_why() -> None:
    whole = gang(
        placed(0, "n0"),
        placed(1, "n1"),
        pod(None, job="third"),
        size=2,
        kind=GangKind.PODS,
        problem="3 pods exist",
    )
    decision = seen(whole, running(share("n0"), share("n1"), size=2))
    assert (decision.state, decision.actions) == (GangState.INVALID, ())
    assert decision.reason == "3 pods exist."


def test_running_gangs_need_nothing() -> None:
    whole = gang(*(placed(i, f"n{i}", node=f"n{i}", phase="Running") for i in range(4)))
    decision = seen(whole, running())
    assert (decision.state, decision.actions) == (GangState.RUNNING, ())


# -- the end


@pytest.mark.parametrize(
    ("phases", "code"),
    [(["Succeeded"] * 4, 0), (["Succeeded", "Failed", "Failed", "Succeeded"], 3)],
)
def test_when_all_pods_have_ended_the_job_ends(phases: list[str], code: int) -> None:
    exits = {1: 3, 2: 9}
    whole = gang(
        *(placed(i, f"n{i}", phase=p, exit_code=exits.get(i)) for i, p in enumerate(phases))
    )
    (end,) = seen(whole, running()).actions
    assert isinstance(end, End)
    assert (end.job.id, end.exit_code, end.finished) == (7, code, True)


def test_the_allocation_is_held_while_one_pod_is_ending() -> None:
    pods = [placed(i, f"n{i}", phase="Succeeded") for i in range(3)]
    decision = seen(gang(*pods, placed(3, "n3", deleting=True, node="n3")), running())
    assert decision.actions == ()


def test_a_gang_that_was_deleted_gives_its_nodes_back() -> None:
    (end,) = seen(gang(size=4), running()).actions
    assert isinstance(end, End)
    assert not end.finished


ENDS = [s for s in JobState if s.ended]


@pytest.mark.parametrize("state", ENDS)
def test_a_job_that_slurm_ended_takes_its_pods_along(state: JobState) -> None:
    bound, gated = placed(0, "n0", node="n0"), pod(1)
    decision = seen(gang(bound, gated, size=2), job(state))
    evicted = [a for a in decision.actions if isinstance(a, Evict)]
    assert [(a.pod, a.state) for a in evicted] == [(bound, state), (gated, state)]
    assert str(state) in decision.reason


def test_pods_already_going_are_not_deleted_again() -> None:
    decision = seen(gang(placed(0, "n0", deleting=True), size=1), job(JobState.CANCELLED))
    assert (decision.state, decision.actions) == (GangState.ENDING, ())


def test_pods_made_after_the_end_are_a_new_attempt() -> None:
    (submit,) = seen(four(created=300.0), job(JobState.CANCELLED)).actions
    assert isinstance(submit, Submit)
    assert submit.attempt == 2


def test_pods_stay_when_sluice_itself_gave_the_allocation_back() -> None:
    withdrawn = job(JobState.CANCELLED, stamp=stamp(outcome="a node was unknown"))
    (submit,) = seen(four(), withdrawn).actions
    assert isinstance(submit, Submit)
    assert submit.attempt == 2


def test_done_gangs_are_left_alone() -> None:
    done = gang(*(placed(i, f"n{i}", phase="Succeeded") for i in range(4)))
    assert seen(done, job(JobState.CANCELLED)).state is GangState.DONE


# -- lies and doubles


def test_no_pod_is_deleted_because_slurm_forgot_its_job() -> None:
    """What became of it is found out; until then nothing is done."""
    decision = seen(gang(*(placed(i, f"n{i}", node=f"n{i}") for i in range(4))))
    assert (decision.state, decision.actions) == (GangState.LOST, (Trace(7),))


def test_of_two_live_jobs_the_one_with_pods_stays() -> None:
    whole = gang(*(placed(i, f"n{i}", job_id=9, node=f"n{i}") for i in range(4)))
    decision = seen(whole, running(id=7), running(id=9))
    assert [a.job.id for a in decision.actions if isinstance(a, End)] == [7]
    assert decision.job is not None
    assert decision.job.id == 9


def test_of_two_queued_jobs_the_older_stays() -> None:
    decision = seen(four(), job(id=9), job(id=7))
    assert [a.job.id for a in decision.actions if isinstance(a, End)] == [9]


def test_a_forged_answer_is_not_a_placement() -> None:
    """A pod that claims another job is not of this one: it is not counted as placed."""
    liar = pod(0, annotations={names.JOB_ID: "999", names.NODE: "n0", names.RANK: "0"})
    decision = seen(gang(liar, pod(1), size=2), running(share("n0"), share("n1"), size=2))
    assert not any(isinstance(a, Release) for a in decision.actions)


# -- annotations that somebody else wrote


@pytest.mark.parametrize("text", ["²", "x", "", "9" * 5000])
def test_answers_that_are_no_numbers_break_nothing(text: str) -> None:
    odd = placed(0, "n0")
    for written in (names.RANK, names.JOB_ID):
        pods = msgspec.structs.replace(odd, annotations={**odd.annotations, written: text})
        assert seen(gang(pods, *(pod(i) for i in range(1, 4))), running()).state
        assert seen(gang(pods, *(pod(i) for i in range(1, 4)))).state
    bare = msgspec.structs.replace(odd, annotations={names.JOB_ID: "7"})
    assert seen(gang(bare, *(pod(i) for i in range(1, 4))), running()).state


# -- several jobs, one after another


def test_pods_of_a_job_that_ended_before_the_newest_go() -> None:
    """Job 8 was a double and was ended first; the pods ran as job 7, which has timed out."""
    seven, eight = running(), job(JobState.CANCELLED, id=8, stamp=stamp(outcome="double"))
    pods = gang(*(placed(i, f"n{i}") for i in range(4)))
    timed_out = msgspec.structs.replace(seven, state=JobState.TIMEOUT)
    decision = seen(pods, timed_out, eight)
    assert decision.state is GangState.ENDING
    assert decision.reason == "Slurm job 7 is TIMEOUT; its pods are ending."
    assert [a.why for a in decision.actions if isinstance(a, Evict)] == [
        "Slurm job 7 is TIMEOUT"
    ] * 4


def test_pods_of_an_ended_job_go_while_the_gang_has_another() -> None:
    pods = gang(*(placed(i, f"n{i}") for i in range(4)))
    decision = seen(pods, job(JobState.NODE_FAIL), job(JobState.PENDING, id=8))
    evicted = [a.state for a in decision.actions if isinstance(a, Evict)]
    assert evicted == [JobState.NODE_FAIL] * 4


def test_the_exit_code_is_that_of_the_last_try_of_each_rank() -> None:
    failed = placed(1, "n1", phase="Failed", uid="first", exit_code=3, created=1.0)
    done = [placed(i, f"n{i}", phase="Succeeded", created=2.0) for i in range(2)]
    earlier = placed(0, "n0", 6, phase="Failed", uid="earlier", exit_code=4, created=5.0)
    (end,) = seen(gang(failed, earlier, *done, size=2), running()).actions
    assert isinstance(end, End)
    assert (end.exit_code, end.finished) == (0, True)


def given_back(attempt: int, **more: Any) -> Job:
    told = stamp(attempt=attempt, outcome="Slurm allocated room for 3 ranks", **more)
    return job(JobState.CANCELLED, stamp=told, ended=200.0)


def test_what_never_fits_is_asked_for_more_and_more_seldom() -> None:
    assert seen(four(), given_back(1), now=200.1).state is GangState.SUBMITTING
    waits = seen(four(), given_back(5), now=230.0)
    assert (waits.state, waits.actions) == (GangState.FORMING, ())
    assert waits.reason == "It asks again after a pause: Slurm allocated room for 3 ranks."
    assert seen(four(), given_back(5), now=233.0).state is GangState.SUBMITTING
    assert seen(four(), given_back(5000), now=501.0).state is GangState.SUBMITTING
    assert seen(four(created=300.0), given_back(5), now=201.0).state is GangState.SUBMITTING


# -- pods that are not to run now


@pytest.mark.parametrize(
    ("owner", "why"),
    [
        (None, "Job 'train' is gone"),
        (workload(4, deleting=True), "Job 'train' is being deleted"),
        (workload(4, suspended=True), "Job 'train' is suspended"),
    ],
)
def test_nothing_is_submitted_for_a_job_that_stops(owner: Workload | None, why: str) -> None:
    decision = seen(gang(*(pod(i) for i in range(4)), workload=owner))
    assert (decision.state, decision.actions) == (GangState.FORMING, ())
    assert decision.reason == f"{why}; nothing is asked of Slurm for its pods."


def test_nothing_is_submitted_before_other_gates_are_off() -> None:
    decision = seen(four(gates=(names.GATE, "example.com/quota")))
    assert (decision.state, decision.actions) == (GangState.FORMING, ())
    assert "example.com/quota" in decision.reason
