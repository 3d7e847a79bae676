"""Starts are saved: one update for all that were seen together, none forgotten."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from extender.control.jobs import JobTable
from extender.control.starts import Starts
from extender.domain.model import Job, JobState, Stamp
from extender.slurm.port import SlurmUnavailable
from tests.builders import job, share, stamp


class Marks:
    """The one call of the port that is made here."""

    def __init__(self, fails: bool = False) -> None:
        self.marked: list[int] = []
        self.fails = fails

    async def mark(self, job_id: int, _: Stamp) -> None:
        if self.fails:
            raise SlurmUnavailable("slurmctld is away")
        self.marked.append(job_id)


def started(job_id: int) -> Job:
    return job(JobState.RUNNING, share("n0"), id=job_id, stamp=stamp(id=f"gang-{job_id}"))


def table(slurm: Any, *jobs: Job) -> JobTable:
    jobs_seen = JobTable(
        slurm, lambda _: None, lambda: None, fast_seconds=1, slow_seconds=1, resync_seconds=1
    )
    for seen in jobs:
        jobs_seen.put(seen)
    return jobs_seen


async def test_many_starts_are_one_update() -> None:
    slurm: Any = Marks()
    jobs = [started(i) for i in range(1, 6)]
    seen = table(slurm, *jobs)
    starts = Starts(seen, slurm)
    await asyncio.gather(*(starts.saved(j) for j in jobs))
    assert slurm.marked == [1]
    assert all(j.stamp and j.stamp.started for j in seen.live())


async def test_a_start_seen_during_an_update_gets_its_own() -> None:
    slurm: Any = Marks()
    first, second = started(1), started(2)
    starts = Starts(table(slurm, first, second), slurm)
    await starts.saved(first)
    await starts.saved(second)
    assert slurm.marked == [1, 2]


async def test_a_failed_update_saves_nothing() -> None:
    slurm: Any = Marks(fails=True)
    one = started(1)
    seen = table(slurm, one)
    with pytest.raises(SlurmUnavailable):
        await Starts(seen, slurm).saved(one)
    assert not any(j.stamp and j.stamp.started for j in seen.live())
