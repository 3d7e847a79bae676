"""What to do about one gang, from what is there and nothing else.

``decide`` is pure: the same gang, jobs and time give the same actions. Every action may be carried
out twice, and a crash between any two of them heals, because the next call starts from what
Kubernetes and Slurm say then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from extender.domain.decision import (
    Action,
    Confirm,
    Decision,
    End,
    Evict,
    GangState,
    Look,
    Mark,
    Nodes,
    Release,
)
from extender.domain.model import Gang, GangKind, Job, JobState, Node, Pod
from extender.domain.placement import Misfit, NodesGone, assign, slots
from extender.domain.ranks import (
    exit_code,
    folded,
    held,
    job_of,
    living_on,
    node_of,
    ranks_waiting,
)
from extender.domain.reasons import waiting
from extender.domain.recovery import (
    leave_moved,
    leave_requeued,
    replace_lost,
    stranded_pods,
    take_over,
    wait_fallen,
)
from extender.domain.restarts import comes_again, ended_as_a_whole, renewed, restarts_as_a_whole
from extender.domain.submitting import sentence, submission
from extender.domain.translate import shape

INCOMPLETE_GRACE_SECONDS = 30.0
"""How long an allocation waits for a pod that its workload is replacing, or for a node that
Kubernetes no longer has."""
OVERDUE_SECONDS = 60.0
"""How long after its grace a pod that does not go is waited for: its node may be dead."""


def decide(
    gang: Gang,
    jobs: Sequence[Job],
    nodes: Mapping[str, Node],
    now: float,
    *,
    certain: bool,
    gone_since: Callable[[str], float] = lambda _: 0.0,
) -> Decision:
    """Decide about a gang.

    ``jobs`` are all Slurm jobs stamped with the gang's id, ``nodes`` the managed nodes by name.
    ``certain``: ``jobs`` is complete; without it nothing is submitted. ``gone_since``: when a node
    that is not in ``nodes`` was there last.
    """
    live = sorted((j for j in jobs if j.state.live), key=lambda job: _preference(gang, job))
    ended = sorted((j for j in jobs if j.state.ended), key=lambda job: -job.id)
    stranded = stranded_pods(gang, jobs)
    if not live:
        lost = next((j for j in jobs if j.state is JobState.LOST), None)
        return _without_job(gang, ended, lost, stranded, nodes, now, certain)
    job, spare = live[0], live[1:]
    decided = _with_job(gang, job, stranded, nodes, now, gone_since)
    first = _doubles(gang, job, spare) + _strays(gang, ended)
    if not first:
        return decided
    return Decision(decided.state, decided.reason, first + decided.actions, job)


def _preference(gang: Gang, job: Job) -> tuple[bool, bool, int]:
    """Of several live jobs keep the one with pods on it, else one that runs, else the oldest."""
    return (not living_on(gang, job), job.state is not JobState.RUNNING, job.id)


def _doubles(gang: Gang, job: Job, spare: Sequence[Job]) -> tuple[Action, ...]:
    """Jobs too many: their pods go first, if they have any."""
    actions: list[Action] = []
    for double in spare:
        on_it = living_on(gang, double)
        why = f"the gang has Slurm job {job.id}, job {double.id} is one too many"
        actions += [Evict(p, sentence(why)) for p in on_it if not p.deleting]
        if not on_it:
            actions.append(End(double, 0, f"the gang has job {job.id}"))
    return tuple(actions)


# -- without a live job -----------------------------------------------------------------------


def _without_job(
    gang: Gang,
    ended: Sequence[Job],
    lost: Job | None,
    stranded: list[Pod],
    nodes: Mapping[str, Node],
    now: float,
    certain: bool,
) -> Decision:
    """``ended`` are the gang's jobs that were, the newest first."""
    present = [p for p in gang.pods if not p.terminal]
    newest = max([*ended, *([lost] if lost else [])], key=_attempt, default=None)
    if not present and gang.kind is GangKind.JOB and comes_again(gang):
        ended_as = f" Slurm job {newest.id} is {newest.state}." if newest else ""
        why = f"All pods have ended.{ended_as} Job {gang.name!r} makes others in their place."
        return Decision(GangState.FORMING, why, job=newest)
    if not present:
        return Decision(GangState.DONE, "All pods have ended.", job=newest)
    if not certain:
        return Decision(GangState.CHECKING, "Sluice is reading Slurm's list of jobs.")
    losses = [(job, p) for job in ended for p in present if _was_in(p, job)]
    if waits := [p for _, p in losses if not _overdue(p, now)]:
        over = losses[0][0]
        leaving = {p.uid: _evict(p, job) for job, p in losses if not p.deleting}
        why = f"{_ended(over)}; its pods are ending."
        due = max(p.gone_by for p in waits) + OVERDUE_SECONDS
        again = due - now if all(p.deleting for p in waits) else 0.0
        return Decision(GangState.ENDING, why, tuple(leaving.values()), over, again)
    if stranded:
        return replace_lost(gang, lost, stranded, nodes, now)
    return submission(gang, newest, now, avoid=[node_of(p) for _, p in losses])


def _attempt(job: Job) -> tuple[int, int]:
    return (job.stamp.attempt if job.stamp else 0, job.id)


def _strays(gang: Gang, ended: Sequence[Job]) -> tuple[Evict, ...]:
    """Pods on the nodes of a job that has ended, while the gang has another."""
    over = {job.id: job for job in ended}
    return tuple(
        _evict(p, over[job_of(p)])
        for p in gang.pods
        if job_of(p) in over and not p.terminal and not p.deleting
    )


def _evict(pod: Pod, job: Job) -> Evict:
    return Evict(pod, _ended(job), job.state)


def _ended(job: Job) -> str:
    return f"Slurm job {job.id} is {job.state}"


def _was_in(pod: Pod, job: Job) -> bool:
    """The pod belonged to the attempt that the job was, and lost it by no decision of ours."""
    if placed := job_of(pod):
        return placed == job.id
    return job.stamp is not None and not job.stamp.outcome and pod.created <= job.stamp.newest


def _overdue(pod: Pod, now: float) -> bool:
    """The pod is to be gone long since: nobody on its node ends it. Its workload has made another
    in its place if there is one, so the gang need not wait for it."""
    return pod.deleting and bool(pod.gone_by) and now > pod.gone_by + OVERDUE_SECONDS


# -- with a live job --------------------------------------------------------------------------


def _with_job(
    gang: Gang,
    job: Job,
    stranded: list[Pod],
    nodes: Mapping[str, Node],
    now: float,
    gone_since: Callable[[str], float],
) -> Decision:
    living = living_on(gang, job) + stranded
    present = [p for p in gang.pods if not p.terminal]
    if not present:
        return ended_as_a_whole(gang, job, now)
    if job.state is JobState.PENDING:
        return _queued(gang, job, present, living, nodes, now)
    if job.state is not JobState.RUNNING:
        return Decision(GangState.QUEUED, f"Slurm job {job.id} is {job.state}.", job=job)
    if not job.shares:
        look = Look(job.id)
        return Decision(GangState.STARTING, f"Slurm job {job.id} has started.", (look,), job)
    decided = None if living else restarts_as_a_whole(gang, job, now)
    decided = decided or take_over(gang, job, stranded, nodes)
    if decided is None and (moved := leave_moved(job, living)):
        return moved  # the start is saved when it is sure where it was
    decided = decided or _allocated(gang, job, nodes, present, now, gone_since)
    stamping = any(isinstance(a, End | Mark) for a in decided.actions)
    if (job.stamp and job.stamp.started) or stamping:
        return decided  # all of them write the stamp, and the reason for the end has to stay in it
    return Decision(decided.state, decided.reason, (Confirm(job), *decided.actions), job)


# -- in the queue


def _queued(
    gang: Gang,
    job: Job,
    present: list[Pod],
    living: list[Pod],
    nodes: Mapping[str, Node],
    now: float,
) -> Decision:
    stamp = job.stamp
    requeued = stamp is not None and job.restarts > stamp.restarts
    if living:
        return leave_requeued(job, living) if requeued else wait_fallen(job, living, nodes, now)
    if stamp and stamp.fell:
        why = "its pods have ended while it was back in the queue"
        return _given_back(job, exit_code(gang, job), why)
    if all(p.deleting for p in present):
        return _given_back(job, 0, "its pods are being deleted")
    if gang.kind is GangKind.PODS and all(_is_later(p, job) for p in present):
        return _given_back(job, 0, "its pods are gone; others have its name now")
    if stamp and requeued:
        again = msgspec.structs.replace(renewed(stamp, gang, job), restarts=job.restarts)
        return Decision(GangState.QUEUED, waiting(job), (Mark(job, again),), job)
    return Decision(GangState.QUEUED, waiting(job), job=job)


def _given_back(job: Job, code: int, why: str) -> Decision:
    return Decision(
        GangState.ENDING, f"Slurm job {job.id} ends: {why}.", (End(job, code, why),), job
    )


def _is_later(pod: Pod, job: Job) -> bool:
    """The pod was made after the job was submitted for others."""
    return not job_of(pod) and job.stamp is not None and pod.created > job.stamp.newest


# -- allocated


def _allocated(
    gang: Gang,
    job: Job,
    nodes: Mapping[str, Node],
    present: list[Pod],
    now: float,
    gone_since: Callable[[str], float],
) -> Decision:
    placed = [p for p in gang.pods if job_of(p) == job.id]
    unplaced = [p for p in present if not job_of(p) and not p.deleting]
    if not unplaced:
        return _running(job, present)
    tasks = job.stamp.size if job.stamp else gang.size
    ranks = ranks_waiting(gang, unplaced, placed)
    living = [p for p in placed if not p.terminal]
    if not living and len(ranks) < tasks and not _some_have_ended(job, placed):
        return _incomplete(job, len(ranks), tasks, now)
    if not ranks and gang.problem:
        return Decision(GangState.INVALID, sentence(gang.problem), job=job)
    try:
        slot_nodes = slots(job.shares, shape([*placed, *unplaced]), nodes)
        chosen = assign(sorted(ranks), slot_nodes, held(placed), whole=tasks == gang.size)
    except NodesGone as gone:
        since = max([*map(gone_since, gone.names), *(p.created for p in unplaced)])
        return _nodes_gone(job, gone, living, since, now)
    except Misfit as misfit:
        return _misfit(job, misfit, living)
    order = tuple(dict.fromkeys(slot_nodes))
    allocation = Nodes(order, folded(order))
    releases = tuple(
        Release(ranks[rank], job.id, node, rank, gang.size, allocation)
        for rank, node in chosen.items()
    )
    count = len(order)
    reason = f"Slurm job {job.id} holds {count} node{'s' * (count > 1)}; pods are being placed."
    return Decision(GangState.STARTING, reason, releases, job)


def _some_have_ended(job: Job, placed: list[Pod]) -> bool:
    """Pods of this attempt have run and ended: the rest of it is not waited for as for a start."""
    after = job.stamp.after if job.stamp else 0.0
    return any(p.terminal and p.created > after for p in placed)


def _misfit(job: Job, misfit: Misfit, living: list[Pod]) -> Decision:
    why = str(misfit)
    if living:
        return Decision(GangState.RUNNING, sentence(why), job=job)
    end = End(job, 0, why)
    return Decision(GangState.QUEUED, f"{sentence(why)} It asks again.", (end,), job)


def _nodes_gone(job: Job, gone: NodesGone, living: list[Pod], since: float, now: float) -> Decision:
    """A node may come back; its pods, and those that wait for it, need it until then."""
    why = str(gone)
    if not living:
        return _misfit(job, gone, living)
    patience = since + INCOMPLETE_GRACE_SECONDS - now
    if patience > 0:
        told = f"{sentence(why)} It waits for it."
        return Decision(GangState.STARTING, told, job=job, again_in=patience)
    leaving = tuple(Evict(p, why, JobState.NODE_FAIL) for p in living if not p.deleting)
    told = f"{sentence(why)} The gang cannot be whole there and starts anew."
    return Decision(GangState.ENDING, told, leaving, job)


def _running(job: Job, present: list[Pod]) -> Decision:
    unbound = sum(1 for p in present if not p.node and not p.deleting)
    if unbound:
        why = f"{unbound} pods wait for kube-scheduler to bind them."
        if unbound == 1:
            why = "1 pod waits for kube-scheduler to bind it."
        return Decision(GangState.STARTING, why, job=job)
    return Decision(GangState.RUNNING, f"Runs as Slurm job {job.id}.", job=job)


def _incomplete(job: Job, have: int, want: int, now: float) -> Decision:
    reason = f"Slurm job {job.id} has started but only {have} of {want} pods are there"
    since = max(job.started, job.stamp.newest if job.stamp else 0.0)
    if now - since < INCOMPLETE_GRACE_SECONDS:
        told = f"{reason}; it waits for the rest."
        again = since + INCOMPLETE_GRACE_SECONDS - now
        return Decision(GangState.STARTING, told, job=job, again_in=again)
    end = End(job, 0, reason)
    return Decision(GangState.FORMING, f"{reason}; the nodes are given back.", (end,), job)
