"""What waiting costs: thousands of pods in gangs that wait while every node is taken."""

from __future__ import annotations

import json
import time
from typing import Any

from extender.domain import wellknown as names
from tests.bench import bare
from tests.bench.arena import FABRIC, NAMESPACES, SLUICE, Arena, Usage, counter, load
from tests.bench.workloads import job
from tests.harness.progress import step

FILL_PATIENCE_SECONDS = 120.0
CREATE_PATIENCE_SECONDS = 120.0
BASELINE_SECONDS = 15.0
TELL_PATIENCE_SECONDS = 150.0
LOOK_SECONDS = 4.0  # longer than the service waits before it tells anything


def measure(
    arena: Arena, pods: int, gang: int, seconds: float, running: int = FABRIC.count
) -> dict[str, Any]:
    """CPU in % of one core and calls a second: with the cluster full of ``running`` pods, while
    ``pods`` pods more, in gangs of ``gang`` pods of whole nodes, are told why they wait, and for
    ``seconds`` after that. At the end all gangs are looked at at once."""
    arena.empty()
    arena.watcher.clear()
    namespace = NAMESPACES[SLUICE]
    path = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    full = job("full", SLUICE, running, FABRIC.count * FABRIC.gpus_per_node // running)
    with step(f"filling the cluster with {running} pods"):
        arena.stack.admin.create(path, full)
        arena.watcher.wait_bound(namespace, running, FILL_PATIENCE_SECONDS)
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
        total = running + len(requests) * gang
        patience = max(CREATE_PATIENCE_SECONDS, total / 20)
        if not arena.watcher.wait_created(namespace, total, patience):
            raise RuntimeError(f"the pods that wait did not exist in {patience:.0f} s")
    with step("waiting until every pod has been told why it waits"):
        telling = told(arena)
        arena.wait_quiet()
    with step(f"watching them wait for {seconds:.0f} s"):
        waiting = over(arena, seconds)
    turn = slowest_turn(arena)
    bound = sum(bool(pod.bound) for pod in arena.watcher.pods(namespace))
    return {
        "pods": len(requests) * gang,
        "gangs": len(requests),
        "running": running,
        "bound_of_the_waiting": bound - running,
        "slowest_turn_seconds": turn,
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


def slowest_turn(arena: Arena) -> float:
    """The longest time from a gang touched to it decided about, while an annotation of the
    namespace has all gangs looked at again; in seconds, the upper bound of its bucket."""
    before = delays(arena)
    path = f"/api/v1/namespaces/{NAMESPACES[SLUICE]}"
    changed = {"metadata": {"annotations": {names.COMMENT: str(time.time())}}}
    arena.stack.admin.patch(path, changed)
    time.sleep(LOOK_SECONDS)
    grown = {le: count - before[le] for le, count in delays(arena).items()}
    most = max(grown.values())
    return min(le for le, count in grown.items() if count == most)


def delays(arena: Arena) -> dict[float, float]:
    """The service's histogram of delays: at most so many seconds -> how many turns."""
    counted = counter(arena.stack.sluice.base_url, "sluice_gang_delay_seconds_bucket", "le")
    return {float(le): count for le, count in counted.items()}


def percent(used: Usage) -> dict[str, Any]:
    """CPU in % of one core by process, calls to slurmrestd a second by name."""
    return {
        "seconds": used.at,
        "cpu_percent": {name: round(100 * v / used.at, 2) for name, v in used.cpu.items()},
        "cpu_percent_of_others": round(100 * used.others / used.at, 1),
        "slurmrestd_calls_a_second": {n: round(v / used.at, 2) for n, v in used.calls.items()},
    }
