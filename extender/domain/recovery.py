"""What Slurm has lost, put back, moved or taken: jobs and the pods that run for them.

slurmctld saves its state every few seconds. Killed in between it comes back without the last
submits, starts and ends: a job is unknown, PENDING again, or RUNNING again. Measured on 26.05.5.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from extender.domain.decision import (
    Decision,
    Evict,
    GangState,
    Mark,
    Nodes,
    Release,
    Submit,
    Trace,
)
from extender.domain.model import Gang, Job, JobState, Node, Pod
from extender.domain.placement import ranks_that_fit
from extender.domain.ranks import (
    allocation_of,
    folded,
    held,
    job_of,
    living_on,
    node_of,
    one_per_rank,
    ranks_done,
)
from extender.domain.translate import shape

LOST_GRACE_SECONDS = 5.0
"""How long accounting is asked again whether a job that slurmctld does not know has ended."""
FELL_PATIENCE_SECONDS = 120.0
"""How long pods stay whose job slurmctld has put back into its queue."""


def stranded_pods(gang: Gang, jobs: Sequence[Job]) -> list[Pod]:
    """Pods that were released for a job that Slurm no longer has."""
    known = {job.id for job in jobs if job.state is not JobState.LOST}
    return [
        p for p in gang.pods if job_of(p) and job_of(p) not in known and not (p.terminal or p.gated)
    ]


def replace_lost(
    gang: Gang, lost: Job | None, stranded: list[Pod], nodes: Mapping[str, Node], now: float
) -> Decision:
    """Pods run for a job that Slurm does not know. That slurmctld lost it, as it does with what
    came in the last seconds before it was killed, has to be certain; then another job takes its
    place, on the same nodes."""
    number, count = job_of(stranded[0]), len(stranded)
    told = f"Slurm knows no job {number}, on whose nodes {count} pods run."
    theirs = allocation_of(stranded)
    going = all(p.deleting for p in stranded)
    if lost is None or lost.id != number or going or not nodes.keys() >= set(theirs):
        why = f"{told} They are left alone; delete them if the job was ended on purpose."
        return Decision(GangState.LOST, why, (Trace(number),))
    if now - lost.ended < LOST_GRACE_SECONDS:
        again = lost.ended + LOST_GRACE_SECONDS - now
        why = f"{told} It looks for it."
        return Decision(GangState.LOST, why, (Trace(number),), lost, again)
    waiting = [p for p in gang.pods if not (p.terminal or p.deleting or job_of(p))]
    pods = one_per_rank([*stranded, *waiting])
    attempt = (lost.stamp.attempt if lost.stamp else 0) + 1
    ranks = max(gang.size - ranks_done(gang), len(pods))
    submit = Submit(attempt, tuple(pods), ranks, nodes=theirs, fell=now)
    why = f"Slurm has lost job {number}; another takes its place on the same nodes."
    return Decision(GangState.SUBMITTING, why, (submit,), lost)


def leave_requeued(job: Job, living: list[Pod]) -> Decision:
    """Slurm took the nodes away to run the job again later; the start that follows is another."""
    why = f"Slurm has requeued job {job.id}"
    leaving = tuple(Evict(p, why, JobState.PREEMPTED) for p in living if not p.deleting)
    return Decision(GangState.ENDING, f"{why}; its pods are ending.", leaving, job)


def wait_fallen(job: Job, living: list[Pod], nodes: Mapping[str, Node], now: float) -> Decision:
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
            f"Its pods run, but to Slurm job {job.id} is still to start; they are left alone while "
            "their nodes may be had."
        )
        again = stamp.fell + FELL_PATIENCE_SECONDS - now
        return Decision(GangState.QUEUED, why, job=job, again_in=again)
    why = f"Slurm has given the nodes of job {job.id} to others after it had forgotten its start"
    leaving = tuple(Evict(p, why, JobState.NODE_FAIL) for p in living if not p.deleting)
    return Decision(GangState.ENDING, f"{why}; its pods are ending.", leaving, job)


def take_over(
    gang: Gang, job: Job, stranded: list[Pod], nodes: Mapping[str, Node]
) -> Decision | None:
    """Pods of a job that was lost, on nodes that are this job's now: they become its pods."""
    own = held(living_on(gang, job))
    held_nodes = {share.name for share in job.shares} & nodes.keys()
    theirs = {rank: p for p in stranded for rank in held([p]) if node_of(p) in held_nodes}
    if not (takes := {rank: p for rank, p in theirs.items() if rank not in own}):
        return None
    order = tuple(s.name for s in job.shares)
    allocation = Nodes(order, folded(order))
    actions = tuple(
        Release(p, job.id, node_of(p), rank, gang.size, allocation) for rank, p in takes.items()
    )
    why = f"Slurm job {job.id} takes over the pods of job {job_of(stranded[0])}, which was lost."
    return Decision(GangState.STARTING, why, actions, job)


def leave_moved(job: Job, living: list[Pod]) -> Decision | None:
    """Pods that the job has no room for have to go: it was started again on other nodes, or with
    other parts of the same nodes, or shrunk by an administrator; or they were not taken over."""
    nodes = {share.name for share in job.shares}
    astray = [p for p in living if job_of(p) != job.id or node_of(p) not in nodes]
    if not astray and job.stamp and not job.stamp.started:
        astray = _too_many(job, living)
    if not astray:
        return None
    why = f"Slurm runs job {job.id} without room for them on node {node_of(astray[0])} now"
    leaving = tuple(Evict(p, why, JobState.NODE_FAIL) for p in astray if not p.deleting)
    return Decision(GangState.ENDING, f"{why}; pods there are ending.", leaving, job)


def _too_many(job: Job, living: list[Pod]) -> list[Pod]:
    """On each node those beyond what the job holds of it; of two, the one that runs stays."""
    rank = shape(living)
    room = {share.name: ranks_that_fit(share, rank) for share in job.shares}
    found = []
    for pod in sorted(living, key=lambda p: not p.node):
        room[node_of(pod)] -= 1
        if room[node_of(pod)] < 0:
            found.append(pod)
    return found
