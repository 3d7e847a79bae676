"""Why a pod or a gang is where it is, or is not, put together for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from extender.control.cluster import Cluster
from extender.control.jobs import JobTable
from extender.control.journal import Journal
from extender.domain import wellknown as names
from extender.domain.decision import Decision, GangState
from extender.domain.gangs import int_or, rank_key
from extender.domain.model import Gang, Job, JobState, Pod
from extender.domain.topology import fabric_order, switch_path
from extender.domain.views import GangSummary, GangView, PodView, RankView, moment
from extender.slurm.port import SlurmError

_NOT_LOOKED_AT = Decision(GangState.CHECKING, "Sluice has not looked at this gang yet.")


class Explain:
    """Reads the memory of the other parts; one gang may cost one look at Slurm."""

    def __init__(
        self, scheduler_name: str, cluster: Cluster, jobs: JobTable, journal: Journal
    ) -> None:
        self._scheduler = scheduler_name
        self._cluster = cluster
        self._jobs = jobs
        self._journal = journal

    def gangs(self, namespace: str | None) -> Sequence[GangSummary]:
        found = (self._cluster.gang(gang_id) for gang_id in self._cluster.gang_ids())
        return [
            GangSummary(**self._summary(gang))
            for gang in sorted(
                (g for g in found if g and namespace in (None, g.namespace)),
                key=lambda g: (g.namespace, g.name),
            )
        ]

    async def gang(self, namespace: str, name: str) -> GangView | None:
        gang = self._newest(namespace, name)
        if gang is None:
            return None
        decision = self._journal.last(gang.id)
        if decision and decision.state is GangState.QUEUED and decision.job:
            await self._look(decision.job.id)
        return GangView(
            **self._summary(gang),
            ranks=tuple(self._rank(i, pod) for i, pod in enumerate(gang.pods)),
            timeline=self._journal.steps(gang.id),
        )

    async def pod(self, namespace: str, name: str) -> PodView | None:
        pod = self._cluster.find_pod(namespace, name)
        if pod is None:
            return None
        gang = self._cluster.gang(self._cluster.gang_of(pod.uid))
        if gang is None:
            return PodView(namespace=namespace, name=name, state="Ignored", why=self._outside(pod))
        decision = self._journal.last(gang.id) or _NOT_LOOKED_AT
        return PodView(
            namespace=namespace,
            name=name,
            gang=gang.name,
            state=decision.state,
            node=pod.node or pod.annotations.get(names.NODE, ""),
            rank=_rank(pod),
            job_id=int_or(pod.annotations.get(names.JOB_ID), 0) or None,
            why=_why(pod, decision),
            timeline=self._journal.steps(gang.id),
        )

    def _newest(self, namespace: str, name: str) -> Gang | None:
        """Of gangs of one name (a Job deleted and made again) the one with the youngest pod."""
        gangs = [self._cluster.gang(i) for i in self._cluster.find_gangs(namespace, name)]
        return max(
            (g for g in gangs if g), key=lambda g: max(p.created for p in g.pods), default=None
        )

    async def _look(self, job_id: int) -> None:
        try:
            await self._jobs.look(job_id)
        except SlurmError:
            return  # what is in memory is shown; /readyz says that Slurm does not answer

    def _summary(self, gang: Gang) -> dict[str, Any]:
        decision = self._journal.last(gang.id) or _NOT_LOOKED_AT
        job = self._job(decision)
        reason = decision.reason
        return {
            "namespace": gang.namespace,
            "name": gang.name,
            "kind": gang.kind,
            "state": decision.state,
            "size": gang.size,
            "job_id": job.id if job else None,
            "attempt": job.stamp.attempt if job and job.stamp else 1,
            "account": job.account if job else "",
            "partition": job.partition if job else "",
            "qos": job.qos if job else "",
            "user": job.user if job else "",
            "reason": reason,
            "estimated_start": moment(job.started)
            if job and job.state is JobState.PENDING
            else None,
            "nodes": self._nodes(job),
        }

    def _job(self, decision: Decision) -> Job | None:
        if decision.job is None:
            return None
        return self._jobs.get(decision.job.id) or decision.job

    def _nodes(self, job: Job | None) -> tuple[str, ...]:
        if job is None or not job.state.live:
            return ()
        known = self._cluster.nodes
        held = [share.name for share in job.shares]
        return tuple(
            sorted(
                held, key=lambda n: (n not in known, fabric_order(known[n]) if n in known else n)
            )
        )

    def _rank(self, position: int, pod: Pod) -> RankView:
        told = _rank(pod)
        key = rank_key(pod)
        node = pod.node or pod.annotations.get(names.NODE, "")
        known = self._cluster.nodes.get(node)
        return RankView(
            rank=told if told is not None else (position if key is None else key),
            pod=pod.name,
            node=node,
            switch_path="/".join(switch_path(known)) if known else "",
            phase="Terminating" if pod.deleting else pod.phase,
        )

    def _outside(self, pod: Pod) -> str:
        if pod.node and names.JOB_ID not in pod.annotations:
            return f"The pod was put on node {pod.node} without Slurm, which is not asked for it."
        if not self._cluster.opted_in(pod):
            return (
                f"The pod names scheduler {pod.scheduler!r}, but neither its namespace nor the pod "
                f"has the label {names.MANAGED}=true, so Slurm is not asked for it."
            )
        owner = pod.owner.name if pod.owner else ""
        return f"The pod belongs to Job {owner!r}, which Sluice has not seen yet."


def _rank(pod: Pod) -> int | None:
    rank = int_or(pod.annotations.get(names.RANK), -1)
    return rank if rank >= 0 else None


def _why(pod: Pod, decision: Decision) -> str:
    node = pod.annotations.get(names.NODE, "")
    job = pod.annotations.get(names.JOB_ID, "")
    if pod.terminal:
        return f"The pod has ended ({pod.phase}) on node {pod.node}."
    if node and pod.node:
        return f"Slurm job {job} placed it on node {node}, where it is bound."
    if node:
        held = f"; kube-scheduler says: {pod.scheduler_message}" if pod.scheduler_message else ""
        return (
            f"Slurm job {job} placed it on node {node}; kube-scheduler has not bound it yet{held}."
        )
    return decision.reason
