"""The domain's values as the API server's JSON."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from extender.domain.model import Pod


def pod_json(pod: Pod) -> bytes:
    return msgspec.json.encode(pod_object(pod))


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
