"""What Sluice answers: verdicts for kube-scheduler, views of gangs and pods for people.

Made by the control loops, put on the wire by the API, read again by the command line.
"""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

from msgspec import Struct


class VerdictKind(StrEnum):
    PASS = "pass"  # not Sluice's pod: leave all nodes as they are
    NODE = "node"  # Slurm chose this one node
    WAIT = "wait"  # no node yet
    RETRY = "retry"  # a node, but not at present: ask again soon, also when nothing changes


class Verdict(Struct, frozen=True):
    """Where a pod may go, by Slurm.

    ``message`` is one of a few constant strings: kube-scheduler writes it into the pod's
    PodScheduled condition, and a condition that changes wakes the pod up again.
    """

    kind: VerdictKind
    node: str = ""
    message: str = ""


PASS: Final = Verdict(VerdictKind.PASS)
WAITING: Final = "waits for Slurm to allocate its gang"


def moment(seconds: float) -> datetime | None:
    """Seconds since the epoch as UTC, whole milliseconds; 0 ("never", "unknown") as ``None``."""
    if not seconds:
        return None
    milliseconds = round(seconds * 1000)
    base = datetime.fromtimestamp(milliseconds // 1000, UTC)
    return base.replace(microsecond=milliseconds % 1000 * 1000)


class Step(Struct, frozen=True):
    """One thing that was decided or seen."""

    at: datetime
    what: str


class RankView(Struct, frozen=True, kw_only=True):
    """One rank of a gang. ``node`` and ``switch_path`` ("spine0/leaf3") are "" until allocated."""

    rank: int
    pod: str
    node: str = ""
    switch_path: str = ""
    phase: str = "Pending"

    @property
    def leaf(self) -> str:
        return self.switch_path.split("/")[-1]

    @property
    def spine(self) -> str:
        return "/".join(self.switch_path.split("/")[:-1])


class GangSummary(Struct, frozen=True, kw_only=True):
    """A gang in a list. ``reason`` is a sentence: why it waits, or why it is where it is."""

    namespace: str
    name: str
    kind: str  # of model.GangKind
    state: str
    size: int
    job_id: int | None = None  # Slurm's; None while nothing is submitted
    attempt: int = 1
    account: str = ""
    partition: str = ""
    qos: str = ""
    user: str = ""
    reason: str = ""
    estimated_start: datetime | None = None
    nodes: tuple[str, ...] = ()  # along the fabric


class GangView(GangSummary, frozen=True, kw_only=True):
    """A gang with its ranks, in order, and what was decided when, oldest first."""

    ranks: tuple[RankView, ...] = ()
    timeline: tuple[Step, ...] = ()


class PodView(Struct, frozen=True, kw_only=True):
    """A pod: ``why`` it is where it is, or is not, as one sentence."""

    namespace: str
    name: str
    why: str
    state: str
    gang: str = ""  # "" when the pod is not Sluice's
    node: str = ""
    rank: int | None = None
    job_id: int | None = None
    timeline: tuple[Step, ...] = ()


class PartStatus(Struct, frozen=True):
    """One part of the service: ready, or ``why`` not, and since when."""

    name: str
    ready: bool
    why: str = ""
    since: datetime | None = None
