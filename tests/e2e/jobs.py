"""Workloads to submit, with the defaults that make a test read as what it is about."""

from __future__ import annotations

from typing import Any

from extender.domain import wellknown as names
from tests.harness.controlplane import RUN_TIME_ANNOTATION
from tests.harness.kube import Object

FOR_EVER = "1h"


def indexed_job(name: str, pods: int, *, run: str = FOR_EVER, **more: Any) -> Object:
    """An Indexed Job whose pods all run at once: a gang. See ``template`` for ``more``."""
    job = plain_job(name, pods, run=run, **more)
    job["spec"] |= {"completionMode": "Indexed"}
    return job


def plain_job(
    name: str, pods: int, *, run: str = FOR_EVER, retries: int = 6, **more: Any
) -> Object:
    """A Job of like pods that know no index: each is a gang of its own."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "completions": pods,
            "parallelism": pods,
            "backoffLimit": retries,
            "template": template(run=run, **more),
        },
    }


def pod(name: str, *, gang: str = "", size: int | str = 0, **more: Any) -> Object:
    """A pod of its own, or one of a gang that names itself. It runs until it is deleted."""
    annotations = {}
    if gang:
        annotations = {names.GANG: gang, names.GANG_SIZE: str(size)}
    annotations |= more.pop("annotations", {})
    made = template(annotations=annotations, **more)
    made["metadata"]["name"] = name
    return {"apiVersion": "v1", "kind": "Pod", **made}


def gang(name: str, size: int, **more: Any) -> list[Object]:
    """Pods that name the same gang: <name>-0, <name>-1, …"""
    return [pod(f"{name}-{i}", gang=name, size=size, **more) for i in range(size)]


def template(
    *,
    gpus: int = 8,
    cpus: int | str = 4,
    memory: str = "8Gi",
    run: str = "",
    annotations: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    **spec: Any,
) -> Object:
    """A pod template. ``spec`` goes into the pod's spec as it is."""
    limits = {"cpu": str(cpus), "memory": memory}
    if gpus:
        limits[names.GPU_RESOURCE] = str(gpus)
    metadata: Object = {"annotations": dict(annotations or {}), "labels": dict(labels or {})}
    if run:
        metadata["annotations"][RUN_TIME_ANNOTATION] = run
    container = {"name": "main", "image": "none", "resources": {"limits": limits}}
    return {
        "metadata": metadata,
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "containers": [container],
            **spec,
        },
    }
