"""The writes to pods, as bodies of patches and bindings. Pure.

Source of what the API server accepts: k8s.io/kubernetes/pkg/apis/core/validation
(ValidatePodUpdate: a gated pod's node affinity may only be tightened).
"""

from __future__ import annotations

import copy
from datetime import UTC, datetime
from typing import Any

from extender.domain import wellknown as names
from extender.domain.endings import Disruption
from extender.domain.model import Pod


def release(
    pod: Pod,
    *,
    gang_id: str,
    job_id: int,
    node: str,
    rank: int,
    ranks: int,
    nodelist: str,
    node_count: int,
) -> dict[str, Any]:
    """One strategic merge patch: answers written, node pinned, gate off.

    The UID makes it a 409 for another pod of the same name, the version for one that has changed: a
    patch that was under way for long must not overwrite a later one. The node is pinned in every
    ORed term, since a term without it would leave another way open. A pod that was never gated
    gets the answers only: its node is then enforced at filter and bind.
    """
    patch: dict[str, Any] = {
        "metadata": {
            "uid": pod.uid,
            "resourceVersion": pod.version,
            "annotations": {
                names.GANG_ID: gang_id,
                names.JOB_ID: str(job_id),
                names.NODE: node,
                names.RANK: str(rank),
                names.RANKS: str(ranks),
                names.NODELIST: nodelist,
                names.NODES: str(node_count),
            },
        }
    }
    if pod.gated:
        patch["spec"] = {
            "schedulingGates": [{"$patch": "delete", "name": names.GATE}],
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": _pinned(pod.node_affinity_terms, node)
                    }
                }
            },
        }
    return patch


def _pinned(terms: tuple[dict[str, Any], ...], node: str) -> list[dict[str, Any]]:
    pin = {"key": "metadata.name", "operator": "In", "values": [node]}
    if not terms:
        return [{"matchFields": [pin]}]
    pinned = copy.deepcopy(list(terms))
    for term in pinned:
        term["matchFields"] = [*(term.get("matchFields") or []), pin]
    return pinned


def binding(namespace: str, name: str, uid: str, node: str) -> dict[str, Any]:
    """The Binding that makes a kubelet run the pod."""
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, "namespace": namespace, "uid": uid},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }


def condition(uid: str, *, placed: bool, reason: str, message: str, at: str) -> dict[str, Any]:
    """A strategic merge patch of the pod's status: Sluice's condition."""
    status = "True" if placed else "False"
    return _status(uid, [_condition(names.CONDITION, status, reason, message, at)])


def disruption(pod: Pod, why: Disruption, *, message: str, at: str) -> dict[str, Any]:
    """A strategic merge patch of the pod's status, before Sluice deletes the pod.

    Kubernetes' own condition for pods that are ended from outside, and one that names Slurm's
    state: a podFailurePolicy may tell by them what a Job does. A pod that no kubelet has is Failed
    at once, or its Job would wait for PodGC to say so, which looks every 20 s.
    Sources: kubernetes.io, "Disruptions"; pkg/controller/podgc (gcUnscheduledTerminating).
    """
    kinds = [names.DISRUPTION_TARGET, *filter(None, [why.condition])]
    body = _status(pod.uid, [_condition(kind, "True", why.reason, message, at) for kind in kinds])
    if not pod.node:
        body["status"]["phase"] = "Failed"
    return body


def timestamp(seconds: float) -> str:
    """Seconds since the epoch as Kubernetes writes them: RFC 3339, UTC, whole seconds."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _status(uid: str, conditions: list[dict[str, str]]) -> dict[str, Any]:
    return {"metadata": {"uid": uid}, "status": {"conditions": conditions}}


def _condition(kind: str, status: str, reason: str, message: str, at: str) -> dict[str, str]:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message[:1024],
        "lastTransitionTime": at,
    }
