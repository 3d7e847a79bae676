"""A small slurmctld: what a job must be to be taken, where whole ranks go, when it ends.

Answers as slurmctld 26.05.5 did (error numbers, words, states); the contract tests hold it to that.
Placement is first fit in the nodes' order, for tests are not about Slurm's choice.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from typing import Any

ACCOUNTS = {"alice": ("ml", "vision"), "bob": ("ml",), "carol": ("vision",), "slurm": ()}
GROUPS = ("alice", "bob", "carol", "slurm", "users")
OPERATORS = ("slurm", "root")
QOS = ("normal", "high")
NO_NODE_EVER = 2014
TOO_LONG = 1024

WORDS = {
    22: "Invalid argument",
    1007: "Protocol authentication error",
    1800: "Unable to contact slurm controller (connect failure)",
    2000: "Invalid partition name specified",
    2002: "Access/permission denied",
    2010: "Invalid user id",
    2012: "Pathname of a file, directory or other parameter too long",
    2014: "Requested node configuration is not available",
    2017: "Invalid job id specified",
    2018: "Invalid node name specified",
    2021: "Job/step already completing or completed",
    2029: "Invalid feature specification",
    2038: "Job dependency problem",
    2045: "Invalid account or account/partition combination specified",
    2048: "Invalid license specification",
    2053: "Requested reservation is invalid",
    2066: "Invalid qos specification",
    2084: "Job has already finished",
    2164: "Unable to resolve group ID to group name",
    2166: "Unable to resolve user ID to user name",
    9202: "Unable to convert Data type",
}


class Refusal(Exception):
    """slurmctld's no, with its error number."""

    def __init__(self, code: int, description: str = "Batch job submission failed") -> None:
        super().__init__(code)
        self.code, self.description = code, description


@dataclass
class Node:
    name: str
    address: str
    cpus: int
    memory: int
    gpus: int
    gres: str
    features: tuple[str, ...]
    topology: str


@dataclass
class Share:
    node: str
    cpus: int
    memory: int
    gpus: int


@dataclass
class Job:
    id: int
    asked: dict[str, Any]
    state: str = "PENDING"
    reason: str = "None"
    submitted: int = 0
    started: int = 0
    ended: int = 0
    shares: list[Share] = field(default_factory=list)

    def number(self, key: str) -> int:
        value = self.asked.get(key) or {}
        return int(value["number"]) if value.get("set") else 0

    @property
    def alive(self) -> bool:
        return self.state in ("PENDING", "RUNNING")


class FakeSlurmctld:
    """State and rules. ``purge`` forgets ended jobs as MinJobAge does; accounting keeps them."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.jobs: dict[int, Job] = {}
        self.accounting: dict[int, Job] = {}
        self._next = 1
        self.booted = int(time.time())

    def submit(self, asked: dict[str, Any]) -> Job:
        """Queue a job, or ``Refusal``. One that no node can ever hold leaves a FAILED record."""
        self._check(asked)
        job = Job(self._next, asked, submitted=int(time.time()))
        self._next += 1
        self.jobs[job.id] = self.accounting[job.id] = job
        if not any(self._ranks(node, job, []) for node in self._eligible(job)):
            job.state, job.reason, job.ended = "FAILED", "BadConstraints", job.submitted
            raise Refusal(NO_NODE_EVER)
        return job

    def schedule(self) -> None:
        """Start what fits, in the order of submission."""
        for job in self.jobs.values():
            if job.state != "PENDING":
                continue
            if job.asked.get("hold"):
                job.reason = "JobHeldUser"
                continue
            job.shares = self._place(job)
            job.reason = "None" if job.shares else "Resources"
            if job.shares:
                job.state, job.started = "RUNNING", int(time.time())

    def end(self, job_id: int, state: str = "CANCELLED") -> None:
        job = self.find(job_id)
        if not job.alive:
            raise Refusal(2021)
        job.state, job.ended, job.reason = state, int(time.time()), "None"

    def update(self, job_id: int, changes: dict[str, Any]) -> None:
        job = self.find(job_id)
        if not job.alive:
            raise Refusal(2084, "Job update requested failed")
        job.asked |= changes

    def purge(self) -> None:
        self.jobs = {key: job for key, job in self.jobs.items() if job.alive}

    def find(self, job_id: int) -> Job:
        if job_id not in self.jobs:
            raise Refusal(2017)
        return self.jobs[job_id]

    def create(self, line: str) -> None:
        """One line of node configuration. A name that exists would be deleted: not faked."""
        given = dict(word.split("=", 1) for word in line.split())
        names, addresses = given["NodeName"].split(","), given["NodeAddr"].split(",")
        gres = given.get("Gres", "")
        if gres and not re.fullmatch(r"gpu:\d+", gres):
            raise Refusal(22, "Failure to create node")
        cpus = 1
        for key in ("Sockets", "CoresPerSocket", "ThreadsPerCore"):
            cpus *= int(given[key])
        for name, address in zip(names, addresses, strict=True):
            assert name not in self.nodes, f"creating {name} again would delete it"
            self.nodes[name] = Node(
                name,
                address,
                cpus,
                int(given["RealMemory"]),
                int(gres.removeprefix("gpu:") or 0),
                gres,
                tuple(filter(None, given.get("Feature", "").split(","))),
                given.get("Topology", ""),
            )

    # -- rules ------------------------------------------------------------------------------

    def _check(self, asked: dict[str, Any]) -> None:
        user, account = asked.get("user_id", ""), asked.get("account")
        if asked.get("group_id") not in GROUPS:
            raise Refusal(2164, f"Unable to resolve group: {asked.get('group_id')}")
        if user not in ACCOUNTS:
            raise Refusal(2166, f"Unable to resolve user: {user}")
        if not _readable_time(asked.get("begin_time", "now")):
            raise Refusal(9202, f"Parsing of {asked['begin_time']} for timestamp failed")
        for key in ("name", "comment"):
            if len(asked.get(key, "").encode()) > TOO_LONG:
                raise Refusal(2012)
        if asked.get("partition", "gpu") != "gpu":
            raise Refusal(2000)
        if account not in ACCOUNTS[user] and (account is not None or not ACCOUNTS[user]):
            raise Refusal(2045)
        if asked.get("qos", "normal") not in QOS:
            raise Refusal(2066)
        for key, code in (("reservation", 2053), ("licenses", 2048), ("dependency", 2038)):
            if asked.get(key):
                raise Refusal(code)
        known = {feature for node in self.nodes.values() for feature in node.features}
        if asked.get("constraints") and asked["constraints"] not in known:
            raise Refusal(2029)
        if any(name not in self.nodes for name in asked.get("excluded_nodes", ())):
            raise Refusal(2018)

    def _eligible(self, job: Job) -> list[Node]:
        wanted, barred = job.asked.get("constraints"), job.asked.get("excluded_nodes", ())
        return [
            node
            for node in self.nodes.values()
            if node.name not in barred and (not wanted or wanted in node.features)
        ]

    def _place(self, job: Job) -> list[Share]:
        running = [other for other in self.jobs.values() if other.state == "RUNNING"]
        left, shares = job.asked["tasks"], []
        for node in self._eligible(job):
            held = [s for other in running for s in other.shares if s.node == node.name]
            ranks = min(left, self._ranks(node, job, held))
            if ranks:
                shares.append(_share(node, job, ranks))
                left -= ranks
            if not left:
                return shares
        return []

    def _ranks(self, node: Node, job: Job, held: list[Share]) -> int:
        """How many whole ranks fit beside what others hold of the node."""
        exclusive = job.asked.get("shared") == ["none"]
        if held and exclusive:
            return 0
        cpus, memory, gpus = _rank(job)
        limits = [
            (node.cpus - sum(s.cpus for s in held)) // cpus,
            (node.memory - sum(s.memory for s in held)) // memory,
        ]
        if gpus:
            limits.append((node.gpus - sum(s.gpus for s in held)) // gpus)
        return max(0, min(limits))


def _rank(job: Job) -> tuple[int, int, int]:
    """CPUs, MiB and GPUs of one rank, as the description gives them."""
    cpus, gpus = int(job.asked["cpus_per_task"]), 0
    if per_task := job.asked.get("tres_per_task"):
        gpus = int(per_task.rpartition(":")[2])
        memory = gpus * int(job.asked["memory_per_tres"].rpartition(":")[2])
    else:
        memory = cpus * job.number("memory_per_cpu")
    return cpus, memory, gpus


def _share(node: Node, job: Job, ranks: int) -> Share:
    cpus, memory, gpus = _rank(job)
    if job.asked.get("shared") == ["none"]:
        parts = node.gpus // gpus if gpus else node.cpus // cpus
        return Share(node.name, node.cpus, parts * memory, node.gpus)
    return Share(node.name, ranks * cpus, ranks * memory, ranks * gpus)


def _readable_time(text: str) -> bool:
    return bool(re.match(r"now|\d", text))
