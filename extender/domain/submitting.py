"""Whether a gang without a live Slurm job is ready to be submitted, and if not, why."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from extender.domain.decision import Decision, GangState, Submit
from extender.domain.model import Gang, GangKind, Job, Pod
from extender.domain.ranks import one_per_rank, ranks_done
from extender.domain.wellknown import GATE

MOST_PATIENCE_SECONDS = 300.0


def submission(gang: Gang, ended: Job | None, now: float, *, avoid: Iterable[str] = ()) -> Decision:
    """Submit, or wait with a reason. ``ended`` is the gang's newest job that has ended, ``avoid``
    are nodes where pods of an earlier attempt still stand."""
    if why := _owner_stops(gang):
        return Decision(GangState.FORMING, f"{why}; nothing is asked of Slurm for its pods.")
    if gang.problem:
        return Decision(GangState.INVALID, sentence(gang.problem))
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
    if ended and (pause := ended.ended + _patience(ended, ready) - now) > 0:
        why = f"It asks again after a pause: {_outcome(ended)}."
        return Decision(GangState.FORMING, why, again_in=pause)
    attempt = (ended.stamp.attempt if ended and ended.stamp else 0) + 1
    submit = Submit(attempt, tuple(ready), len(ready), tuple(sorted({n for n in avoid if n})))
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


def sentence(text: str) -> str:
    """With a capital and a full stop."""
    return text[:1].upper() + text[1:].rstrip(".") + "."
