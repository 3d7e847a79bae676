"""kwok's configuration: what it plays on nodes and pods, how long pods run and how they end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

# On a pod template. How long a Job's pods run ("90s", "1h"); else they run for the default.
RUN_TIME_ANNOTATION = "pod-complete.stage.kwok.x-k8s.io/delay"
# How long a pod that is deleted takes to end; else it ends at once.
STOP_TIME_ANNOTATION = "pod-terminate.stage.kwok.x-k8s.io/delay"

# All of them: kwok fills in no defaults when there is such a document. Four stages at a time would
# be its default, and make 1,000 nodes slow to become ready.
OPTIONS: dict[str, Any] = {
    "apiVersion": "config.kwok.x-k8s.io/v1alpha1",
    "kind": "KwokConfiguration",
    "options": {
        "cidr": "10.0.0.0/24",
        "nodePlayStageParallelism": 16,
        "podPlayStageParallelism": 16,
        "nodeLeaseParallelism": 4,
        "podsOnNodeSyncParallelism": 1,
        "enablePodsOnNodeSyncListPager": True,
    },
}

_TERMINATED = """
{{ $now := Now }}
containerStatuses:
{{ range .spec.containers }}
- image: {{ .image | Quote }}
  name: {{ .name | Quote }}
  ready: false
  restartCount: 0
  started: false
  state:
    terminated:
      exitCode: 143
      finishedAt: {{ $now | Quote }}
      reason: Error
{{ end }}
phase: Failed
"""

# What a kubelet does with a pod that is deleted, and kwok's own stages do not: its containers end,
# by SIGTERM, it reports them in a last phase, and only then the pod goes. A Job with a
# podFailurePolicy waits for that phase.
# Source: k8s.io/kubernetes/pkg/kubelet/kubelet.go, SyncTerminatedPod; status/status_manager.go.
TERMINATE: dict[str, Any] = {
    "apiVersion": "kwok.x-k8s.io/v1alpha1",
    "kind": "Stage",
    "metadata": {"name": "pod-terminate"},
    "spec": {
        "resourceRef": {"apiGroup": "v1", "kind": "Pod"},
        "selector": {
            "matchExpressions": [
                {"key": ".metadata.deletionTimestamp", "operator": "Exists"},
                {"key": ".status.phase", "operator": "In", "values": ["Pending", "Running"]},
            ]
        },
        "delay": {
            "durationMilliseconds": 0,
            "durationFrom": {"expressionFrom": f'.metadata.annotations["{STOP_TIME_ANNOTATION}"]'},
        },
        "next": {"statusTemplate": _TERMINATED},
    },
}
_HAS_ENDED = {"key": ".status.phase", "operator": "In", "values": ["Succeeded", "Failed"]}


def write_config(path: Path, stages: Path, run_milliseconds: int) -> Path:
    """Write kwok's own stages from the directory ``stages``, and ours, to ``path``; return it.

    A Job's pods run for ``run_milliseconds`` unless RUN_TIME_ANNOTATION says otherwise.
    """
    found = [yaml.safe_load(file.read_text()) for file in sorted(stages.glob("*.yaml"))]
    for stage in found:
        if stage["metadata"]["name"] == "pod-complete":
            stage["spec"]["delay"] = {
                "durationMilliseconds": run_milliseconds,
                "durationFrom": {
                    "expressionFrom": f'.metadata.annotations["{RUN_TIME_ANNOTATION}"]'
                },
            }
        elif stage["metadata"]["name"] == "pod-delete":
            stage["spec"]["selector"]["matchExpressions"].append(_HAS_ENDED)
    path.write_text(yaml.safe_dump_all([OPTIONS, *found, TERMINATE]))
    return path
