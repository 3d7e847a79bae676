"""Pods: each beside the job that its annotations name, and the pods of one job among themselves."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from extender.domain import wellknown as names
from extender.domain.books.findings import Finding, Kind
from extender.domain.books.index import Index
from extender.domain.lifecycle import OVERDUE_SECONDS
from extender.domain.model import Gang, Job, JobState, Pod
from extender.domain.placement import ranks_that_fit
from extender.domain.ranks import job_of, node_of
from extender.domain.translate import shape


def pod_findings(pod: Pod, index: Index) -> Iterator[Finding]:
    gang, number = index.gang_of[pod.uid], job_of(pod)

    def tell(kind: Kind, message: str, advice: str) -> Finding:
        return Finding(
            kind=kind,
            namespace=pod.namespace,
            gang=gang.name,
            pod=pod.name,
            job=number or None,
            node=node_of(pod),
            message=message,
            advice=advice,
        )

    if pod.node and pod.node not in index.nodes:
        yield tell(
            Kind.POD_NODE_GONE,
            "it is bound to a node that Kubernetes does not have",
            "If the node does not come back: kubectl delete pod --force; the job keeps its nodes "
            "until then",
        )
    elif pod.deleting and (not pod.gone_by or index.at <= pod.gone_by + OVERDUE_SECONDS):
        return  # it is on its way
    elif names.JOB_ID not in pod.annotations:
        if names.GATED in pod.labels and not pod.gated:
            yield tell(Kind.POD_UNGATED, "its gate is gone, and Sluice did not place it", _MEDDLED)
    elif missing := [a for a in sorted(names.ANSWERS) if not pod.annotations.get(a)]:
        what = f"lacks {', '.join(missing)}"
        yield tell(Kind.POD_ANSWERS, f"of what Sluice writes at once it {what}", _MEDDLED)
    elif not number:
        yield tell(Kind.POD_ANSWERS, f"it has no number in {names.JOB_ID}", _MEDDLED)
    elif finding := _pod_and_job(pod, number, gang, index):
        yield tell(*finding)


_MEDDLED = (
    "Somebody but Sluice changed the pod: check the admission policy sluice-guard, and delete the "
    "pod"
)


def _pod_and_job(pod: Pod, number: int, gang: Gang, index: Index) -> tuple[Kind, str, str] | None:
    """Kind, message and advice of the first thing in which a pod and its job differ."""
    job = index.jobs.get(number)
    if job is None:
        return (
            Kind.POD_JOB_UNKNOWN,
            "neither slurmctld nor accounting knows its job",
            "Slurm may hand the node out again: delete the pod if the job was ended on purpose, "
            "else let it finish",
        )
    if job.state is JobState.LOST:
        return (
            Kind.POD_JOB_UNKNOWN,
            "slurmctld does not know its job, which accounting has as running",
            "slurmctld has lost it, and may hand the node out again: Sluice submits another on the "
            "same nodes when it runs (see /readyz)",
        )
    if job.state.ended:
        return (
            Kind.POD_JOB_ENDED,
            f"its job is {job.state}, and the pod lives",
            "It was deleted and does not go: see whether its node lives; kubectl delete pod --force"
            if pod.deleting
            else "Sluice deletes the pod when it runs (see /readyz); without it, delete it",
        )
    stamp = index.stamp(job)
    if stamp is None or (stamp.namespace, stamp.id) != (gang.namespace, gang.id):
        return Kind.POD_JOB_FOREIGN, _whose(job), f"See scontrol show job {number}; delete the pod"
    if job.state is not JobState.RUNNING:
        return (
            Kind.POD_JOB_NOT_RUNNING,
            f"its job is {job.state}, and the pod has a node",
            "slurmctld forgot the start, or the job was requeued or suspended: Sluice has it start "
            "there again, or deletes the pod, when it runs (see /readyz)",
        )
    told = pod.annotations[names.NODE]
    if pod.node and pod.node != told:
        return (
            Kind.POD_ELSEWHERE,
            f"Sluice placed it on node {told}",
            "Somebody else bound it. Sluice deletes the pod when it runs; without it, delete it",
        )
    if told not in {share.name for share in job.shares}:
        return (
            Kind.POD_OUTSIDE_JOB,
            "its job does not hold the node",
            f"It was shrunk or started again elsewhere: see scontrol show job {number}. Sluice "
            "deletes the pod when it runs; without it, delete it",
        )
    return None


def _whose(job: Job) -> str:
    if job.stamp is None:
        return f"its job, of Slurm user {job.user!r}, carries no stamp that Sluice can read"
    stamp = job.stamp
    return f"its job is that of gang {stamp.namespace}/{stamp.gang} of cluster {stamp.sluice!r}"


def beside_slurm(index: Index) -> Iterator[Finding]:
    """Pods that hold what Slurm hands out, and that Slurm has never heard of."""
    ours = {pod.uid for pod in index.ours}
    for pod in index.living:
        node = index.nodes.get(pod.node)
        if node is None or node.labels.get(names.MANAGED) != "true" or pod.uid in ours:
            continue
        meant = names.GATED in pod.labels  # made to wait for Slurm
        if (pod.owner and pod.owner.kind in ("DaemonSet", "Node")) or not (
            meant or pod.resources.gpus
        ):
            continue
        yield Finding(
            kind=Kind.POD_BESIDE_SLURM,
            namespace=pod.namespace,
            pod=pod.name,
            node=pod.node,
            message="Slurm does not know it, and may hand out again what it holds "
            f"({pod.resources.gpus} GPUs)",
            advice=_MEDDLED
            if meant
            else f"Delete it and run it through Slurm (label {names.MANAGED}=true), or keep such "
            f"pods off by the taint {names.TAINT}, which they must not tolerate",
        )


# -- slots ------------------------------------------------------------------------------------


def same_ranks(number: int, pods: Sequence[Pod], index: Index) -> Iterator[Finding]:
    first: dict[str, Pod] = {}
    for pod in sorted(pods, key=lambda p: (p.created, p.name)):
        rank = pod.annotations.get(names.RANK)
        if rank and first.setdefault(rank, pod) is not pod:
            yield Finding(
                kind=Kind.SAME_RANK,
                namespace=pod.namespace,
                gang=index.gang_of[pod.uid].name,
                pod=pod.name,
                job=number,
                message=f"it has rank {rank}, and so has pod {first[rank].name}",
                advice="Delete the one that is not wanted",
            )


def exceeded_shares(job: Job, pods: Sequence[Pod], index: Index) -> Iterator[Finding]:
    there: dict[str, list[Pod]] = defaultdict(list)
    for pod in sorted(pods, key=lambda p: (p.created, p.name)):
        there[node_of(pod)].append(pod)
    for share in job.shares:
        on_it = there[share.name]
        room = ranks_that_fit(share, shape(on_it))
        if len(on_it) > room:
            yield Finding(
                kind=Kind.SHARE_EXCEEDED,
                namespace=on_it[-1].namespace,
                gang=index.gang_of[on_it[-1].uid].name,
                job=job.id,
                node=share.name,
                message=f"{len(on_it)} pods are there, and the job's share of it ({share.cpus} "
                f"CPUs, {share.memory_mib} MiB, {share.gpus} GPUs) has room for {room}",
                advice=f"Delete what is too much; the youngest is pod {on_it[-1].name}",
            )
