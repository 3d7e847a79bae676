"""What becomes of a pod as it is created: taken for Slurm, or left alone."""

from __future__ import annotations

import pytest

from extender.domain import wellknown as names
from tests.e2e.admission.objects import (
    ENVIRONMENT,
    GATE,
    MANAGED,
    PLAIN,
    TOLERATION,
    admitted,
    environment,
    pod,
    refused,
    restricted,
    taken,
)
from tests.harness.kube import Kube, Object
from tests.harness.stack import Stack

pytestmark = pytest.mark.e2e


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
