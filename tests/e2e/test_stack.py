"""The stack itself: every part answers, and the parts know each other."""

from __future__ import annotations

import pytest

from tests.harness.kube import KubeError, Object
from tests.harness.kwok import RUN_TIME_ANNOTATION
from tests.harness.stack import Stack

pytestmark = pytest.mark.e2e


def job(name: str, namespace: str, run_time: str, **pod: object) -> Object:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "template": {
                "metadata": {"annotations": {RUN_TIME_ANNOTATION: run_time}},
                "spec": {
                    "restartPolicy": "Never",
                    "tolerations": [{"operator": "Exists"}],
                    "containers": [{"name": "main", "image": "none"}],
                    **pod,
                },
            }
        },
    }


def test_kubernetes_is_a_release_that_has_mutating_policies(stack: Stack) -> None:
    version = stack.admin.get("/version")
    assert (int(version["major"]), int(version["minor"])) >= (1, 36)
    assert stack.admin.get("/apis/admissionregistration.k8s.io/v1")["resources"]


def test_nodes_are_ready_and_carry_their_place(stack: Stack) -> None:
    found = {node["metadata"]["name"]: node for node in stack.admin.items("/api/v1/nodes")}
    assert sorted(found) == [node.name for node in stack.nodes]
    for node in stack.nodes:
        labels = found[node.name]["metadata"]["labels"]
        assert labels["network.topology.nvidia.com/leaf"] == node.leaf
        assert labels["network.topology.nvidia.com/spine"] == node.spine
        assert found[node.name]["status"]["allocatable"]["nvidia.com/gpu"] == "8"


def test_a_plain_job_is_scheduled_runs_and_ends(stack: Stack) -> None:
    namespace = stack.admin.namespace("stack-plain")
    stack.admin.create(f"/apis/batch/v1/namespaces/{namespace}/jobs", job("plain", namespace, "1s"))

    def succeeded() -> bool:
        return any(pod["status"]["phase"] == "Succeeded" for pod in stack.admin.pods(namespace))

    stack.admin.wait_for(succeeded, 20, "the job's pod to succeed")
    assert stack.admin.pods(namespace)[0]["spec"]["nodeName"] in {node.name for node in stack.nodes}


def test_rights_are_kept(stack: Stack) -> None:
    from tests.harness.kube import Kube

    nobody = Kube(stack.kubeconfig("nobody"))
    with pytest.raises(KubeError) as refused:
        nobody.pods()
    assert refused.value.status == 403


def test_slurm_allocates_an_external_job_and_accounts_for_it(stack: Stack) -> None:
    path = "topo-tree:root:spine9:leaf9"
    stack.slurm.exec(
        "scontrol", "create", "nodename=x[0-3]", "NodeAddr=127.0.0.1", "State=EXTERNAL",
        "Sockets=1", "CoresPerSocket=8", "RealMemory=1000", "Feature=k8s,smoke", "Gres=gpu:8",
        f"Topology={path}",
    )  # fmt: skip
    try:
        body = {
            "job": {
                "name": "smoke", "account": "ml", "partition": "gpu", "flags": ["EXTERNAL_JOB"],
                "minimum_nodes": 2, "maximum_nodes": 2, "tres_per_node": "gres/gpu:8",
                "shared": ["none"], "current_working_directory": "/",
                "user_id": "2001", "group_id": "2001", "constraints": "smoke",
            }
        }  # fmt: skip
        answer = stack.slurm.rest("POST", "/slurm/v0.0.44/job/submit", body=body).json()
        assert not answer["errors"], answer["errors"]
        job_id = answer["job_id"]

        def running() -> bool:
            found = stack.slurm.job(job_id)
            return found is not None and "RUNNING" in found["job_state"]

        stack.admin.wait_for(running, 20, "the allocation")
        assert stack.slurm.squeue_json()[0]["job_id"] == job_id
    finally:
        stack.slurm.cancel_all()
        stack.slurm.exec("scontrol", "delete", "nodename=x[0-3]")

    def recorded() -> bool:
        records = stack.slurm.sacct(f"--jobs={job_id}")
        return bool(records) and records[0]["State"].startswith("CANCELLED")

    stack.admin.wait_for(recorded, 20, "the accounting record")
    record = stack.slurm.sacct(f"--jobs={job_id}")[0]
    assert (record["User"], record["Account"], record["NodeList"]) == ("alice", "ml", "x[0-1]")


@pytest.mark.parametrize("daemon", ["slurmrestd", "slurmctld", "slurmdbd"])
def test_a_killed_daemon_comes_back(stack: Stack, daemon: str) -> None:
    before = stack.slurm.pid(daemon)
    stack.slurm.kill(daemon)
    assert stack.slurm.pid(daemon) is None
    stack.slurm.launch(daemon)
    assert stack.slurm.pid(daemon) not in (None, before)
    stack.admin.wait_for(lambda: stack.slurm.get("ping")["pings"], 20, "slurmrestd")


@pytest.mark.parametrize("part", ["kube-apiserver", "sluice-scheduler", "kwok"])
def test_a_killed_part_of_kubernetes_comes_back(stack: Stack, part: str) -> None:
    child = stack.control.children[part]
    before = child.pid
    child.kill()
    assert not child.alive
    child.launch()
    assert child.pid != before
    assert len(stack.admin.items("/api/v1/nodes")) == stack.fabric.size


def test_wiping_leaves_nothing(stack: Stack) -> None:
    namespace = stack.admin.namespace("stack-wipe")
    stack.admin.create(f"/apis/batch/v1/namespaces/{namespace}/jobs", job("long", namespace, "1h"))
    stack.admin.wait_for(lambda: stack.admin.pods(namespace), 20, "the job's pod")
    stack.wipe()
    assert stack.admin.pods() == []
    assert stack.slurm.squeue_json() == []


def test_every_process_is_measured(stack: Stack) -> None:
    parts = {
        "etcd", "kube-apiserver", "kube-controller-manager", "kwok", "default-scheduler",
        "sluice-scheduler", "slurmctld", "slurmdbd", "slurmrestd", "mariadbd",
    }  # fmt: skip
    assert parts <= set(stack.cpu_seconds())
    assert all(mib > 1 for mib in stack.rss_mib().values())
