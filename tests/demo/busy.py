"""What another team already runs: two Jobs of two whole nodes, each kept to one rack."""

from __future__ import annotations

from tests.harness.fabric import LEAF_LABEL
from tests.harness.kube import Object

NAMESPACE = "vision"
RACKS = {"sim-a": "leaf-00", "sim-b": "leaf-02"}
PODS = 2


def manifest(name: str) -> Object:
    """The Job; its node selector is the rack, its time limit a day, which outlasts the demo."""
    limits = {"nvidia.com/gpu": "8", "cpu": "48", "memory": "384Gi"}
    pod = {
        "restartPolicy": "Never",
        "nodeSelector": {LEAF_LABEL: RACKS[name]},
        "containers": [{"name": "main", "image": "busybox", "resources": {"limits": limits}}],
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "completions": PODS,
            "parallelism": PODS,
            "completionMode": "Indexed",
            "template": {
                "metadata": {"annotations": {"sluice.dev/time-limit": "1-00:00:00"}},
                "spec": pod,
            },
        },
    }
