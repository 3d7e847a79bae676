"""The files in deploy/ on the real API server: what they make of pods, and what they refuse.

Nothing here needs Sluice or Slurm. Most pods are only dry runs: admission does all of its work for
them, and nothing has to be cleaned up. Refusals are tried as the cluster administrator, who passes
RBAC and is refused by the policies alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from extender.domain import wellknown as names
from tests.harness.kube import APPLY, JSON_PATCH, MERGE, STRATEGIC, Kube, KubeError, Object
from tests.harness.stack import Stack

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[2]
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


@pytest.fixture(scope="module")
def kube(stack: Stack) -> Iterator[Kube]:
    """The cluster administrator, with an opted-in and a plain namespace; Sluice does not run."""
    stack.sluice.stop()
    admin = stack.admin
    admin.namespace(MANAGED, labels={names.MANAGED: "true"})
    admin.namespace(PLAIN)
    yield admin
    for namespace in (MANAGED, PLAIN, TENANT):
        for collection in ("apis/batch/v1/{}/jobs", "apis/apps/v1/{}/daemonsets", "api/v1/{}/pods"):
            admin.delete("/" + collection.format(f"namespaces/{namespace}"), grace_seconds=0)


@pytest.fixture(scope="module")
def sluice(stack: Stack) -> Kube:
    """The service's own user, with the rights that deploy/rbac.yaml gives it."""
    return Kube(stack.kubeconfig("sluice"))


@pytest.fixture(scope="module")
def tenant(stack: Stack, kube: Kube) -> Kube:
    """An ordinary tenant: the role admin inside an opted-in namespace, nothing else."""
    kube.namespace(TENANT, {names.MANAGED: "true"}, {names.USER: "alice", names.ACCOUNT: "ml"})
    subject = {"apiGroup": RBAC, "kind": "User", "name": "tenant"}
    kube.apply(binding("RoleBinding", "tenant", "admin", subject), TENANT)
    return Kube(stack.kubeconfig("tenant"))


@pytest.fixture
def waiting(kube: Kube) -> Iterator[str]:
    """The path of a pod that waits for Slurm: one of a gang, that also opted in by itself."""
    made = kube.create(
        pods(MANAGED),
        pod(
            labels={names.MANAGED: "true"},
            annotations={names.GANG: "g", names.GANG_SIZE: "2"},
            schedulingGates=[{"name": "example.com/other"}],
        ),
    )
    path = f"{pods(MANAGED)}/{made['metadata']['name']}"
    yield path
    kube.delete(path, grace_seconds=0)


@pytest.fixture
def placed(sluice: Kube, waiting: str) -> str:
    """The path of a pod that Sluice has released to a node."""
    gate = [{"$patch": "delete", "name": gate} for gate in (names.GATE, "example.com/other")]
    sluice.patch(waiting, release() | {"spec": {"schedulingGates": gate, "affinity": pinned()}})
    return waiting


# What the tests say


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


# The gate


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


def test_what_a_container_sets_itself_stays_and_may_refer_to_ours(kube: Kube) -> None:
    own = [{"name": "RANK", "value": "mine"}, {"name": "OUT", "value": "/out/$(SLURM_JOB_ID)"}]
    containers = [
        {"name": "first", "image": "none", "env": own},
        {"name": "second", "image": "none"},
    ]
    first, second = admitted(kube, MANAGED, pod(containers=containers))["spec"]["containers"]
    ours = [item for item in ENVIRONMENT.items() if item[0] != "RANK"]
    assert environment(first) == [*ours, ("RANK", "mine"), ("OUT", "/out/$(SLURM_JOB_ID)")]
    assert environment(second) == list(ENVIRONMENT.items())


def test_a_variable_is_kept_whatever_it_comes_from(kube: Kube) -> None:
    sources = [
        {"configMapKeyRef": {"name": "settings", "key": "size", "optional": True}},
        {"secretKeyRef": {"name": "settings", "key": "size"}},
        {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}},
    ]
    own = [{"name": f"V{i}", "valueFrom": source} for i, source in enumerate(sources)]
    containers = [{"name": "main", "image": "none", "env": own}]
    (main,) = admitted(kube, MANAGED, pod(containers=containers))["spec"]["containers"]
    assert main["env"][len(ENVIRONMENT) :] == own


def test_many_containers_with_many_variables(kube: Kube) -> None:
    env = [{"name": f"V{i}", "value": "x"} for i in range(100)]
    containers = [{"name": f"c{i}", "image": "none", "env": env} for i in range(20)]
    init = [{"name": f"i{i}", "image": "none"} for i in range(10)]
    found = admitted(kube, MANAGED, pod(containers=containers, initContainers=init))
    assert taken(found)
    assert {len(c["env"]) for c in found["spec"]["containers"]} == {100 + len(ENVIRONMENT)}
    assert {len(c["env"]) for c in found["spec"]["initContainers"]} == {len(ENVIRONMENT)}


def test_gates_and_tolerations_of_others_stay(kube: Kube) -> None:
    gate = {"name": "example.com/quota"}
    toleration = {"key": "example.com/flaky", "operator": "Exists", "effect": "NoSchedule"}
    body = pod(schedulingGates=[gate], tolerations=[toleration])
    found = admitted(kube, MANAGED, body)
    assert taken(found)
    assert found["spec"]["schedulingGates"] == [gate, GATE]
    assert toleration in found["spec"]["tolerations"]


def test_what_a_template_has_already_is_not_doubled(kube: Kube) -> None:
    body = pod(schedulerName=names.SCHEDULER, schedulingGates=[GATE], tolerations=[TOLERATION])
    found = admitted(kube, MANAGED, body)
    assert taken(found)
    assert found["spec"]["schedulingGates"] == [GATE]
    assert found["spec"]["tolerations"].count(TOLERATION) == 1


@pytest.mark.parametrize("effect", ["NoExecute", "PreferNoSchedule"])
def test_a_toleration_of_another_effect_does_not_count(kube: Kube, effect: str) -> None:
    assert taken(admitted(kube, MANAGED, pod(tolerations=[TOLERATION | {"effect": effect}])))


OWNER = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "1", "controller": True}


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(pod(labels={names.OPTED_OUT: ""}), id="label"),
        pytest.param(pod(labels={names.OPTED_OUT: "", names.MANAGED: "true"}), id="both labels"),
        pytest.param(pod(annotations={names.OPTED_OUT: "true"}), id="annotation"),
        pytest.param(pod(owner=OWNER), id="of a DaemonSet"),
        pytest.param(pod(schedulerName="volcano"), id="of another scheduler"),
        pytest.param(pod(nodeName="node-00"), id="on a node"),
        pytest.param(
            pod(nodeName="node-00", annotations={"kubernetes.io/config.mirror": "1"}),
            id="static",
        ),
    ],
)
@pytest.mark.parametrize("namespace", [MANAGED, PLAIN])
def test_pods_that_are_left_alone(kube: Kube, namespace: str, body: Object) -> None:
    assert not taken(admitted(kube, namespace, body))


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


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(pod(labels={names.GATED: "true"}), id="no gate"),
        pytest.param(pod(labels={names.GATED: "false"}, schedulerName="volcano"), id="elsewhere"),
        pytest.param(
            pod(labels={names.GATED: "true"}, schedulingGates=[GATE], schedulerName="volcano"),
            id="gate of another scheduler",
        ),
        pytest.param(pod(labels={names.GATED: "true"}, nodeName="node-00"), id="on a node"),
    ],
)
def test_nobody_passes_the_gate_by_claiming_to_have_it(kube: Kube, body: Object) -> None:
    with refused("the label sluice.dev/gated belongs to pods that Sluice's admission has prepared"):
        admitted(kube, MANAGED, body)


def test_a_namespace_that_has_not_opted_in_is_left_alone(kube: Kube) -> None:
    assert not taken(admitted(kube, PLAIN, pod()))


def test_a_pod_opts_in_by_itself(kube: Kube) -> None:
    assert taken(admitted(kube, PLAIN, pod(labels={names.MANAGED: "true"})))


@pytest.mark.parametrize("namespace", [MANAGED, PLAIN])
def test_only_the_value_true_opts_in(kube: Kube, namespace: str) -> None:
    labels = {names.MANAGED: "false"}
    assert taken(admitted(kube, namespace, pod(labels=labels))) is (namespace == MANAGED)


@pytest.mark.parametrize("namespace", ["kube-system", "sluice-system"])
def test_system_namespaces_are_never_taken(kube: Kube, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}"
    kube.patch(path, {"metadata": {"labels": {names.MANAGED: "true"}}})
    try:
        body = pod(labels={names.MANAGED: "true"}, **restricted())
        assert not taken(admitted(kube, namespace, body))
    finally:
        kube.patch(path, {"metadata": {"labels": {names.MANAGED: None}}})


def test_a_daemon_set_runs_in_an_opted_in_namespace(stack: Stack, kube: Kube) -> None:
    labels = {"app": "agent"}
    spec = pod(
        tolerations=[{"operator": "Exists"}],
        nodeSelector={"kubernetes.io/hostname": stack.nodes[0].name},
    )["spec"] | {"restartPolicy": "Always"}
    body = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "agent"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }
    kube.create(f"/apis/apps/v1/namespaces/{MANAGED}/daemonsets", body)

    def on_its_node() -> list[Object]:
        return [p for p in kube.pods(MANAGED, "app=agent") if p["spec"].get("nodeName")]

    (found,) = kube.wait_for(on_its_node, 20, "the pod of the DaemonSet on its node")
    assert found["spec"]["schedulerName"] == "default-scheduler"


# The guard: creating


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


# The guard: changing


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


# Sluice itself


def test_sluice_releases_a_pod_in_one_request(kube: Kube, placed: str) -> None:
    found = kube.get(placed)
    assert "schedulingGates" not in found["spec"]
    assert found["spec"]["affinity"] == pinned()
    assert {k: found["metadata"]["annotations"][k] for k in names.ANSWERS} == dict.fromkeys(
        names.ANSWERS, "1"
    )


SLUICE_DOES = [
    *[("", "pods", "", verb) for verb in ("get", "list", "watch", "patch", "delete")],
    ("", "pods", "status", "patch"),
    ("", "pods", "binding", "create"),
    *[("", "nodes", "", verb) for verb in ("list", "watch", "patch")],
    *[("", "namespaces", "", verb) for verb in ("list", "watch")],
    *[("batch", "jobs", "", verb) for verb in ("list", "watch")],
    ("", "events", "", "create"),
]
SLUICE_DOES_NOT = [
    ("", "pods", "", "create"),
    ("", "pods", "exec", "create"),
    ("", "secrets", "", "get"),
    ("", "configmaps", "", "update"),
    ("", "namespaces", "", "patch"),
    ("", "nodes", "", "delete"),
    ("batch", "jobs", "", "patch"),
    ("sluice.dev", "namespaces", "", "assign"),
    ("admissionregistration.k8s.io", "validatingadmissionpolicies", "", "update"),
    (RBAC, "clusterrolebindings", "", "create"),
]


@pytest.mark.parametrize(
    ("action", "expected"),
    [*((action, True) for action in SLUICE_DOES), *((a, False) for a in SLUICE_DOES_NOT)],
    ids=lambda value: "-".join(filter(None, value)) if isinstance(value, tuple) else str(value),
)
def test_what_sluice_may_do(
    sluice: Kube, action: tuple[str, str, str, str], expected: bool
) -> None:
    group, resource, subresource, verb = action
    attributes = {"group": group, "resource": resource, "subresource": subresource, "verb": verb}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    assert sluice.create(path, review)["status"]["allowed"] is expected


# Tenants and namespaces


def test_a_tenant_uses_its_namespace(tenant: Kube) -> None:
    assert taken(admitted(tenant, TENANT, pod()))


@pytest.mark.parametrize(
    "change",
    [
        {"annotations": {names.USER: "bob"}},
        {"annotations": {names.ALLOWED_ACCOUNTS: "vision"}},
        {"labels": {names.MANAGED: None}},
    ],
    ids=str,
)
def test_a_tenant_cannot_edit_its_namespace(tenant: Kube, change: Object) -> None:
    with refused("cannot patch resource"):
        tenant.patch(f"/api/v1/namespaces/{TENANT}", {"metadata": change})


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


@pytest.fixture(scope="module")
def editor(stack: Stack, kube: Kube) -> Kube:
    """Somebody who may create and edit namespaces, but not assign them to Slurm accounts."""
    rule = {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["create", "patch"]}
    role = {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "namespace-editor"},
        "rules": [rule],
    }
    kube.apply(role)
    subject = {"apiGroup": RBAC, "kind": "User", "name": "editor"}
    kube.apply(binding("ClusterRoleBinding", "namespace-editor", "namespace-editor", subject))
    return Kube(stack.kubeconfig("editor"))


def namespace(**metadata: Any) -> Object:
    named = {"generateName": "admission-", **metadata}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": named}


NAMESPACE_SENTENCE = "are set by a cluster administrator"
ASSIGNMENTS = [
    {"annotations": {names.USER: "bob"}},
    {"annotations": {names.ALLOWED_QOS: "high"}},
    {"labels": {names.MANAGED: "true"}},
]


@pytest.mark.parametrize("metadata", ASSIGNMENTS, ids=str)
def test_whoever_creates_namespaces_cannot_assign_accounts(editor: Kube, metadata: Object) -> None:
    with refused(NAMESPACE_SENTENCE):
        editor.request("POST", "/api/v1/namespaces", body=namespace(**metadata), params=DRY_RUN)


@pytest.mark.parametrize(
    "change",
    [
        {"annotations": {names.USER: "bob"}},
        {"annotations": {names.USER: None}},
        {"annotations": {names.ALLOWED_QOS: "high"}},
        {"labels": {names.MANAGED: "false"}},
        {"labels": {names.MANAGED: None}},
    ],
    ids=str,
)
def test_whoever_edits_namespaces_cannot_assign_accounts(
    tenant: Kube, editor: Kube, change: Object
) -> None:
    del tenant  # its namespace is there
    with refused(NAMESPACE_SENTENCE):
        editor.patch(f"/api/v1/namespaces/{TENANT}", {"metadata": change})


def test_everything_else_of_a_namespace_may_be_edited(tenant: Kube, editor: Kube) -> None:
    del tenant
    change = {"labels": {"team": "ml"}, "annotations": {"note": "x"}}
    editor.patch(f"/api/v1/namespaces/{TENANT}", {"metadata": change})
    editor.request("POST", "/api/v1/namespaces", body=namespace(), params=DRY_RUN)


def test_the_right_to_assign_can_be_given(stack: Stack, kube: Kube, editor: Kube) -> None:
    del editor  # its role is there
    subject = {"apiGroup": RBAC, "kind": "User", "name": "assigner"}
    for role in ("namespace-editor", "sluice-namespace-admin"):
        kube.apply(binding("ClusterRoleBinding", f"assigner-{role}", role, subject))
    assigner = Kube(stack.kubeconfig("assigner"))
    for metadata in ASSIGNMENTS:
        body = namespace(**metadata)
        assigner.request("POST", "/api/v1/namespaces", body=body, params=DRY_RUN)


# Everything in deploy/


def manifests() -> list[Object]:
    kustomization = yaml.safe_load((ROOT / "deploy" / "kustomization.yaml").read_text())
    files = [ROOT / "deploy" / name for name in kustomization["resources"]]
    return [d for file in files if file.is_file() for d in yaml.safe_load_all(file.read_text())]


@pytest.mark.parametrize(
    "manifest", manifests(), ids=lambda m: f"{m['kind']} {m['metadata']['name']}"
)
def test_the_api_server_takes_every_manifest(kube: Kube, manifest: Object) -> None:
    version, where = manifest["apiVersion"], manifest["metadata"].get("namespace")
    base = f"/apis/{version}" if "/" in version else f"/api/{version}"
    plural = next(r["name"] for r in kube.get(base)["resources"] if r["kind"] == manifest["kind"])
    path = f"{base}/namespaces/{where}/{plural}" if where else f"{base}/{plural}"
    kube.request(
        "PATCH",
        f"{path}/{manifest['metadata']['name']}",
        body=manifest,
        content_type=APPLY,
        params=DRY_RUN | {"fieldManager": "test", "force": "true", "fieldValidation": "Strict"},
    )


def test_the_pod_of_the_deployment_is_admitted(kube: Kube) -> None:
    """Pod Security only warns about Deployments: the pod itself is what may be refused."""
    (deployment,) = (m for m in manifests() if m["kind"] == "Deployment")
    body = pod() | {"spec": deployment["spec"]["template"]["spec"]}
    body["metadata"]["labels"] = deployment["spec"]["template"]["metadata"]["labels"]
    assert not taken(admitted(kube, "sluice-system", body))


def test_policies_have_no_type_errors(kube: Kube) -> None:
    policies = kube.items("/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies")
    ours = {p["metadata"]["name"]: p.get("status", {}) for p in policies}
    assert {"sluice-guard", "sluice-guard-bindings", "sluice-namespaces"} <= set(ours)
    assert not any(
        status.get("typeChecking", {}).get("expressionWarnings") for status in ours.values()
    )
