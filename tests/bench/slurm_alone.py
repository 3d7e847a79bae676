"""Slurm's own share, without Sluice: submits a second, and how long an allocation takes."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

import msgspec

from extender.domain.model import GangKind, JobRequest, Stamp
from extender.slurm.requests import describe
from extender.slurm.wire import Submission
from tests.bench import bare
from tests.bench.arena import FABRIC, Arena, load
from tests.bench.budget import Budget
from tests.harness.progress import say
from tests.harness.slurm import REST_VERSION

CONNECTIONS = 8  # slurm.concurrency
PATIENCE_SECONDS = 60.0
LOOK_SECONDS = 0.02
ASKED = 100  # jobs a look
API = f"/slurm/{REST_VERSION}"


def measure(
    arena: Arena, sizes: Iterable[int], jobs: int, runs: int, budget: Budget
) -> dict[str, Any]:
    """Allocations of whole nodes by size, and many jobs of one GPU at once."""
    times: dict[int, list[float]] = {size: [] for size in sizes}
    many = []
    for run in budget.runs(runs, "Slurm alone"):
        for size, found in times.items():
            found.append(round(allocation(arena, size), 3))
        many.append(submits(arena, jobs))
        say(f"Slurm alone, run {run + 1}")
    allocations = [{"nodes": size, "seconds": found} for size, found in times.items()]
    return {"allocations": allocations, "submits": many, "load": load()}


def allocation(arena: Arena, nodes: int) -> float:
    """Seconds from a submit until slurmrestd shows the job as running, on an empty cluster."""
    arena.stack.slurm.cancel_all()
    started = time.time()
    answer = bare.burst(server(arena), [submit(arena, nodes, FABRIC.gpus_per_node)], 1).check()
    await_start(arena, [job_id(answer.answers[0])])
    return time.time() - started


def submits(arena: Arena, jobs: int) -> dict[str, Any]:
    """``jobs`` jobs of one GPU, submitted as fast as slurmrestd takes them."""
    arena.stack.slurm.cancel_all()
    requests = [submit(arena, 1, 1) for _ in range(jobs)]
    started = time.time()
    done = bare.burst(server(arena), requests, CONNECTIONS).check()
    await_start(arena, [job_id(answer) for answer in done.answers])
    took = time.time() - started
    arena.stack.slurm.cancel_all()
    return {
        "jobs": jobs,
        "submits_per_second": round(jobs / done.seconds, 1),
        "started_per_second": round(jobs / took, 1),
    }


def job_id(answer: bare.Answer) -> int:
    return int(json.loads(answer.body)["job_id"])


def await_start(arena: Arena, ids: list[int]) -> None:
    """Look every 20 ms until slurmctld has started all of these jobs."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    waiting = ids
    while time.monotonic() < deadline:
        asked = "&".join(f"job_id={i}" for i in waiting[:ASKED])
        found = arena.stack.slurm.get(f"jobs/state/?{asked}")["jobs"]
        running = {int(job["job_id"]) for job in found if "RUNNING" in job["state"]}
        waiting = [i for i in waiting if i not in running]
        if not waiting:
            return
        time.sleep(LOOK_SECONDS)
    raise RuntimeError(f"{len(waiting)} jobs did not start in {PATIENCE_SECONDS:.0f} s")


def submit(arena: Arena, ranks: int, gpus: int) -> bytes:
    """Sluice's submit for a gang of ``ranks`` pods with ``gpus`` GPUs each."""
    stamp = Stamp(
        sluice="bench", namespace="bench", gang="alone", kind=GangKind.JOB, id="0", size=ranks
    )
    request = JobRequest(
        name="alone",
        user="alice",
        account="ml",
        stamp=stamp,
        tasks=ranks,
        least_nodes=max(1, ranks * gpus // FABRIC.gpus_per_node),
        cpus_per_task=1,
        memory_mib_per_task=1024,
        gpus_per_task=gpus,
    )
    body = msgspec.json.encode(Submission(describe(request, "")))
    return bare.request("POST", f"{API}/job/submit", body, headers=authorization(arena))


def server(arena: Arena) -> bare.Server:
    url = urlsplit(arena.stack.slurm.rest_url)
    ping = bare.request("GET", f"{API}/ping/", headers=authorization(arena))
    return bare.Server(url.hostname or "", url.port or 80, None, ping)


def authorization(arena: Arena) -> str:
    return f"X-SLURM-USER-NAME: slurm\r\nX-SLURM-USER-TOKEN: {arena.stack.slurm.token()}\r\n"
