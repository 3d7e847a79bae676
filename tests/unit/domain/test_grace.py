"""Whether pods can end in the time that Slurm reckons with."""

from __future__ import annotations

import pytest

from extender.domain.grace import Limits, too_long
from tests.builders import job, pod

LIMITS = Limits(kill_wait=30, qos_grace={"low": 20}, partition_grace={"night": 10})


@pytest.mark.parametrize(
    ("grace", "qos", "partition", "named"),
    [
        (30, "normal", "gpu", ""),
        (31, "normal", "gpu", "(terminationGracePeriodSeconds), Slurm's KillWait is 30 s"),
        (20, "low", "gpu", ""),
        (30, "low", "gpu", "the GraceTime of Slurm's QOS 'low' is 20 s"),
        (30, "low", "night", "the GraceTime of Slurm's partition 'night' is 10 s"),
        (10, "low", "night", ""),
    ],
)
def test_the_tightest_limit_is_named(grace: int, qos: str, partition: str, named: str) -> None:
    pods = [pod(0, grace_seconds=1), pod(1, grace_seconds=grace)]
    why = too_long(pods, job(qos=qos, partition=partition), LIMITS)
    assert named in why
    assert (f"may take {grace} s to end" in why) is bool(named)


def test_it_says_what_to_do() -> None:
    assert too_long([pod(0, grace_seconds=120)], job(id=7), Limits(kill_wait=30)) == (
        "Its pods may take 120 s to end (terminationGracePeriodSeconds), Slurm's KillWait is 30 s. "
        "Slurm hands their nodes out as soon as it ends job 7, and whoever gets them waits for "
        "these pods: set terminationGracePeriodSeconds to 30 or less, or have KillWait in "
        "slurm.conf raised."
    )


def test_a_pod_that_has_ended_takes_no_time() -> None:
    ended = pod(0, grace_seconds=120, phase="Succeeded")
    assert not too_long([ended], job(), LIMITS)
