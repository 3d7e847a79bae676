"""Who asks the API server, and pods to try things on. Nothing here needs Sluice or Slurm.

Most pods are only dry runs: admission does all of its work for them, and nothing has to be cleaned
up. Refusals are tried as the cluster administrator, who passes RBAC and is refused by the policies
alone.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from extender.domain import wellknown as names
from tests.e2e.admission.objects import (
    MANAGED,
    PLAIN,
    RBAC,
    TENANT,
    binding,
    pinned,
    pod,
    pods,
    release,
)
from tests.harness.kube import Kube
from tests.harness.stack import Stack


@pytest.fixture(scope="module")
def kube(stack: Stack) -> Iterator[Kube]:
    """The cluster administrator, with an opted-in and a plain namespace; Sluice does not run."""
    stack.sluice.stop()
    admin = stack.admin
    admin.namespace(MANAGED, {names.MANAGED: "true"}, {names.USER: "alice", names.ACCOUNT: "ml"})
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
