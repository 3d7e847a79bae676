"""What Kubernetes and Slurm say at one moment. Nothing here asks Sluice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ClusterShell.NodeSet import NodeSet

from tests.harness.fabric import LEAF_LABEL, SPINE_LABEL
from tests.harness.stack import Stack

GATE = "sluice.dev/slurm"
PLACED = "sluice.dev/Placed"
JOB_NAME = "batch.kubernetes.io/job-name"
INDEX = "batch.kubernetes.io/job-completion-index"
LIVE = ("Pending", "Running")  # phases of pods that have not ended
GIVEN = {"ALLOCATED", "MIXED", "COMPLETING"}  # states of Slurm nodes that some job has
Object = dict[str, Any]


@dataclass(frozen=True)
class Place:
    """A node and where it hangs, from its labels in Kubernetes."""

    node: str
    rack: str
    spine: str


@dataclass(frozen=True)
class Pod:
    """A pod of an Indexed Job. ``node`` is "" while it is not bound."""

    namespace: str
    job: str
    rank: int
    host: str  # the host name inside the pod: <job>-<rank>
    name: str
    node: str
    phase: str
    gated: bool
    told: str  # the message of Sluice's condition


@dataclass(frozen=True)
class SlurmJob:
    """A job as slurmctld shows it. ``started``: when it starts by Slurm's plan, while it waits."""

    id: int
    name: str
    state: str
    reason: str
    nodes: tuple[str, ...]
    submitted: int
    started: int

    @property
    def waits(self) -> bool:
        return self.state == "PENDING"

    @property
    def runs(self) -> bool:
        return self.state == "RUNNING"


@dataclass(frozen=True)
class Facts:
    """From Kubernetes ``places`` along the fabric, ``pods`` of Jobs, ``events`` as (Job, message);
    from Slurm ``jobs`` by name, ``switches`` above each node ("topo-tree:root:…"), ``allocated``
    nodes by its list of nodes."""

    places: tuple[Place, ...] = ()
    pods: tuple[Pod, ...] = ()
    events: frozenset[tuple[str, str]] = frozenset()
    jobs: Mapping[str, SlurmJob] = field(default_factory=dict)
    switches: Mapping[str, str] = field(default_factory=dict)
    allocated: frozenset[str] = frozenset()

    def gang(self, namespace: str, job: str) -> tuple[Pod, ...]:
        """The pods of a Job by rank, those that have ended left out."""
        ours = (p for p in self.pods if (p.namespace, p.job) == (namespace, job))
        return tuple(sorted((p for p in ours if p.phase in LIVE), key=lambda p: p.rank))

    def place(self, node: str) -> Place:
        found = (place for place in self.places if place.node == node)
        return next(found, Place(node or "-", "-", "-"))

    def places_of(self, namespace: str, job: str) -> list[Place]:
        """Where the pods are, by rank."""
        return [self.place(pod.node) for pod in self.gang(namespace, job)]

    def free(self) -> list[str]:
        """Nodes without a pod, along the fabric."""
        used = {pod.node for pod in self.pods if pod.phase in LIVE}
        return [place.node for place in self.places if place.node not in used]


def read(stack: Stack) -> Facts:
    """The facts now."""
    places = map(_place, stack.admin.items("/api/v1/nodes"))
    pods = stack.admin.items("/api/v1/pods", labelSelector=JOB_NAME)
    events = stack.admin.items("/api/v1/events", fieldSelector="involvedObject.kind=Job")
    jobs = sorted(map(_slurm_job, stack.slurm.jobs()), key=lambda job: job.id)
    nodes = stack.slurm.nodes()
    return Facts(
        places=tuple(sorted(places, key=lambda p: (p.spine, p.rack, p.node))),
        pods=tuple(map(_pod, pods)),
        events=frozenset((e["involvedObject"]["name"], e.get("message", "")) for e in events),
        jobs={job.name: job for job in jobs},
        switches={node["name"]: node["topology"] for node in nodes},
        allocated=frozenset(node["name"] for node in nodes if GIVEN & set(node["state"])),
    )


def _place(node: Object) -> Place:
    labels = node["metadata"]["labels"]
    return Place(node["metadata"]["name"], labels[LEAF_LABEL], labels[SPINE_LABEL])


def _pod(pod: Object) -> Pod:
    metadata, spec, status = pod["metadata"], pod["spec"], pod["status"]
    conditions = {c["type"]: c.get("message", "") for c in status.get("conditions", [])}
    return Pod(
        namespace=metadata["namespace"],
        job=metadata["labels"][JOB_NAME],
        rank=int(metadata["labels"].get(INDEX, 0)),
        host=spec.get("hostname", metadata["name"]),
        name=metadata["name"],
        node=spec.get("nodeName", ""),
        phase=status.get("phase", ""),
        gated=any(gate["name"] == GATE for gate in spec.get("schedulingGates", [])),
        told=conditions.get(PLACED, ""),
    )


def _slurm_job(job: Object) -> SlurmJob:
    return SlurmJob(
        id=job["job_id"],
        name=job["name"],
        state=job["job_state"][0],
        reason=job["state_reason"],
        nodes=tuple(NodeSet(job["nodes"] or "")),
        submitted=job["submit_time"]["number"],
        started=job["start_time"]["number"] if job["start_time"]["set"] else 0,
    )
