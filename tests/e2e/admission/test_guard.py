"""What nobody but Sluice may write on a pod."""

from __future__ import annotations

from copy import deepcopy

import pytest

from extender.domain import wellknown as names
from tests.e2e.admission.objects import (
    MANAGED,
    PLAIN,
    TENANT,
    admitted,
    job,
    pinned,
    pod,
    pods,
    refused,
    release,
    taken,
)
from tests.harness.kube import JSON_PATCH, MERGE, STRATEGIC, Kube, Object

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize("annotation", sorted(names.ANSWERS))
@pytest.mark.parametrize("namespace", [MANAGED, PLAIN])
def test_a_pod_cannot_bring_an_answer(kube: Kube, namespace: str, annotation: str) -> None:
    with refused(f"only Sluice writes {annotation}: leave it out of pods and pod templates"):
        admitted(kube, namespace, pod(annotations={annotation: "7"}))


def test_all_forged_answers_are_named(kube: Kube) -> None:
    with refused(f"only Sluice writes {', '.join(sorted(names.ANSWERS))}:"):
        admitted(kube, MANAGED, pod(annotations=dict.fromkeys(names.ANSWERS, "")))


def test_a_template_with_an_answer_is_told_so_by_its_job(kube: Kube) -> None:
    template = pod(annotations={names.JOB_ID: "7"})
    made = kube.create(f"/apis/batch/v1/namespaces/{MANAGED}/jobs", job("forger", 1, template))

    def sentence() -> str:
        where = f"involvedObject.uid={made['metadata']['uid']}"
        events = kube.items(f"/api/v1/namespaces/{MANAGED}/events", fieldSelector=where)
        return "".join(e["message"] for e in events if e["reason"] == "FailedCreate")

    said = kube.wait_for(sentence, 20, "an Event about the Job")
    assert f"only Sluice writes {names.JOB_ID}" in said


def test_requests_are_the_tenant_s_own(kube: Kube) -> None:
    assert taken(admitted(kube, MANAGED, pod(annotations=dict.fromkeys(names.REQUESTS, "x"))))


ANSWERS_SENTENCE = "only Sluice writes"
GATE_SENTENCE = "only Sluice removes the scheduling gate sluice.dev/slurm"
AFFINITY_SENTENCE = "only Sluice changes the affinity of a pod that waits for Slurm"
SELECTOR_SENTENCE = "the nodeSelector of a pod that waits for Slurm cannot change"
HELD_SENTENCE = "cannot change while Slurm holds the pod"

OTHER_GATE_ONLY = {"spec": {"schedulingGates": [{"$patch": "delete", "name": names.GATE}]}}
WHILE_WAITING = [
    pytest.param(release(), ANSWERS_SENTENCE, id="answers"),
    pytest.param(OTHER_GATE_ONLY, GATE_SENTENCE, id="gate"),
    pytest.param({"spec": {"affinity": pinned()}}, AFFINITY_SENTENCE, id="affinity"),
    pytest.param({"spec": {"nodeSelector": {"a": "b"}}}, SELECTOR_SENTENCE, id="selector"),
    pytest.param(
        release() | {"spec": OTHER_GATE_ONLY["spec"] | {"affinity": pinned()}},
        ANSWERS_SENTENCE,
        id="all that Sluice does",
    ),
]
WHILE_HELD = [
    pytest.param({"metadata": {kind: {key: value}}}, HELD_SENTENCE, id=f"{kind} {key}={value}")
    for kind, key, value in [
        ("labels", names.MANAGED, None),
        ("labels", names.MANAGED, "false"),
        ("labels", names.OPTED_OUT, "true"),
        ("annotations", names.OPTED_OUT, "true"),
        ("annotations", names.GANG, "another"),
        ("annotations", names.GANG, None),
        ("annotations", names.GANG_SIZE, "1"),
        ("annotations", names.GANG_SIZE, None),
    ]
]


@pytest.mark.parametrize(("patch", "sentence"), [*WHILE_WAITING, *WHILE_HELD])
def test_not_while_the_pod_waits(kube: Kube, waiting: str, patch: Object, sentence: str) -> None:
    with refused(sentence):
        kube.patch(waiting, patch)


@pytest.mark.parametrize(("patch", "sentence"), WHILE_HELD)
def test_not_while_the_pod_runs(kube: Kube, placed: str, patch: Object, sentence: str) -> None:
    with refused(sentence):
        kube.patch(placed, patch)


@pytest.mark.parametrize("value", [None, "9"])
@pytest.mark.parametrize("annotation", sorted(names.ANSWERS))
def test_an_answer_stays_as_it_is(
    kube: Kube, placed: str, annotation: str, value: str | None
) -> None:
    with refused(f"only Sluice writes {annotation}:"):
        kube.patch(placed, {"metadata": {"annotations": {annotation: value}}})


@pytest.mark.parametrize("annotation", sorted(names.ANSWERS))
def test_an_answer_cannot_be_added(kube: Kube, waiting: str, annotation: str) -> None:
    with refused(f"only Sluice writes {annotation}:"):
        kube.patch(waiting, {"metadata": {"annotations": {annotation: "9"}}})


def test_the_ways_around_a_patch_are_closed_too(kube: Kube, waiting: str) -> None:
    found = kube.get(waiting)
    forged = deepcopy(found)
    forged["metadata"]["annotations"][names.RANK] = "0"
    open_ = deepcopy(found)
    open_["spec"]["schedulingGates"] = []
    with refused(ANSWERS_SENTENCE):
        kube.request("PUT", waiting, body=forged)
    with refused(GATE_SENTENCE):
        kube.request("PUT", waiting, body=open_)
    with refused(GATE_SENTENCE):
        kube.patch(waiting, [{"op": "remove", "path": "/spec/schedulingGates"}], JSON_PATCH)


@pytest.mark.parametrize("of", ["pods", "bindings"])
@pytest.mark.parametrize("kind", ["labels", "annotations"])
@pytest.mark.parametrize("who", ["kube", "sluice"])
def test_a_binding_carries_nothing_into_a_pod(
    request: pytest.FixtureRequest, placed: str, who: str, of: str, kind: str
) -> None:
    collection, _, name = placed.rpartition("/")
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, kind: {names.RANK: "9"}},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "node-00"},
    }
    path = f"{placed}/binding" if of == "pods" else f"{collection.removesuffix('pods')}bindings"
    with refused("a Binding cannot carry labels or annotations of sluice.dev"):
        request.getfixturevalue(who).create(path, body)


@pytest.mark.parametrize("subresource", ["ephemeralcontainers", "resize"])
def test_other_subresources_leave_annotations_alone(
    kube: Kube, placed: str, subresource: str
) -> None:
    kube.patch(f"{placed}/{subresource}", {"metadata": {"annotations": {names.RANK: "9"}}})
    assert kube.get(placed)["metadata"]["annotations"][names.RANK] == "1"


@pytest.mark.parametrize(
    "patch",
    [
        pytest.param({"metadata": {"labels": {"team": "a"}}}, id="a label"),
        pytest.param({"metadata": {"annotations": {"note": "a"}}}, id="an annotation"),
        pytest.param({"metadata": {"annotations": {names.TIME_LIMIT: "60"}}}, id="a request"),
        pytest.param(
            [{"op": "add", "path": "/spec/tolerations/-", "value": {"operator": "Exists"}}],
            id="a toleration",
        ),
        pytest.param(
            {"spec": {"schedulingGates": [{"$patch": "delete", "name": "example.com/other"}]}},
            id="another's gate",
        ),
    ],
)
def test_everything_else_may_change(kube: Kube, waiting: str, patch: Object | list[Object]) -> None:
    kube.patch(waiting, patch, JSON_PATCH if isinstance(patch, list) else STRATEGIC)
    assert taken(kube.get(waiting))


def test_pods_elsewhere_are_nobody_s_business(kube: Kube) -> None:
    body = pod(schedulingGates=[{"name": "example.com/other"}])
    made = kube.create(pods(PLAIN), body)
    path = f"{pods(PLAIN)}/{made['metadata']['name']}"
    found = kube.patch(path, {"spec": {"affinity": pinned(), "nodeSelector": {"a": "b"}}})
    found = kube.patch(path, [{"op": "remove", "path": "/spec/schedulingGates"}], JSON_PATCH)
    assert "schedulingGates" not in found["spec"]


def test_a_label_does_not_undo_what_was_forged_before(kube: Kube) -> None:
    made = kube.create(pods(PLAIN), pod(schedulingGates=[{"name": "example.com/other"}]))
    path = f"{pods(PLAIN)}/{made['metadata']['name']}"
    with refused(ANSWERS_SENTENCE):
        kube.patch(path, release())
    kube.patch(path, {"metadata": {"labels": {names.MANAGED: "true"}}})
    with refused(ANSWERS_SENTENCE):
        kube.patch(path, release())


def test_sluice_releases_a_pod_in_one_request(kube: Kube, placed: str) -> None:
    found = kube.get(placed)
    assert "schedulingGates" not in found["spec"]
    assert found["spec"]["affinity"] == pinned()
    assert {k: found["metadata"]["annotations"][k] for k in names.ANSWERS} == dict.fromkeys(
        names.ANSWERS, "1"
    )


def test_a_tenant_cannot_bind_or_write_a_status(kube: Kube, tenant: Kube) -> None:
    made = tenant.create(pods(TENANT), pod())
    path = f"{pods(TENANT)}/{made['metadata']['name']}"
    try:
        with refused("cannot patch resource"):
            tenant.patch(f"{path}/status", release(), MERGE)
        with refused("cannot create resource"):
            tenant.create(f"{path}/binding", {"apiVersion": "v1", "kind": "Binding"})
        for case in WHILE_WAITING:
            patch, sentence = case.values
            if "schedulingGates" not in str(patch):
                with refused(str(sentence)):
                    tenant.patch(path, patch)
    finally:
        kube.delete(path, grace_seconds=0)
