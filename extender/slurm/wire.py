"""slurmrestd's JSON, as far as Sluice reads and writes it (data parsers v0.0.43 to v0.0.45).

Field names are Slurm's (src/plugins/data_parser/v0.0.4x/parsers.c). Unknown fields are skipped
unread, fields that a version lacks have defaults, and the shapes that changed between versions
(one state or a list, a number or a struct) are both accepted.
"""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType


class NoVal(Struct, frozen=True):
    """``*_NO_VAL_STRUCT``: a number, infinite, or not set."""

    set: bool = False
    infinite: bool = False
    number: int | float = 0


Number = NoVal | int | float | str | None


def number(value: Number) -> float | None:
    """The number; ``None`` where it is infinite or not set."""
    if isinstance(value, NoVal):
        return value.number if value.set and not value.infinite else None
    if isinstance(value, str):
        return float(value) if value.strip().isdigit() else None
    return value


class Problem(Struct, frozen=True):
    """One entry of ``errors[]``."""

    error_number: int = 0
    error: str | None = ""
    description: str | None = ""
    source: str | None = ""


class Reply(Struct, frozen=True):
    """What every body has. Warnings are not read: they are no failures."""

    errors: list[Problem] | None = None


class Submitted(Reply, frozen=True):
    job_id: int = 0


class Statistics(Struct, frozen=True):
    req_time_start: Number = None


class Diag(Reply, frozen=True):
    """GET diag/"""

    statistics: Statistics = Statistics()


class JobStateEntry(Struct, frozen=True):
    job_id: str | int
    state: list[str] | str = ""


class JobStates(Reply, frozen=True):
    """GET jobs/state/"""

    jobs: list[JobStateEntry] | None = None


class Signal(Struct, frozen=True):
    id: Number = None


class ExitCode(Struct, frozen=True):
    """``PROCESS_EXIT_CODE_VERBOSE``"""

    return_code: Number = None
    signal: Signal | None = None


class CpuShare(Struct, frozen=True):
    count: int = 0


class MemoryShare(Struct, frozen=True):
    allocated: int = 0  # MiB


class NodeAllocation(Struct, frozen=True):
    """What a job holds of one node (its sockets and cores are skipped unread)."""

    name: str
    cpus: CpuShare = CpuShare()
    memory: MemoryShare = MemoryShare()


class AllocatedNodes(Struct, frozen=True):
    allocation: list[NodeAllocation] | None = None


class JobResources(Struct, frozen=True):
    nodes: AllocatedNodes | None = None


class JobInfo(Struct, frozen=True):
    """One of GET jobs/ or job/{id}

    ``job_resources`` and ``gres_detail`` come with flags=DETAIL, which is the default, and not
    with flags=ALL. ``gres_detail`` has one string a node ("gpu:8(IDX:0-7)"), in the order of
    ``job_resources.nodes.allocation``, and is empty for a job without GRES.
    """

    job_id: int
    job_state: list[str] | str = ""
    state_reason: str | None = ""
    admin_comment: str | None = ""
    comment: str | None = ""
    user_name: str | None = ""
    account: str | None = ""
    partition: str | None = ""
    qos: str | None = ""
    submit_time: Number = None
    start_time: Number = None
    end_time: Number = None
    time_limit: Number = None
    exit_code: ExitCode | None = None
    restart_cnt: int | None = 0
    job_resources: JobResources | None = None
    gres_detail: list[str] | None = None


class Jobs(Reply, frozen=True):
    jobs: list[JobInfo] | None = None


class DbComment(Struct, frozen=True):
    administrator: str | None = ""
    job: str | None = ""


class DbState(Struct, frozen=True):
    current: list[str] | str = ""
    reason: str | None = ""


class DbTime(Struct, frozen=True):
    submission: Number = None
    start: Number = None
    end: Number = None
    limit: Number = None


class DbJob(Struct, frozen=True):
    """One of GET slurmdb job/{id}"""

    job_id: int
    comment: DbComment = DbComment()
    state: DbState = DbState()
    time: DbTime = DbTime()
    exit_code: ExitCode | None = None
    user: str | None = ""
    account: str | None = ""
    partition: str | None = ""
    qos: str | None = ""


class DbJobs(Reply, frozen=True):
    jobs: list[DbJob] | None = None


class NodeInfo(Struct, frozen=True):
    """One of GET nodes/"""

    name: str
    state: list[str] | str = ""
    address: str | None = ""
    cpus: int = 0
    real_memory: int = 0
    gres: str | None = ""
    features: list[str] | str | None = None
    topology: str | None = ""
    reason: str | None = ""


class Nodes(Reply, frozen=True):
    nodes: list[NodeInfo] | None = None


class KillError(Struct, frozen=True):
    code: int = 0
    string: str | None = ""
    message: str | None = ""


class KillStatus(Struct, frozen=True):
    error: KillError | None = None


class Killed(Reply, frozen=True):
    """DELETE job/{id}: what went wrong stands in ``status``, not in ``errors``."""

    status: list[KillStatus] | None = None


class JobDescription(Struct, frozen=True, kw_only=True):
    """POST job/submit, ``job``. What is unset is left out and takes Slurm's default."""

    name: str
    user_id: str
    group_id: str
    flags: list[str]
    current_working_directory: str
    environment: list[str]
    admin_comment: str
    requeue: bool
    minimum_nodes: int
    tasks: int
    cpus_per_task: int
    tres_per_task: str | UnsetType = UNSET
    memory_per_tres: str | UnsetType = UNSET
    memory_per_cpu: NoVal | UnsetType = UNSET
    account: str | UnsetType = UNSET
    partition: str | UnsetType = UNSET
    qos: str | UnsetType = UNSET
    reservation: str | UnsetType = UNSET
    time_limit: NoVal | UnsetType = UNSET
    constraints: str | UnsetType = UNSET
    licenses: str | UnsetType = UNSET
    nice: int | UnsetType = UNSET
    wckey: str | UnsetType = UNSET
    required_switches: NoVal | UnsetType = UNSET
    shared: list[str] | UnsetType = UNSET
    begin_time: str | UnsetType = UNSET
    dependency: str | UnsetType = UNSET
    comment: str | UnsetType = UNSET
    hold: bool | UnsetType = UNSET
    required_nodes: list[str] | UnsetType = UNSET
    excluded_nodes: list[str] | UnsetType = UNSET


class Submission(Struct, frozen=True):
    """POST job/submit"""

    job: JobDescription


class StampUpdate(Struct, frozen=True):
    """POST job/{id}: fields that are left out keep their values."""

    admin_comment: str
    required_nodes: list[str] | UnsetType = UNSET
    minimum_nodes: int | UnsetType = UNSET  # with more required than this, some are left out


class CommentUpdate(Struct, frozen=True):
    """POST job/{id}"""

    comment: str


class NodeCreation(Struct, frozen=True):
    """POST new/node/: a NodeName line as in slurm.conf."""

    node_conf: str
