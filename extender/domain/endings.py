"""What pods are told when Slurm has ended their job: the conditions that Kubernetes acts on.

Sources: slurm.h (enum job_states); kubernetes.io, "Pod failure policy".
"""

from __future__ import annotations

from msgspec import Struct

from extender.domain import wellknown as names
from extender.domain.model import JobState

_CONDITIONS = {
    JobState.PREEMPTED: names.PREEMPTED,
    JobState.NODE_FAIL: names.NODE_FAIL,
    JobState.BOOT_FAIL: names.BOOT_FAIL,
    JobState.TIMEOUT: names.TIMEOUT,
    JobState.DEADLINE: names.DEADLINE,
    JobState.OUT_OF_MEMORY: names.OUT_OF_MEMORY,
    JobState.CANCELLED: names.CANCELLED,
    JobState.COMPLETED: names.COMPLETED,
    JobState.FAILED: names.FAILED,
}


class Disruption(Struct, frozen=True):
    """Why a pod is ended from outside.

    ``reason`` is that of the condition DisruptionTarget ("SlurmPreempted"). ``condition`` is the
    type of a second one ("sluice.dev/Preempted"), since a podFailurePolicy matches types and not
    reasons; "" when Slurm's state says nothing.
    """

    reason: str
    condition: str


def disruption_of(state: JobState | None) -> Disruption:
    """For the pods of a job that has ended in ``state``."""
    condition = _CONDITIONS.get(state, "") if state else ""
    return Disruption(f"Slurm{condition.removeprefix(names.PREFIX) or 'JobEnded'}", condition)
