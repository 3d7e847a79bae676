"""What waiting costs: thousands of pods in gangs that wait while every node is taken."""

from __future__ import annotations

import json
import time
from typing import Any

from tests.bench import bare
from tests.bench.arena import FABRIC, NAMESPACES, SLUICE, Arena, Usage, counter, load
from tests.bench.workloads import job
from tests.harness.progress import step

FILL_PATIENCE_SECONDS = 120.0
CREATE_PATIENCE_SECONDS = 120.0
BASELINE_SECONDS = 15.0
TELL_PATIENCE_SECONDS = 150.0
LOOK_SECONDS = 4.0  # longer than the service waits before it tells anything


def measure(arena: Arena, pods: int, gang: int, seconds: float) -> dict[str, Any]:
    """CPU in % of one core and calls a second: with the cluster full, while ``pods`` pods more, in
    gangs of ``gang`` pods of whole nodes, are told why they wait, and for ``seconds`` after that."""
    arena.empty()
    arena.watcher.clear()
    namespace = NAMESPACES[SLUICE]
    path = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    full = job("full", SLUICE, FABRIC.count, FABRIC.gpus_per_node)
    with step("filling the cluster"):
        arena.stack.admin.create(path, full)
        arena.watcher.wait_bound(namespace, FABRIC.count, FILL_PATIENCE_SECONDS)
        arena.wait_quiet()
    baseline = over(arena, BASELINE_SECONDS)
    with step(f"creating {pods} pods that wait"):
        requests = [
            bare.request(
                "POST",
                path,
                json.dumps(job(f"wait-{i}", SLUICE, gang, FABRIC.gpus_per_node)).encode(),
            )
            for i in range(pods // gang)
        ]
        bare.burst(arena.server(), requests, 4).check()
        total = FABRIC.count + len(requests) * gang
        if not arena.watcher.wait_created(namespace, total, CREATE_PATIENCE_SECONDS):
            raise RuntimeError(f"the pods that wait did not exist in {CREATE_PATIENCE_SECONDS} s")
    with step("waiting until every pod has been told why it waits"):
        telling = told(arena)
        arena.wait_quiet()
    with step(f"watching them wait for {seconds:.0f} s"):
        waiting = over(arena, seconds)
    bound = sum(bool(pod.bound) for pod in arena.watcher.pods(namespace))
    return {
        "pods": len(requests) * gang,
        "gangs": len(requests),
        "bound_of_the_waiting": bound - FABRIC.count,
        "rss_mib": {name: round(mib) for name, mib in arena.stack.rss_mib().items()},
        "full_cluster": percent(baseline),
        "telling": percent(telling),
        "waiting": percent(waiting),
        "load": load(),
    }


def over(arena: Arena, seconds: float) -> Usage:
    """What is used during that time."""
    before = arena.usage()
    time.sleep(seconds)
    return arena.usage().since(before)


def told(arena: Arena) -> Usage:
    """What is used until the service no longer writes conditions and Events."""
    before, deadline = arena.usage(), time.monotonic() + TELL_PATIENCE_SECONDS
    written, last = writes(arena), -1
    while written != last and time.monotonic() < deadline:
        time.sleep(LOOK_SECONDS)
        written, last = writes(arena), written
    return arena.usage().since(before)


def writes(arena: Arena) -> int:
    """The service's writes to the API server so far."""
    return sum(counter(arena.stack.sluice.base_url, "sluice_kube_writes_total", "what").values())


def percent(used: Usage) -> dict[str, Any]:
    """CPU in % of one core by process, calls to slurmrestd a second by name."""
    return {
        "seconds": used.at,
        "cpu_percent": {name: round(100 * v / used.at, 2) for name, v in used.cpu.items()},
        "cpu_percent_of_others": round(100 * used.others / used.at, 1),
        "slurmrestd_calls_a_second": {n: round(v / used.at, 2) for n, v in used.calls.items()},
    }
