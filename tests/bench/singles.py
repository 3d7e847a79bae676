"""Many Jobs of one pod with one GPU, created at once: pods bound a second."""

from __future__ import annotations

import json
import time
from typing import Any

from tests.bench import bare
from tests.bench.arena import NAMESPACES, SCHEDULERS, Arena, load
from tests.bench.budget import Budget
from tests.bench.workloads import job
from tests.harness.progress import say

CONNECTIONS = 16
PATIENCE_SECONDS = 180.0


def measure(arena: Arena, count: int, runs: int, budget: Budget) -> list[dict[str, Any]]:
    """Every run, the two schedulers in turn."""
    results = []
    for run in budget.runs(runs, f"{count} single pods"):
        for scheduler in SCHEDULERS if run % 2 else reversed(SCHEDULERS):
            result = one(arena, scheduler, count, run)
            results.append(result)
            say(
                f"{count} single pods, run {run + 1}, {scheduler:<6} "
                f"{result['pods_per_second']:6.1f} pods/s"
            )
    return results


def one(arena: Arena, scheduler: str, count: int, run: int) -> dict[str, Any]:
    """All Jobs at once on the empty cluster."""
    quiet = arena.empty()
    arena.watcher.clear()
    namespace = NAMESPACES[scheduler]
    path = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    requests = [
        bare.request("POST", path, json.dumps(job(f"one-{i}", scheduler, 1, 1)).encode())
        for i in range(count)
    ]
    before = arena.usage()
    started = time.time()
    posted = bare.burst(arena.server(), requests, CONNECTIONS).check()
    arena.watcher.wait_bound(namespace, count, PATIENCE_SECONDS)
    used = arena.usage().since(before)
    pods = [pod for pod in arena.watcher.pods(namespace) if pod.bound]
    took = max((pod.bound for pod in pods), default=started) - started
    return {
        "scheduler": scheduler,
        "run": run,
        "jobs": count,
        "bound": len(pods),
        "total": round(took, 3),
        "jobs_posted": round(posted.seconds, 3),
        "pods_created": round(max(pod.created for pod in pods) - started, 3),
        "pods_per_second": round(len(pods) / took, 1) if took else 0.0,
        "quiet": quiet,
        "load": load(),
    } | used.report()
