"""Pods without a gate: a cluster without the admission policy, or pods from before it.

They reach the extender's filter and wait there; Slurm's start wakes them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from extender.domain import wellknown as names
from extender.domain.views import WAITING
from tests.e2e.jobs import gang, indexed_job, pod
from tests.e2e.site import (
    ML,
    PLAIN,
    Site,
    answers,
    eventually,
    node_of,
    nodes_of,
    steadily,
    told,
    uids,
)
from tests.e2e.tap import Tap
from tests.harness.kube import Object
from tests.harness.stack import Stack

pytestmark = pytest.mark.e2e

BINDINGS = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings"
UNGATED: dict[str, Any] = {
    "schedulerName": names.SCHEDULER,
    "tolerations": [{"key": names.TAINT, "operator": "Exists", "effect": "NoSchedule"}],
}


@pytest.fixture(scope="module", autouse=True)
def no_admission_policy(stack: Stack, tap: Tap) -> Iterator[None]:  # noqa: ARG001 (its namespaces)
    for binding in stack.admin.items(BINDINGS):
        stack.admin.delete(f"{BINDINGS}/{binding['metadata']['name']}")
    stack.admin.wait_for(lambda: not any(gated(stack)), 20, "the policies to stop acting")
    yield
    stack.apply_deploy()
    stack.admin.wait_for(lambda: all(gated(stack)), 20, "the policies to act again")


def gated(stack: Stack) -> list[bool]:
    """Whether a pod, and a Job's template, of an opted-in namespace would get the gate now."""

    def made(path: str, body: Object) -> Object:
        stored = stack.admin.request("POST", path, body=body, params={"dryRun": "All"})
        spec: Object = stored["spec"]
        return spec

    alone = made(f"/api/v1/namespaces/{ML}/pods", pod("probe"))
    template = made(f"/apis/batch/v1/namespaces/{ML}/jobs", indexed_job("probe", 2))["template"]
    return ["schedulingGates" in spec for spec in (alone, template["spec"])]


def unscheduled(pod: Object) -> str:
    """What kube-scheduler says about a pod that it could not place."""
    for condition in pod["status"].get("conditions", []):
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return str(condition["message"])
    return ""


def waiting(site: Site, count: int) -> list[Object]:
    """Wait until that many pods wait in kube-scheduler for Slurm."""
    return eventually(
        site.pods,
        lambda pods: len(pods) == count and all(WAITING in unscheduled(p) for p in pods),
        15,
        f"{count} pods that kube-scheduler was told to leave alone",
    )


def test_an_ungated_gang_is_placed_when_slurm_starts_it(site: Site) -> None:
    filler = site.fill(16)
    site.submit(ML, indexed_job("train", 4, **UNGATED))
    pods = waiting(site, 4)
    assert {told(p) for p in pods} == {"unbound"}
    assert not any(answers(p) for p in pods)
    assert site.states("train") == ["PENDING"]
    site.cancel(filler)
    pods = site.bound(4)
    chosen = nodes_of(site.job("train", "RUNNING"))
    assert [node_of(p) for p in pods] == [n for n in site.order if n in chosen]
    assert [answers(p)["rank"] for p in pods] == ["0", "1", "2", "3"]
    assert len(site.tap.submits()) == 1


def test_waiting_is_no_loop(site: Site) -> None:
    """The message never changes and no node counts as one to preempt on, so kube-scheduler asks
    only when something has happened, and Slurm is not asked for it."""
    site.fill(16)
    before = site.filter_calls()
    site.submit(ML, *gang("pair", 2, **UNGATED))
    waiting(site, 2)
    message = unscheduled(site.pod("pair-0"))
    assert f"16 {WAITING}" in message
    steadily(
        lambda: [unscheduled(p) for p in site.pods()],
        lambda messages: set(messages) == {message},
        8,
        "one constant message",
    )
    assert site.filter_calls() - before <= 8
    assert len(site.tap.submits()) == 1


def test_a_waiting_pod_of_high_priority_evicts_nobody(site: Site) -> None:
    site.kube.apply(
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "urgent"},
            "value": 1000000,
        }
    )
    site.submit(ML, indexed_job("train", 16, **UNGATED))
    running = uids(site.bound(16))
    site.submit(ML, pod("urgent", priorityClassName="urgent", **UNGATED))
    site.job("urgent", "PENDING")
    steadily(
        lambda: [
            p["metadata"]["name"] for p in site.pods() if "deletionTimestamp" in p["metadata"]
        ],
        lambda going: not going,
        4,
        "nobody evicted",
    )
    assert running <= uids(site.pods())
    assert not site.pod("urgent")["status"].get("nominatedNodeName")


def test_a_pod_that_did_not_opt_in_waits_and_is_told_why(site: Site) -> None:
    """It names the scheduler; its namespace does not have the label."""
    site.quiet()
    site.submit(PLAIN, pod("stray", **UNGATED))
    eventually(
        lambda: unscheduled(site.pod("stray", PLAIN)),
        lambda message: (
            f"neither its namespace nor the pod has the label {names.MANAGED}" in message
        ),
        10,
        "why it waits",
    )
    assert site.jobs() == []
    assert site.tap.calls() == []


def test_a_pod_that_is_pinned_elsewhere_never_lands_there(site: Site) -> None:
    """Its own selector leaves kube-scheduler one node and Slurm the same one."""
    pinned = {"kubernetes.io/hostname": "node-07"}
    site.submit(ML, pod("there", nodeSelector=pinned, **UNGATED))
    (bound,) = site.bound(1)
    assert node_of(bound) == "node-07"
    assert nodes_of(site.job("there", "RUNNING")) == ["node-07"]


# -- the binding itself


def binding(of: Object, **over: Any) -> Object:
    meta = of["metadata"]
    return {
        "PodName": meta["name"],
        "PodNamespace": meta["namespace"],
        "PodUID": meta["uid"],
        "Node": answers(of).get("node", ""),
    } | over


def test_binding_again_is_a_success(site: Site) -> None:
    """kube-scheduler repeats a call that timed out though it was carried out."""
    site.submit(ML, pod("alone", **UNGATED))
    (bound,) = site.bound(1)
    for _ in range(2):
        assert site.post("/extender/bind", binding(bound)).json() == {"Error": ""}
    assert node_of(site.pod("alone")) == node_of(bound)


def test_a_binding_against_slurm_is_refused(site: Site) -> None:
    site.submit(ML, pod("alone", **UNGATED))
    (bound,) = site.bound(1)
    node = node_of(bound)
    for over, why in (
        ({"Node": "node-15"}, f"Slurm placed pod ml/alone on node {node}, not on node-15"),
        ({"PodUID": "stale"}, "pod ml/alone with UID stale does not exist any more"),
        ({"PodName": "nobody"}, f'pod ml/nobody was not bound to {node}: pods "nobody" not found'),
    ):
        answer = site.post("/extender/bind", binding(bound, **over)).json()
        assert answer["Error"].startswith(why)
    assert node_of(site.pod("alone")) == node


def test_a_pod_without_an_allocation_is_not_bound(site: Site) -> None:
    site.fill(16)
    site.submit(ML, pod("alone", **UNGATED))
    (pending,) = waiting(site, 1)
    answer = site.post("/extender/bind", binding(pending, Node="node-03")).json()
    assert answer["Error"] == "Slurm holds no node for pod ml/alone at present"
    assert told(site.pod("alone")) == "unbound"
