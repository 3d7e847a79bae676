"""The values that decisions are made from. Frozen, without behaviour beyond small readings.

Units: CPU in thousandths of a core, memory in bytes (MiB where a name says so), times in seconds
since the epoch.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from msgspec import Struct

from extender.domain.wellknown import GATE


class Resources(Struct, frozen=True, order=True):
    """What one pod asks for: the sum over its containers, init containers as Kubernetes counts."""

    cpu_milli: int = 0
    memory_bytes: int = 0
    gpus: int = 0


class Owner(Struct, frozen=True):
    """The controlling owner of a pod."""

    kind: str
    name: str
    uid: str


class Pod(Struct, frozen=True, kw_only=True):
    """A pod as the decisions see it."""

    namespace: str
    name: str
    uid: str
    version: str = ""  # resourceVersion
    created: float = 0.0
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner: Owner | None = None
    scheduler: str = ""
    gates: tuple[str, ...] = ()  # spec.schedulingGates by name
    node: str = ""  # spec.nodeName: bound when not empty
    phase: str = "Pending"
    deleting: bool = False
    grace_seconds: int = 30  # spec.terminationGracePeriodSeconds
    gone_by: float = 0.0  # of a pod that is being deleted: when its grace is over
    exit_code: int | None = None  # of its first container that ended with something but 0
    failed_at: float = 0.0  # when that container ended
    resources: Resources = Resources()
    node_selector: dict[str, str] = {}
    # requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms, as Kubernetes writes them
    node_affinity_terms: tuple[dict[str, Any], ...] = ()
    tolerations: tuple[dict[str, Any], ...] = ()
    # the message of PodScheduled=False, kube-scheduler's own words
    scheduler_message: str = ""

    @property
    def gated(self) -> bool:
        """Our gate is on it."""
        return GATE in self.gates

    @property
    def terminal(self) -> bool:
        """Its containers have ended for good: it holds no node, GPU or core any more."""
        return self.phase in ("Succeeded", "Failed")


class Workload(Struct, frozen=True, kw_only=True):
    """A batch/v1 Job."""

    namespace: str
    name: str
    uid: str
    completions: int | None = None
    parallelism: int = 1
    indexed: bool = False
    suspended: bool = False
    finished: bool = False
    deleting: bool = False
    active_deadline_seconds: int | None = None
    completed: frozenset[int] = frozenset()  # indexes that have succeeded, their pods may be gone


class Namespace(Struct, frozen=True):
    name: str
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class Node(Struct, frozen=True, kw_only=True):
    """A Kubernetes node."""

    name: str
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    address: str = ""
    ready: bool = True
    unschedulable: bool = False
    taints: tuple[dict[str, Any], ...] = ()
    cpu_milli: int = 0  # allocatable, like the next two
    memory_bytes: int = 0
    gpus: int = 0


class GangKind(StrEnum):
    JOB = "Job"  # an Indexed Job with parallelism = completions
    PODS = "Pods"  # pods that name a gang and its size
    POD = "Pod"  # a lone pod


class Gang(Struct, frozen=True, kw_only=True):
    """Pods that start together or not at all.

    ``id`` is the identity: the owner's UID for a Job, the pod's UID for a lone pod, namespace and
    name for pods that name a gang (``Stamp.newest`` tells their generations apart).
    """

    id: str
    kind: GangKind
    namespace: str
    name: str
    size: int
    pods: tuple[Pod, ...] = ()  # in rank order where the rank is known
    workload: Workload | None = None
    problem: str = ""  # why it can never start as it stands; "" when nothing is wrong


class Stamp(Struct, frozen=True, kw_only=True, omit_defaults=True, rename={"namespace": "ns"}):
    """What Sluice writes into a Slurm job's admin comment, as JSON, to know it again.

    ``attempt`` counts up also within a job, ``first`` is the one that it was submitted for.
    ``newest`` is the creation time of the youngest pod of the attempt: a younger pod of the same
    gang replaces one of them or belongs to a later attempt. ``after`` is the same of the attempt
    before, where one job serves several: pods up to then are history. Written later: ``started``,
    that the start was seen; ``held``, since when the nodes are kept for a restart; ``fell``, when
    slurmctld had forgotten the start; ``restarts``, how many requeues by Slurm have been dealt
    with; ``outcome``, why Sluice ended the job ("" when somebody else did).
    """

    sluice: str  # settings.cluster: two clusters may share one Slurm
    namespace: str
    gang: str  # name
    kind: GangKind
    id: str  # Gang.id
    attempt: int = 1
    first: int = 1
    size: int = 1
    newest: float = 0.0
    after: float = 0.0
    hold: float = 0.0  # seconds for which the nodes are kept when the gang restarts as a whole
    held: float = 0.0
    fell: float = 0.0
    restarts: int = 0
    started: bool = False
    outcome: str = ""


class JobState(StrEnum):
    """Slurm's base states (slurm.h, enum job_states), and UNKNOWN for one that is new to us."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUSPENDED = "SUSPENDED"
    COMPLETED = "COMPLETED"
    CANCELLED = "CANCELLED"
    FAILED = "FAILED"
    TIMEOUT = "TIMEOUT"
    NODE_FAIL = "NODE_FAIL"
    PREEMPTED = "PREEMPTED"
    BOOT_FAIL = "BOOT_FAIL"
    DEADLINE = "DEADLINE"
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    UNKNOWN = "UNKNOWN"
    LOST = "LOST"  # not Slurm's: slurmctld no longer knows the job, accounting has it running

    @property
    def live(self) -> bool:
        """slurmctld has the job and it has not ended."""
        return not self.ended and self is not JobState.LOST

    @property
    def ended(self) -> bool:
        return self not in (
            JobState.PENDING,
            JobState.RUNNING,
            JobState.SUSPENDED,
            JobState.UNKNOWN,
            JobState.LOST,
        )


class NodeShare(Struct, frozen=True):
    """What a job holds of one node. 0 CPUs or GPUs: none of them."""

    name: str  # Slurm's name
    cpus: int = 0
    memory_mib: int = 0
    gpus: int = 0


class Job(Struct, frozen=True, kw_only=True):
    """A Slurm job as slurmctld reports it."""

    id: int
    state: JobState
    reason: str = ""  # Slurm's word: "Resources", "Priority", "QOSGrpCpuLimit", …
    stamp: Stamp | None = None
    smudged: bool = False  # what stands there was a stamp, and cannot be read
    user: str = ""
    account: str = ""
    partition: str = ""
    qos: str = ""
    submitted: float = 0.0
    started: float = 0.0  # of a pending job: Slurm's estimate; 0 when it has none
    ended: float = 0.0
    time_limit_minutes: int | None = None  # None: unlimited
    comment: str = ""
    exit_code: int = 0
    restarts: int = 0  # how often Slurm has requeued it
    shares: tuple[NodeShare, ...] = ()  # the allocation, empty while pending


class JobRequest(Struct, frozen=True, kw_only=True):
    """One external Slurm job: ``tasks`` ranks of equal shape."""

    name: str
    user: str  # Slurm user name; never root, never SlurmUser
    stamp: Stamp
    tasks: int
    least_nodes: int = 1  # that the ranks can be packed on
    cpus_per_task: int
    memory_mib_per_task: int
    gpus_per_task: int = 0
    gpu_type: str = ""
    account: str = ""  # "": Slurm's default for the user; so for all that follow
    partition: str = ""
    qos: str = ""
    reservation: str = ""
    time_limit_minutes: int | None = None  # None: the partition's default
    constraint: str = ""
    licenses: str = ""
    nice: int | None = None
    wckey: str = ""
    switches: int | None = None
    exclusive: bool = False
    begin: str = ""
    dependency: str = ""
    comment: str = ""
    hold: bool = False
    required_nodes: tuple[str, ...] = ()  # of a job that takes the place of one that was lost
    excluded_nodes: tuple[str, ...] = ()  # Slurm names that Kubernetes could not use


class NodeSpec(Struct, frozen=True, kw_only=True):
    """A Slurm external node to create."""

    name: str
    address: str
    sockets: int = 1
    cores_per_socket: int = 1
    threads_per_core: int = 1
    memory_mib: int = 1
    gres: str = ""  # "gpu:8" or "gpu:h200:8"
    features: tuple[str, ...] = ()
    topology: str = ""  # "topo-tree:root:spine0:leaf3"


class SlurmNode(Struct, frozen=True, kw_only=True):
    """A node as slurmctld reports it."""

    name: str
    states: tuple[str, ...] = ()  # "IDLE", "EXTERNAL", "DRAIN", …
    address: str = ""
    cpus: int = 0
    memory_mib: int = 0
    gres: str = ""
    gpus: int = 0  # of all types in gres
    features: tuple[str, ...] = ()
    topology: str = ""
    reason: str = ""
