"""What kube-scheduler is told: which node a pod may go to, and the binding itself."""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec
import structlog
from msgspec import Struct

from extender.control import metrics
from extender.control.cluster import Cluster
from extender.control.jobs import JobTable
from extender.control.lease import Alone, Leadership
from extender.domain import wellknown as names
from extender.domain.gangs import int_or
from extender.domain.model import JobState, Pod, Stamp
from extender.domain.views import PASS, WAITING, Verdict, VerdictKind
from extender.kube import objects
from extender.kube.client import KubeClient, KubeError, KubeUnavailable, encode
from extender.kube.patches import binding
from extender.slurm.port import SlurmError

_log = structlog.get_logger(__name__)
_decode_pod = msgspec.json.Decoder(objects.PodObject).decode

_WAIT: Final = Verdict(VerdictKind.WAIT, message=WAITING)
_RETRY: Final = Verdict(
    VerdictKind.RETRY, message="Slurm is not known to hold the node of this pod at present"
)
_STARTING: Final = Verdict(VerdictKind.WAIT, message="waits for Sluice to read pods and Slurm jobs")
_NOT_OPTED_IN: Final = Verdict(
    VerdictKind.WAIT,
    message="names the scheduler of Slurm, but neither its namespace nor the pod has the label "
    f"{names.MANAGED}=true",
)


class Placement(Struct, frozen=True):
    """Slurm's choice for one pod."""

    node: str
    job_id: int


class Scheduling:
    """Answers from memory. A node is named only while Slurm's job for the pod's gang runs on it."""

    def __init__(
        self,
        scheduler_name: str,
        cluster: Cluster,
        jobs: JobTable,
        kube: KubeClient,
        binds: int,
        lease: Leadership | None = None,
    ) -> None:
        self._lease = lease or Alone()
        self._scheduler = scheduler_name
        self._cluster = cluster
        self._jobs = jobs
        self._kube = kube
        self._binding = asyncio.Semaphore(binds)
        self._placed: dict[str, Placement] = {}  # pod uid -> before the watch tells of it

    def expect(self, pod: Pod, node: str, job_id: int) -> None:
        """The pod is about to be released: kube-scheduler may ask before our watch has told."""
        if pod.uid in self._cluster.pods:  # else it is gone, and nobody would forget it
            self._placed[pod.uid] = Placement(node, job_id)

    def forget(self, pod_uid: str) -> None:
        self._placed.pop(pod_uid, None)

    def verdict(self, namespace: str, name: str, uid: str, scheduler: str) -> Verdict:  # noqa: ARG002
        if scheduler and scheduler != self._scheduler:
            return PASS
        placement = self._placement(uid)
        if placement is not None:
            return Verdict(VerdictKind.NODE, placement.node)
        pod = self._cluster.pods.get(uid)
        if pod is None:
            return _STARTING if scheduler else PASS
        if self._comes_back(pod):
            return _RETRY
        return _WAIT if self._cluster.opted_in(pod) else _NOT_OPTED_IN

    def _placement(self, uid: str) -> Placement | None:
        placement = self._placed.get(uid)
        pod = self._cluster.pods.get(uid)
        if placement is None and pod is not None:
            placement = _written(pod)
        if placement is None:
            return None
        job = self._jobs.get(placement.job_id)
        if job is None or job.state is not JobState.RUNNING or job.stamp is None:
            return None
        if pod is not None and not self._is_of(pod, job.stamp):
            return None
        if job.shares and all(share.name != placement.node for share in job.shares):
            return None
        return placement

    def _comes_back(self, pod: Pod) -> bool:
        """The pod was released for a job that is not known to run: it has yet to be looked up, or
        slurmctld has put it back. No change of the pod will wake kube-scheduler up."""
        written = _written(pod)
        if written is None or pod.gated:
            return False
        job = self._jobs.get(written.job_id)
        return job is None or (job.state.live and job.state is not JobState.RUNNING)

    def _is_of(self, pod: Pod, stamp: Stamp) -> bool:
        return stamp.namespace == pod.namespace and stamp.id == self._cluster.gang_of(pod.uid)

    async def bind(self, namespace: str, name: str, uid: str, node: str) -> str:
        """Bind the pod where Slurm put it: "", also when it is bound there already."""
        try:
            if why := await self._may_bind(namespace, name, uid, node):
                metrics.kube_writes.labels("binding", "refused").inc()
                return why
            async with self._binding:
                return await self._bind(namespace, name, uid, node)
        except (KubeError, KubeUnavailable, SlurmError) as error:
            metrics.kube_writes.labels("binding", "failed").inc()
            return f"pod {namespace}/{name} was not bound to {node}: {error}"

    async def _may_bind(self, namespace: str, name: str, uid: str, node: str) -> str:
        pod = self._cluster.pods.get(uid)
        if pod is None:
            pod = await self._fetch(namespace, name)
            if pod is None or pod.uid != uid:
                return f"pod {namespace}/{name} with UID {uid} does not exist any more"
            if pod.scheduler != self._scheduler:
                return ""
            return f"pod {namespace}/{name} is not in Sluice's memory yet; bind again"
        if pod.deleting:
            return f"pod {namespace}/{name} is being deleted"
        placement = self._placement(uid)
        if placement is not None and not self._lease.held:
            await self._jobs.fresh(placement.job_id)
            placement = self._placement(uid)
        if placement is None:
            return f"Slurm holds no node for pod {namespace}/{name} at present"
        if placement.node != node:
            return (
                f"Slurm placed pod {namespace}/{name} on node {placement.node}, not on {node} "
                f"(job {placement.job_id})"
            )
        if not pod.gated and names.JOB_ID not in pod.annotations:
            # Its gate would have told that they are written. Without them nobody would know the
            # pod for Slurm's once it is bound.
            return f"the answers of pod {namespace}/{name} are not written yet; bind again"
        return ""

    async def _bind(self, namespace: str, name: str, uid: str, node: str) -> str:
        path = f"/api/v1/namespaces/{namespace}/pods/{name}/binding"
        try:
            await self._kube.request("POST", path, body=encode(binding(namespace, name, uid, node)))
        except (KubeError, KubeUnavailable) as error:
            bound = await self._fetch(namespace, name)
            if bound is None or bound.uid != uid or bound.node != node:
                raise
            _log.info("found bound", pod=f"{namespace}/{name}", node=node, after=str(error))
        metrics.kube_writes.labels("binding", "done").inc()
        return ""

    async def _fetch(self, namespace: str, name: str) -> Pod | None:
        try:
            raw = await self._kube.request("GET", f"/api/v1/namespaces/{namespace}/pods/{name}")
        except KubeError as error:
            if error.not_found:
                return None
            raise
        return objects.pod(_decode_pod(raw))


def _written(pod: Pod) -> Placement | None:
    """What the pod's annotations say; believed only as far as the job agrees."""
    job_id, node = int_or(pod.annotations.get(names.JOB_ID), 0), pod.annotations.get(names.NODE)
    return Placement(node, job_id) if node and job_id else None
