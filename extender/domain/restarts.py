"""A gang that runs has ended as a whole: give its nodes back, or keep them for its next attempt.

One pod of a running gang that is replaced is no restart: it goes back to its slot (lifecycle.py).
When all have ended and others are made in their place, that is a new attempt: with a Slurm job of
its own, or, with ``sluice.dev/hold-on-restart``, in the allocation of the old one.
"""

from __future__ import annotations

import msgspec

from extender.domain.decision import Decision, End, GangState, Mark
from extender.domain.model import Gang, GangKind, Job, JobState, Pod, Stamp
from extender.domain.ranks import exit_code, finished, job_of, one_per_rank, ranks_done
from extender.domain.submitting import sentence


def ended_as_a_whole(gang: Gang, job: Job, now: float) -> Decision:
    """None of the gang's pods is left, or all have ended."""
    ended = "all pods have ended" if finished(gang, job) else "its pods were deleted"
    why = ended if gang.pods else "its pods are gone"
    if job.state is JobState.RUNNING and comes_again(gang) and (kept := _kept(gang, job, now)):
        return kept
    end = End(job, exit_code(gang, job), why, finished=finished(gang, job))
    return Decision(GangState.ENDING, f"{sentence(why)} Slurm job {job.id} ends.", (end,), job)


def restarts_as_a_whole(gang: Gang, job: Job, now: float) -> Decision | None:
    """Pods wait and none holds anything of the running job; ``None`` when it is a first start."""
    waiting = [p for p in gang.pods if not p.terminal and not p.deleting and not job_of(p)]
    over = _over(gang, job)
    if not waiting or job.stamp is None or not _replaced(waiting, over, job):
        return None
    if kept := _kept(gang, job, now, waiting):
        return kept
    why = "its pods have ended; others were made in their place"
    end = End(job, exit_code(gang, job), why, finished=finished(gang, job))
    return Decision(
        GangState.ENDING, f"Slurm job {job.id} ends: {why}. A new one follows.", (end,), job
    )


def renewed(stamp: Stamp, gang: Gang, job: Job) -> Stamp:
    """The stamp for the next attempt in the same job."""
    waiting = [p.created for p in gang.pods if not p.terminal and not job_of(p)]
    before = [stamp.newest, *(p.created for p in _over(gang, job))]
    return msgspec.structs.replace(
        stamp,
        attempt=stamp.attempt + 1,
        after=max(before),
        newest=max([*waiting, stamp.newest]),
        held=0.0,
    )


def _over(gang: Gang, job: Job) -> list[Pod]:
    """Pods of this attempt that have ended."""
    after = job.stamp.after if job.stamp else 0.0
    return [p for p in gang.pods if job_of(p) == job.id and p.terminal and p.created > after]


def _replaced(waiting: list[Pod], over: list[Pod], job: Job) -> bool:
    """Every waiting pod was made in the place of one that the job ran. A Job's pod that was made
    anew while the job was still queued is not: nothing has run yet."""
    assert job.stamp is not None
    queued = job.stamp.kind is GangKind.JOB and not over
    return all(
        p.created > job.stamp.newest and (p.created >= job.started or not queued) for p in waiting
    )


def comes_again(gang: Gang) -> bool:
    """Whether the workload may make other pods."""
    if gang.kind is GangKind.POD:
        return False
    if gang.kind is GangKind.JOB:
        owner = gang.workload
        if owner is None or owner.deleting or owner.suspended or owner.finished:
            return False
    return not gang.pods or ranks_done(gang) < gang.size


def _kept(gang: Gang, job: Job, now: float, waiting: list[Pod] | None = None) -> Decision | None:
    """Keep the nodes for the pods to come; ``None`` when that is not asked for, or over."""
    stamp = job.stamp
    if stamp is None or not stamp.hold:
        return None
    ready, wanted = len(one_per_rank(waiting or ())), gang.size - ranks_done(gang)
    kept = f"Slurm job {job.id} keeps its nodes for {stamp.hold:.0f} s"
    if not stamp.held:
        since = msgspec.structs.replace(stamp, held=now)
        why = f"All pods have ended; {kept} while others are made."
        return Decision(GangState.RESTARTING, why, (Mark(job, since),), job, stamp.hold)
    if now > stamp.held + stamp.hold:
        return None
    if ready >= wanted > 0:
        again = msgspec.structs.replace(renewed(stamp, gang, job), size=ready)
        why = f"Attempt {again.attempt} starts on the nodes of Slurm job {job.id}."
        return Decision(GangState.STARTING, why, (Mark(job, again),), job)
    why = f"{kept}; {ready} of {wanted} pods are there again."
    left = stamp.held + stamp.hold - now
    return Decision(GangState.RESTARTING, why, job=job, again_in=left)
