"""Carries out what was decided about a gang. Every action may be repeated."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
import structlog

from extender.control import metrics
from extender.control.cluster import Cluster
from extender.control.jobs import JobTable
from extender.control.journal import Journal
from extender.control.nodes import NodeLoop
from extender.control.scheduling import Scheduling
from extender.control.starts import Starts
from extender.domain.decision import Action, Confirm, End, Evict, Look, Mark, Release, Submit, Trace
from extender.domain.endings import disruption_of
from extender.domain.model import Gang, Job, JobRequest, JobState, Namespace, Pod, Stamp
from extender.domain.policy import Defaults
from extender.domain.ranks import folded, job_of
from extender.domain.translate import job_request
from extender.kube.client import STRATEGIC, KubeClient, KubeError, encode
from extender.kube.patches import disruption, release, timestamp
from extender.slurm.port import UNKNOWN_NODE, Slurm, SlurmRefused, SlurmUnavailable, SlurmUnsent

_log = structlog.get_logger(__name__)


class Actions:
    """The hands. Errors are the caller's, as a group: ``Refusal``, ``SlurmError``, ``Kube…``."""

    def __init__(
        self,
        cluster: Cluster,
        jobs: JobTable,
        nodes: NodeLoop,
        scheduling: Scheduling,
        journal: Journal,
        slurm: Slurm,
        kube: KubeClient,
        *,
        cluster_name: str,
        defaults: Defaults,
        patches: int,
    ) -> None:
        self._cluster = cluster
        self._jobs = jobs
        self._nodes = nodes
        self._scheduling = scheduling
        self._journal = journal
        self._slurm = slurm
        self._kube = kube
        self._cluster_name = cluster_name
        self._defaults = defaults
        self._starts = Starts(jobs, slurm)
        self._patching = asyncio.Semaphore(patches)

    async def carry_out(self, gang: Gang, actions: Sequence[Action]) -> None:
        """All actions of one decision, side by side; one that fails does not stop the others."""
        started = time.monotonic()
        evictions = [action for action in actions if isinstance(action, Evict)]
        others = (action for action in actions if not isinstance(action, Evict))
        releases = [action for action in actions if isinstance(action, Release)]
        if releases and all(job_of(pod) != releases[0].job_id for pod in gang.pods):
            last = max(action.pod.created for action in releases)
            metrics.wait_seconds.observe(max(0.0, time.time() - last))
        await _all(self._evict(evictions), *(self._one(gang, action) for action in others))
        if releases:
            metrics.place_seconds.observe(time.monotonic() - started)

    async def _one(self, gang: Gang, action: Action) -> None:
        match action:
            case Release():
                await self._release(gang, action)
            case Submit():
                await self._submit(gang, action)
            case Look(job_id):
                await self._jobs.look(job_id)
            case Trace(job_id):
                await self._jobs.trace(job_id, gang.id)
            case Confirm(job):
                await self._starts.saved(job)
            case Mark():
                await self._mark(gang, action)
            case End():
                await self._end(gang, action)

    # -- Slurm ------------------------------------------------------------------------------

    async def _submit(self, gang: Gang, action: Submit) -> None:
        request = self._request(gang, action)
        try:
            try:
                job_id = await self._slurm.submit(request)
            except SlurmRefused as error:
                if error.code != UNKNOWN_NODE:
                    raise
                await self._nodes.relist()  # a node that was excluded has left Slurm
                request = self._request(gang, action)
                job_id = await self._slurm.submit(request)
        except SlurmUnsent:
            raise
        except SlurmUnavailable:
            self._jobs.unanswered(gang.id)
            raise
        metrics.submits.inc()
        self._journal.note(gang.id, f"Submitted as Slurm job {job_id} for user {request.user}.")
        _log.info("submitted", gang=f"{gang.namespace}/{gang.name}", job=job_id)
        self._jobs.put(
            Job(
                id=job_id,
                state=JobState.PENDING,
                stamp=request.stamp,
                user=request.user,
                account=request.account,
                partition=request.partition,
                qos=request.qos,
                submitted=time.time(),
            )
        )

    def _request(self, gang: Gang, action: Submit) -> JobRequest:
        managed = self._cluster.nodes
        known = self._nodes.in_slurm()
        fits = self._cluster.fit(action.pods)
        return job_request(
            gang,
            action.pods,
            self._cluster.namespaces.get(gang.namespace) or Namespace(gang.namespace),
            fits,
            self._defaults,
            cluster=self._cluster_name,
            attempt=action.attempt,
            ranks=action.ranks,
            required=action.nodes,
            fell=action.fell,
            excluded=(known & fits.unfit) | (known - managed.keys()) | (known & set(action.avoid)),
        )

    async def _mark(self, gang: Gang, action: Mark) -> None:
        await self._stamp(action.job, action.stamp, action.nodes)
        if action.nodes:
            self._jobs.soon(action.job.id)
            where = folded(action.nodes)
            self._journal.note(gang.id, f"Slurm job {action.job.id} is to start on {where} again.")

    async def _stamp(self, job: Job, stamp: Stamp, nodes: Sequence[str] = ()) -> None:
        if not self._jobs.has(job):
            return  # slurmctld has lost it, and its number may be another's
        await self._slurm.mark(job.id, stamp, nodes)
        current = self._jobs.get(job.id)
        if current is not None and self._jobs.has(job):  # it may have been lost meanwhile
            self._jobs.put(msgspec.structs.replace(current, stamp=stamp))

    async def _end(self, gang: Gang, action: End) -> None:
        job = action.job
        if not {share.name for share in job.shares} <= self._nodes.in_slurm():
            await self._nodes.relist()  # or the next submit would not exclude the stranger
        code = f", exit code {action.exit_code}" if action.exit_code else ""
        if job.stamp is not None:
            outcome = f"{action.why}{code}"[:200]
            stamp = msgspec.structs.replace(job.stamp, started=True, outcome=outcome)
            try:
                await self._stamp(job, stamp)
            except SlurmRefused as error:  # nodes are not to be held for want of a word about it
                _log.warning("outcome not written", job=job.id, why=str(error))
        if not self._jobs.has(job):
            return  # as above
        if action.finished:
            await self._slurm.finish(job.id, action.exit_code, job.comment)
        else:
            await self._slurm.end(job.id)
        self._journal.note(gang.id, f"Ended Slurm job {job.id}: {action.why}{code}.")
        await self._jobs.look(job.id)
        self._jobs.soon(job.id)

    # -- Kubernetes -------------------------------------------------------------------------

    async def _release(self, gang: Gang, action: Release) -> None:
        pod = action.pod
        patch = release(
            pod,
            gang_id=gang.id,
            job_id=action.job_id,
            node=action.node,
            rank=action.rank,
            ranks=action.ranks,
            nodelist=action.nodes.folded,
            node_count=len(action.nodes.names),
        )
        async with self._patching:
            self._scheduling.expect(pod, action.node, action.job_id)
            try:
                await self._kube.request(
                    "PATCH",
                    f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}",
                    body=encode(patch),
                    content_type=STRATEGIC,
                )
            except KubeError as error:
                self._scheduling.forget(pod.uid)
                if error.not_found:
                    return
                raise
        metrics.kube_writes.labels("release", "done").inc()
        self._cluster.answered(pod, patch["metadata"]["annotations"])

    async def _evict(self, evictions: Sequence[Evict]) -> None:
        """Every pod is told before the first is deleted: ranks fail when they miss another, and
        are not to be counted as failed by themselves."""
        await _all(*map(self._tell, evictions))
        await _all(*map(self._delete, evictions))

    async def _tell(self, action: Evict) -> None:
        why, now = disruption_of(action.state), timestamp(time.time())
        body = disruption(action.pod, why, message=action.why, at=now)
        with _gone_is_fine():
            await self._kube.request(
                "PATCH", f"{_path(action.pod)}/status", body=encode(body), content_type=STRATEGIC
            )

    async def _delete(self, action: Evict) -> None:
        pod = action.pod
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": pod.uid}}
        with _gone_is_fine():
            await self._kube.request("DELETE", _path(pod), body=encode(body))
        metrics.kube_writes.labels("evict", "done").inc()
        _log.info("pod deleted", pod=f"{pod.namespace}/{pod.name}", why=action.why)


async def _all(*doings: Coroutine[Any, Any, None]) -> None:
    """All of them, side by side; afterwards the errors, as a group."""
    done = await asyncio.gather(*doings, return_exceptions=True)
    if failures := [error for error in done if isinstance(error, Exception)]:
        raise ExceptionGroup("actions failed", failures)


@contextmanager
def _gone_is_fine() -> Iterator[None]:
    """The pod is gone, or another has its name by now."""
    try:
        yield
    except KubeError as error:
        if not (error.not_found or error.conflict):
            raise


def _path(pod: Pod) -> str:
    return f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
