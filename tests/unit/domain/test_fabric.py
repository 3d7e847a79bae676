"""Switch paths, Slurm's topology strings, the Slurm node of a Kubernetes node, and feasibility."""

from __future__ import annotations

from typing import Any

import pytest

from extender.domain import wellknown as names
from extender.domain.feasibility import infeasible
from extender.domain.reasons import waiting
from extender.domain.topology import fabric_order, node_spec, switch_path, topology_string
from tests.builders import GIB, job, node, pod


@pytest.mark.parametrize(
    ("labels", "annotations", "path"),
    [
        ({}, {}, ("s0", "l0")),
        ({names.CORE_LABEL: "c1"}, {}, ("c1", "s0", "l0")),
        ({names.SPINE_LABEL: ""}, {}, ("l0",)),
        ({}, {names.SWITCH_PATH: "a/b/c"}, ("a", "b", "c")),
    ],
)
def test_switch_path(
    labels: dict[str, str], annotations: dict[str, str], path: tuple[str, ...]
) -> None:
    assert switch_path(node("n", labels=labels, annotations=annotations)) == path


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (("s0", "l3"), "topo-tree:root:s0:s0.l3"),
        ((), "topo-tree:root:root.unlabelled"),
        (("rack 1:x",), "topo-tree:root:rack-1-x"),
    ],
)
def test_topology_string(path: tuple[str, ...], text: str) -> None:
    assert topology_string(path, "root") == text


def test_racks_of_one_name_under_two_spines_stay_two() -> None:
    assert topology_string(("s0", "1"), "root") != topology_string(("s1", "1"), "root")


def test_fabric_order_is_natural_at_every_level() -> None:
    order = [
        node("n2", "s1", "l1"),
        node("n10", "s1", "l2"),
        node("n1", "s1", "l10"),
        node("n0", "s2", "l0"),
    ]
    mixed = [order[i] for i in (2, 0, 3, 1)]
    assert sorted(mixed, key=fabric_order) == order


@pytest.mark.parametrize(
    ("cpu_milli", "sockets", "wanted"),
    [(64000, 2, (2, 32)), (63900, 2, (1, 63)), (500, 1, (1, 1)), (6000, 4, (2, 3))],
)
def test_cores_are_rounded_down(cpu_milli: int, sockets: int, wanted: tuple[int, int]) -> None:
    spec = node_spec(node("n", cpu_milli=cpu_milli), root="root", feature="k8s", sockets=sockets)
    assert (spec.sockets, spec.cores_per_socket) == wanted


def test_memory_gpus_address_and_feature() -> None:
    spec = node_spec(
        node("n", memory_bytes=GIB + 1, gpus=8, address="10.1.2.3"),
        root="root",
        feature="k8s",
        sockets=1,
    )
    assert (spec.memory_mib, spec.gres, spec.address, spec.features) == (
        1024,
        "gpu:8",
        "10.1.2.3",
        ("k8s",),
    )
    assert node_spec(node("n", gpus=0), root="root", feature="", sockets=1).gres == ""


def test_a_node_always_has_an_address() -> None:
    """Without one slurmctld asks DNS at every allocation and everything else waits."""
    spec = node_spec(node("n", address=""), root="root", feature="k8s", sockets=1)
    assert spec.address


NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}
OURS = {"key": names.TAINT, "effect": "NoSchedule", "value": "slurm"}
TEAM = {"key": "team", "effect": "NoSchedule", "value": "a"}
SOFT = {"key": "team", "effect": "PreferNoSchedule", "value": "a"}


def term(key: str, operator: str, *values: str, field: bool = False) -> dict[str, Any]:
    kind = "matchFields" if field else "matchExpressions"
    return {kind: [{"key": key, "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("pod_says", "node_is", "fits"),
    [
        ({}, {}, True),
        ({}, {"unschedulable": True}, False),
        ({}, {"ready": False}, False),
        ({}, {"taints": (OURS,)}, True),
        ({}, {"taints": (SOFT,)}, True),
        ({}, {"taints": (TEAM,)}, False),
        ({}, {"taints": (NOT_READY,)}, False),
        ({"tolerations": ({"key": "team", "value": "a"},)}, {"taints": (TEAM,)}, True),
        ({"tolerations": ({"key": "team", "value": "b"},)}, {"taints": (TEAM,)}, False),
        ({"tolerations": ({"operator": "Exists"},)}, {"taints": (TEAM, NOT_READY)}, True),
        ({"tolerations": ({"key": "team", "operator": "Exists", "effect": "NoExecute"},)}, {"taints": (TEAM,)}, False),
        ({"node_selector": {"zone": "a"}}, {"labels": {"zone": "a"}}, True),
        ({"node_selector": {"zone": "a"}}, {"labels": {"zone": "b"}}, False),
        ({"node_affinity_terms": (term("zone", "In", "a"), term("zone", "In", "b"))}, {"labels": {"zone": "b"}}, True),
        ({"node_affinity_terms": (term("zone", "NotIn", "b"),)}, {"labels": {"zone": "b"}}, False),
        ({"node_affinity_terms": (term("zone", "Exists"),)}, {}, False),
        ({"node_affinity_terms": (term("zone", "DoesNotExist"),)}, {}, True),
        ({"node_affinity_terms": (term("n", "Gt", "3"),)}, {"labels": {"n": "4"}}, True),
        ({"node_affinity_terms": (term("n", "Lt", "3"),)}, {"labels": {"n": "x"}}, False),
        ({"node_affinity_terms": (term("metadata.name", "In", "n1", field=True),)}, {}, True),
        ({"node_affinity_terms": (term("metadata.name", "In", "n2", field=True),)}, {}, False),
        ({"node_affinity_terms": ({},)}, {}, False),
    ],
)  # fmt: skip
def test_feasible(pod_says: dict[str, Any], node_is: dict[str, Any], fits: bool) -> None:
    refused = infeasible([pod(0, **pod_says)], [node("n1", **node_is)])
    assert (refused == {}) is fits, refused


def test_a_node_must_suit_every_pod_of_the_gang() -> None:
    picky = pod(1, node_selector={"zone": "a"})
    fabric = [node("n1", labels={"zone": "a"}), node("n2"), node("n3"), node("n4")]
    assert set(infeasible([pod(0), picky], fabric)) == {"n2", "n3", "n4"}


@pytest.mark.parametrize(
    ("reason", "says"),
    [
        ("Resources", "waits for enough free nodes (Slurm: Resources)."),
        ("Priority", "behind jobs of higher priority in partition 'gpu'"),
        ("QOSGrpCpuLimit", "QOS 'high' has reached its limit of CPUs (Slurm: QOSGrpCpuLimit)."),
        ("QOSGrpGRES", "QOS 'high' has reached its limit of GPUs"),
        ("QOSMaxWallDurationPerJobLimit", "QOS 'high' allows less time than it asks for"),
        ("AssocMaxJobsLimit", "account 'ml' runs as many jobs as it may"),
        ("AssocGrpNodeLimit", "account 'ml' has reached its limit of nodes"),
        ("QOSNotAllowed", "a limit of QOS 'high' is reached"),
        ("JobHeldUser", "release it with scontrol release 7"),
        ("SomethingNew", "Slurm job 7 waits (Slurm: SomethingNew)."),
        ("", "Slurm has not looked at it yet."),
    ],
)
def test_slurms_reason_reaches_the_person_who_waits(reason: str, says: str) -> None:
    told = waiting(job(reason=reason, account="ml", partition="gpu", qos="high"))
    assert says in told
    assert told.startswith("Slurm job 7 ")
