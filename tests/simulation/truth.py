"""What really is: the gangs, their pods and their Slurm jobs, as the models know them.

The judge reads this; the service under test never does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from extender.domain.gangs import rank_key
from extender.domain.model import GangKind, JobRequest, JobState, NodeShare, Pod, Stamp

if TYPE_CHECKING:
    from tests.simulation.replica import Replica


class PodTruth:
    """One pod of the API server, over its whole life."""

    __slots__ = (
        "disrupted",
        "ending",
        "gang",
        "gone",
        "granted",
        "granted_run",
        "left",
        "pod",
        "run",
    )

    def __init__(self, pod: Pod, gang: GangTruth) -> None:
        self.pod = pod
        self.gang = gang
        self.gone = False
        self.left = float("inf")  # when it began to be deleted, ended or went
        self.granted_run = 0  # which of the job's runs that was
        self.granted: JobTruth | None = None  # the job that it was released for
        self.disrupted = False
        self.ending = False  # its kubelet ends it
        self.run = 0  # of the kubelet; a later number makes earlier appointments void

    @property
    def alive(self) -> bool:
        """It holds its node, GPUs and cores, or may come to."""
        return not self.gone and not self.pod.terminal

    @property
    def rank(self) -> int:
        return rank_key(self.pod) or 0


class JobTruth:
    """One Slurm job, over its whole life."""

    __slots__ = (
        "acked",
        "acked_to",
        "by_sluice",
        "comment",
        "ended",
        "ended_ever",
        "fell_at",
        "gang",
        "held",
        "hold_until",
        "id",
        "known_gone",
        "listed",
        "nodes_ever",
        "orphan_since",
        "ran_since",
        "reason",
        "refused",
        "request",
        "requeued_run",
        "required",
        "restarts",
        "runs",
        "shares",
        "slots",
        "stamp",
        "started",
        "state",
        "submitted",
        "user",
        "vanished",
        "visible_since",
    )

    def __init__(
        self, job_id: int, stamp: Stamp | None, request: JobRequest | None, user: str, now: float
    ) -> None:
        self.id = job_id
        self.stamp = stamp
        self.request = request
        self.user = user
        self.state = JobState.PENDING
        self.reason = "None"
        self.comment = ""
        self.shares: tuple[NodeShare, ...] = ()
        self.slots: tuple[NodeShare, ...] = ()  # the shares of its last start
        self.submitted = now
        self.started = 0.0
        self.ended = 0.0
        self.held = False
        self.required: tuple[str, ...] = ()  # nodes that an update asked for
        self.refused = False  # at submit: only its record is left
        self.restarts = 0
        self.runs = 0  # how often it has started
        self.requeued_run = 0  # the last run that Slurm took back
        self.hold_until = 0.0
        self.gang: GangTruth | None = None
        self.acked = False
        self.acked_to: set[Replica] = set()
        self.known_gone: set[Replica] = set()  # who was told that it has ended or is unknown
        self.visible_since = now
        self.listed = True  # in slurmctld's memory
        self.vanished = False  # forgotten by a crash
        self.ended_ever = False
        self.by_sluice = False  # ended at Sluice's request
        self.nodes_ever: dict[str, NodeShare] = {}
        self.orphan_since: float | None = None
        self.ran_since = 0.0
        self.fell_at = 0.0

    @property
    def live(self) -> bool:
        return self.listed and not self.state.ended

    def __repr__(self) -> str:
        return f"job {self.id} ({self.state})"


class GangTruth:
    """Pods that belong together, and all Slurm jobs that were submitted for them."""

    __slots__ = ("attempt_pods", "extra", "id", "jobs", "kind", "name", "namespace", "pods", "size")

    def __init__(self, id: str, kind: GangKind, namespace: str, name: str, size: int) -> None:
        self.id = id
        self.kind = kind
        self.namespace = namespace
        self.name = name
        self.size = size
        self.pods: list[PodTruth] = []
        self.jobs: list[JobTruth] = []
        self.extra: dict[str, Any] = {}

    def living(self) -> list[PodTruth]:
        return [p for p in self.pods if p.alive]

    def succeeded(self) -> set[int]:
        return {p.rank for p in self.pods if p.pod.phase == "Succeeded"}

    def live_jobs(self) -> list[JobTruth]:
        return [j for j in self.jobs if j.live]
