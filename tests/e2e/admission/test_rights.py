"""What Sluice, tenants and those who make namespaces may do."""

from __future__ import annotations

from typing import Any

import pytest

from extender.domain import wellknown as names
from tests.e2e.admission.objects import (
    DRY_RUN,
    RBAC,
    TENANT,
    admitted,
    binding,
    pod,
    refused,
    taken,
)
from tests.harness.kube import Kube, Object
from tests.harness.stack import Stack

pytestmark = pytest.mark.e2e


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
