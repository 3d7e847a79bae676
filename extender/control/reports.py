"""Tells people in Kubernetes' own places: Events, and Sluice's condition on waiting pods.

Best effort and slow on purpose: a gang that starts soon costs no write here, and a cluster full of
waiting pods costs a bounded number of writes a second.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable
from typing import Any, Final

import structlog

from extender.control import metrics
from extender.control.cluster import Cluster
from extender.control.journal import Journal
from extender.domain import wellknown as names
from extender.domain.decision import Decision, GangState
from extender.domain.grace import Limits, too_long
from extender.domain.model import Gang, GangKind, Job, Pod
from extender.kube.client import STRATEGIC, KubeClient, KubeError, KubeUnavailable, encode
from extender.kube.patches import condition, timestamp

_log = structlog.get_logger(__name__)
_WRITES_A_SECOND: Final = 20
_PATIENCE_SECONDS: Final = 3.0
_COMPONENT: Final = "sluice"

# state -> (Event type, Event reason); others make no Event
_EVENTS: Final = {
    GangState.INVALID: ("Warning", "Refused"),
    GangState.LOST: ("Warning", "JobLost"),
    GangState.ENDING: ("Normal", "Ending"),
    GangState.QUEUED: ("Normal", "Queued"),
    GangState.RUNNING: ("Normal", "Running"),
}
_OVERSTAYS: Final = ("Warning", "GraceTooLong")
_WAITING: Final = (GangState.QUEUED, GangState.FORMING, GangState.CHECKING)
_AT_ONCE: Final = (GangState.INVALID, GangState.LOST)


class Reports:
    """Writes what was decided where ``kubectl describe`` shows it."""

    def __init__(
        self,
        cluster: Cluster,
        journal: Journal,
        kube: KubeClient,
        *,
        event_interval_seconds: float,
        limits: Callable[[], Limits],
    ) -> None:
        self._cluster = cluster
        self._journal = journal
        self._kube = kube
        self._interval = event_interval_seconds
        self._limits = limits
        self._warned: dict[str, set[str]] = {}  # gang -> of what, once for good
        self._said: dict[str, dict[str, float]] = {}  # gang -> what its Events said -> when
        self._conditions: dict[str, tuple[Pod, Decision]] = {}  # pod uid -> to be written
        self._told: dict[str, str] = {}  # pod uid -> message of its condition
        self._events: asyncio.Queue[dict[str, Any]] = asyncio.Queue(maxsize=1000)
        self._patience: dict[str, asyncio.TimerHandle] = {}
        self._work = asyncio.Event()

    def decided(self, gang: Gang, decision: Decision) -> None:
        """A gang has a new state or reason."""
        if decision.state in _AT_ONCE:
            self._tell(gang, decision)
        elif decision.state in _WAITING:
            self._wait_and_tell(gang.id)
        elif decision.state is GangState.RUNNING:
            self._tell(gang, decision, only_told=True)
        elif decision.state is GangState.ENDING:
            self._event(gang, decision)
        if decision.job and not decision.job.state.ended:
            self._warn(gang, decision.job)

    def forget(self, gang_id: str) -> None:
        if timer := self._patience.pop(gang_id, None):
            timer.cancel()
        self._said.pop(gang_id, None)
        self._warned.pop(gang_id, None)

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            await self._work.wait()
            self._work.clear()
            while self._conditions or not self._events.empty():
                await self._write_one()
                await asyncio.sleep(1 / _WRITES_A_SECOND)

    # -- what to tell -----------------------------------------------------------------------

    def _wait_and_tell(self, gang_id: str) -> None:
        """One timer a gang: when it waits for longer than a moment, that is worth a line."""
        if gang_id not in self._patience:
            loop = asyncio.get_running_loop()
            timer = loop.call_later(_PATIENCE_SECONDS, self._tell_if_waiting, gang_id)
            self._patience[gang_id] = timer

    def _tell_if_waiting(self, gang_id: str) -> None:
        self._patience.pop(gang_id, None)
        last = self._journal.last(gang_id)
        if last and last.state in _WAITING and (gang := self._cluster.gang(gang_id)):
            self._tell(gang, last)

    def _tell(self, gang: Gang, decision: Decision, *, only_told: bool = False) -> None:
        for pod in gang.pods:
            told = self._told.get(pod.uid)
            if told == decision.reason or pod.terminal or (only_told and told is None):
                continue
            if decision.state is GangState.INVALID and _placed(pod):
                continue  # what is wrong is wrong with the others
            self._conditions[pod.uid] = (pod, decision)
        self._work.set()
        self._event(gang, decision)

    def _event(self, gang: Gang, decision: Decision) -> None:
        kind = _EVENTS.get(decision.state)
        if kind is None or not gang.pods:
            return
        what, now = f"{kind[1]}: {decision.reason}", time.monotonic()
        said = {w: at for w, at in self._said.get(gang.id, {}).items() if now - at < self._interval}
        if what in said:
            return  # also when something else was said in between: reasons come and go
        self._said[gang.id] = {**said, what: now}
        self._say(gang, kind, decision.reason)

    def _warn(self, gang: Gang, job: Job) -> None:
        """Of pods that take longer to end than Slurm reckons with."""
        why = too_long(gang.pods, job, self._limits())
        warned = self._warned.setdefault(gang.id, set())
        if why and why not in warned:
            warned.add(why)
            self._say(gang, _OVERSTAYS, why)

    def _say(self, gang: Gang, kind: tuple[str, str], message: str) -> None:
        for subject in _subjects(gang):
            try:
                self._events.put_nowait(_event_body(subject, kind, message))
            except asyncio.QueueFull:
                _log.warning("event dropped", gang=f"{gang.namespace}/{gang.name}")
        self._work.set()

    # -- writing ----------------------------------------------------------------------------

    async def _write_one(self) -> None:
        try:
            if not self._events.empty():
                body = self._events.get_nowait()
                namespace = body["metadata"]["namespace"]
                path = f"/api/v1/namespaces/{namespace}/events"
                await self._kube.request("POST", path, body=encode(body))
                metrics.kube_writes.labels("event", "done").inc()
                return
            uid = next(iter(self._conditions))
            pod, decision = self._conditions.pop(uid)
            await self._write_condition(pod, decision)
        except (KubeError, KubeUnavailable) as error:
            metrics.kube_writes.labels("report", "failed").inc()
            _log.warning("report not written", why=str(error))

    async def _write_condition(self, pod: Pod, decision: Decision) -> None:
        if pod.uid not in self._cluster.pods:
            self._told.pop(pod.uid, None)
            return
        body = condition(
            pod.uid,
            placed=decision.state is GangState.RUNNING,
            reason=str(decision.state),
            message=decision.reason,
            at=timestamp(time.time()),
        )
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/status"
        await self._kube.request("PATCH", path, body=encode(body), content_type=STRATEGIC)
        if pod.uid in self._cluster.pods:  # it may have gone meanwhile
            self._told[pod.uid] = decision.reason
        metrics.kube_writes.labels("condition", "done").inc()

    def pod_gone(self, pod: Pod) -> None:
        self._told.pop(pod.uid, None)
        self._conditions.pop(pod.uid, None)


def _placed(pod: Pod) -> bool:
    return names.JOB_ID in pod.annotations


def _subjects(gang: Gang) -> list[dict[str, str]]:
    """The Job, if there is one, and a pod: the first that waits, else the first."""
    pod = next((p for p in gang.pods if not _placed(p)), gang.pods[0])
    subjects = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": pod.namespace,
            "name": pod.name,
            "uid": pod.uid,
        }
    ]
    if gang.kind is GangKind.JOB:
        job = {"apiVersion": "batch/v1", "kind": "Job", "namespace": gang.namespace}
        subjects.insert(0, {**job, "name": gang.name, "uid": gang.id})
    return subjects


def _event_body(subject: dict[str, str], kind: tuple[str, str], message: str) -> dict[str, Any]:
    now = timestamp(time.time())
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "namespace": subject["namespace"],
            "name": f"{subject['name'][:200]}.{secrets.token_hex(8)}",
        },
        "involvedObject": subject,
        "type": kind[0],
        "reason": kind[1],
        "message": message[:1024],
        "source": {"component": _COMPONENT},
        "reportingComponent": _COMPONENT,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
