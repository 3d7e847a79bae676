"""From what Slurm allocated to the node of each rank."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from extender.domain.model import Node, NodeShare
from extender.domain.topology import fabric_order
from extender.domain.translate import Shape


class Misfit(Exception):
    """The allocation cannot hold the ranks. The message says why."""


class NodesGone(Misfit):
    """Kubernetes no longer has ``names`` of the allocation, or never had them."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names
        super().__init__(
            f"Slurm allocated {', '.join(names)}, which Kubernetes does not have as a managed node"
        )


def slots(shares: Sequence[NodeShare], rank: Shape, nodes: Mapping[str, Node]) -> tuple[str, ...]:
    """One node name per rank that fits, in fabric order: slot i is where rank i goes.

    ``NodesGone`` when a node is unknown to Kubernetes.
    """
    unknown = [s.name for s in shares if s.name not in nodes]
    if unknown:
        raise NodesGone(unknown)
    ordered = sorted(shares, key=lambda share: fabric_order(nodes[share.name]))
    return tuple(s.name for s in ordered for _ in range(ranks_that_fit(s, rank)))


def ranks_that_fit(share: NodeShare, rank: Shape) -> int:
    """How many whole ranks a node's share holds. A share without memory holds them by CPU."""
    limits = [share.cpus // rank.cpus]
    if share.memory_mib:
        limits.append(share.memory_mib // rank.memory_mib)
    if rank.gpus:
        limits.append(share.gpus // rank.gpus)
    return min(limits)


def assign(
    ranks: Sequence[int], slot_nodes: Sequence[str], taken: Mapping[int, str], *, whole: bool
) -> dict[int, str]:
    """Rank -> node for ``ranks`` (ascending). ``taken`` are the ranks that have a node already.

    In the job of a ``whole`` gang slot i is rank i's own: it goes there, also in place of a pod
    that failed. A rank whose slot somebody else has, or of a job for some ranks only, gets the
    first free one. ``Misfit`` when there are fewer slots than ranks.
    """
    free = Counter(slot_nodes)
    free.subtract(node for rank, node in taken.items() if rank not in ranks)
    room = sum(count for count in free.values() if count > 0)
    if room < len(ranks):
        raise Misfit(
            f"Slurm allocated room for {len(slot_nodes)} ranks, of which {room} are free, "
            f"and {len(ranks)} are to be placed"
        )
    own = {r: slot_nodes[r] for r in ranks if whole and r < len(slot_nodes)}
    chosen = {rank: node for rank, node in own.items() if _take(free, node)}
    left = (node for node in slot_nodes if _take(free, node))
    for rank in ranks:
        if rank not in chosen:
            chosen[rank] = next(left)
    return {rank: chosen[rank] for rank in ranks}


def _take(free: Counter[str], node: str) -> bool:
    if free[node] <= 0:
        return False
    free[node] -= 1
    return True
