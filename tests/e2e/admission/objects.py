"""What the tests of admission create, and how they read what becomes of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from extender.domain import wellknown as names
from tests.harness.kube import Kube, KubeError, Object

MANAGED, PLAIN, TENANT = "admission", "admission-plain", "admission-tenant"
GATE = {"name": names.GATE}
TOLERATION = {"key": names.TAINT, "operator": "Exists", "effect": "NoSchedule"}
ENVIRONMENT = {
    "RANK": names.RANK,
    "WORLD_SIZE": names.RANKS,
    "SLURM_PROCID": names.RANK,
    "SLURM_JOB_ID": names.JOB_ID,
    "SLURM_JOB_NODELIST": names.NODELIST,
    "SLURM_NNODES": names.NODES,
}
DRY_RUN = {"dryRun": "All"}


RBAC = "rbac.authorization.k8s.io"


def pods(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods"


def pod(
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    owner: Object | None = None,
    **spec: Any,
) -> Object:
    metadata: Object = {"generateName": "p-"}
    metadata |= {"labels": labels or {}, "annotations": annotations or {}}
    if owner:
        metadata["ownerReferences"] = [owner]
    containers = [{"name": "main", "image": "none"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"restartPolicy": "Never", "containers": containers, **spec},
    }


def restricted() -> Object:
    """The part of a pod's spec that Pod Security asks for in sluice-system."""
    confined = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    seccomp = {"type": "RuntimeDefault"}
    return {
        "securityContext": {"runAsNonRoot": True, "seccompProfile": seccomp},
        "containers": [{"name": "main", "image": "none", "securityContext": confined}],
    }


def job(name: str, ranks: int, template: Object) -> Object:
    spec = {"completions": ranks, "parallelism": ranks, "completionMode": "Indexed"}
    metadata = {k: v for k, v in template["metadata"].items() if k != "generateName"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": spec | {"template": {"metadata": metadata, "spec": template["spec"]}},
    }


def binding(kind: str, name: str, role: str, subject: Object) -> Object:
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": kind,
        "metadata": {"name": name},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
        "subjects": [subject],
    }


def pinned(node: str = "node-00") -> Object:
    requirement = {"key": "metadata.name", "operator": "In", "values": [node]}
    terms = [{"matchFields": [requirement]}]
    return {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}
        }
    }


def release() -> Object:
    """What Sluice writes on a pod as it places it, without the pinning."""
    return {"metadata": {"annotations": dict.fromkeys(names.ANSWERS, "1")}}


def admitted(kube: Kube, namespace: str, body: Object) -> Object:
    """The pod as it would be stored."""
    made: Object = kube.request("POST", pods(namespace), body=body, params=DRY_RUN)
    return made


def environment(container: Object) -> list[tuple[str, str]]:
    """Name, and value or annotation that it comes from."""

    def source(variable: Object) -> str:
        path = variable.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath", "")
        annotation = path.removeprefix("metadata.annotations['").removesuffix("']")
        return str(variable.get("value", annotation))

    return [(variable["name"], source(variable)) for variable in container.get("env", [])]


def taken(found: Object) -> bool:
    """The pod waits for Slurm; anything between that and untouched is an error."""
    spec = found["spec"]
    signs = [
        spec["schedulerName"] == names.SCHEDULER,
        GATE in spec.get("schedulingGates", []),
        TOLERATION in spec.get("tolerations", []),
        any(set(ENVIRONMENT) <= set(dict(environment(c))) for c in spec["containers"]),
    ]
    assert len(set(signs)) == 1, f"half taken: {signs}"
    return all(signs)


@contextmanager
def refused(sentence: str) -> Iterator[None]:
    """403, and the sentence that the person reads."""
    with pytest.raises(KubeError) as error:
        yield
    assert error.value.status == 403, error.value
    assert sentence in str(error.value)
