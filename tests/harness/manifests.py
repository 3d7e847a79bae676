"""What of deploy/ belongs into the test cluster: everything but the workload itself."""

from __future__ import annotations

from pathlib import Path

import yaml

from tests.harness.kube import Kube, Object

DEPLOY = Path(__file__).parents[2] / "deploy"
# Sluice and its kube-scheduler run as processes here.
LEFT_OUT = {"Deployment", "Service", "NetworkPolicy", "PodDisruptionBudget"}
# As the ServiceAccount in deploy/: RBAC and the admission policies know Sluice by this name.
SLUICE_USER = "system:serviceaccount:sluice-system:sluice"
SLUICE_GROUPS = ["system:serviceaccounts", "system:serviceaccounts:sluice-system"]


def deploy_manifests(directory: Path = DEPLOY) -> list[Object]:
    """The objects that deploy/kustomization.yaml names, in its order, namespaces first."""
    kustomization = directory / "kustomization.yaml"
    if not kustomization.exists():
        return []
    found: list[Object] = []
    for name in yaml.safe_load(kustomization.read_text()).get("resources", []):
        file = directory / name
        if file.is_file():
            found += [document for document in yaml.safe_load_all(file.read_text()) if document]
    found = [manifest for manifest in found if manifest["kind"] not in LEFT_OUT]
    return sorted(found, key=lambda manifest: manifest["kind"] != "Namespace")


def apply_deploy(kube: Kube) -> list[Object]:
    """Apply them; the objects as stored."""
    return [kube.apply(manifest) for manifest in deploy_manifests()]


def gate_works(kube: Kube) -> bool:
    """Whether the API server acts on the gate policy already (it takes a second or two)."""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": "probe-", "labels": {"sluice.dev/managed": "true"}},
        "spec": {"containers": [{"name": "main", "image": "none"}]},
    }
    made = kube.request(
        "POST", "/api/v1/namespaces/default/pods", body=pod, params={"dryRun": "All"}
    )
    return bool(made["spec"].get("schedulingGates"))
