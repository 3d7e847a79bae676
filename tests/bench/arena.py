"""Where the measurements take place: the real stack with its nodes, two namespaces, a watcher.

`sluice-bench` is opted in; `plain-bench` is not, and kube-scheduler places its pods alone.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from tests.bench.bare import Server
from tests.bench.watcher import Watcher
from tests.harness.fabric import Fabric, FabricNode
from tests.harness.process import TICKS_PER_SECOND
from tests.harness.progress import step
from tests.harness.stack import Stack

SLUICE, PLAIN = "sluice", "plain"
NAMESPACES = {SLUICE: "sluice-bench", PLAIN: "plain-bench"}
SCHEDULERS = (SLUICE, PLAIN)

QUIET_WINDOW_SECONDS = 0.5
QUIET_CORES = 0.2  # above what the idle cluster uses
IDLE_WINDOWS = 8
IDLE_SECONDS = 5.0
EMPTY_SECONDS = 30.0
WIPE_SECONDS = 180.0


@dataclass(frozen=True)
class Nodes(Fabric):
    """The first ``count`` nodes of a fabric: the last leaf may be part empty."""

    count: int = 1000

    def nodes(self) -> list[FabricNode]:
        return super().nodes()[: self.count]


FABRIC = Nodes(spines=8, leaves_per_spine=4, nodes_per_leaf=32, gpus_per_node=8)


@dataclass(frozen=True)
class Usage:
    """CPU seconds by process and calls to slurmrestd by name, since the start; or a difference.

    ``others``: CPU seconds of the whole machine, and so of whatever else runs on it.
    """

    at: float
    cpu: dict[str, float]
    calls: dict[str, int]
    others: float = 0.0

    def since(self, before: Usage) -> Usage:
        cpu = {name: round(v - before.cpu.get(name, 0.0), 2) for name, v in self.cpu.items()}
        calls = {
            name: more
            for name, v in self.calls.items()
            if (more := v - before.calls.get(name, 0)) > 0
        }
        others = round(max(0.0, self.others - before.others - sum(cpu.values())), 2)
        return Usage(round(self.at - before.at, 3), cpu, calls, others)

    def above(self, idle: dict[str, float]) -> dict[str, float]:
        """CPU seconds by process beyond what an idle cluster takes (``idle``: cores by process)."""
        return {name: v - idle.get(name, 0.0) * self.at for name, v in self.cpu.items()}

    def report(self) -> dict[str, Any]:
        """For the results: seconds of CPU by process, calls by name."""
        return {
            "seconds": self.at,
            "cpu_seconds": {name: v for name, v in self.cpu.items() if v >= 0.01},
            "cpu_seconds_of_others": self.others,
            "slurmrestd_calls": self.calls,
        }


class Arena:
    """The stack and what every measurement does with it."""

    def __init__(self, stack: Stack, patience_seconds: float = 10.0) -> None:
        self.stack = stack
        self.patience_seconds = patience_seconds
        self.place = {node.name: (i, node) for i, node in enumerate(stack.nodes)}
        self.idle: dict[str, float] = {}  # cores by process that the idle cluster uses
        self._idle_cores = 0.0
        for scheduler in SCHEDULERS:
            ours = scheduler == SLUICE
            stack.admin.namespace(
                NAMESPACES[scheduler],
                labels={"sluice.dev/managed": "true"} if ours else {},
                annotations={"sluice.dev/user": "alice", "sluice.dev/account": "ml"}
                if ours
                else {},
            )
        self.watcher = Watcher(stack.kubeconfig("admin"))

    @classmethod
    @contextmanager
    def open(cls, patience_seconds: float = 10.0) -> Iterator[Arena]:
        with Stack.start(FABRIC) as stack:
            arena = cls(stack, patience_seconds)
            try:
                yield arena
            finally:
                arena.watcher.close()

    def server(self, user: str = "admin") -> Server:
        return Server.of(self.stack.kubeconfig(user))

    def start_sluice(self) -> None:
        """Start the service and wait until Slurm has every node and each is tainted."""
        self.stack.sluice.start()

        def tainted() -> bool:
            nodes = self.stack.admin.items("/api/v1/nodes", labelSelector="sluice.dev/managed=true")
            return all(node["spec"].get("taints") for node in nodes)

        self.stack.admin.wait_for(tainted, 60, "the taints of managed nodes")
        self.learn_idle()

    # Between runs

    def empty(self) -> bool:
        """Remove all workloads and wait until the cluster is quiet; whether it became so."""
        with step("emptying"):
            for namespace in NAMESPACES.values():
                for collection in (f"/apis/batch/v1/namespaces/{namespace}/jobs",
                                   f"/api/v1/namespaces/{namespace}/pods"):  # fmt: skip
                    with suppress(httpx.TimeoutException):  # it goes on there; looked at below
                        self.stack.admin.delete(collection, grace_seconds=0)
            deadline = time.monotonic() + EMPTY_SECONDS
            while not self._is_empty() and time.monotonic() < deadline:
                time.sleep(0.2)
        if not self._is_empty():
            self.stack.wipe(timeout=WIPE_SECONDS)
        return self.wait_quiet()

    def _is_empty(self) -> bool:
        """No pod, and no Slurm job: the service ends those whose pods are gone."""
        for namespace in NAMESPACES.values():
            if self.stack.admin.items(f"/api/v1/namespaces/{namespace}/pods", limit="1"):
                return False
        return not self.stack.slurm.queued()

    def wait_quiet(self) -> bool:
        """Wait until the machine is little busier than with an idle cluster; whether it became so."""
        deadline = time.monotonic() + self.patience_seconds
        while time.monotonic() < deadline:
            if self._cores() <= self._idle_cores + QUIET_CORES:
                return True
        return False

    def learn_idle(self) -> None:
        """Note what the idle cluster uses: wait until it no longer gets less, then look."""
        with step("waiting for the cluster to be idle") as running:
            lowest, since = self._cores(), 0
            while since < IDLE_WINDOWS:
                cores = self._cores()
                since = 0 if cores < 0.9 * lowest else since + 1
                lowest = min(lowest, cores)
                running.note = f"{cores:.2f} cores"
            before = self.usage()
            time.sleep(IDLE_SECONDS)
            used = self.usage().since(before)
        self._idle_cores = lowest
        self.idle = {name: v / used.at for name, v in used.cpu.items()}

    def _cores(self) -> float:
        """What the whole machine used in a short while."""
        before, started = machine_cpu_seconds(), time.monotonic()
        time.sleep(QUIET_WINDOW_SECONDS)
        return (machine_cpu_seconds() - before) / (time.monotonic() - started)

    # Readings

    def usage(self) -> Usage:
        """What was used so far."""
        cpu = self.stack.cpu_seconds() | {"watcher": self.watcher.cpu_seconds()}
        return Usage(time.time(), cpu, self.slurm_calls(), machine_cpu_seconds())

    def slurm_calls(self) -> dict[str, int]:
        """The service's calls to slurmrestd so far; nothing while it does not run."""
        if not self.stack.sluice.alive:
            return {}
        return counter(self.stack.sluice.base_url, "sluice_slurm_calls_total", "call")

    def timeline(self, name: str) -> list[tuple[float, str]]:
        """What the service says it did about a gang: seconds since the epoch, and a sentence."""
        url = f"{self.stack.sluice.base_url}/v1/gangs/{NAMESPACES[SLUICE]}/{name}"
        answer = httpx.get(url, timeout=10)
        answer.raise_for_status()
        return [(seconds(step["at"]), step["what"]) for step in answer.json()["timeline"]]


def counter(base_url: str, name: str, label: str) -> dict[str, int]:
    """A counter of the service by one of its labels ("": none), the other labels added up."""
    text = httpx.get(f"{base_url}/metrics", timeout=10).text
    found: Counter[str] = Counter()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == name:
                found[sample.labels.get(label, "")] += int(sample.value)
    return dict(found)


def machine_cpu_seconds() -> float:
    """CPU time of the whole machine so far, idle and waiting times left out (proc_stat(5))."""
    fields = Path("/proc/stat").read_text().splitlines()[0].split()[1:9]
    user, nice, system, _idle, _wait, irq, softirq, _steal = map(int, fields)
    return (user + nice + system + irq + softirq) / TICKS_PER_SECOND


def load() -> float:
    """The machine's one-minute load average."""
    return round(os.getloadavg()[0], 2)


def seconds(text: str) -> float:
    """An RFC 3339 time as seconds since the epoch."""
    return datetime.fromisoformat(text).timestamp()
