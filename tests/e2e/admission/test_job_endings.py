"""What a Job is given to do when Slurm ends its pods, and that its own word stands."""

from __future__ import annotations

import json
from typing import Any

import pytest

from extender.domain import wellknown as names
from tests.e2e.admission.objects import DRY_RUN, MANAGED, PLAIN, job, pod
from tests.harness.kube import STRATEGIC, Kube, Object

pytestmark = pytest.mark.e2e

FINAL = [
    {"type": kind, "status": "True"}
    for kind in (
        names.TIMEOUT, names.DEADLINE, names.OUT_OF_MEMORY, names.CANCELLED, names.COMPLETED,
        names.FAILED,
    )
]  # fmt: skip
DISRUPTED = {
    "action": "Ignore",
    "onPodConditions": [{"type": names.DISRUPTION_TARGET, "status": "True"}],
}


def rules(action: str) -> list[Object]:
    return [{"action": action, "onPodConditions": FINAL}, DISRUPTED]


def jobs(namespace: str) -> str:
    return f"/apis/batch/v1/namespaces/{namespace}/jobs"


def spec(kube: Kube, body: Object, namespace: str = MANAGED) -> Object:
    """The spec of the Job as it would be stored."""
    made = kube.request("POST", jobs(namespace), body=body, params=DRY_RUN)
    found: Object = made["spec"]
    return found


def given(kube: Kube, body: Object, namespace: str = MANAGED) -> list[Object] | None:
    return (spec(kube, body, namespace).get("podFailurePolicy") or {}).get("rules")


def with_(body: Object, **spec: Any) -> Object:
    return body | {"spec": body["spec"] | spec}


GANG = job("train", 4, pod())
NO_GANG = with_(job("train", 4, pod()), completionMode="NonIndexed")
NAMED = job("train", 4, pod(annotations={names.GANG: "g", names.GANG_SIZE: "4"}))


@pytest.mark.parametrize(
    ("body", "action"),
    [
        pytest.param(GANG, "FailJob", id="a gang"),
        pytest.param(with_(NO_GANG, completions=1, parallelism=1), "FailJob", id="one pod"),
        pytest.param(with_(NAMED, completionMode="NonIndexed"), "FailJob", id="pods name a gang"),
        pytest.param(NO_GANG, "Count", id="a bag of pods"),
        pytest.param(with_(GANG, parallelism=2), "Count", id="a few at a time"),
        pytest.param(with_(NO_GANG, completions=None), "Count", id="a work queue"),
    ],
)
def test_slurm_s_final_word_fails_what_was_in_its_job(
    kube: Kube, body: Object, action: str
) -> None:
    """The whole Job where it was one Slurm job, else the one pod."""
    assert given(kube, body) == rules(action)
    assert spec(kube, body)["podReplacementPolicy"] == "Failed"


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(with_(GANG, podFailurePolicy={"rules": [DISRUPTED]}), id="one rule"),
        pytest.param(with_(GANG, podFailurePolicy={"rules": []}), id="no rules"),
    ],
)
def test_a_job_s_own_policy_stands(kube: Kube, body: Object) -> None:
    assert (given(kube, body) or []) == body["spec"]["podFailurePolicy"]["rules"]


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(job("train", 2, pod(restartPolicy="OnFailure")), id="restarts in place"),
        pytest.param(job("train", 2, pod(labels={names.OPTED_OUT: ""})), id="opted out"),
        pytest.param(job("train", 2, pod(annotations={names.OPTED_OUT: ""})), id="by annotation"),
        pytest.param(job("train", 2, pod(schedulerName="volcano")), id="of another scheduler"),
        pytest.param(job("train", 2, pod(nodeName="node-00")), id="on a node"),
    ],
)
def test_jobs_that_are_given_nothing(kube: Kube, body: Object) -> None:
    found = spec(kube, body)
    assert "podFailurePolicy" not in found
    assert found["podReplacementPolicy"] == "TerminatingOrFailed"


def test_who_opts_in_is_given_it_whichever_way(kube: Kube) -> None:
    """Also a template with tolerations, whose pods are prepared one by one."""
    own = job("train", 4, pod(tolerations=[{"key": "nvidia.com/gpu", "operator": "Exists"}]))
    assert given(kube, own) == rules("FailJob")
    assert given(kube, GANG, PLAIN) is None
    assert given(kube, job("train", 4, pod(labels={names.MANAGED: "true"})), PLAIN) == rules(
        "FailJob"
    )
    assert given(kube, job("train", 4, pod(labels={names.MANAGED: "false"})), PLAIN) is None


@pytest.mark.parametrize("replacement", [None, "Failed", "TerminatingOrFailed"])
@pytest.mark.parametrize("how", ["on the server", "by kubectl"])
def test_a_manifest_can_be_applied_again(kube: Kube, how: str, replacement: str | None) -> None:
    """A podFailurePolicy cannot change, and allows one podReplacementPolicy only: neither is to be
    taken out or put back by the next apply. A manifest that asks for the other gets no policy."""
    manifest = with_(GANG, suspend=True)
    if replacement:
        manifest = with_(manifest, podReplacementPolicy=replacement)
    apply = on_the_server if how == "on the server" else by_kubectl
    try:
        first = apply(kube, manifest)
        again = apply(kube, manifest)
        changed = apply(kube, manifest | {"metadata": {"name": "train", "labels": {"r": "2"}}})
    finally:
        kube.delete(f"{jobs(MANAGED)}/train")
    chosen = replacement == "TerminatingOrFailed"
    assert ("podFailurePolicy" in first["spec"]) is not chosen
    assert again["spec"] == changed["spec"] == first["spec"]


def on_the_server(kube: Kube, manifest: Object) -> Object:
    return kube.apply(manifest, MANAGED)


LAST = "kubectl.kubernetes.io/last-applied-configuration"


def by_kubectl(kube: Kube, manifest: Object) -> Object:
    """Client-side apply: created with what was applied in an annotation; later a strategic merge
    patch of what the manifest says, which takes nothing out that no manifest has said."""
    text = json.dumps(manifest, separators=(",", ":"))
    annotated = manifest | {"metadata": manifest["metadata"] | {"annotations": {LAST: text}}}
    path = f"{jobs(MANAGED)}/{manifest['metadata']['name']}"
    if kube.find(path) is None:
        return kube.create(jobs(MANAGED), annotated)
    return kube.patch(path, annotated, STRATEGIC)
