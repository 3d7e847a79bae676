"""On the nodes that Slurm chose, each rank in its place along the fabric."""

from __future__ import annotations

import pytest

from extender.domain import wellknown as names
from tests.e2e.jobs import gang, indexed_job, pod
from tests.e2e.site import ML, Site, answers, node_of, nodes_of, number, steadily

pytestmark = pytest.mark.e2e


def test_each_pod_gets_its_answers_in_one_step(site: Site) -> None:
    """Gate, node and answers change in the same write: there is no half state to be seen."""
    with site.watch() as watch:
        site.submit(ML, indexed_job("train", 4))
        site.bound(4)
    job = site.job("train", "RUNNING")
    for events in watch.by_pod().values():
        shown = [(bool(e.gates), "affinity" in e.pod["spec"], bool(answers(e.pod))) for e in events]
        assert set(shown) == {(True, False, False), (False, True, True)}
        released = next(e for e in events if not e.gates)
        got = answers(released.pod)
        terms = released.pod["spec"]["affinity"]["nodeAffinity"][
            "requiredDuringSchedulingIgnoredDuringExecution"
        ]["nodeSelectorTerms"]
        pin = {"key": "metadata.name", "operator": "In", "values": [got["node"]]}
        assert terms == [{"matchFields": [pin]}]
        assert not released.node
        assert events[-1].node == got["node"]
        assert got["job-id"] == str(job["job_id"])
        assert got["nodelist"] == job["nodes"]
        assert (got["nodes"], got["ranks"]) == ("4", "4")


@pytest.mark.parametrize("size", [2, 5, 16])
def test_rank_i_is_on_the_i_th_node_of_the_fabric(site: Site, size: int) -> None:
    site.submit(ML, indexed_job("train", size))
    pods = site.bound(size)
    chosen = nodes_of(site.job("train", "RUNNING"))
    assert [node_of(p) for p in pods] == [n for n in site.order if n in chosen]
    assert [answers(p)["rank"] for p in pods] == [str(i) for i in range(size)]


def test_pods_that_name_a_gang_take_their_ranks_from_their_names(site: Site) -> None:
    """pair-2 comes before pair-10, whatever order they were created in."""
    site.submit(ML, *reversed(gang("crew", 11)))
    pods = site.bound(11)
    assert [p["metadata"]["name"] for p in pods] == [f"crew-{i}" for i in range(11)]
    chosen = nodes_of(site.job("crew", "RUNNING"))
    assert [node_of(p) for p in pods] == [n for n in site.order if n in chosen]


def test_a_gang_that_fits_one_leaf_is_on_one(site: Site) -> None:
    """A node is out of service in every leaf but one."""
    nodes = "nodename=node-00,node-05,node-12"
    site.slurm.exec("scontrol", "update", nodes, "state=drain", "reason=fan")
    try:
        site.submit(ML, indexed_job("close", 4))
        pods = site.bound(4)
    finally:
        site.slurm.exec("scontrol", "update", nodes, "state=resume")
    leaf = {node.name: node.leaf for node in site.stack.nodes}
    assert {leaf[node_of(p)] for p in pods} == {"leaf-02"}


@pytest.mark.parametrize(
    ("pods", "gpus", "per_node"),
    [(2, 4, [2]), (8, 1, [8]), (3, 4, [2, 1]), (5, 3, [2, 2, 1])],
)
def test_several_ranks_share_a_node_where_they_fit(
    site: Site, pods: int, gpus: int, per_node: list[int]
) -> None:
    site.submit(ML, indexed_job("dense", pods, gpus=gpus))
    bound = [node_of(p) for p in site.bound(pods)]
    used = list(dict.fromkeys(bound))
    assert [bound.count(node) for node in used] == per_node
    chosen = nodes_of(site.job("dense", "RUNNING"))
    assert used == [n for n in site.order if n in chosen]


def test_two_gangs_share_a_node(site: Site) -> None:
    """Two pods of 4 GPUs each, of different owners, on the only node that is left."""
    site.fill(15)
    site.submit(ML, pod("left", gpus=4), pod("right", gpus=4))
    left, right = site.bound(2)
    assert node_of(left) == node_of(right)
    assert nodes_of(site.job("left", "RUNNING")) == nodes_of(site.job("right", "RUNNING"))


def test_an_exclusive_gang_shares_its_nodes_with_nobody(site: Site) -> None:
    """Half of a node's GPUs, all of the node: the other half is given to no one."""
    site.fill(15)
    site.submit(ML, pod("whole", gpus=4, annotations={names.EXCLUSIVE: "true"}))
    (whole,) = site.bound(1)
    site.submit(ML, pod("other", gpus=4))
    site.job("other", "PENDING")
    steadily(lambda: site.states("other"), lambda s: s == ["PENDING"], 2, "the other waits")
    job = site.job("whole", "RUNNING")
    assert nodes_of(job) == [node_of(whole)]
    assert number(job["cpus"]) == 64


def test_gangs_without_gpus(site: Site) -> None:
    """Packed by CPU; a memory of less than one MiB is asked for as one, never as 0 ("all")."""
    site.submit(ML, indexed_job("solver", 6, gpus=0, cpus=16, memory="512Ki"))
    bound = [node_of(p) for p in site.bound(6)]
    assert [bound.count(node) for node in dict.fromkeys(bound)] == [4, 2]
    job = site.job("solver", "RUNNING")
    assert (number(job["cpus"]), "gres" in job["tres_alloc_str"]) == (96, False)
    assert number(job["memory_per_cpu"]) == 1


def test_only_nodes_that_kubernetes_can_use_are_asked_for(site: Site) -> None:
    """Selector, affinity and a cordon become excluded nodes. Required nodes would make Slurm wait
    for exactly those, and kill the job when one of them goes."""
    for node in site.order[:4]:
        site.kube.patch(f"/api/v1/nodes/{node}", {"metadata": {"labels": {"zone": "a"}}})
    for node in site.order[4:8]:
        site.kube.patch(f"/api/v1/nodes/{node}", {"metadata": {"labels": {"zone": "b"}}})
    site.kube.patch("/api/v1/nodes/node-01", {"spec": {"unschedulable": True}})
    terms = [
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}
        for zone in ("a", "c")
    ]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    prefer = {"weight": 1, "podAffinityTerm": {"topologyKey": "zone", "labelSelector": {}}}
    soft = {"preferredDuringSchedulingIgnoredDuringExecution": [prefer]}
    affinity = {"nodeAffinity": required, "podAffinity": soft}
    try:
        site.submit(
            ML,
            indexed_job(
                "picky",
                3,
                affinity=affinity,
                nodeSelector={"kubernetes.io/os": "linux"},
            ),
        )
        pods = site.bound(3)
    finally:
        site.kube.patch("/api/v1/nodes/node-01", {"spec": {"unschedulable": None}})
        for node in site.order[:8]:
            site.kube.patch(f"/api/v1/nodes/{node}", {"metadata": {"labels": {"zone": None}}})
    assert [node_of(p) for p in pods] == ["node-00", "node-02", "node-03"]
    job = site.job("picky", "RUNNING")
    assert (job["required_nodes"], job["excluded_nodes"]) == ("", "node-[01,04-15]")
    for p in pods:
        kept = p["spec"]["affinity"]
        assert kept["podAffinity"] == soft
        pinned = kept["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        for term, before in zip(pinned["nodeSelectorTerms"], terms, strict=True):
            assert term["matchExpressions"] == before["matchExpressions"]
            assert term["matchFields"][0]["values"] == [node_of(p)]
