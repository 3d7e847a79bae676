"""Kubernetes' JSON to the domain's values: only the fields that are used are decoded.

Source of the rules on resources: k8s.io/component-helpers/resource/helpers.go (PodRequests).
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct

from extender.domain import wellknown as names
from extender.domain.model import Namespace, Node, Owner, Pod, Resources, Workload
from extender.domain.quantity import milli, whole

_KEPT_ANNOTATIONS = frozenset({names.COMPLETION_INDEX})
_KEPT_LABELS = frozenset({"apps.kubernetes.io/pod-index", names.JOB_NAME_LABEL})


class OwnerReference(Struct):
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = False


class Meta(Struct):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resourceVersion: str = ""
    creationTimestamp: datetime | None = None
    deletionTimestamp: datetime | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    ownerReferences: list[OwnerReference] | None = None


class Requirements(Struct):
    requests: dict[str, str | int | float] | None = None
    limits: dict[str, str | int | float] | None = None


class Container(Struct):
    resources: Requirements | None = None
    restartPolicy: str | None = None


class Gate(Struct):
    name: str = ""


class NodeSelector(Struct):
    nodeSelectorTerms: list[dict[str, Any]] | None = None


class NodeAffinity(Struct):
    requiredDuringSchedulingIgnoredDuringExecution: NodeSelector | None = None


class Affinity(Struct):
    nodeAffinity: NodeAffinity | None = None


class PodSpec(Struct):
    schedulerName: str = ""
    schedulingGates: list[Gate] | None = None
    nodeName: str = ""
    containers: list[Container] | None = None
    initContainers: list[Container] | None = None
    resources: Requirements | None = None
    overhead: dict[str, str | int | float] | None = None
    nodeSelector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: list[dict[str, Any]] | None = None
    terminationGracePeriodSeconds: int | None = None


class Terminated(Struct):
    exitCode: int = 0
    finishedAt: datetime | None = None


class ContainerState(Struct):
    terminated: Terminated | None = None


class ContainerStatus(Struct):
    state: ContainerState | None = None


class Condition(Struct):
    type: str = ""
    status: str = ""
    reason: str | None = ""
    message: str | None = ""


class PodStatus(Struct):
    phase: str = "Pending"
    conditions: list[Condition] | None = None
    containerStatuses: list[ContainerStatus] | None = None


class PodObject(Struct):
    metadata: Meta
    spec: PodSpec = msgspec.field(default_factory=PodSpec)
    status: PodStatus = msgspec.field(default_factory=PodStatus)


class JobSpec(Struct):
    completions: int | None = None
    parallelism: int | None = None
    completionMode: str | None = None
    suspend: bool | None = False
    activeDeadlineSeconds: int | None = None


class JobStatus(Struct):
    conditions: list[Condition] | None = None
    completedIndexes: str | None = None


class JobObject(Struct):
    metadata: Meta
    spec: JobSpec = msgspec.field(default_factory=JobSpec)
    status: JobStatus = msgspec.field(default_factory=JobStatus)


class NamespaceObject(Struct):
    metadata: Meta


class NodeSpecObject(Struct):
    unschedulable: bool | None = False
    taints: list[dict[str, Any]] | None = None


class Address(Struct):
    type: str = ""
    address: str = ""


class NodeStatus(Struct):
    allocatable: dict[str, str | int] | None = None
    addresses: list[Address] | None = None
    conditions: list[Condition] | None = None


class NodeObject(Struct):
    metadata: Meta
    spec: NodeSpecObject = msgspec.field(default_factory=NodeSpecObject)
    status: NodeStatus = msgspec.field(default_factory=NodeStatus)


def pod(o: PodObject) -> Pod:
    meta, spec, status = o.metadata, o.spec, o.status
    affinity = spec.affinity and spec.affinity.nodeAffinity
    required = affinity.requiredDuringSchedulingIgnoredDuringExecution if affinity else None
    failed = _failed(status)
    return Pod(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        version=meta.resourceVersion,
        created=_seconds(meta.creationTimestamp),
        labels=_kept(meta.labels, _KEPT_LABELS),
        annotations=_kept(meta.annotations, _KEPT_ANNOTATIONS),
        owner=_owner(meta.ownerReferences),
        scheduler=spec.schedulerName,
        gates=tuple(g.name for g in spec.schedulingGates or ()),
        node=spec.nodeName,
        phase=status.phase,
        deleting=meta.deletionTimestamp is not None,
        grace_seconds=_grace(spec),
        gone_by=_seconds(meta.deletionTimestamp),
        exit_code=failed.exitCode if failed else None,
        failed_at=_seconds(failed.finishedAt) if failed else 0.0,
        resources=_resources(spec),
        node_selector=spec.nodeSelector or {},
        node_affinity_terms=tuple((required.nodeSelectorTerms if required else None) or ()),
        tolerations=tuple(spec.tolerations or ()),
        scheduler_message=_unscheduled(status),
    )


def workload(o: JobObject) -> Workload:
    meta, spec = o.metadata, o.spec
    return Workload(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        completions=spec.completions,
        parallelism=1 if spec.parallelism is None else spec.parallelism,
        indexed=spec.completionMode == "Indexed",
        suspended=bool(spec.suspend),
        finished=any(
            c.status == "True" and c.type in ("Complete", "Failed")
            for c in o.status.conditions or ()
        ),
        deleting=meta.deletionTimestamp is not None,
        active_deadline_seconds=spec.activeDeadlineSeconds,
        completed=_indexes(o),
    )


def namespace(o: NamespaceObject) -> Namespace:
    meta = o.metadata
    return Namespace(meta.name, meta.labels or {}, _kept(meta.annotations, frozenset()))


def node(o: NodeObject) -> Node:
    meta, status = o.metadata, o.status
    allocatable = {k: str(v) for k, v in (status.allocatable or {}).items()}
    addresses = {a.type: a.address for a in status.addresses or ()}
    return Node(
        name=meta.name,
        labels=meta.labels or {},
        annotations=_kept(meta.annotations, frozenset()),
        address=addresses.get("InternalIP", addresses.get("ExternalIP", "")),
        ready=any(c.type == "Ready" and c.status == "True" for c in status.conditions or ()),
        unschedulable=bool(o.spec.unschedulable),
        taints=tuple(o.spec.taints or ()),
        cpu_milli=milli(allocatable.get("cpu", "0")),
        memory_bytes=whole(allocatable.get("memory", "0")),
        gpus=whole(allocatable.get(names.GPU_RESOURCE, "0")),
    )


def _indexes(o: JobObject) -> frozenset[int]:
    """completedIndexes, "0,2-4", as numbers. Only of a gang: other Jobs may have millions."""
    text = o.status.completedIndexes
    if not text or o.spec.completions != o.spec.parallelism:
        return frozenset()
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)


def _seconds(stamp: datetime | None) -> float:
    return stamp.timestamp() if stamp else 0.0


def _kept(values: dict[str, str] | None, more: frozenset[str]) -> dict[str, str]:
    """What Sluice reads of labels or annotations: a tenant may put megabytes there."""
    return {k: v for k, v in (values or {}).items() if k.startswith(names.PREFIX) or k in more}


def _owner(references: list[OwnerReference] | None) -> Owner | None:
    for reference in references or ():
        if reference.controller:
            return Owner(reference.kind, reference.name, reference.uid)
    return None


def _grace(spec: PodSpec) -> int:
    """In seconds, as Kubernetes takes it: 30 where nothing is written, 1 where it is negative."""
    grace = spec.terminationGracePeriodSeconds
    if grace is None:
        return 30
    return grace if grace >= 0 else 1


def _failed(status: PodStatus) -> Terminated | None:
    """The end of the container that failed first."""
    ends = (c.state.terminated for c in status.containerStatuses or () if c.state)
    failed = [end for end in ends if end and end.exitCode]
    return min(failed, key=lambda end: _seconds(end.finishedAt) or float("inf"), default=None)


def _unscheduled(status: PodStatus) -> str:
    for condition in status.conditions or ():
        if condition.type == "PodScheduled" and condition.status == "False":
            return condition.message or ""
    return ""


def _request(requirements: Requirements | None, resource: str) -> str:
    """The request; where only a limit is written, Kubernetes takes it for the request too."""
    if requirements is None:
        return "0"
    for values in (requirements.requests, requirements.limits):
        if values and resource in values:
            return str(values[resource])
    return "0"


def _resources(spec: PodSpec) -> Resources:
    return Resources(
        _total(spec, "cpu", milli),
        _total(spec, "memory", whole),
        _total(spec, names.GPU_RESOURCE, whole),
    )


def _total(spec: PodSpec, resource: str, read: Any) -> int:
    """max(containers + sidecars, each init container + the sidecars before it) + overhead."""
    overhead = int(read(str((spec.overhead or {}).get(resource, "0"))))
    pod_level = _request(spec.resources, resource)
    if pod_level != "0":
        return int(read(pod_level)) + overhead

    def of(containers: Iterable[Container]) -> list[int]:
        return [int(read(_request(c.resources, resource))) for c in containers]

    sidecars = peak = 0
    for container, need in zip(
        spec.initContainers or (), of(spec.initContainers or ()), strict=True
    ):
        if container.restartPolicy == "Always":
            sidecars += need
            peak = max(peak, sidecars)
        else:
            peak = max(peak, sidecars + need)
    return max(peak, sum(of(spec.containers or ())) + sidecars) + overhead
