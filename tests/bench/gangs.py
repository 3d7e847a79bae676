"""Gangs of whole nodes: from the creation of the Job to the last pod bound, and where the time goes.

The moments are the outside watcher's, except for what happens between Sluice and Slurm: those are
Sluice's own timeline.
"""

from __future__ import annotations

import math
import time
from itertools import pairwise
from typing import Any

from tests.bench.arena import FABRIC, NAMESPACES, SCHEDULERS, SLUICE, Arena, load
from tests.bench.budget import Budget
from tests.bench.watcher import Seen
from tests.bench.workloads import job
from tests.harness.progress import say

PATIENCE_SECONDS = 120.0
# Of the time for gangs, by size: small ones need little, and what they leave goes to the others.
SHARES = {4: 1.0, 16: 1.0, 64: 2.0, 256: 6.0}


def measure(arena: Arena, sizes: list[int], runs: int, budget: Budget) -> list[dict[str, Any]]:
    """Every run of every size, the two schedulers in turn."""
    results = []
    shares = [SHARES.get(size, 1.0) for size in sizes]
    for i, size in enumerate(sizes):
        share = shares[i] / sum(shares[i:])
        for run in budget.runs(runs, f"gangs of {size}", share):
            for scheduler in SCHEDULERS if run % 2 else reversed(SCHEDULERS):
                result = one(arena, scheduler, size, run)
                results.append(result)
                say(f"gang of {size:>3}, run {run + 1}, {scheduler:<6} {result['total']:6.2f} s")
    return results


def one(arena: Arena, scheduler: str, size: int, run: int) -> dict[str, Any]:
    """One gang on the empty cluster."""
    quiet = arena.empty()
    arena.watcher.clear()
    name, namespace = f"gang-{size}-{run}", NAMESPACES[scheduler]
    manifest = job(name, scheduler, size, FABRIC.gpus_per_node)
    before = arena.usage()
    started = time.time()
    arena.stack.admin.create(f"/apis/batch/v1/namespaces/{namespace}/jobs", manifest)
    bound = arena.watcher.wait_bound(namespace, size, PATIENCE_SECONDS)
    used = arena.usage().since(before)
    pods = sorted(arena.watcher.pods(namespace), key=lambda pod: pod.index)
    if not bound:
        count = sum(bool(pod.bound) for pod in pods)
        raise RuntimeError(
            f"{scheduler}: {count} of {size} pods were bound in {PATIENCE_SECONDS} s"
        )
    result = {
        "scheduler": scheduler,
        "pods": size,
        "run": run,
        "total": round(max(pod.bound for pod in pods) - started, 3),
        "stages": stages(arena, name, started, pods)
        if scheduler == SLUICE
        else plain(started, pods),
        "placement": placement(arena, pods),
        "quiet": quiet,
        "load": load(),
    }
    return result | used.report()


def plain(started: float, pods: list[Seen]) -> dict[str, float]:
    """Seconds until all pods existed, and from there until the last was bound."""
    created = max(pod.created for pod in pods)
    return {
        "created": round(created - started, 3),
        "binds": round(max(pod.bound for pod in pods) - created, 3),
    }


def stages(arena: Arena, name: str, started: float, pods: list[Seen]) -> dict[str, float]:
    """The stages of one gang in seconds, one after the other.

    ``created``: until the last pod existed. ``submit``: until Slurm had the job. ``slurm``: until
    Sluice saw it started, which is at most one look (slurm.poll_min_milliseconds) after Slurm's own
    decision. ``patches``: until the last gate was off. ``binds``: until the last pod was bound.
    """
    told = arena.timeline(name)
    moments = [
        started,
        max(pod.created for pod in pods),
        first(told, "Submitted"),
        first(told, "Starting"),
        max(pod.released for pod in pods),
        max(pod.bound for pod in pods),
    ]
    names = ("created", "submit", "slurm", "patches", "binds")
    return {n: round(b - a, 3) for n, (a, b) in zip(names, pairwise(moments), strict=True)}


def first(timeline: list[tuple[float, str]], word: str) -> float:
    """When the first step that begins with ``word`` was taken."""
    return next(at for at, what in timeline if what.startswith(word))


def placement(arena: Arena, pods: list[Seen]) -> dict[str, Any]:
    """Leaves and spines used, the least possible on an empty cluster, and the order of ranks."""
    along = [arena.place[pod.node] for pod in pods]
    leaves = {node.leaf for _, node in along}
    spines = {node.spine for _, node in along}
    positions = [i for i, _ in along]
    least = math.ceil(len(pods) / FABRIC.nodes_per_leaf)
    return {
        "leaves": len(leaves),
        "spines": len(spines),
        "least_leaves": least,
        "least_spines": math.ceil(least / FABRIC.leaves_per_spine),
        "one_pod_a_node": len(set(positions)) == len(positions),
        "rank_i_on_node_i": positions == sorted(positions),
        "leaf_changes_along_ranks": changes([node.leaf for _, node in along]),
    }


def changes(values: list[str]) -> int:
    """How often a value differs from the one before it."""
    return sum(a != b for a, b in pairwise(values))
