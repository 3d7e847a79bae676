"""The two books, what they are compared by, and what a comparison finds. Values only."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from extender.domain.model import Job, Namespace, Node, Pod, SlurmNode, Workload
from extender.domain.policy import Defaults
from extender.domain.wellknown import SCHEDULER


class Books(Struct, frozen=True, kw_only=True):
    """What both sides say, read at about the same time."""

    pods: tuple[Pod, ...] = ()  # of all schedulers; those that have ended may be left out
    workloads: tuple[Workload, ...] = ()
    namespaces: tuple[Namespace, ...] = ()
    nodes: tuple[Node, ...] = ()  # managed or not
    jobs: tuple[Job, ...] = ()  # of this cluster, and every other job that a pod names
    slurm_nodes: tuple[SlurmNode, ...] = ()
    at: float = 0.0  # when they were read


class Terms(Struct, frozen=True, kw_only=True):
    """What of the settings the two sides have to agree on."""

    cluster: str = "kubernetes"
    scheduler: str = SCHEDULER
    feature: str = "k8s"
    manage: bool = True  # Sluice creates the Slurm nodes
    taint: bool = True  # Sluice taints the managed nodes
    defaults: Defaults = Defaults()


class Kind(StrEnum):
    """What kind of disagreement it is; in this order they are told."""

    JOB_WITHOUT_PODS = "JobWithoutPods"
    TWO_JOBS = "TwoJobs"
    JOB_NOT_ENDED = "JobNotEnded"
    JOB_USER = "JobUser"
    JOB_STAMP = "JobStamp"
    POD_JOB_UNKNOWN = "PodJobUnknown"
    POD_JOB_ENDED = "PodJobEnded"
    POD_JOB_NOT_RUNNING = "PodJobNotRunning"
    POD_JOB_FOREIGN = "PodJobForeign"
    POD_ELSEWHERE = "PodElsewhere"
    POD_OUTSIDE_JOB = "PodOutsideJob"
    POD_NODE_GONE = "PodNodeGone"
    POD_UNGATED = "PodUngated"
    POD_ANSWERS = "PodAnswers"
    POD_BESIDE_SLURM = "PodBesideSlurm"
    SAME_RANK = "SameRank"
    SHARE_EXCEEDED = "ShareExceeded"
    GANG_SPLIT = "GangSplit"
    GANG_WAITS = "GangWaits"
    NODE_NOT_IN_SLURM = "NodeNotInSlurm"
    NODE_NOT_IN_KUBERNETES = "NodeNotInKubernetes"
    NODE_LARGER_IN_SLURM = "NodeLargerInSlurm"
    NODE_ADDRESS = "NodeAddress"
    NODE_OUT_OF_SERVICE = "NodeOutOfService"
    NODE_UNTAINTED = "NodeUntainted"
    NAMESPACE_USER = "NamespaceUser"


class Finding(Struct, frozen=True, kw_only=True):
    """One disagreement. What it is about stands in the fields that are not empty."""

    kind: Kind
    namespace: str = ""
    gang: str = ""
    pod: str = ""
    job: int | None = None
    node: str = ""
    message: str  # a sentence: what disagrees
    advice: str  # a sentence: what to do

    @property
    def identity(self) -> tuple[Kind, str, str, str, int, str]:
        """Equal for the same disagreement seen again."""
        return (self.kind, self.namespace, self.gang, self.pod, self.job or 0, self.node)

    @property
    def thing(self) -> str:
        """What it is about, the narrowest first: "pod ml/train-0, job 17"."""
        told = []
        if self.pod:
            told.append(f"pod {self.namespace}/{self.pod}")
        elif self.gang:
            told.append(f"gang {self.namespace}/{self.gang}")
        elif self.namespace:
            told.append(f"namespace {self.namespace}")
        if self.job is not None:
            told.append(f"job {self.job}")
        if self.node:
            told.append(f"node {self.node}")
        return ", ".join(told)


_ORDER = {kind: place for place, kind in enumerate(Kind)}


def in_order(findings: list[Finding]) -> tuple[Finding, ...]:
    """By kind, then by what they are about."""
    return tuple(sorted(findings, key=lambda f: (_ORDER[f.kind], f.identity[1:])))
