"""The table of jobs follows Slurm, and knows when it cannot."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from extender.control import jobs
from extender.control.jobs import JobTable
from extender.slurm.rest import RestSlurm
from extender.slurm.tokens import FixedToken
from tests.fakes.slurmrestd import FakeSlurmrestd


@pytest.fixture
def restd() -> FakeSlurmrestd:
    return FakeSlurmrestd()


@pytest.fixture
async def table(restd: FakeSlurmrestd, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[JobTable]:
    """A table that follows a Slurm without jobs."""
    monkeypatch.setattr(jobs, "_PING_SECONDS", 0.2)
    slurm = RestSlurm(
        "http://slurmrestd",
        FixedToken(restd.token()),
        cluster="kubernetes",
        transport=restd.transport,
    )
    table = JobTable(
        slurm,
        lambda _: None,
        lambda: None,
        fast_seconds=0.01,
        slow_seconds=0.05,
        resync_seconds=60,
    )
    following = asyncio.create_task(table.run())
    yield table
    following.cancel()
    await slurm.close()


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not holds():  # noqa: ASYNC110 (the table has no event for it)
            await asyncio.sleep(0.01)


async def test_without_jobs_it_still_learns_that_slurm_is_away(
    table: JobTable, restd: FakeSlurmrestd
) -> None:
    await until(lambda: not table.problem)
    restd.down = True
    await until(lambda: bool(table.problem))
    assert "slurmctld" in table.problem
    restd.down = False
    await until(lambda: not table.problem)


async def test_without_jobs_slurm_is_asked_seldom(table: JobTable, restd: FakeSlurmrestd) -> None:
    await until(lambda: not table.problem)
    before = len(restd.calls)
    await asyncio.sleep(0.7)
    assert 2 <= len(restd.calls) - before <= 4
