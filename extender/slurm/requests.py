"""From a job request to the job description that makes Slurm place whole ranks.

Measured on slurmctld 26.05.5 (select/cons_tres, CR_Core_Memory, external nodes of 16 cores and
8 GPUs):

- ``tasks``, ``cpus_per_task`` and ``tres_per_task=gres/gpu:N`` never split a rank over nodes and
  fill each node before the next: two ranks of 4 GPUs, eight of 1, one of 8; three of 4 get 8 + 4.
- ``minimum_nodes`` is what the tree is searched for: with 1, four ranks of a node each land on a
  broken leaf and the next one while a whole leaf is free. Told, leaves and spines were those of
  whole-node jobs in all of 48 cases (1,024 nodes; 0, 30 and 60 % busy; 4 to 256 nodes).
- ``maximum_nodes`` must stay out: Slurm then tries for that many nodes, and ranks without GPUs
  spread one to a node.
- Memory left out would take the whole node's.
"""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType

from extender.domain.model import JobRequest, Stamp
from extender.slurm.wire import JobDescription, NoVal

_INFINITE = 0xFFFFFFFF  # INFINITE of slurm.h
EXTERNAL_JOB = "EXTERNAL_JOB"  # flag of sbatch --external; from data parser v0.0.43 on


def describe(request: JobRequest, group: str) -> JobDescription:
    """The body of POST job/submit. ``group`` is a name or number that the Slurm host resolves."""
    return JobDescription(
        name=request.name,
        user_id=request.user,
        group_id=group or request.user,
        flags=[EXTERNAL_JOB],
        current_working_directory="/",
        environment=["SLUICE=1"],
        admin_comment=stamp_text(request.stamp),
        requeue=False,  # a new attempt is a new job: an old id never starts again
        minimum_nodes=request.least_nodes,
        tasks=request.tasks,
        cpus_per_task=max(1, request.cpus_per_task),
        tres_per_task=_gpus(request),
        memory_per_tres=_memory_per_gpu(request),
        memory_per_cpu=_memory_per_cpu(request),
        account=request.account or UNSET,
        partition=request.partition or UNSET,
        qos=request.qos or UNSET,
        reservation=request.reservation or UNSET,
        time_limit=_limit(request.time_limit_minutes),
        constraints=request.constraint or UNSET,
        licenses=request.licenses or UNSET,
        nice=UNSET if request.nice is None else request.nice,
        wckey=request.wckey or UNSET,
        required_switches=_number(request.switches),
        shared=["none"] if request.exclusive else UNSET,
        begin_time=request.begin or UNSET,
        dependency=request.dependency or UNSET,
        comment=request.comment or UNSET,
        hold=request.hold or UNSET,
        required_nodes=list(request.required_nodes) or UNSET,
        excluded_nodes=list(request.excluded_nodes) or UNSET,
    )


def stamp_text(stamp: Stamp) -> str:
    """What stands in the job's admin comment, which only an operator may write."""
    return msgspec.json.encode(stamp).decode()


def ended_text(exit_code: int) -> str:
    """How a job ended whose state cannot say it."""
    return f"its pods ended with exit code {exit_code}"


def _gpus(request: JobRequest) -> str | UnsetType:
    if not request.gpus_per_task:
        return UNSET
    kind = f"gpu:{request.gpu_type}" if request.gpu_type else "gpu"
    return f"gres/{kind}:{request.gpus_per_task}"


def _memory_per_gpu(request: JobRequest) -> str | UnsetType:
    """Exact whatever number of CPUs Slurm rounds a rank up to."""
    if not request.gpus_per_task:
        return UNSET
    return f"gres/gpu:{_share(request.memory_mib_per_task, request.gpus_per_task)}"


def _memory_per_cpu(request: JobRequest) -> NoVal | UnsetType:
    if request.gpus_per_task:
        return UNSET
    return _number(_share(request.memory_mib_per_task, max(1, request.cpus_per_task)))


def _share(memory_mib: int, parts: int) -> int:
    """MiB for each part, rounded up; at least 1, for 0 means all of a node's memory."""
    return max(1, -(-memory_mib // parts))


def _number(value: int | None) -> NoVal | UnsetType:
    return UNSET if value is None else NoVal(set=True, number=value)


def _limit(minutes: int | None) -> NoVal | UnsetType:
    if minutes is not None and minutes >= _INFINITE:
        return NoVal(set=True, infinite=True)
    return _number(minutes)
