"""The domain's values as the API server's JSON."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from extender.domain.model import Namespace, Node, Pod, Workload


def _stamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def pod_object(pod: Pod) -> dict[str, Any]:
    meta: dict[str, Any] = {
        "name": pod.name,
        "namespace": pod.namespace,
        "uid": pod.uid,
        "resourceVersion": pod.version,
        "creationTimestamp": _stamp(pod.created),
        "annotations": pod.annotations,
        "labels": pod.labels,
    }
    if pod.deleting:
        meta["deletionTimestamp"] = _stamp(getattr(pod, "gone_by", 0.0) or pod.created)
        meta["deletionGracePeriodSeconds"] = pod.grace_seconds
    if pod.owner:
        owner = {"kind": pod.owner.kind, "name": pod.owner.name, "uid": pod.owner.uid}
        meta["ownerReferences"] = [{**owner, "controller": True}]
    resources = {
        "cpu": f"{pod.resources.cpu_milli}m",
        "memory": str(pod.resources.memory_bytes),
        "nvidia.com/gpu": str(pod.resources.gpus),
    }
    spec: dict[str, Any] = {
        "schedulerName": pod.scheduler,
        "nodeName": pod.node,
        "schedulingGates": [{"name": gate} for gate in pod.gates],
        "terminationGracePeriodSeconds": pod.grace_seconds,
        "containers": [{"name": "main", "resources": {"requests": resources}}],
    }
    if pod.node_affinity_terms:
        required = {"nodeSelectorTerms": list(pod.node_affinity_terms)}
        spec["affinity"] = {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}
        }
    status: dict[str, Any] = {"phase": pod.phase}
    if pod.exit_code is not None:
        state = {"terminated": {"exitCode": pod.exit_code}}
        status["containerStatuses"] = [{"name": "main", "state": state}]
    return {"metadata": meta, "spec": spec, "status": status}


def object_of(value: Pod | Workload | Node | Namespace, version: int) -> dict[str, Any]:
    """What a list or watch shows of it; ``version`` is that of its last change."""
    if isinstance(value, Pod):
        return pod_object(value)
    meta: dict[str, Any] = {"name": value.name, "resourceVersion": str(version)}
    if isinstance(value, Workload):
        return _job_object(value, meta)
    meta |= {"labels": value.labels, "annotations": value.annotations}
    return {"metadata": meta} if isinstance(value, Namespace) else _node_object(value, meta)


def _job_object(job: Workload, meta: dict[str, Any]) -> dict[str, Any]:
    conditions = [{"type": "Complete", "status": "True"}] if job.finished else []
    return {
        "metadata": {**meta, "namespace": job.namespace, "uid": job.uid},
        "spec": {
            "completions": job.completions,
            "parallelism": job.parallelism,
            "completionMode": "Indexed" if job.indexed else "NonIndexed",
            "suspend": job.suspended,
        },
        "status": {
            "conditions": conditions,
            "completedIndexes": ",".join(map(str, sorted(job.completed))),
        },
    }


def _node_object(node: Node, meta: dict[str, Any]) -> dict[str, Any]:
    ready = {"type": "Ready", "status": "True" if node.ready else "Unknown"}
    return {
        "metadata": meta,
        "spec": {"unschedulable": node.unschedulable},
        "status": {
            "allocatable": {
                "cpu": f"{node.cpu_milli}m",
                "memory": str(node.memory_bytes),
                "nvidia.com/gpu": str(node.gpus),
            },
            "addresses": [{"type": "InternalIP", "address": node.address}],
            "conditions": [ready],
        },
    }
