"""The harness's parts without the stack: sentences, nodes, settings, manifests."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path

import pytest

from tests.harness import engine, gobuild, image, manifests, process, system, up
from tests.harness.engine import Engine
from tests.harness.errors import HarnessError
from tests.harness.fabric import LEAF_LABEL, SPINE_LABEL, Fabric
from tests.harness.ports import free_ports, listens
from tests.harness.sluice import merge


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory that is all of PATH but for the shell."""
    directory = tmp_path / "bin"
    directory.mkdir()
    monkeypatch.setenv("PATH", str(directory))
    monkeypatch.setenv("SLUICE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    return directory


def program(directory: Path, name: str, script: str) -> None:
    path = directory / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def message(error: pytest.ExceptionInfo[HarnessError]) -> str:
    return str(error.value)


# What a person is told


@pytest.mark.usefixtures("programs")
def test_without_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.harness.gobuild.shutil.which", lambda *_, **__: None)
    with pytest.raises(HarnessError) as failed:
        gobuild.binaries()
    assert "there is no go command: install Go 1.21 or newer" in message(failed)


def test_with_an_old_go(programs: Path) -> None:
    program(programs, "go", "echo go1.19.8")
    with pytest.raises(HarnessError) as failed:
        gobuild.binaries()
    assert f"{programs}/go is go1.19.8: install Go 1.21 or newer" in message(failed)


def test_a_go_that_can_fetch_a_newer_one_is_told_to(programs: Path) -> None:
    program(programs, "go", "echo go1.22.1")
    _, env = gobuild._go()
    assert env["GOTOOLCHAIN"] == "auto"


def test_without_docker_and_without_root(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(programs, "docker", "exit 1")
    monkeypatch.setattr(system, "is_root", lambda: False)
    with pytest.raises(HarnessError) as failed:
        engine.ensure()
    assert "no Docker engine answers" in message(failed)
    assert "sudo systemctl start docker" in message(failed)


def test_a_docker_that_answers_is_used(programs: Path) -> None:
    program(programs, "docker", '[ "$1" = info ] && echo 28.0.1 || echo unix:///run/other.sock')
    assert engine.ensure() == Engine("unix:///run/other.sock", private=False)


def test_packages_that_cannot_be_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "is_root", lambda: False)
    monkeypatch.setattr(system, "has_apt", lambda: True)
    with pytest.raises(HarnessError, match=r"run `sudo apt-get install mmdebstrap`"):
        system.install("mmdebstrap", why="the Slurm image")
    monkeypatch.setattr(system, "has_apt", lambda: False)
    with pytest.raises(HarnessError, match="not a Debian system: install mmdebstrap"):
        system.install("mmdebstrap", why="the Slurm image")


def test_a_named_image_that_cannot_be_pulled(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(programs, "docker", "echo no such host >&2; exit 1")
    monkeypatch.setenv("SLUICE_SLURM_IMAGE", "registry.test/slurm:26")
    with pytest.raises(HarnessError) as failed:
        image.ensure(Engine("unix:///nowhere", private=False))
    assert "SLUICE_SLURM_IMAGE=registry.test/slurm:26 cannot be pulled: no such host" in message(
        failed
    )


@pytest.mark.parametrize(
    ("version", "used"), [("v1.36.3", True), ("v1.37.0", True), ("v1.35.9", False)]
)
def test_assets_are_used_when_they_are_new_enough(
    programs: Path, monkeypatch: pytest.MonkeyPatch, version: str, used: bool
) -> None:
    program(programs, "kube-apiserver", f"echo Kubernetes {version}")
    program(programs, "etcd", "exit 1")
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(programs))
    assert (gobuild._asset("kube-apiserver") is not None) == used
    assert gobuild._asset("etcd") == programs / "etcd"
    assert gobuild._asset("kube-scheduler") is None


def test_make_down_with_nothing_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SLUICE_RUNS", str(tmp_path / "runs"))
    up.stop()
    # a state file of a process that is long dead, whose pid is in use again
    (tmp_path / "up.json").write_text(json.dumps({"owner": [os.getpid(), 1], "text": "…"}))
    up.stop()
    assert capsys.readouterr().out == "The stack is not up.\n" * 2


# What is made


def test_a_fabric_is_a_tree() -> None:
    nodes = Fabric(spines=2, leaves_per_spine=2, nodes_per_leaf=4).nodes()
    assert [node.name for node in nodes][:2] == ["node-00", "node-01"]
    assert [node.leaf for node in nodes] == [f"leaf-{i:02d}" for i in range(4) for _ in range(4)]
    assert [node.spine for node in nodes] == ["spine-0"] * 8 + ["spine-1"] * 8


def test_names_need_not_be_padded() -> None:
    names = [node.name for node in Fabric(padded=False, prefix="k").nodes()]
    assert names[1] == "k1"
    assert names[10] == "k10"


def test_addresses_are_different_on_large_fabrics() -> None:
    addresses = [node.address for node in Fabric(16, 10, 32).nodes()]
    assert len(set(addresses)) == 5120
    assert all(address.startswith("10.") for address in addresses)


def test_a_node_carries_labels_and_resources() -> None:
    fabric = Fabric(gpus_per_node=4, cpus=32, memory_gib=128)
    manifest = fabric.manifest(fabric.nodes()[5])
    labels = manifest["metadata"]["labels"]
    assert (labels[LEAF_LABEL], labels[SPINE_LABEL]) == ("leaf-01", "spine-0")
    assert labels["sluice.dev/managed"] == "true"
    assert manifest["status"]["allocatable"] == {
        "cpu": "32", "memory": "128Gi", "pods": "256", "nvidia.com/gpu": "4",
    }  # fmt: skip
    unmanaged = Fabric(managed=False, gpus_per_node=0)
    plain = unmanaged.manifest(unmanaged.nodes()[0])
    assert "sluice.dev/managed" not in plain["metadata"]["labels"]
    assert "nvidia.com/gpu" not in plain["status"]["capacity"]


def test_settings_are_merged_key_by_key() -> None:
    base = {"http": {"host": "a", "port": 1}, "list": [1, 2], "log": "x"}
    over = {"http": {"port": 2}, "list": [3], "new": {"k": 1}}
    assert merge(base, over) == {
        "http": {"host": "a", "port": 2}, "list": [3], "log": "x", "new": {"k": 1},
    }  # fmt: skip
    assert base["http"] == {"host": "a", "port": 1}


def test_only_what_belongs_into_the_test_cluster_is_applied(tmp_path: Path) -> None:
    (tmp_path / "kustomization.yaml").write_text("resources: [all.yaml, ../config]\n")
    (tmp_path / "all.yaml").write_text(
        "kind: ClusterRole\n---\nkind: Deployment\n---\n---\nkind: Namespace\n"
    )
    kinds = [manifest["kind"] for manifest in manifests.deploy_manifests(tmp_path)]
    assert kinds == ["Namespace", "ClusterRole"]
    assert manifests.deploy_manifests(tmp_path / "none") == []


def test_the_versions_are_those_of_the_go_modules() -> None:
    assert gobuild.required_version("k8s.io/kubernetes", gobuild.GO_DIR / "k8s").startswith(
        "v1.36."
    )
    assert gobuild.required_version("sigs.k8s.io/kwok", gobuild.GO_DIR / "kwok") == "v0.8.0"
    with pytest.raises(HarnessError, match=r"does not require example\.com/none"):
        gobuild.required_version("example.com/none", gobuild.GO_DIR / "kwok")


def test_free_ports_are_different_and_free() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
    assert not any(listens(port) for port in ports)


def test_process_numbers_are_read_also_with_odd_names() -> None:
    line = "7 (a) b (c) S 1 7 7 0 -1 4194560 1 0 0 0 150 50 0 0 20 0 1 0 4242 1000 512 18446 1"
    stat = process.parse_stat(line)
    ticks, page = process.TICKS_PER_SECOND, os.sysconf("SC_PAGE_SIZE")
    assert (stat.name, stat.state, stat.started_ticks) == ("a) b (c", "S", 4242)
    assert stat.cpu_seconds == pytest.approx(200 / ticks)
    assert stat.rss_mib == pytest.approx(512 * page / 2**20)


def test_a_token_is_a_signed_claim_about_a_user() -> None:
    from tests.harness.slurm import sign_token

    header, claims, signature = sign_token(b"k" * 32, "alice", now=1000, lifespan=-10).split(".")

    def decoded(part: str) -> dict[str, object]:
        content: dict[str, object] = json.loads(
            base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
        )
        return content

    assert decoded(header) == {"alg": "HS256", "typ": "JWT"}
    assert decoded(claims) == {"exp": 990, "iat": 990, "sun": "alice"}
    assert len(signature) == 43
