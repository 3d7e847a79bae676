"""Answers of Slurm that come late, from another job, or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

import msgspec
import pytest

from extender.control import jobs
from extender.control.jobs import JobTable
from extender.domain.model import Job, JobState
from extender.slurm.port import Slurm, SlurmUnavailable
from tests.builders import job, stamp

RUNNING, CANCELLED = job(JobState.RUNNING), job(JobState.CANCELLED)


class Answers:
    """A Slurm that says what it was told to; ``meanwhile`` happens before it has answered."""

    def __init__(self, *told: Job, meanwhile: Callable[[], None] = lambda: None) -> None:
        self.told = {j.id: j for j in told}
        self.records: dict[int, Job] = {}
        self.accounting_away = False
        self.meanwhile = meanwhile

    async def states(self, ids: Iterable[int]) -> Mapping[int, JobState]:
        self.meanwhile()
        return {i: self.told[i].state for i in ids if i in self.told}

    async def job(self, job_id: int) -> Job | None:
        self.meanwhile()
        return self.told.get(job_id)

    async def booted(self) -> float:
        return 1.0

    async def jobs(self) -> Sequence[Job]:
        self.meanwhile()
        return list(self.told.values())

    async def history(self, job_id: int) -> Sequence[Job]:
        if self.accounting_away:
            raise SlurmUnavailable("slurmdbd does not answer")
        return [self.records[job_id]] if job_id in self.records else []


def following(slurm: Any, completed: Callable[[], None] = lambda: None) -> JobTable:
    return JobTable(
        cast(Slurm, slurm),
        lambda _: None,
        completed,
        fast_seconds=0.01,
        slow_seconds=0.01,
        resync_seconds=60,
    )


async def test_an_end_is_not_undone_by_an_answer_that_is_older() -> None:
    for ask in ("poll", "look", "list"):
        slurm = Answers(RUNNING)
        table = following(slurm)
        table.put(RUNNING)
        slurm.meanwhile = lambda table=table: table.put(CANCELLED)  # type: ignore[misc]
        if ask == "poll":
            await table._poll(True)
        elif ask == "look":
            await table.look(7)
        else:
            await table._list()
        seen = table.get(7)
        assert seen is not None, ask
        assert seen.state is JobState.CANCELLED, ask


async def test_another_job_that_got_the_number_is_not_ours() -> None:
    """slurmctld lost its state and counts from the beginning."""
    users = msgspec.structs.replace(RUNNING, stamp=None, user="bob")
    other_gang = job(JobState.RUNNING, stamp=stamp(id="other-uid"))
    for stranger in (users, other_gang):
        slurm = Answers(stranger)
        table = following(slurm)
        table.put(msgspec.structs.replace(RUNNING, user="alice"))
        assert await table.look(7) is None
        assert table.of_gang("train-uid") == []


async def test_accounting_need_not_keep_the_stamp() -> None:
    slurm = Answers()
    slurm.records[7] = msgspec.structs.replace(CANCELLED, stamp=None, user="alice")
    table = following(slurm)
    table.put(msgspec.structs.replace(RUNNING, user="alice"))
    await table.look(7)
    (seen,) = table.of_gang("train-uid")
    assert seen.state is JobState.CANCELLED


async def test_a_missing_job_does_not_keep_the_others_from_being_followed() -> None:
    """Accounting is away, so that nothing is known of job 7; job 8 has ended."""
    slurm = Answers(job(JobState.CANCELLED, id=8))
    slurm.accounting_away = True
    table = following(slurm)
    for job_id in (7, 8):
        table.put(job(JobState.RUNNING, id=job_id))
    run = asyncio.create_task(table.run())
    async with asyncio.timeout(5):
        while "slurmdbd" not in table.problem:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    run.cancel()
    assert {j.id: j.state for j in table.of_gang("train-uid")} == {
        7: JobState.RUNNING,
        8: JobState.CANCELLED,
    }
    assert table.certain


class Hanging(Answers):
    """A Slurm that answers when it is told to."""

    def __init__(self, *told: Job) -> None:
        super().__init__(*told)
        self.answers = asyncio.Event()

    async def states(self, ids: Iterable[int]) -> Mapping[int, JobState]:
        await self.answers.wait()
        return await super().states(ids)


async def test_nothing_is_submitted_to_a_slurm_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gangs that wait for an answer would keep others from what they have to do in Kubernetes."""
    monkeypatch.setattr(jobs, "_HANGS_SECONDS", 0.05)
    slurm, completed = Hanging(RUNNING), asyncio.Event()
    table = following(slurm, completed.set)
    run = asyncio.create_task(table.run())
    async with asyncio.timeout(5):
        await completed.wait()
        while table.sure_of("another gang"):  # noqa: ASYNC110  # time alone changes it
            await asyncio.sleep(0.01)
        completed.clear()
        slurm.answers.set()
        await completed.wait()
    assert table.sure_of("another gang")
    run.cancel()


async def test_accounting_is_asked_for_what_nobody_knows_more_and_more_seldom() -> None:
    """A thousand gangs whose jobs are unknown would ask for them for ever."""
    asked = 0

    class Counting(Answers):
        async def history(self, job_id: int) -> Sequence[Job]:
            nonlocal asked
            asked += 1
            return await super().history(job_id)

    slurm = Counting()
    table = following(slurm)
    for _ in range(20):
        await table.trace(7, "train-uid")
    assert asked == 1
    table.forget("train-uid")
    slurm.records[7] = job(JobState.RUNNING, stamp=stamp())
    for _ in range(3):  # one that is lost is asked for until it is certain that it has not ended
        await table.trace(7, "train-uid")
    assert asked == 4
    assert table._traces == {}


async def test_a_job_with_the_number_of_one_that_ended_is_not_taken_for_it() -> None:
    """slurmctld lost its state, and the next attempt of the gang got the number again."""
    slurm = Answers()
    slurm.records[7] = job(JobState.OUT_OF_MEMORY)
    table = following(slurm)
    await table.trace(7, "train-uid")
    table.put(job(JobState.RUNNING))
    assert [j.state for j in table.of_gang("train-uid")] == [JobState.RUNNING]


class Counting(Answers):
    """A Slurm that says how often it was asked for anything."""

    asked = 0

    def __getattribute__(self, name: str) -> Any:
        if name in ("states", "job", "jobs", "booted", "history"):
            type(self).asked += 1
        return super().__getattribute__(name)


@pytest.mark.parametrize("count", [1, 1500])
async def test_slurm_is_asked_once_a_beat_however_many_jobs_there_are(
    monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    monkeypatch.setattr(jobs, "_FRESH_SECONDS", 0.0)  # nothing is expected to change
    monkeypatch.setattr(jobs, "_REASON_AFTER_SECONDS", 0.0)
    kinds = (JobState.RUNNING, JobState.PENDING)
    slurm = Counting(*(job(kinds[i % 2], id=i, stamp=stamp(id=f"g{i}")) for i in range(count)))
    beat = 0.05
    table = JobTable(
        cast(Slurm, slurm),
        lambda _: None,
        lambda: None,
        fast_seconds=0.01,
        slow_seconds=beat,
        resync_seconds=60,
    )
    run = asyncio.create_task(table.run())
    async with asyncio.timeout(5):
        while not table.certain:  # noqa: ASYNC110 (the table has no event for it)
            await asyncio.sleep(0.01)
    Counting.asked, began = 0, asyncio.get_running_loop().time()
    await asyncio.sleep(1.0)
    elapsed = asyncio.get_running_loop().time() - began
    run.cancel()
    assert 3 <= Counting.asked <= elapsed / beat + 1
