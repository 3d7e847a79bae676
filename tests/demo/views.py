"""Tables of the demo: the racks and what runs on them, ranks side by side, accounting."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from tests.demo.claims import gpus
from tests.demo.facts import LIVE, Facts, Place

FREE = "·"


def racks(facts: Facts) -> tuple[list[str], list[list[str]]]:
    """A line for each rack, a cell for each node: the Job that has it, "·" when it is free."""
    used = {pod.node: pod.job for pod in facts.pods if pod.node and pod.phase in LIVE}
    rows = []
    for (spine, rack), nodes in groupby(facts.places, lambda p: (p.spine, p.rack)):
        cells = [used.get(place.node, FREE) for place in nodes]
        rows.append([spine, rack, *cells])
    width = max(len(row) for row in rows) - 2
    return ["spine", "rack", *(f"node {i + 1}" for i in range(width))], rows


def side_by_side(
    hosts: Sequence[str], left: Sequence[Place], right: Sequence[Place]
) -> tuple[list[str], list[list[str]]]:
    """Rank, pod, and node, rack and spine by either of the two."""
    head = ["rank", "pod", "plain: node", "rack", "spine", "Slurm: node", "rack", "spine"]
    rows = [
        [str(rank), host, a.node, a.rack, a.spine, b.node, b.rack, b.spine]
        for rank, (host, a, b) in enumerate(zip(hosts, left, right, strict=True))
    ]
    return head, rows


def by_rack(places: Sequence[Place]) -> tuple[list[str], list[list[str]]]:
    """Which ranks are on which rack, along the ranks."""
    rows = []
    start = 0
    for (spine, rack), part in groupby(places, lambda p: (p.spine, p.rack)):
        nodes = [place.node for place in part]
        ranks = f"{start}-{start + len(nodes) - 1}" if len(nodes) > 1 else str(start)
        rows.append([ranks, ", ".join(nodes), rack, spine])
        start += len(nodes)
    return ["ranks", "nodes", "rack", "spine"], rows


def accounting(rows: Sequence[dict[str, str]]) -> tuple[list[str], list[list[str]]]:
    """sacct's records; GPUs are taken out of the long list of resources."""
    head = ["job", "name", "user", "account", "state", "nodes", "node list", "GPUs", "elapsed"]
    cells = [
        [
            row["JobID"], row["JobName"], row["User"], row["Account"], row["State"].split()[0],
            row["NNodes"], row["NodeList"], str(gpus(row["AllocTRES"])), row["Elapsed"],
        ]
        for row in rows
    ]  # fmt: skip
    return head, cells


def spread(places: Sequence[Place]) -> str:
    """In words: 3 racks under 2 spines."""
    racks = len({place.rack for place in places})
    spines = len({place.spine for place in places})
    return f"{racks} rack{'s' * (racks > 1)} under {spines} spine{'s' * (spines > 1)}"


def neighbours(places: Sequence[Place]) -> int:
    """Of the pairs rank i and i+1 (the last with rank 0), how many are in one rack: the steps of a
    ring all-reduce that stay below one switch."""
    following = [*places[1:], *places[:1]]
    return sum(1 for a, b in zip(places, following, strict=True) if a.rack == b.rack)
