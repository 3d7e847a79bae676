"""Whether the pods of a gang can end in the time that Slurm thinks a job takes to end.

Slurm gives the nodes of an external job out as soon as it ends the job: it has no daemon on them
to wait for. KillWait and GraceTime are what its users and administrators reckon with all the same.
Sources: slurm.conf(5), KillWait and GraceTime of a partition; sacctmgr(1), GraceTime of a QOS.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from extender.domain.model import Job, Pod


class Limits(Struct, frozen=True, kw_only=True):
    """How long Slurm lets a job take to end, in seconds. GraceTime only where it is set."""

    kill_wait: int
    qos_grace: Mapping[str, int] = {}
    partition_grace: Mapping[str, int] = {}


def too_long(pods: Iterable[Pod], job: Job, limits: Limits) -> str:
    """What is wrong with the grace of the pods, naming both numbers; "" when it fits."""
    grace = max((p.grace_seconds for p in pods if not p.terminal), default=0)
    seconds, whose, change = min(_that_apply(job, limits))
    if grace <= seconds:
        return ""
    return (
        f"Its pods may take {grace} s to end (terminationGracePeriodSeconds), {whose} is "
        f"{seconds} s. Slurm hands their nodes out as soon as it ends job {job.id}, and whoever "
        f"gets them waits for these pods: set terminationGracePeriodSeconds to {seconds} or less, "
        f"or have {change} raised."
    )


def _that_apply(job: Job, limits: Limits) -> Iterable[tuple[int, str, str]]:
    """Seconds, whose they are, and what to change."""
    yield limits.kill_wait, "Slurm's KillWait", "KillWait in slurm.conf"
    if seconds := limits.qos_grace.get(job.qos, 0):
        yield seconds, f"the GraceTime of Slurm's QOS {job.qos!r}", "the QOS' GraceTime"
    if seconds := limits.partition_grace.get(job.partition, 0):
        name = job.partition
        yield seconds, f"the GraceTime of Slurm's partition {name!r}", "the partition's GraceTime"
