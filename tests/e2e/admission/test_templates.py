"""What becomes of a Job's template: its pods arrive prepared."""

from __future__ import annotations

import pytest

from extender.domain import wellknown as names
from tests.e2e.admission.objects import (
    DRY_RUN,
    ENVIRONMENT,
    GATE,
    MANAGED,
    PLAIN,
    TOLERATION,
    admitted,
    environment,
    job,
    pod,
    taken,
)
from tests.harness.kube import Kube, Object

pytestmark = pytest.mark.e2e


def test_pods_of_a_job_arrive_ready_to_wait(kube: Kube) -> None:
    template = pod(initContainers=[{"name": "prepare", "image": "none"}])
    kube.create(f"/apis/batch/v1/namespaces/{MANAGED}/jobs", job("train", 2, template))
    selector = f"{names.JOB_NAME_LABEL}=train"

    def both() -> list[Object] | None:
        found = kube.pods(MANAGED, selector)
        return found if len(found) == 2 else None

    for found in kube.wait_for(both, 20, "the pods of the Job"):
        assert taken(found)
        assert found["spec"]["schedulingGates"] == [GATE]
        (main,), (prepare,) = found["spec"]["containers"], found["spec"]["initContainers"]
        for container in (main, prepare):
            own = dict(environment(container))
            assert own.pop("JOB_COMPLETION_INDEX")  # the Job controller's
            assert own == ENVIRONMENT


PLAIN_CONTAINER = {"name": "main", "image": "none"}


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(pod(), id="plain"),
        pytest.param(pod(labels={"app": "x"}), id="with labels"),
        pytest.param(pod(labels={names.OPTED_OUT: ""}), id="opted out"),
        pytest.param(pod(annotations={names.OPTED_OUT: "true"}), id="opted out by annotation"),
        pytest.param(pod(schedulerName="volcano"), id="of another scheduler"),
        pytest.param(pod(schedulingGates=[{"name": "example.com/quota"}]), id="with a gate"),
        pytest.param(
            pod(containers=[PLAIN_CONTAINER | {"env": [{"name": "RANK", "value": "mine"}]}]),
            id="with variables",
        ),
        pytest.param(pod(initContainers=[{"name": "prepare", "image": "none"}]), id="preparing"),
    ],
)
@pytest.mark.parametrize("namespace", [MANAGED, PLAIN])
def test_a_template_becomes_what_its_pods_would(kube: Kube, namespace: str, body: Object) -> None:
    """Pods of a prepared template are not touched again, so the template must have it all."""
    path = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    made = kube.request("POST", path, body=job("template", 2, body), params=DRY_RUN)
    template = made["spec"]["template"]
    wanted = admitted(kube, namespace, body)
    assert taken(template) is taken(wanted)
    assert (template["metadata"]["labels"].get(names.GATED) == "true") is taken(wanted)
    for kind in ("containers", "initContainers"):
        ours, theirs = (found["spec"].get(kind, []) for found in (template, wanted))
        assert [environment(c) for c in ours] == [environment(c) for c in theirs]
    assert template["spec"].get("schedulingGates") == wanted["spec"].get("schedulingGates")


OWN_TOLERATION = {"key": "nvidia.com/gpu", "operator": "Exists"}


def test_a_template_with_tolerations_is_left_to_its_pods(kube: Kube) -> None:
    body = pod(tolerations=[OWN_TOLERATION])
    path = f"/apis/batch/v1/namespaces/{MANAGED}/jobs"
    made = kube.request("POST", path, body=job("own", 2, body), params=DRY_RUN)
    assert not taken(made["spec"]["template"])
    assert taken(admitted(kube, MANAGED, body))
    body = pod(tolerations=[OWN_TOLERATION, TOLERATION])
    made = kube.request("POST", path, body=job("own", 2, body), params=DRY_RUN)
    assert taken(made["spec"]["template"])


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(pod(), id="plain"),
        pytest.param(pod(tolerations=[OWN_TOLERATION]), id="tolerations"),
        pytest.param(pod(tolerations=[OWN_TOLERATION, TOLERATION]), id="our toleration"),
        pytest.param(pod(schedulingGates=[{"name": "example.com/quota"}]), id="gates"),
        pytest.param(
            pod(
                containers=[
                    {
                        "name": "main",
                        "image": "none",
                        "env": [{"name": n, "value": "x"} for n in ("A", "RANK", "Z")],
                    }
                ]
            ),
            id="variables",
        ),
    ],
)
def test_a_manifest_can_be_applied_again(kube: Kube, body: Object) -> None:
    """A Job's template cannot change: what we put in must not be taken out by the next apply."""
    manifest = job("again", 1, body)
    manifest["spec"]["suspend"] = True
    try:
        kube.apply(manifest, MANAGED)
        manifest["metadata"]["labels"] = {"revision": "2"}
        kube.apply(manifest, MANAGED)
    finally:
        kube.delete(f"/apis/batch/v1/namespaces/{MANAGED}/jobs/again")


def test_a_template_without_metadata_is_prepared(kube: Kube) -> None:
    body = job("bare", 2, pod())
    del body["spec"]["template"]["metadata"]
    path = f"/apis/batch/v1/namespaces/{MANAGED}/jobs"
    assert taken(kube.request("POST", path, body=body, params=DRY_RUN)["spec"]["template"])
