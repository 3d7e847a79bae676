"""What a test does to the cluster and what it sees: Kubernetes' and Slurm's own answers.

Nothing here asks Sluice, except ``ask``, which is for the tests of its HTTP API.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pprint import pformat
from typing import Any, TypeVar

import httpx
from ClusterShell.NodeSet import NodeSet

from extender.doctor import Unreadable, as_text, examine
from extender.domain import wellknown as names
from extender.domain.gangs import natural
from extender.kube.patches import timestamp
from extender.settings import load
from tests.e2e.tap import Tap
from tests.e2e.watching import Watch
from tests.harness.kube import Object
from tests.harness.slurm import REST_VERSION, USERS
from tests.harness.stack import Stack

T = TypeVar("T")

ML, VISION, PLAIN = "ml", "vision", "plain"
"""Namespaces: alice's with account ml, carol's with account vision, and one that did not opt in."""


def eventually(look: Callable[[], T], holds: Callable[[T], Any], seconds: float, what: str) -> T:
    """What ``look`` returns as soon as that ``holds``; it fails with the last thing seen."""
    deadline = time.monotonic() + seconds
    while True:
        seen = look()
        if holds(seen):
            return seen
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {seconds:g} s; last seen:\n{pformat(seen)}")
        time.sleep(0.05)


def steadily(look: Callable[[], T], holds: Callable[[T], Any], seconds: float, what: str) -> T:
    """``look`` again and again: it has to hold every time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        seen = look()
        assert holds(seen), f"{what}: no longer true; seen:\n{pformat(seen)}"
        time.sleep(0.1)
    return seen


class Site:
    """One test's view of the stack: Slurm jobs and calls from before it are not shown.

    ``settings`` are those that Sluice runs with.
    """

    def __init__(self, stack: Stack, tap: Tap) -> None:
        self.stack, self.kube, self.slurm, self.tap = stack, stack.admin, stack.slurm, tap
        self.order = [node.name for node in stack.nodes]
        self.settings = {"slurm": {"url": tap.url}}
        tap.forget()
        self._names: dict[int, str] = {}  # of Slurm's jobs
        self._first = 0
        self._first = 1 + max(self._states(), default=0)

    # -- Kubernetes

    def submit(self, namespace: str, *workloads: Object) -> None:
        """Create Jobs and pods."""
        for workload in workloads:
            self.kube.create(_collection(workload["kind"], namespace), workload)

    def delete(self, namespace: str, kind: str, name: str, grace: int | None = None) -> None:
        self.kube.delete(f"{_collection(kind, namespace)}/{name}", grace_seconds=grace)

    def pods(self, namespace: str = ML, prefix: str = "") -> list[Object]:
        """In the order of their completion index or name."""
        found = [p for p in self.kube.pods(namespace) if p["metadata"]["name"].startswith(prefix)]
        return sorted(found, key=lambda p: (_index(p), natural(p["metadata"]["name"])))

    def pod(self, name: str, namespace: str = ML) -> Object:
        found: Object = self.kube.get(f"/api/v1/namespaces/{namespace}/pods/{name}")
        return found

    def bound(
        self, count: int, namespace: str = ML, prefix: str = "", seconds: float = 20
    ) -> list[Object]:
        """Wait until exactly that many pods are bound, of exactly that many."""
        eventually(
            lambda: {p["metadata"]["name"]: told(p) for p in self.pods(namespace, prefix)},
            lambda seen: len(seen) == count and all(t.startswith("on ") for t in seen.values()),
            seconds,
            f"{count} pods bound in {namespace}",
        )
        return self.pods(namespace, prefix)

    def gated(self, count: int, namespace: str = ML, prefix: str = "") -> list[Object]:
        """Wait until that many pods are there; all of them wait behind the gate."""
        eventually(
            lambda: [told(p) for p in self.pods(namespace, prefix)],
            lambda seen: len(seen) == count and set(seen) == {"gated"},
            10,
            f"{count} gated pods in {namespace}",
        )
        return self.pods(namespace, prefix)

    def finish(self, name: str, namespace: str = ML, exit_code: int = 0) -> None:
        """A pod ends by itself, as the kubelet would report it."""
        ended = {
            "exitCode": exit_code,
            "reason": "Completed" if not exit_code else "Error",
            "finishedAt": timestamp(time.time()),
        }
        status = {
            "phase": "Failed" if exit_code else "Succeeded",
            "containerStatuses": [
                {
                    "name": "main", "image": "none", "imageID": "none", "restartCount": 0,
                    "ready": False, "state": {"terminated": ended},
                }
            ],
        }  # fmt: skip
        path = f"/api/v1/namespaces/{namespace}/pods/{name}/status"
        self.kube.patch(path, {"status": status})

    def gone(self, uids: set[str], namespace: str = ML, seconds: float = 10) -> None:
        """Wait until none of these pods is there."""
        eventually(
            lambda: uids & {p["metadata"]["uid"] for p in self.pods(namespace)},
            lambda left: not left,
            seconds,
            "the pods to go",
        )

    def events(self, namespace: str = ML, about: str = "") -> list[tuple[str, str]]:
        """Sluice's Events as (reason, message)."""
        return [
            (event["reason"], event["message"])
            for event in self.kube.items(f"/api/v1/namespaces/{namespace}/events")
            if event.get("source", {}).get("component") == "sluice"
            and about in ("", event["involvedObject"]["name"])
        ]

    def watch(self, namespace: str = ML) -> Watch:
        return Watch(self.stack.kubeconfig("admin"), namespace)

    # -- Slurm

    def jobs(self, name: str = "") -> list[Object]:
        """Slurm's jobs of this test, those that ended too, oldest first."""
        found = (self.slurm.job(job_id) for job_id in sorted(self._states()))
        return [job for job in found if job and name in ("", job["name"])]

    def states(self, name: str = "") -> list[str]:
        """Their states, by a lighter call."""
        return [s for i, s in sorted(self._states().items()) if name in ("", self._name(i))]

    def _states(self) -> dict[int, str]:
        listed = self.slurm.get("jobs/state/")["jobs"]
        found = {int(job["job_id"]): str(job["state"][0]) for job in listed}
        return {job_id: state for job_id, state in found.items() if job_id >= self._first}

    def _name(self, job_id: int) -> str:
        if job_id not in self._names:
            job = self.slurm.job(job_id)
            self._names[job_id] = job["name"] if job else ""
        return self._names[job_id]

    def job(self, name: str, wanted: str, seconds: float = 15) -> Object:
        """The one Slurm job of that name, as soon as it is in the state."""
        eventually(
            lambda: self.states(name), lambda s: s == [wanted], seconds, f"Slurm job {name!r}"
        )
        return self.jobs(name)[0]

    def ended(self, name: str, seconds: float = 15) -> list[Object]:
        """All Slurm jobs of that name, as soon as every one has ended."""
        eventually(
            lambda: self.states(name),
            lambda states: states and not {"PENDING", "RUNNING"} & set(states),
            seconds,
            f"the end of Slurm job {name!r}",
        )
        return self.jobs(name)

    def fill(self, count: int = 16, name: str = "filler", user: str = "bob") -> int:
        """A Slurm job beside Sluice's, of whole nodes; its id, as soon as it runs."""
        job_id = self.queue(count, name, user)
        self.job(name, "RUNNING")
        return job_id

    def queue(self, count: int, name: str, user: str = "bob") -> int:
        """The same, whether it runs or waits."""
        body = {
            "job": {
                "name": name, "account": "ml", "flags": ["EXTERNAL_JOB"], "minimum_nodes": count,
                "maximum_nodes": count, "shared": ["none"], "current_working_directory": "/",
                "user_id": str(USERS[user]), "group_id": str(USERS[user]),
            }
        }  # fmt: skip
        answer = self.slurm.rest("POST", f"/slurm/{REST_VERSION}/job/submit", body=body).json()
        assert not answer["errors"], answer["errors"]
        job_id = int(answer["job_id"])
        self._names[job_id] = name  # which Slurm may have given before, and forgotten
        return job_id

    def cancel(self, job_id: int) -> None:
        """scancel, and let slurmctld look at its queue at once. By itself it does not when an
        external job ends; backfill would, every five seconds."""
        self.slurm.shell(f"scancel {job_id} && scontrol update partitionname=gpu state=up")

    def idle(self, seconds: float = 10) -> None:
        """Wait until Slurm says that all nodes are free."""
        eventually(
            lambda: {node["name"]: node["state"] for node in self.slurm.nodes()},
            lambda nodes: not any({"ALLOCATED", "MIXED"} & set(s) for s in nodes.values()),
            seconds,
            "all nodes free",
        )

    def quiet(self) -> None:
        """Wait until Sluice has nothing more to ask Slurm about the tests before; count anew."""

        def nothing_asked() -> list[str]:
            self.tap.forget()
            time.sleep(1.2)  # the slow poll is one a second
            return [call.path for call in self.tap.calls()]

        eventually(nothing_asked, lambda asked: not asked, 15, "Sluice to leave Slurm alone")

    # -- both

    def disagreements(self) -> list[str]:
        """What Kubernetes' and Slurm's books disagree in now, or which cannot be read, as ``sluice
        doctor`` tells it. It reads with the running Sluice's settings, past the tap."""
        settings = load(self.stack.sluice.config_file)
        direct = settings.slurm.model_copy(update={"url": self.slurm.rest_url})
        try:
            report = asyncio.run(examine(settings.model_copy(update={"slurm": direct}), 0))
        except Unreadable as error:
            return [str(error)]
        return as_text(report).splitlines()[:-1] if report.findings else []

    def books_agree(self, seconds: float = 10) -> None:
        """Wait until Kubernetes' and Slurm's books agree; it fails with what they disagree in."""
        eventually(
            self.disagreements, lambda found: not found, seconds, "Kubernetes' and Slurm's books"
        )

    # -- the end of a test

    def wipe(self) -> None:
        """No Job, no pod and no living Slurm job is left."""
        eventually(self._left, lambda left: not left, 60, "everything to be gone")

    def _left(self) -> list[str]:
        """What is left; it is told to go."""
        owned = [*self.kube.items("/apis/batch/v1/jobs"), *self.kube.pods()]
        for namespace in {o["metadata"]["namespace"] for o in owned}:
            for kind in ("Job", "Pod"):
                self.kube.delete(_collection(kind, namespace), grace_seconds=0)
        alive = [i for i, state in self._states().items() if state in ("PENDING", "RUNNING")]
        for job_id in alive:
            self.slurm.rest("DELETE", f"/slurm/{REST_VERSION}/job/{job_id}")
        return [o["metadata"]["name"] for o in owned] + [f"Slurm job {i}" for i in alive]

    # -- Sluice's own API, and its process

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Sluice stands still; what happens meanwhile it sees all at once."""
        pid = self.stack.sluice.child.pid
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    def ask(self, path: str) -> httpx.Response:
        return httpx.get(f"{self.stack.sluice.base_url}{path}", timeout=30)

    def post(self, path: str, body: Object) -> httpx.Response:
        return httpx.post(f"{self.stack.sluice.base_url}{path}", json=body, timeout=30)

    def count(self, metric: str) -> float:
        """A sample of /metrics by its full name with labels; 0 when it is not there yet."""
        for line in self.ask("/metrics").text.splitlines():
            if line.startswith(f"{metric} "):
                return float(line.rpartition(" ")[2])
        return 0.0

    def filter_calls(self) -> float:
        return self.count('sluice_extender_seconds_count{verb="filter"}')


@contextmanager
def site_of(stack: Stack, tap: Tap) -> Iterator[Site]:
    """Sluice runs and nothing else does, before and after."""
    for namespace in (ML, VISION, PLAIN):
        stack.admin.delete(f"/api/v1/namespaces/{namespace}/events")
    site = Site(stack, tap)
    if not stack.sluice.alive:
        stack.sluice.start(site.settings)
    try:
        yield site
    finally:
        site.wipe()


def told(pod: Object) -> str:
    """gated, unbound, or "on <node>"."""
    if pod["spec"].get("nodeName"):
        return f"on {pod['spec']['nodeName']}"
    return "gated" if pod["spec"].get("schedulingGates") else "unbound"


def node_of(pod: Object) -> str:
    return str(pod["spec"]["nodeName"])


def answers(pod: Object) -> dict[str, str]:
    """Sluice's annotations, without their prefix."""
    found = pod["metadata"].get("annotations", {})
    return {k.removeprefix(names.PREFIX): v for k, v in found.items() if k in names.ANSWERS}


def uids(pods: list[Object]) -> set[str]:
    return {pod["metadata"]["uid"] for pod in pods}


def condition(pod: Object) -> tuple[str, str, str]:
    """Sluice's condition as (status, reason, message); empty texts while there is none."""
    for found in pod["status"].get("conditions", []):
        if found["type"] == names.CONDITION:
            return found["status"], found.get("reason", ""), found.get("message", "")
    return "", "", ""


def state(job: Object) -> str:
    """Slurm's base state of a job."""
    return str(job["job_state"][0])


def nodes_of(job: Object) -> list[str]:
    return list(NodeSet(job["nodes"] or ""))


def number(value: Object) -> int | None:
    """Slurm's {set, infinite, number}; None when it is unset or infinite."""
    return int(value["number"]) if value["set"] and not value["infinite"] else None


def _collection(kind: str, namespace: str) -> str:
    if kind == "Job":
        return f"/apis/batch/v1/namespaces/{namespace}/jobs"
    return f"/api/v1/namespaces/{namespace}/{kind.lower()}s"


def _index(pod: Object) -> int:
    return int(pod["metadata"].get("annotations", {}).get(names.COMPLETION_INDEX, 0))
