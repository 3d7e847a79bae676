"""The API server takes everything in deploy/."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.e2e.admission.objects import DRY_RUN, admitted, pod, taken
from tests.harness.kube import APPLY, Kube, Object

pytestmark = pytest.mark.e2e


ROOT = Path(__file__).parents[3]


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
