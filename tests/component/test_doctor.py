"""`sluice doctor` over HTTP: what it reads of a kube-apiserver and a slurmrestd, and how often."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from extender.doctor import Report, Unreadable, as_json, as_text, compare, read
from extender.domain import wellknown as names
from extender.domain.books.findings import Books, Kind, Terms
from extender.domain.model import GangKind, JobRequest, JobState, NodeSpec, Stamp
from extender.kube.client import KubeClient
from extender.slurm.rest import RestSlurm
from extender.slurm.tokens import FixedToken
from tests.fakes.apiserver import FakeApiServer, serving
from tests.fakes.slurmrestd import FakeSlurmrestd

NODES = [f"n{i}" for i in range(5)]
MANAGED = {names.MANAGED: "true"}


class Cluster:
    """Five nodes that both sides know, a namespace, and lone pods that run on them."""

    def __init__(self, kube: FakeApiServer, slurm: FakeSlurmrestd, client: KubeClient) -> None:
        self.kube, self.slurmrestd, self.client = kube, slurm, client
        self.readings = 0
        self.slurm = RestSlurm(
            "http://slurmrestd",
            FixedToken(slurm.token()),
            cluster="kubernetes",
            transport=slurm.transport,
        )
        kube.page = 2
        kube.others["/api/v1/namespaces"] = [
            {"metadata": {"name": "ml", "labels": MANAGED, "annotations": {names.USER: "alice"}}}
        ]
        kube.others["/api/v1/nodes"] = [node(name) for name in NODES]

    async def start(self) -> None:
        spec = {"address": "10.0.0.1", "cores_per_socket": 4, "memory_mib": 1024, "gres": "gpu:2"}
        await self.slurm.create_nodes(
            [NodeSpec(name=name, features=("k8s",), **spec) for name in NODES]  # type: ignore[arg-type]
        )
        for name in NODES:
            await self.run(f"pod-{name}")

    async def run(self, name: str, gang: str = "") -> int:
        """A job for one rank, and the pod that was released to its node; the job's id."""
        stamp = Stamp(
            sluice="kubernetes",
            namespace="ml",
            gang=name,
            kind=GangKind.POD,
            id=gang or f"{name}-uid",
        )
        job_id = await self.slurm.submit(
            JobRequest(
                name=name, user="alice", account="ml", stamp=stamp, tasks=1, cpus_per_task=2,
                memory_mib_per_task=512, gpus_per_task=1,
            )
        )  # fmt: skip
        job = await self.slurm.job(job_id)
        assert job
        assert job.state is JobState.RUNNING
        self.place(name, job_id, job.shares[0].name)
        return job_id

    def place(self, name: str, job_id: int, to: str) -> None:
        self.kube.add("ml", name, f"{name}-uid")
        pod = self.kube.pods["ml", name]
        pod["metadata"]["annotations"] = {
            names.GANG_ID: f"{name}-uid", names.JOB_ID: str(job_id), names.NODE: to,
            names.RANK: "0", names.RANKS: "1", names.NODELIST: to, names.NODES: "1",
        }  # fmt: skip
        requests = {"cpu": "2", "memory": "512Mi", names.GPU_RESOURCE: "1"}
        pod["spec"] |= {"nodeName": to, "containers": [{"resources": {"requests": requests}}]}
        pod["status"] = {"phase": "Running"}

    async def read(self) -> Books:
        self.readings += 1
        return await read(self.client, self.slurm)

    async def examine(self) -> Report:
        return await compare(self.read, Terms(), 0)


def node(name: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": MANAGED},
        "spec": {"taints": [{"key": names.TAINT, "effect": "NoSchedule"}]},
        "status": {
            "allocatable": {"cpu": "4", "memory": "1Gi", names.GPU_RESOURCE: "2"},
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
        },
    }


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    kube = FakeApiServer()
    async with serving(kube) as client:
        running = Cluster(kube, FakeSlurmrestd(), client)
        await running.start()
        yield running
        await running.slurm.close()


async def test_books_that_agree_are_read_once(cluster: Cluster) -> None:
    report = await cluster.examine()
    assert report.findings == ()
    assert cluster.readings == 1
    assert as_text(report) == (
        "The books agree (5 living pods, 5 nodes; in Slurm 5 live jobs, 5 nodes)."
    )
    assert json.loads(as_json(report)) == []


async def test_all_pages_are_read_and_pods_that_have_ended_are_not(cluster: Cluster) -> None:
    cluster.kube.add("ml", "past", "past-uid")
    cluster.kube.pods["ml", "past"]["status"] = {"phase": "Succeeded"}
    books = await cluster.read()
    assert [n.name for n in books.nodes] == NODES
    assert [p.name for p in books.pods] == [f"pod-{name}" for name in NODES]


async def test_nothing_is_written(cluster: Cluster) -> None:
    cluster.slurmrestd.calls.clear()
    await cluster.run("stray")
    del cluster.kube.pods["ml", "stray"]
    cluster.slurmrestd.calls.clear()
    await cluster.examine()
    assert cluster.kube.calls == []
    assert {call.split()[0] for call in cluster.slurmrestd.calls} == {"GET"}


async def test_what_disagrees_twice_counts(cluster: Cluster) -> None:
    job_id = await cluster.run("stray")
    del cluster.kube.pods["ml", "stray"]
    report = await cluster.examine()
    assert [(f.kind, f.job) for f in report.findings] == [(Kind.JOB_WITHOUT_PODS, job_id)]
    assert cluster.readings == 2
    assert as_text(report).splitlines() == [
        "JobWithoutPods:",
        f"  gang ml/stray, job {job_id}: it is RUNNING in Slurm, and no pod of its gang is alive. "
        f"Sluice ends it when it runs (see /readyz); without it: scancel {job_id}.",
        "1 disagreement (5 living pods, 5 nodes; in Slurm 6 live jobs, 5 nodes).",
    ]
    (told,) = json.loads(as_json(report))
    assert list(told) == ["kind", "namespace", "gang", "pod", "job", "node", "message", "advice"]
    assert (told["kind"], told["namespace"], told["job"]) == ("JobWithoutPods", "ml", job_id)


async def test_what_has_settled_or_is_new_does_not_count(cluster: Cluster) -> None:
    """The first reading has a job without a pod, the second another one."""
    first, second = await cluster.run("first"), await cluster.run("second")
    there = {name: cluster.kube.pods["ml", name] for name in ("first", "second")}

    async def changing() -> Books:
        gone = ("first", "second")[cluster.readings]
        cluster.kube.pods["ml", "first"] = there["first"]
        cluster.kube.pods["ml", "second"] = there["second"]
        del cluster.kube.pods["ml", gone]
        books = await cluster.read()
        assert {j.id for j in books.jobs} >= {first, second}
        return books

    assert (await compare(changing, Terms(), 0)).findings == ()
    assert cluster.readings == 2


async def test_jobs_that_slurmctld_forgot_are_looked_up_in_accounting(cluster: Cluster) -> None:
    ended = await cluster.run("ended")
    await cluster.slurm.end(ended)
    cluster.slurmrestd.slurmctld.purge()
    cluster.place("lost", 4711, "n0")
    report = await cluster.examine()
    assert [(f.kind, f.job) for f in report.findings] == [
        (Kind.POD_JOB_UNKNOWN, 4711),
        (Kind.POD_JOB_ENDED, ended),
    ]


async def test_a_job_that_slurmctld_lost_and_accounting_has_as_running(cluster: Cluster) -> None:
    forgotten = await cluster.run("forgotten")
    del cluster.slurmrestd.slurmctld.jobs[forgotten]
    (finding,) = (await cluster.examine()).findings
    assert (finding.kind, finding.job) == (Kind.POD_JOB_UNKNOWN, forgotten)
    assert "accounting has as running" in finding.message


@pytest.mark.parametrize("comment", ["", "a note", '{"sluice": "kubernetes", "id": '])
async def test_a_stamp_that_cannot_be_read(cluster: Cluster, comment: str) -> None:
    job_id = await cluster.run("smudged")
    cluster.slurmrestd.slurmctld.jobs[job_id].asked["admin_comment"] = comment
    (finding,) = (await cluster.examine()).findings
    assert (finding.kind, finding.pod) == (Kind.POD_JOB_FOREIGN, "smudged")
    assert "no stamp that Sluice can read" in finding.message


async def test_a_damaged_stamp_is_found_without_pods_too(cluster: Cluster) -> None:
    job_id = await cluster.run("smudged")
    del cluster.kube.pods["ml", "smudged"]
    comments = cluster.slurmrestd.slurmctld.jobs[job_id].asked
    comments["admin_comment"] = comments["admin_comment"][:40]
    (finding,) = (await cluster.examine()).findings
    assert (finding.kind, finding.job) == (Kind.JOB_STAMP, job_id)
    comments["admin_comment"] = "maintenance"
    assert (await cluster.examine()).findings == ()


async def test_a_book_that_cannot_be_read_is_named(cluster: Cluster) -> None:
    cluster.slurmrestd.down = True
    with pytest.raises(Unreadable, match=r"^Slurm's book cannot be read: .*slurmctld"):
        await cluster.examine()
    cluster.kube.others["/api/v1/nodes"] = [{"metadata": "no object"}]
    with pytest.raises(Unreadable, match=r"^Kubernetes' .* /api/v1/nodes has .*; Slurm's book "):
        await cluster.examine()
