"""The test cluster's nodes and the network between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

LEAF_LABEL = "network.topology.nvidia.com/leaf"  # Topograph's names
SPINE_LABEL = "network.topology.nvidia.com/spine"


@dataclass(frozen=True)
class FabricNode:
    """A node and its place: ``leaf`` and ``spine`` are switch names such as leaf-03, spine-0."""

    name: str
    leaf: str
    spine: str
    address: str


@dataclass(frozen=True)
class Fabric:
    """A tree of spines and leaves with equal nodes; leaves are numbered through the whole tree.

    Node names are zero-padded (node-007) unless ``padded`` is false (node-7): the order of names
    and the order along the fabric differ then.
    """

    spines: int = 2
    leaves_per_spine: int = 2
    nodes_per_leaf: int = 4
    gpus_per_node: int = 8
    cpus: int = 64
    memory_gib: int = 512
    padded: bool = True
    prefix: str = "node-"
    managed: bool = True

    @property
    def size(self) -> int:
        return self.spines * self.leaves_per_spine * self.nodes_per_leaf

    def nodes(self) -> list[FabricNode]:
        """All nodes in the order of the fabric."""
        leaves = self.spines * self.leaves_per_spine
        width = len(str(self.size - 1)) if self.padded else 0
        leaf_width = max(2, len(str(leaves - 1)))
        return [
            FabricNode(
                name=f"{self.prefix}{i:0{width}d}" if width else f"{self.prefix}{i}",
                leaf=f"leaf-{i // self.nodes_per_leaf:0{leaf_width}d}",
                spine=f"spine-{i // (self.nodes_per_leaf * self.leaves_per_spine)}",
                address=f"10.{200 + i // 65025}.{i // 255 % 255}.{i % 255 + 1}",
            )
            for i in range(self.size)
        ]

    def manifest(self, node: FabricNode) -> dict[str, Any]:
        """The Kubernetes Node object that kwok then keeps ready."""
        labels = {
            "kubernetes.io/hostname": node.name,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
            "type": "kwok",
            LEAF_LABEL: node.leaf,
            SPINE_LABEL: node.spine,
        }
        if self.managed:
            labels["sluice.dev/managed"] = "true"
        resources = {"cpu": str(self.cpus), "memory": f"{self.memory_gib}Gi", "pods": "256"}
        if self.gpus_per_node:
            resources["nvidia.com/gpu"] = str(self.gpus_per_node)
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": node.name,
                "labels": labels,
                "annotations": {"kwok.x-k8s.io/node": "fake"},
            },
            "status": {
                "capacity": resources,
                "allocatable": resources,
                "addresses": [
                    {"type": "InternalIP", "address": node.address},
                    {"type": "Hostname", "address": node.name},
                ],
            },
        }
