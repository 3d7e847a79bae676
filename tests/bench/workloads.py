"""The Jobs that both schedulers get, equal but for what opting in means."""

from __future__ import annotations

from typing import Any

from tests.bench.arena import PLAIN
from tests.harness.controlplane import RUN_TIME_ANNOTATION
from tests.harness.kube import Object

TOLERATION = {"key": "sluice.dev/slurm", "operator": "Exists", "effect": "NoSchedule"}


def job(
    name: str,
    scheduler: str,
    pods: int,
    gpus: int,
    annotations: dict[str, str] | None = None,
    **spec: Any,
) -> Object:
    """An Indexed Job of ``pods`` pods with ``gpus`` GPUs each that run for an hour."""
    if scheduler == PLAIN:
        spec["tolerations"] = [TOLERATION]
    container = {
        "name": "main",
        "image": "train",
        "resources": {"limits": {"nvidia.com/gpu": str(gpus)}},
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "completions": pods,
            "parallelism": pods,
            "completionMode": "Indexed",
            "backoffLimit": 0,
            "template": {
                "metadata": {"annotations": {RUN_TIME_ANNOTATION: "1h"} | (annotations or {})},
                "spec": {"restartPolicy": "Never", "containers": [container]} | spec,
            },
        },
    }
