"""kwok's configuration: what it plays on nodes and pods, and how long a Job's pods run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

# On a Job's pod template: how long its pods run ("90s", "1h"); else they run for the default.
RUN_TIME_ANNOTATION = "pod-complete.stage.kwok.x-k8s.io/delay"

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


def write_config(path: Path, stages: Path, run_milliseconds: int) -> Path:
    """Write kwok's own stages from the directory ``stages`` to ``path``, and return it.

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
    path.write_text(yaml.safe_dump_all([OPTIONS, *found]))
    return path
