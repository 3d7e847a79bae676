"""Slurm jobs and gangs: what lives on one side only, or twice."""

from __future__ import annotations

from collections.abc import Iterator

from extender.domain import wellknown as names
from extender.domain.books.findings import Finding, Kind
from extender.domain.books.index import Index
from extender.domain.model import Gang, Job, JobState
from extender.domain.ranks import job_of, ranks_waiting

# -- jobs -------------------------------------------------------------------------------------


def job_findings(job: Job, index: Index) -> Iterator[Finding]:
    stamp = job.stamp
    if stamp is None:
        return

    def tell(kind: Kind, message: str, advice: str) -> Finding:
        return Finding(
            kind=kind,
            namespace=stamp.namespace,
            gang=stamp.gang,
            job=job.id,
            message=message,
            advice=advice,
        )

    if stamp.outcome:
        yield tell(
            Kind.JOB_NOT_ENDED,
            f"Slurm says {job.state}, its stamp says that Sluice ended it: {stamp.outcome}",
            f"Sluice tries again while it runs; without it: scancel {job.id}",
        )
    elif index.lonely(job) and job.id not in index.spare and not index.kept(job):
        yield tell(
            Kind.JOB_WITHOUT_PODS,
            f"it is {job.state} in Slurm, and no pod of its gang is alive",
            f"Sluice ends it when it runs (see /readyz); without it: scancel {job.id}",
        )
    told = index.namespaces.get(stamp.namespace)
    user = told.annotations.get(names.USER, index.terms.defaults.user).strip() if told else ""
    if user and job.user and job.user != user:
        yield tell(
            Kind.JOB_USER,
            f"it is of Slurm user {job.user!r}, its namespace maps to {user!r}",
            f"If {names.USER} was changed on purpose, let it end, or delete its pods: those that "
            "their owner makes anew are submitted as the right user",
        )


def smudged_jobs(index: Index) -> Iterator[Finding]:
    """Live jobs that nobody knows again. Where a pod names one, that says more."""
    for job in index.jobs.values():
        if job.smudged and job.state.live and job.id not in index.placed_in:
            yield Finding(
                kind=Kind.JOB_STAMP,
                job=job.id,
                message=f"it is {job.state}, of user {job.user!r}, and its stamp cannot be read: "
                "Sluice, of this cluster or another, does not know it again",
                advice=f"See AdminComment in scontrol show job {job.id}; if no pods are its: "
                f"scancel {job.id}",
            )


def double_jobs(index: Index) -> Iterator[Finding]:
    for number, kept in index.spare.items():
        stamp = index.jobs[number].stamp
        yield Finding(
            kind=Kind.TWO_JOBS,
            namespace=stamp.namespace if stamp else "",
            gang=stamp.gang if stamp else "",
            job=number,
            message=f"the gang has job {kept} too, and both live",
            advice=f"Sluice ends one when it runs; without it: scancel {number}",
        )


# -- gangs ------------------------------------------------------------------------------------


def gang_findings(gang: Gang, index: Index) -> Iterator[Finding]:
    used = sorted({job_of(pod) for pod in gang.pods} & index.live_ids)
    if len(used) > 1:
        yield Finding(
            kind=Kind.GANG_SPLIT,
            namespace=gang.namespace,
            gang=gang.name,
            message="its pods are placed in several live jobs: " + ", ".join(map(str, used)),
            advice="Sluice ends all but one when it runs; without it, delete the others' pods",
        )


def waiting_gangs(job: Job, index: Index) -> Iterator[Finding]:
    """Slurm has allocated, and pods still stand without a node.

    The pod that is named is the first of them, so that a gang whose pods are being released one by
    one is not taken for one that stands still.
    """
    unplaced = [p for p in index.waiting(job) if not p.deleting]
    if job.state is not JobState.RUNNING or not unplaced or index.kept(job):
        return
    gang, placed = index.gang_of[unplaced[0].uid], index.placed_in.get(job.id, [])
    waiting = ranks_waiting(gang, unplaced, placed)
    if not waiting:
        return  # the pods that they replace are still ending
    others = f"{len(placed)} pods are placed and " if placed else ""
    yield Finding(
        kind=Kind.GANG_WAITS,
        namespace=gang.namespace,
        gang=gang.name,
        pod=waiting[min(waiting)].name,
        job=job.id,
        message=f"Slurm runs its job, {others}{len(waiting)} still wait, this one the first",
        advice=f"See /v1/gangs/{gang.namespace}/{gang.name} and /readyz; start Sluice if it does "
        f"not run. To give the nodes back: scancel {job.id}",
    )
