"""What to do about one gang, from what is there and nothing else.

``decide`` is pure: the same gang, jobs and time give the same actions. Every action may be carried
out twice, and a crash between any two of them heals, because the next call starts from what
Kubernetes and Slurm say then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from ClusterShell.NodeSet import NodeSet

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
from extender.domain.ranks import allocation_of, exit_code, held, job_of, node_of, ranks_waiting
from extender.domain.reasons import waiting
from extender.domain.restarts import ended_as_a_whole, renewed, restarts_as_a_whole
from extender.domain.submitting import sentence, submission
from extender.domain.translate import shape

INCOMPLETE_GRACE_SECONDS = 30.0
"""How long an allocation waits for a pod that its workload is replacing, or for a node that
Kubernetes no longer has."""
FELL_PATIENCE_SECONDS = 120.0
"""How long pods stay whose job slurmctld has put back into its queue."""
OVERDUE_SECONDS = 60.0
"""How long after its grace a pod that does not go is waited for: its node may be dead."""


def decide(
    gang: Gang,
    jobs: Sequence[Job],
    nodes: Mapping[str, Node],
    now: float,
    *,
    certain: bool,
) -> Decision:
    """Decide about a gang.

    ``jobs`` are all Slurm jobs stamped with the gang's id, ``nodes`` the managed nodes by name.
    ``certain``: ``jobs`` is complete; without it nothing is submitted.
    """
    live = sorted((j for j in jobs if not j.state.ended), key=lambda job: _preference(gang, job))
    ended = sorted((j for j in jobs if j.state.ended), key=lambda job: -job.id)
    if not live:
        return _without_job(gang, ended, now, certain)
    job, spare = live[0], live[1:]
    decided = _with_job(gang, job, nodes, now)
    first = _doubles(gang, job, spare) + _strays(gang, ended)
    if not first:
        return decided
    return Decision(decided.state, decided.reason, first + decided.actions, job)


def _preference(gang: Gang, job: Job) -> tuple[bool, bool, int]:
    """Of several live jobs keep the one with pods on it, else one that runs, else the oldest."""
    return (not _living(gang, job), job.state is not JobState.RUNNING, job.id)


def _living(gang: Gang, job: Job) -> list[Pod]:
    """The pods that hold what the job has allocated; one that is being deleted does so too."""
    return [p for p in gang.pods if job_of(p) == job.id and not p.terminal]


def _doubles(gang: Gang, job: Job, spare: Sequence[Job]) -> tuple[Action, ...]:
    """Jobs too many: their pods go first, if they have any."""
    actions: list[Action] = []
    for double in spare:
        on_it = _living(gang, double)
        why = f"the gang has Slurm job {job.id}, job {double.id} is one too many"
        actions += [Evict(p, sentence(why)) for p in on_it if not p.deleting]
        if not on_it:
            actions.append(End(double, 0, f"the gang has job {job.id}"))
    return tuple(actions)


# -- without a live job -----------------------------------------------------------------------


def _without_job(gang: Gang, ended: Sequence[Job], now: float, certain: bool) -> Decision:
    """``ended`` are the gang's jobs that were, the newest first."""
    present = [p for p in gang.pods if not p.terminal]
    newest = ended[0] if ended else None
    if not present:
        return Decision(GangState.DONE, "All pods have ended.", job=newest)
    if not certain:
        return Decision(GangState.CHECKING, "Sluice is reading Slurm's list of jobs.")
    losses = [(job, p) for job in ended for p in present if _was_in(p, job)]
    if any(not _overdue(p, now) for _, p in losses):
        lost = losses[0][0]
        leaving = {p.uid: _evict(p, job) for job, p in losses if not p.deleting}
        why = f"{_ended(lost)}; its pods are ending."
        return Decision(GangState.ENDING, why, tuple(leaving.values()), lost)
    left = {p.uid for _, p in losses}
    if stranded := [p for p in present if job_of(p) and p.uid not in left]:
        return Decision(
            GangState.LOST,
            f"Slurm knows no job {job_of(stranded[0])}, on whose nodes {len(stranded)} pods run. "
            "They are left alone; delete them if the job was ended on purpose.",
        )
    return submission(gang, newest, now, avoid=[node_of(p) for _, p in losses])


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


def _with_job(gang: Gang, job: Job, nodes: Mapping[str, Node], now: float) -> Decision:
    present = [p for p in gang.pods if not p.terminal]
    if not present:
        return ended_as_a_whole(gang, job, now)
    if job.state is JobState.PENDING:
        return _queued(gang, job, present, nodes, now)
    if job.state is not JobState.RUNNING:
        return Decision(GangState.QUEUED, f"Slurm job {job.id} is {job.state}.", job=job)
    if not job.shares:
        look = Look(job.id)
        return Decision(GangState.STARTING, f"Slurm job {job.id} has started.", (look,), job)
    decided = restarts_as_a_whole(gang, job, now) if not _living(gang, job) else None
    decided = decided or _allocated(gang, job, nodes, present, now)
    stamping = any(isinstance(a, End | Mark) for a in decided.actions)
    if (job.stamp and job.stamp.started) or stamping:
        return decided  # all of them write the stamp, and the reason for the end has to stay in it
    return Decision(decided.state, decided.reason, (Confirm(job), *decided.actions), job)


# -- in the queue


def _queued(
    gang: Gang, job: Job, present: list[Pod], nodes: Mapping[str, Node], now: float
) -> Decision:
    stamp = job.stamp
    requeued = stamp is not None and job.restarts > stamp.restarts
    if living := _living(gang, job):
        return _requeued(job, living) if requeued else _fallen(job, living, nodes, now)
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


def _requeued(job: Job, living: list[Pod]) -> Decision:
    """Slurm took the nodes away to run the job again later; the start that follows is another."""
    why = f"Slurm has requeued job {job.id}"
    leaving = tuple(Evict(p, why, JobState.PREEMPTED) for p in living if not p.deleting)
    return Decision(GangState.ENDING, f"{why}; its pods are ending.", leaving, job)


def _fallen(job: Job, living: list[Pod], nodes: Mapping[str, Node], now: float) -> Decision:
    """slurmctld was killed before it had saved the start. The pods run on: the job is made to
    start on their nodes again, and only when Slurm has given those away do the pods go."""
    stamp = job.stamp
    theirs = allocation_of(living)
    if stamp is None or not nodes.keys() >= set(theirs):
        why = f"Slurm has put job {job.id} back into its queue; its pods are left alone."
        return Decision(GangState.QUEUED, why, job=job)
    if not stamp.fell:
        fell = msgspec.structs.replace(stamp, fell=now, started=False)
        why = f"Slurm has forgotten that job {job.id} runs; it is to start again on its nodes."
        return Decision(GangState.QUEUED, why, (Mark(job, fell, theirs),), job)
    if now - stamp.fell < FELL_PATIENCE_SECONDS:
        why = (
            f"Slurm has put job {job.id} back into its queue while its pods run; they are left "
            "alone while their nodes may still be had."
        )
        return Decision(GangState.QUEUED, why, job=job)
    why = f"Slurm has given the nodes of job {job.id} to others after it had forgotten its start"
    leaving = tuple(Evict(p, why, JobState.NODE_FAIL) for p in living if not p.deleting)
    return Decision(GangState.ENDING, f"{why}; its pods are ending.", leaving, job)


# -- allocated


def _allocated(
    gang: Gang, job: Job, nodes: Mapping[str, Node], present: list[Pod], now: float
) -> Decision:
    placed = [p for p in gang.pods if job_of(p) == job.id]
    if moved := _moved(job, placed):
        return moved
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
        chosen = assign(sorted(ranks), slot_nodes, held(placed))
    except Misfit as misfit:
        return _misfit(job, misfit, living, unplaced, now)
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


def _moved(job: Job, placed: list[Pod]) -> Decision | None:
    """Pods on nodes that the job does not hold (any more) have to go."""
    held_nodes = {share.name for share in job.shares}
    astray = [p for p in placed if not p.terminal and node_of(p) not in held_nodes]
    if not astray:
        return None
    why = f"Slurm runs job {job.id} without node {node_of(astray[0])} now"
    leaving = tuple(Evict(p, why, JobState.NODE_FAIL) for p in astray if not p.deleting)
    return Decision(GangState.ENDING, f"{why}; pods there are ending.", leaving, job)


def _misfit(
    job: Job, misfit: Misfit, living: list[Pod], unplaced: list[Pod], now: float
) -> Decision:
    why = str(misfit)
    if not living:
        end = End(job, 0, why)
        return Decision(GangState.QUEUED, f"{sentence(why)} It asks again.", (end,), job)
    if not isinstance(misfit, NodesGone):
        return Decision(GangState.RUNNING, sentence(why), job=job)
    if now - max(p.created for p in unplaced) < INCOMPLETE_GRACE_SECONDS:
        return Decision(GangState.STARTING, f"{sentence(why)} It waits for it.", job=job)
    leaving = tuple(Evict(p, why, JobState.NODE_FAIL) for p in living if not p.deleting)
    told = f"{sentence(why)} The gang cannot be whole there and starts anew."
    return Decision(GangState.ENDING, told, leaving, job)


def _running(job: Job, present: list[Pod]) -> Decision:
    unbound = sum(1 for p in present if not p.node and not p.deleting)
    if unbound:
        return Decision(
            GangState.STARTING, f"{unbound} pods wait for kube-scheduler to bind them.", job=job
        )
    return Decision(GangState.RUNNING, f"Runs as Slurm job {job.id}.", job=job)


def _incomplete(job: Job, have: int, want: int, now: float) -> Decision:
    reason = f"Slurm job {job.id} has started but only {have} of {want} pods are there"
    since = max(job.started, job.stamp.newest if job.stamp else 0.0)
    if now - since < INCOMPLETE_GRACE_SECONDS:
        return Decision(GangState.STARTING, f"{reason}; it waits for the rest.", job=job)
    end = End(job, 0, reason)
    return Decision(GangState.FORMING, f"{reason}; the nodes are given back.", (end,), job)


# -- readings ---------------------------------------------------------------------------------


def folded(nodes: Sequence[str]) -> str:
    """Node names as Slurm folds them; once a gang, since it costs as much as a patch."""
    return str(NodeSet.fromlist(list(nodes)))
