"""What pods are told when Slurm has ended their job."""

from __future__ import annotations

import pytest

from extender.domain.endings import Disruption, disruption_of
from extender.domain.model import JobState


@pytest.mark.parametrize(
    ("state", "reason", "condition"),
    [
        (JobState.PREEMPTED, "SlurmPreempted", "sluice.dev/Preempted"),
        (JobState.NODE_FAIL, "SlurmNodeFail", "sluice.dev/NodeFail"),
        (JobState.BOOT_FAIL, "SlurmBootFail", "sluice.dev/BootFail"),
        (JobState.TIMEOUT, "SlurmTimeout", "sluice.dev/Timeout"),
        (JobState.DEADLINE, "SlurmDeadline", "sluice.dev/Deadline"),
        (JobState.OUT_OF_MEMORY, "SlurmOutOfMemory", "sluice.dev/OutOfMemory"),
        (JobState.CANCELLED, "SlurmCancelled", "sluice.dev/Cancelled"),
        (JobState.COMPLETED, "SlurmCompleted", "sluice.dev/Completed"),
        (JobState.FAILED, "SlurmFailed", "sluice.dev/Failed"),
    ],
)
def test_each_state_has_its_condition(state: JobState, reason: str, condition: str) -> None:
    assert disruption_of(state) == Disruption(reason, condition)


def test_no_end_is_without_a_condition() -> None:
    assert all(disruption_of(state).condition for state in JobState if state.ended)


@pytest.mark.parametrize("state", [None, JobState.UNKNOWN])
def test_a_state_that_says_nothing_makes_the_general_reason_only(state: JobState | None) -> None:
    assert disruption_of(state) == Disruption("SlurmJobEnded", "")
