"""Slurm's reasons, in words for the person who waits.

Source: slurm.h (enum job_state_reason) and squeue(1), "JOB REASON CODES".
"""

from __future__ import annotations

from extender.domain.model import Job

_WAITING = {
    "": "waits in Slurm's queue; Slurm has not looked at it yet",
    "None": "waits in Slurm's queue; Slurm has not looked at it yet",
    "Resources": "is next in line and waits for enough free nodes",
    "Priority": "waits behind jobs of higher priority in partition {partition!r}",
    "Dependency": "waits for the jobs that it depends on",
    "DependencyNeverSatisfied": "depends on a job that can no longer end as asked: delete it",
    "BeginTime": "waits for the begin time that was asked for",
    "JobHeldUser": "is held by its user: release it with scontrol release {id}",
    "JobHeldAdmin": "is held by an administrator, who can release it with scontrol release {id}",
    "Reservation": "waits for its reservation to begin or to have free nodes",
    "ReservationDeleted": "names a reservation that was deleted: submit again without it",
    "ReqNodeNotAvail": "needs nodes that are down, drained or reserved at present",
    "Licenses": "waits for licences that others hold",
    "AssociationJobLimit": "waits: account {account!r} runs as many jobs as it may",
    "AssociationResourceLimit": "waits: account {account!r} uses as much as it may",
    "AssociationTimeLimit": "waits: account {account!r} has used up its time",
    "PartitionNodeLimit": "asks for more nodes than partition {partition!r} allows or has",
    "PartitionTimeLimit": "asks for more time than partition {partition!r} allows: lower it",
    "PartitionDown": "waits: partition {partition!r} is down: an administrator has to bring it up",
    "PartitionInactive": "waits: partition {partition!r} is inactive: ask an administrator",
    "InvalidAccount": "waits: account {account!r} is no longer valid for user {user!r}",
    "InvalidQOS": "waits: QOS {qos!r} is no longer valid for account {account!r}",
    "NodeDown": "waits: a node that it needs is down",
    "BadConstraints": "waits: no node has the features and resources that it asks for",
    "SystemFailure": "waits: Slurm reports a failure of its own: ask an administrator",
    "Cleaning": "Slurm is still cleaning up after its last run",
    "JobArrayTaskLimit": "waits: its array runs as many tasks as it may",
    "Prolog": "waits: its nodes are being prepared",
}

_SCOPES = {
    "QOS": "QOS {qos!r}",
    "Assoc": "account {account!r}",
    "Partition": "partition {partition!r}",
}

_LIMITS = (
    ("MaxWall", "allows less time than it asks for"),
    ("GrpWall", "has used up its wall-clock time"),
    ("GRES", "has reached its limit of GPUs"),
    ("Gres", "has reached its limit of GPUs"),
    ("Cpu", "has reached its limit of CPUs"),
    ("CPU", "has reached its limit of CPUs"),
    ("Mem", "has reached its limit of memory"),
    ("Node", "has reached its limit of nodes"),
    ("Submit", "has as many jobs queued as it may"),
    ("Job", "runs as many jobs as it may"),
    ("Billing", "has reached its billing limit"),
)


def waiting(job: Job) -> str:
    """Why a pending job waits: one sentence that ends with Slurm's own word for it."""
    words = _WAITING.get(job.reason) or _limit(job.reason) or "waits"
    told = words.format(
        id=job.id,
        account=job.account or "(default)",
        partition=job.partition or "(default)",
        qos=job.qos or "(default)",
        user=job.user,
    )
    code = f" (Slurm: {job.reason})" if job.reason and job.reason != "None" else ""
    return f"Slurm job {job.id} {told}{code}."


def _limit(reason: str) -> str:
    """Limits of an association or QOS: "QOSGrpCpuLimit", "AssocMaxJobsLimit", …"""
    for prefix, scope in _SCOPES.items():
        if reason.startswith(prefix):
            for part, words in _LIMITS:
                if part in reason:
                    return f"waits: {scope} {words}"
            return f"waits: a limit of {scope} is reached"
    return ""
