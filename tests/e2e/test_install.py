"""The commands of docs/install.md, the scripts and the manifests of deploy/, on the real parts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest
import yaml

from tests.harness.kube import KubeError, Object
from tests.harness.stack import Stack

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[2]
MANUAL = (ROOT / "docs" / "install.md").read_text()
MANIFESTS = ROOT / "deploy" / "manifests"
ACCOUNTS = (ROOT / "deploy" / "slurm" / "accounts.sh").read_text()


def command(start: str) -> str:
    """The manual's command that starts so, with the lines that continue it."""
    found = re.search(rf"^ +{re.escape(start)}(?:.*\\\n)*.*$", MANUAL, re.MULTILINE)
    assert found, f"no command of the manual starts with {start!r}"
    return dedent(found[0])


@pytest.fixture
def team(stack: Stack) -> Iterator[str]:
    """The name of an account that the test makes."""
    yield "install-team"
    stack.slurm.exec("sacctmgr", "-i", "delete", "account", "install-team", check=False)


def accounts(stack: Stack, *arguments: str) -> str:
    """Run accounts.sh; what it says, and its exit code at the end."""
    script = f"{ACCOUNTS}\n"
    said = stack.slurm.exec(
        "bash", "-c", 'bash -c "$@" 2>&1; echo "exit $?"', "-", script, "accounts.sh", *arguments
    )
    return said.strip()


def test_an_account_for_a_team(stack: Stack, team: str) -> None:
    for arguments in ((team, "nobody"), (team, "nobody"), (team, "nobody", "normal,high")):
        assert accounts(stack, *arguments).endswith("exit 0")
    shown = stack.slurm.exec(
        "sacctmgr", "-n", "-P", "show", "assoc", f"account={team}", "format=user,qos,defaultqos"
    )
    assert sorted(shown.split()) == ["nobody|high,normal|normal", "|high,normal|normal"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["install-team", "root"], "does not exist here, or is root"),
        (["install-team", "nosuch"], "does not exist here, or is root"),
        (["install-team"], "usage:"),
    ],
)
def test_an_account_for_nobody(stack: Stack, arguments: list[str], sentence: str) -> None:
    said = accounts(stack, *arguments)
    assert sentence in said
    assert not said.endswith("exit 0")
    assert "install-team" not in stack.slurm.exec("sacctmgr", "-n", "-P", "show", "account")


def test_a_token_is_tried_out(stack: Stack) -> None:
    said = stack.slurm.shell(command("curl -s -H"))
    assert '"errors": []' in said


def test_the_nodes_are_removed(stack: Stack) -> None:
    stack.slurm.exec(
        "scontrol", "create", "nodename=left[0-3]", "NodeAddr=127.0.0.1", "State=EXTERNAL",
        "Sockets=1", "CoresPerSocket=8", "RealMemory=1000", "Feature=install", "Gres=gpu:8",
        "Topology=topo-tree:root:spine9:leaf9",
    )  # fmt: skip
    stack.slurm.exec("scontrol", "create", "partition=left", "Nodes=left[0-3]")
    try:
        removal = command("scontrol delete nodename=")
        assert "--partition=gpu" in removal
        stack.slurm.shell(removal.replace("--partition=gpu", "--partition=left"))
        left = {node["name"] for node in stack.slurm.nodes()}
        assert not {name for name in left if name.startswith("left")}
    finally:
        stack.slurm.exec("scontrol", "delete", "partition=left", check=False)


# The workload, which no test of this stack runs


def workload() -> list[Object]:
    return [
        d for path in sorted(MANIFESTS.glob("*.yaml")) for d in yaml.safe_load_all(path.read_text())
    ]


@pytest.mark.parametrize("manifest", workload(), ids=lambda manifest: str(manifest["kind"]))
def test_the_api_server_takes_what_the_stack_does_not_run(stack: Stack, manifest: Object) -> None:
    """Every field is one of its own, and has a value that it allows."""
    version, kind = manifest["apiVersion"], manifest["kind"].lower()
    base = f"/apis/{version}" if "/" in version else f"/api/{version}"
    plural = f"{kind[:-1]}ies" if kind.endswith("y") else f"{kind}s"
    path = f"{base}/namespaces/sluice-system/{plural}"
    strict = {"dryRun": "All", "fieldValidation": "Strict"}
    assert stack.admin.request("POST", path, body=manifest, params=strict)["kind"]


def test_the_pod_is_one_that_its_namespace_allows(stack: Stack) -> None:
    """Pods of sluice-system have to be restricted ones."""
    (deployment,) = (m for m in workload() if m["kind"] == "Deployment")
    made = deployment["spec"]["template"]
    made["metadata"] |= {"name": "sluice-0"}
    pods = "/api/v1/namespaces/sluice-system/pods"
    stack.admin.request("POST", pods, body=made, params={"dryRun": "All"})
    made["spec"]["containers"][0]["securityContext"] = {}
    with pytest.raises(KubeError, match="PodSecurity"):
        stack.admin.request("POST", pods, body=made, params={"dryRun": "All"})
