"""Where a node hangs in the fabric, from its labels, and the order that follows from it."""

from __future__ import annotations

import math
import re

from extender.domain import wellknown as names
from extender.domain.gangs import natural
from extender.domain.model import Node, NodeSpec
from extender.domain.quantity import MIB

_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]+")
_LEVELS = (names.CORE_LABEL, names.SPINE_LABEL, names.LEAF_LABEL)

SwitchPath = tuple[str, ...]


def switch_path(node: Node) -> SwitchPath:
    """The switches above a node, from the top down: ("spine0", "leaf3"); () when nothing says.

    The annotation sluice.dev/switch-path wins over the labels of NVIDIA Topograph.
    """
    if told := node.annotations.get(names.SWITCH_PATH):
        return tuple(part for part in told.strip("/").split("/") if part)
    return tuple(node.labels[label] for label in _LEVELS if node.labels.get(label))


def fabric_order(node: Node) -> tuple[object, ...]:
    """Sort key: nodes of one leaf stand together, leaves of one spine stand together."""
    return (tuple(natural(switch) for switch in switch_path(node)), natural(node.name))


def topology_string(path: SwitchPath, root: str) -> str:
    """Slurm's topology of a dynamic node (topology.html, "Dynamic nodes").

    Slurm's switches have one name each, so a switch is named with all that is above it: two racks
    called "1" under two spines stay two.
    """
    switches = [root]
    for depth in range(len(path)):
        switches.append(".".join(_UNSAFE.sub("-", part) for part in path[: depth + 1]))
    if len(switches) == 1:
        switches.append(f"{root}.unlabelled")
    return "topo-tree:" + ":".join(switches)


def node_spec(node: Node, *, root: str, feature: str, sockets: int) -> NodeSpec:
    """The Slurm node of a Kubernetes node: what is allocatable, rounded down."""
    cores = max(1, node.cpu_milli // 1000)
    sockets = sockets if cores % sockets == 0 else math.gcd(cores, sockets)
    return NodeSpec(
        name=node.name,
        address=node.address or "127.0.0.1",  # never looked up: without one slurmctld asks DNS
        sockets=sockets,
        cores_per_socket=cores // sockets,
        memory_mib=max(1, node.memory_bytes // MIB),
        gres=f"gpu:{node.gpus}" if node.gpus else "",
        features=(feature,) if feature else (),
        topology=topology_string(switch_path(node), root),
    )
