"""Kubernetes' managed nodes are Slurm's external nodes; what Slurm has already is never made anew."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from extender.domain import wellknown as names
from tests.e2e.jobs import indexed_job, pod
from tests.e2e.site import ML, PLAIN, Site, eventually, node_of, nodes_of, state, steadily
from tests.harness.fabric import Fabric
from tests.harness.kube import Object

pytestmark = pytest.mark.e2e

FOUR = Fabric(spines=1, leaves_per_spine=2, nodes_per_leaf=2, prefix="late-")
AddNodes = Callable[[Fabric], list[str]]


@pytest.fixture
def add_nodes(site: Site) -> Iterator[AddNodes]:
    """Adds the nodes of a fabric to Kubernetes; afterwards they are in neither."""
    added: list[str] = []

    def add(fabric: Fabric) -> list[str]:
        names_ = [node.name for node in fabric.nodes()]
        added.extend(names_)
        site.stack.add_nodes(fabric)
        return names_

    yield add
    site.wipe()
    for name in added:
        site.kube.delete(f"/api/v1/nodes/{name}")
    if there := sorted(set(added) & set(slurm_nodes(site))):
        site.slurm.exec("scontrol", "delete", f"nodename={','.join(there)}")


def slurm_nodes(site: Site) -> dict[str, Object]:
    return {node["name"]: node for node in site.slurm.nodes()}


def taints(site: Site, node: str) -> list[tuple[str, str]]:
    found = site.kube.get(f"/api/v1/nodes/{node}")["spec"].get("taints", [])
    return [(taint["key"], taint["effect"]) for taint in found]


def in_slurm(site: Site, wanted: list[str]) -> dict[str, Object]:
    """Wait until Slurm has these nodes."""
    return eventually(
        lambda: slurm_nodes(site), lambda found: set(wanted) <= set(found), 15, f"{wanted} in Slurm"
    )


# -- what becomes a Slurm node


def test_a_managed_node_is_an_external_node_of_the_same_size_and_place(site: Site) -> None:
    found = in_slurm(site, site.order)
    for node in site.stack.nodes:
        told = found[node.name]
        assert told["address"] == node.address
        assert (told["cpus"], told["real_memory"], told["gres"]) == (64, 512 * 1024, "gpu:8")
        assert told["topology"] == f"topo-tree:root:{node.spine}:{node.spine}.{node.leaf}"
        assert "EXTERNAL" in told["state"]
        assert told["partitions"] == ["gpu"]


def test_a_managed_node_is_kept_for_slurm(site: Site) -> None:
    for name in site.order:
        assert taints(site, name) == [(names.TAINT, "NoSchedule")]


def test_other_nodes_are_left_alone(site: Site, add_nodes: AddNodes) -> None:
    """A control plane, say: not in Slurm, no taint, and Slurm is not asked for it."""
    site.quiet()
    others = add_nodes(
        Fabric(spines=1, leaves_per_spine=1, nodes_per_leaf=1, prefix="cp-", managed=False)
    )
    ours = (names.TAINT, "NoSchedule")
    steadily(lambda: taints(site, others[0]), lambda found: ours not in found, 1.5, "no taint")
    assert not set(others) & set(slurm_nodes(site))
    assert site.tap.calls() == []


# -- only what is missing


def test_new_nodes_join_and_an_existing_one_keeps_its_job(site: Site, add_nodes: AddNodes) -> None:
    """Creating a name that exists would delete the node with the job on it."""
    site.slurm.exec(
        "scontrol", "create", "nodename=late-0", "NodeAddr=127.0.0.1", "State=EXTERNAL",
        "CoresPerSocket=64", "RealMemory=500000", "Gres=gpu:8", "Feature=k8s,mine",
        "Topology=topo-tree:root:spine-0:spine-0.leaf-00",
    )  # fmt: skip
    held = site.fill(17, "held")
    added = add_nodes(FOUR)
    found = in_slurm(site, added)
    assert found["late-0"]["features"] == ["k8s", "mine"]
    assert "late-0" in nodes_of(site.job("held", "RUNNING"))
    assert sorted(created(site)) == added[1:]
    site.cancel(held)
    site.submit(ML, indexed_job("wide", 20))
    assert {node_of(p) for p in site.bound(20)} == {*site.order, *added}


def test_a_restart_changes_nothing_in_slurm(site: Site) -> None:
    """Jobs run on, and a node that somebody drained keeps its reason and gets no pod."""
    site.slurm.exec("scontrol", "update", "nodename=node-00", "state=drain", "reason=bad fan")
    try:
        site.fill(8, "held")
        site.stack.sluice.stop()
        site.stack.sluice.start(site.settings)
        site.submit(ML, indexed_job("train", 4))
        pods = site.bound(4)
        drained = slurm_nodes(site)["node-00"]
    finally:
        site.slurm.exec("scontrol", "update", "nodename=node-00", "state=resume")
    assert site.states("held") == ["RUNNING"]
    assert created(site) == []
    assert "DRAIN" in drained["state"]
    assert drained["reason"] == "bad fan"
    assert "node-00" not in map(node_of, pods)


def created(site: Site) -> list[str]:
    """The names that Sluice had slurmrestd create."""
    lines = [call.body for call in site.tap.calls("POST", "/new/node")]
    return [
        name for line in lines for name in line.partition("NodeName=")[2].split(" ")[0].split(",")
    ]


def test_ranks_follow_the_fabric_whatever_the_nodes_are_called(
    site: Site, add_nodes: AddNodes
) -> None:
    """Twelve nodes of which u-2 stands before u-10, though not in the order of their names."""
    fabric = Fabric(spines=2, leaves_per_spine=2, nodes_per_leaf=3, prefix="u-", padded=False)
    added = add_nodes(fabric)
    in_slurm(site, added)
    hosts = {"key": "kubernetes.io/hostname", "operator": "In", "values": added}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [hosts]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    site.submit(ML, indexed_job("train", 12, affinity={"nodeAffinity": required}))
    assert [node_of(p) for p in site.bound(12)] == added


# -- what Slurm's administrators do


def test_a_node_that_only_slurm_has_is_never_used(site: Site) -> None:
    """Left over from a Kubernetes node that was deleted, or made by hand while Sluice ran: it is
    idle and Slurm would gladly take it. The gang waits for a node that Kubernetes has."""
    site.fill(16)
    site.slurm.exec(
        "scontrol", "create", "nodename=ghost", "NodeAddr=127.0.0.1", "State=EXTERNAL",
        "CoresPerSocket=64", "RealMemory=500000", "Gres=gpu:8", "Feature=k8s",
        "Topology=topo-tree:root:spine-0:spine-0.leaf-00",
    )  # fmt: skip
    try:
        site.submit(ML, pod("alone"))
        eventually(
            lambda: [(state(j), j["excluded_nodes"]) for j in site.jobs("alone")],
            lambda seen: seen and len(seen) <= 2 and seen[-1] == ("PENDING", "ghost"),
            15,
            "queued without the ghost, after it was given back once at most",
        )
        count = len(site.jobs("alone"))
        steadily(lambda: len(site.jobs("alone")), count.__eq__, 2, "no loop")
        site.gated(1)
    finally:
        site.slurm.cancel_all()
        site.slurm.exec("scontrol", "delete", "nodename=ghost")


def test_a_node_that_slurm_lost_stops_nobody(site: Site, add_nodes: AddNodes) -> None:
    """A node that Kubernetes could not use was excluded; then it was deleted in both."""
    (gone,) = add_nodes(Fabric(spines=1, leaves_per_spine=1, nodes_per_leaf=1, prefix="gone-"))
    in_slurm(site, [gone])
    site.kube.delete(f"/api/v1/nodes/{gone}")
    site.slurm.exec("scontrol", "delete", f"nodename={gone}")
    site.submit(ML, pod("alone"))
    site.bound(1)


# -- who did not opt in


def test_pods_that_did_not_opt_in_are_not_touched(site: Site, add_nodes: AddNodes) -> None:
    """They are scheduled while all of Slurm is down, and nobody asks Slurm about them."""
    (worker,) = add_nodes(
        Fabric(spines=1, leaves_per_spine=1, nodes_per_leaf=1, prefix="web-", managed=False)
    )
    site.quiet()
    for daemon in ("slurmctld", "slurmrestd"):
        site.slurm.stop(daemon)
    try:
        with site.watch(PLAIN) as watch:
            site.submit(PLAIN, pod("web", gpus=0), pod("gpu", gpus=4))
            site.submit(ML, pod("ignored", gpus=4, labels={names.OPTED_OUT: ""}))
            pods = [*site.bound(2, PLAIN), *site.bound(1, ML)]
        assert {node_of(p) for p in pods} == {worker}
        for p in pods:
            assert "schedulingGates" not in p["spec"]
            assert "affinity" not in p["spec"]
            assert p["spec"]["schedulerName"] == "default-scheduler"
            assert not [
                k for k in p["metadata"].get("annotations", {}) if k.startswith(names.PREFIX)
            ]
        assert not any(e.gates for e in watch.events())
        assert site.tap.calls() == []
    finally:
        for daemon in ("slurmctld", "slurmrestd"):
            site.slurm.launch(daemon)
    assert site.jobs() == []


def test_kube_scheduler_is_told_to_pass_pods_of_other_schedulers(site: Site) -> None:
    """Should its process serve other profiles, too: every node that it sent comes back."""
    site.quiet()
    body = {
        "Pod": {
            "metadata": {"namespace": PLAIN, "name": "web", "uid": "u"},
            "spec": {"schedulerName": "default-scheduler"},
        },
        "Nodes": None,
        "NodeNames": site.order,
    }
    answer = site.post("/extender/filter", body).json()
    assert answer["NodeNames"] == site.order
    assert not answer["FailedNodes"]
    assert not answer["FailedAndUnresolvableNodes"]
    assert site.tap.calls() == []
