"""What to do about one gang, from what is there and nothing else.

``decide`` is pure: the same gang, jobs and time give the same actions. Every action may be carried
out twice, and a crash between any two of them heals, because the next call starts from what
Kubernetes and Slurm say then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

from ClusterShell.NodeSet import NodeSet
from msgspec import Struct

from extender.domain.model import Gang, GangKind, Job, JobState, Node, Pod
from extender.domain.placement import Misfit, assign, slots
from extender.domain.ranks import exit_code, held, job_of, one_per_rank, ranks_done, ranks_waiting
from extender.domain.reasons import waiting
from extender.domain.translate import shape
from extender.domain.wellknown import GATE

MOST_PATIENCE_SECONDS = 300.0
INCOMPLETE_GRACE_SECONDS = 30.0
"""How long an allocation waits for a pod that its workload is replacing."""


class GangState(StrEnum):
    CHECKING = "Checking"  # Slurm has not been looked at yet
    FORMING = "Forming"  # pods are missing
    INVALID = "Invalid"  # can never start as it stands
    SUBMITTING = "Submitting"
    QUEUED = "Queued"  # in Slurm's queue
    STARTING = "Starting"  # allocated; pods are being placed
    RUNNING = "Running"
    ENDING = "Ending"
    DONE = "Done"
    LOST = "Lost"  # its pods run on nodes of a job that Slurm does not know


class Submit(Struct, frozen=True):
    """Queue one Slurm job for these pods."""

    attempt: int
    pods: tuple[Pod, ...]


class Look(Struct, frozen=True):
    """Read one job whole: its allocation is needed."""

    job_id: int


class Confirm(Struct, frozen=True):
    """Make slurmctld save that the job has started."""

    job: Job


class Nodes(Struct, frozen=True):
    """The nodes of an allocation."""

    names: tuple[str, ...]  # in fabric order
    folded: str  # as Slurm writes them, "k[0-3,7]"; the order of ranks is in the ranks


class Release(Struct, frozen=True):
    """Give a pod its node, rank and job, and take the gate off, in one write."""

    pod: Pod
    job_id: int
    node: str
    rank: int
    ranks: int
    nodes: Nodes  # of the gang, one value for all of its pods


class End(Struct, frozen=True):
    """End the Slurm job, for a reason of ours, which is written into its stamp first.

    The stamp tells the next decision that nobody took the nodes from the gang: pods that are
    there by then are not to be deleted.
    """

    job: Job
    exit_code: int
    why: str
    finished: bool = False  # all pods came to their end: the exit code is theirs


class Evict(Struct, frozen=True):
    """Delete a pod with its own grace."""

    pod: Pod
    why: str
    state: JobState | None = None  # of the Slurm job that the pod was in


Action = Submit | Look | Confirm | Release | End | Evict


class Decision(Struct, frozen=True):
    state: GangState
    reason: str  # a sentence for the person who waits
    actions: tuple[Action, ...] = ()
    job: Job | None = None


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
    doubles = tuple(End(j, 0, f"the gang has job {job.id}") for j in spare)
    first = doubles + _strays(gang, ended)
    if not first:
        return decided
    return Decision(decided.state, decided.reason, first + decided.actions, job)


def _preference(gang: Gang, job: Job) -> tuple[bool, bool, int]:
    """Of several live jobs keep the one with pods on it, else one that runs, else the oldest."""
    used = any(job_of(pod) == job.id and not pod.terminal for pod in gang.pods)
    return (not used, job.state is not JobState.RUNNING, job.id)


# -- without a live job -----------------------------------------------------------------------


def _without_job(gang: Gang, ended: Sequence[Job], now: float, certain: bool) -> Decision:
    """``ended`` are the gang's jobs that were, the newest first."""
    present = [p for p in gang.pods if not p.terminal]
    newest = ended[0] if ended else None
    if not present:
        return Decision(GangState.DONE, "All pods have ended.", job=newest)
    if not certain:
        return Decision(GangState.CHECKING, "Sluice is reading Slurm's list of jobs.")
    if losses := [(job, p) for job in ended for p in present if _was_in(p, job)]:
        lost, why = losses[0][0], _ended(losses[0][0])
        leaving = {p.uid: _evict(p, job) for job, p in losses if not p.deleting}
        return Decision(
            GangState.ENDING, f"{why}; its pods are ending.", tuple(leaving.values()), lost
        )
    if stranded := [p for p in present if job_of(p)]:
        return Decision(
            GangState.LOST,
            f"Slurm knows no job {job_of(stranded[0])}, on whose nodes {len(stranded)} pods run. "
            "They are left alone; delete them if the job was ended on purpose.",
        )
    return _submit(gang, newest, now)


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


def _submit(gang: Gang, ended: Job | None, now: float) -> Decision:
    if why := _owner_stops(gang):
        return Decision(GangState.FORMING, f"{why}; nothing is asked of Slurm for its pods.")
    if gang.problem:
        return Decision(GangState.INVALID, _sentence(gang.problem))
    ready = one_per_rank(p for p in gang.pods if not p.terminal and not p.deleting)
    wanted = gang.size - ranks_done(gang)
    if len(ready) < wanted:
        return Decision(
            GangState.FORMING,
            f"{len(ready)} of {wanted} pods exist; nothing is asked of Slurm before all do.",
        )
    if other := sorted({g for p in ready for g in p.gates if g != GATE}):
        return Decision(
            GangState.FORMING,
            f"Pods wait for other scheduling gates ({', '.join(other)}); nothing is asked of Slurm "
            "before those are off.",
        )
    if ended and now < ended.ended + _patience(ended, ready):
        return Decision(GangState.FORMING, f"It asks again after a pause: {_outcome(ended)}.")
    attempt = (ended.stamp.attempt if ended and ended.stamp else 0) + 1
    submit = Submit(attempt, tuple(ready))
    return Decision(GangState.SUBMITTING, "The gang is being submitted to Slurm.", (submit,))


def _owner_stops(gang: Gang) -> str:
    """Why the pods of a Job are about to go, or never to run; "" for all others."""
    if gang.kind is not GangKind.JOB:
        return ""
    job = gang.workload
    if job is None:
        return f"Job {gang.name!r} is gone"
    if job.deleting:
        return f"Job {gang.name!r} is being deleted"
    return f"Job {gang.name!r} is suspended" if job.suspended else ""


def _patience(ended: Job, pods: Sequence[Pod]) -> float:
    """Seconds between the end of a job that Sluice gave back and the next for the same pods: what
    did not fit three times will not fit at once."""
    stamp = ended.stamp
    if stamp is None or not stamp.outcome or stamp.attempt < 3:
        return 0.0
    again = all(p.created <= stamp.newest for p in pods)
    return min(2.0 ** min(stamp.attempt, 10), MOST_PATIENCE_SECONDS) if again else 0.0


def _outcome(job: Job) -> str:
    return job.stamp.outcome if job.stamp else ""


def _was_in(pod: Pod, job: Job) -> bool:
    """The pod belonged to the attempt that the job was, and lost it by no decision of ours."""
    if placed := job_of(pod):
        return placed == job.id
    return job.stamp is not None and not job.stamp.outcome and pod.created <= job.stamp.newest


# -- with a live job --------------------------------------------------------------------------


def _with_job(gang: Gang, job: Job, nodes: Mapping[str, Node], now: float) -> Decision:
    present = [p for p in gang.pods if not p.terminal]
    if not present:
        why = "all pods have ended" if gang.pods else "its pods are gone"
        end = End(job, exit_code(gang, job), why, finished=bool(gang.pods))
        return Decision(GangState.ENDING, f"{_sentence(why)} Slurm job {job.id} ends.", (end,), job)
    if gang.kind is GangKind.PODS and all(_is_later(p, job) for p in present):
        why = "its pods are gone; others have its name now"
        return Decision(
            GangState.SUBMITTING, f"Slurm job {job.id} ends: {why}.", (End(job, 0, why),), job
        )
    if job.state is JobState.PENDING:
        return _queued(job, present)
    if job.state is not JobState.RUNNING:
        return Decision(GangState.QUEUED, f"Slurm job {job.id} is {job.state}.", job=job)
    if not job.shares:
        look = Look(job.id)
        return Decision(GangState.STARTING, f"Slurm job {job.id} has started.", (look,), job)
    decided = _allocated(gang, job, nodes, present, now)
    if (job.stamp and job.stamp.started) or any(isinstance(a, End) for a in decided.actions):
        return decided  # both write the stamp, and the reason for the end has to stay in it
    return Decision(decided.state, decided.reason, (Confirm(job), *decided.actions), job)


def _is_later(pod: Pod, job: Job) -> bool:
    """The pod was made after the job was submitted for others."""
    return not job_of(pod) and job.stamp is not None and pod.created > job.stamp.newest


def _queued(job: Job, present: list[Pod]) -> Decision:
    if any(job_of(p) == job.id for p in present):
        return Decision(
            GangState.QUEUED,
            f"Slurm has put job {job.id} back into its queue while its pods run; they are left "
            "alone until Slurm says more.",
            job=job,
        )
    if all(p.deleting for p in present):
        end = End(job, 0, "its pods are being deleted")
        return Decision(GangState.ENDING, "The pods are being deleted.", (end,), job)
    return Decision(GangState.QUEUED, waiting(job), job=job)


def _allocated(
    gang: Gang, job: Job, nodes: Mapping[str, Node], present: list[Pod], now: float
) -> Decision:
    placed = [p for p in gang.pods if job_of(p) == job.id]
    unplaced = [p for p in present if not job_of(p) and not p.deleting]
    if not unplaced:
        return _running(job, present)
    tasks = job.stamp.size if job.stamp else gang.size
    ranks = ranks_waiting(gang, unplaced, placed)
    if not placed and len(ranks) < tasks:
        return _incomplete(job, len(ranks), tasks, now)
    if not ranks and gang.problem:
        return Decision(GangState.INVALID, _sentence(gang.problem), job=job)
    try:
        slot_nodes = slots(job.shares, shape([*placed, *unplaced]), nodes)
        chosen = assign(sorted(ranks), slot_nodes, held(placed))
    except Misfit as misfit:
        if placed:
            return Decision(GangState.RUNNING, f"{_sentence(str(misfit))}", job=job)
        end = End(job, 0, str(misfit))
        return Decision(GangState.QUEUED, f"{_sentence(str(misfit))} It asks again.", (end,), job)
    order = tuple(dict.fromkeys(slot_nodes))
    allocation = Nodes(order, folded(order))
    releases = tuple(
        Release(ranks[rank], job.id, node, rank, gang.size, allocation)
        for rank, node in chosen.items()
    )
    count = len(order)
    reason = f"Slurm job {job.id} holds {count} node{'s' * (count > 1)}; pods are being placed."
    return Decision(GangState.STARTING, reason, releases, job)


def _running(job: Job, present: list[Pod]) -> Decision:
    unbound = sum(1 for p in present if not p.node and not p.deleting)
    if unbound:
        return Decision(
            GangState.STARTING, f"{unbound} pods wait for kube-scheduler to bind them.", job=job
        )
    return Decision(GangState.RUNNING, f"Runs as Slurm job {job.id}.", job=job)


def _incomplete(job: Job, have: int, want: int, now: float) -> Decision:
    reason = f"Slurm job {job.id} has started but only {have} of {want} pods are there"
    if now - job.started < INCOMPLETE_GRACE_SECONDS:
        return Decision(GangState.STARTING, f"{reason}; it waits for the rest.", job=job)
    end = End(job, 0, reason)
    return Decision(GangState.FORMING, f"{reason}; the nodes are given back.", (end,), job)


# -- readings ---------------------------------------------------------------------------------


def folded(nodes: Sequence[str]) -> str:
    """Node names as Slurm folds them; once a gang, since it costs as much as a patch."""
    return str(NodeSet.fromlist(list(nodes)))


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:].rstrip(".") + "."
