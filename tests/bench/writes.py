"""The API server's own share, without Sluice: what creating, releasing and binding pods costs it.

The Job controller creates the pods; a bare client then sends exactly the bodies that Sluice sends,
as many at a time as Sluice does. No scheduler runs meanwhile that would take the pods.
"""

from __future__ import annotations

import time
from typing import Any

import msgspec

from extender.domain.model import Pod
from extender.kube import objects, patches
from tests.bench import bare
from tests.bench.arena import FABRIC, NAMESPACES, PLAIN, SLUICE, Arena, load
from tests.bench.budget import Budget
from tests.bench.workloads import job
from tests.harness.progress import say

CONNECTIONS = 32  # kubernetes.patch_concurrency and bind_concurrency
PATIENCE_SECONDS = 60.0
STRATEGIC = "application/strategic-merge-patch+json"


def measure(arena: Arena, pods: int, runs: int, budget: Budget) -> list[dict[str, Any]]:
    """Pods created with and without the admission policies, then released, then bound."""
    schedulers = [
        arena.stack.control.children[f"{name}-scheduler"] for name in ("sluice", "default")
    ]
    for scheduler in schedulers:
        scheduler.stop()
    try:
        results = []
        for run in budget.runs(runs, "writes"):
            results += [created(arena, PLAIN, pods), *released_and_bound(arena, pods)]
            say(f"writes of the API server for {pods} pods, run {run + 1}")
        return results
    finally:
        for scheduler in schedulers:
            scheduler.start()


def created(arena: Arena, where: str, pods: int) -> dict[str, Any]:
    """A Job's pods created by the Job controller in one of the namespaces."""
    arena.empty()
    arena.watcher.clear()
    namespace = NAMESPACES[where]
    before = arena.usage()
    started = time.time()
    manifest = job("writes", where, pods, FABRIC.gpus_per_node)
    arena.stack.admin.create(f"/apis/batch/v1/namespaces/{namespace}/jobs", manifest)
    arena.watcher.wait_created(namespace, pods, PATIENCE_SECONDS)
    used = arena.usage().since(before)
    took = max(pod.created for pod in arena.watcher.pods(namespace)) - started
    what = "create, not opted in" if where == PLAIN else "create, opted in"
    return row(what, pods, took, used.above(arena.idle))


def released_and_bound(arena: Arena, pods: int) -> list[dict[str, Any]]:
    """The same, opted in; then all are released, then all are bound."""
    rows = [created(arena, SLUICE, pods)]
    made = gated(arena)
    for what, request in (("release (PATCH)", release), ("bind", binding)):
        arena.wait_quiet()
        rows.append(sent(arena, what, [request(pod, i) for i, pod in enumerate(made)]))
    return rows


def gated(arena: Arena) -> list[Pod]:
    """The pods of the opted-in namespace as Sluice sees them."""
    found = arena.stack.admin.pods(NAMESPACES[SLUICE])
    return [objects.pod(msgspec.convert(pod, objects.PodObject)) for pod in found]


def release(pod: Pod, rank: int) -> bytes:
    """Sluice's PATCH for one pod of a gang of whole nodes."""
    nodes = FABRIC.nodes()
    patch = patches.release(
        pod,
        gang_id=pod.owner.uid if pod.owner else "",
        job_id=1,
        node=nodes[rank].name,
        rank=rank,
        ranks=len(nodes),
        nodelist=f"node-[0000-{len(nodes) - 1:04d}]",
        node_count=len(nodes),
    )
    path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
    return bare.request("PATCH", path, msgspec.json.encode(patch), STRATEGIC)


def binding(pod: Pod, _rank: int) -> bytes:
    """Sluice's binding, to a node that does not exist, so that no kubelet joins in."""
    body = msgspec.json.encode(patches.binding(pod.namespace, pod.name, pod.uid, "nowhere"))
    path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/binding"
    return bare.request("POST", path, body)


def sent(arena: Arena, what: str, requests: list[bytes]) -> dict[str, Any]:
    """All requests, as Sluice's own user."""
    before = arena.usage()
    done = bare.burst(arena.server("sluice"), requests, CONNECTIONS).check()
    used = arena.usage().since(before)
    result = row(what, len(requests), done.seconds, used.above(arena.idle))
    return result | {"median_milliseconds": done.median_milliseconds}


def row(what: str, pods: int, took: float, cpu: dict[str, float]) -> dict[str, Any]:
    """Seconds for all; milliseconds of CPU for each pod beyond what an idle cluster uses."""
    return {
        "what": what,
        "pods": pods,
        "seconds": round(took, 3),
        "apiserver_cpu_ms_a_pod": round(1000 * cpu["kube-apiserver"] / pods, 2),
        "etcd_cpu_ms_a_pod": round(1000 * cpu["etcd"] / pods, 2),
        "load": load(),
    }
