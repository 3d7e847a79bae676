"""Sluice's jobs in Slurm, kept up to date with few and light calls.

One call asks for the states of all live jobs: often while something is expected to change, once a
second otherwise. Whole lists are read at start, when in doubt, and every few minutes.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterable

import msgspec
import structlog

from extender.control import metrics
from extender.control.jobbook import JobBook, another
from extender.control.lease import Alone, Leadership
from extender.domain.model import Job, JobState
from extender.slurm.port import Slurm, SlurmError, SlurmUnavailable

_FRESH_SECONDS = 3.0
"""How long a job that was just submitted or changed is looked at often."""
_REASON_AFTER_SECONDS = 1.0
_LANDING_SECONDS = 5.0
"""How long after its failure, or Slurm's last failure, a submit may still turn up as a job."""
_SECOND_LOOK_SECONDS = 30.0
_SLOW_SECONDS = 1.0
"""An answer that takes longer may come from a slurmctld that was started anew meanwhile."""
_REASON_EVERY = 5  # beats
_BOOT_EVERY = 5
_STANDBY_FACTOR = 5  # a replica that stands by follows so much more slowly
_PURGE_SECONDS = 60.0
"""A job that was live so lately is still listed when it has ended (MinJobAge is 300 s): one that
is not has been lost."""
_HANGS_SECONDS = 3.0
_PING_SECONDS = 10.0
"""How long Slurm is not asked anything while there are no jobs: /readyz is to know all the same."""
_log = structlog.get_logger(__name__)


class JobTable(JobBook):
    """The book, kept up to date. ``completed()`` tells that it has become certain."""

    def __init__(
        self,
        slurm: Slurm,
        touched: Callable[[str], None],
        completed: Callable[[], None],
        *,
        fast_seconds: float,
        slow_seconds: float,
        resync_seconds: float,
        lease: Leadership | None = None,
    ) -> None:
        super().__init__(touched)
        self._lease = lease or Alone()
        self._slurm = slurm
        self._completed = completed
        self._fast = fast_seconds
        self._slow = slow_seconds
        self._resync = resync_seconds
        self._fresh_until: dict[int, float] = {}
        self._looked_at: dict[int, float] = {}  # when the reason was last read
        self._wake = asyncio.Event()
        self._doubts = 1  # no list has been read yet
        self._next_list = 0.0  # monotonic
        self._unanswered: dict[str, float] = {}  # gang -> from when on a list settles it
        self._away = False
        self._asking_since = 0.0  # monotonic; 0 while no answer is waited for
        self._beat = 0
        self._booted = 0.0
        self._freshening = asyncio.Lock()
        self._told_at: dict[int, float] = {}  # of the job that was last asked for
        self._heard = 0.0  # when slurmctld last told states (monotonic)
        self._unfound = ""  # why a job that slurmctld left out could not be looked up
        self.problem = "the list of jobs has not been read yet"

    # -- readings ---------------------------------------------------------------------------

    @property
    def certain(self) -> bool:
        """A list has been read since whatever may have made the table incomplete."""
        return self._doubts == 0

    def sure_of(self, gang_id: str) -> bool:
        """Certain, slurmctld answers, and no submit of this gang was left without an answer."""
        return self.certain and self._answers() and gang_id not in self._unanswered

    def _answers(self) -> bool:
        """Submits to a slurmctld that is away or hangs would keep those from their turn that have
        something to do in Kubernetes."""
        asking = time.monotonic() - self._asking_since if self._asking_since else 0.0
        return not self._away and asking < _HANGS_SECONDS

    # -- doubts ------------------------------------------------------------------------------

    def doubt(self) -> None:
        """Others have acted, or may have: nothing is submitted before a new list."""
        self._doubts += 1
        self.problem = "the list of jobs is being read again"
        self._relist()

    def unanswered(self, gang_id: str, seconds: float = _LANDING_SECONDS) -> None:
        """A submit may have been carried out or not, or may be carried out still: the gang is not
        submitted again before a list shows its job, or one read well after Slurm has recovered
        does not."""
        self._unanswered[gang_id] = time.monotonic() + seconds
        self._relist()

    def _relist(self) -> None:
        self._next_list = 0.0
        self._wake.set()

    def soon(self, job_id: int) -> None:
        """A change of this job is expected: look at it often."""
        self._fresh_until[job_id] = time.monotonic() + _FRESH_SECONDS
        self._wake.set()

    def _dropped(self, job_id: int) -> None:
        self._fresh_until.pop(job_id, None)
        self._looked_at.pop(job_id, None)

    # -- looking ----------------------------------------------------------------------------

    async def look(self, job_id: int) -> Job | None:
        """Read one job whole. When slurmctld has forgotten it, accounting is asked."""
        before = self._jobs.get(job_id)
        job = await self._slurm.job(job_id)
        if job is None or (before is not None and another(before, job)):
            await self._missing(job_id, before)
            return self._jobs.get(job_id)
        self._looked_at[job_id] = time.monotonic()
        current = self._jobs.get(job_id)
        if current is not before and current is not None and current.state.ended:
            return current  # its end was told meanwhile: this answer may be older
        self.put(job)
        return job

    async def _missing(self, job_id: int, before: Job | None) -> None:
        """slurmctld has no such job, or gave its number to another."""
        if before is None or before.stamp is None:
            return
        record = await self._record(job_id, before)
        self._relist()  # a slurmctld that has lost one thing has lost others
        if record is not None and record.state.ended:
            if self._jobs.get(job_id) is before:
                self.put(msgspec.structs.replace(record, stamp=record.stamp or before.stamp))
            return
        if self._jobs.get(job_id) is before:
            self._drop(job_id)
        if record is not None or time.monotonic() - self._heard < _PURGE_SECONDS:
            self._lose(before)

    async def trace(self, job_id: int, gang_id: str) -> None:
        """Find out what became of a job of the gang that is in no list: it has ended, or slurmctld
        has lost it. Where accounting has no record, nothing is known, and it is asked more and more
        seldom."""
        if not self._may_trace(gang_id):
            return
        for record in await self._slurm.history(job_id):
            if record.stamp is not None and record.stamp.id == gang_id:
                self._keep_lost(gang_id, record)
                return

    async def _record(self, job_id: int, ours: Job) -> Job | None:
        """What accounting says of our job."""
        found = await self._slurm.history(job_id)
        return next((record for record in found if not another(ours, record)), None)

    async def fresh(self, job_id: int) -> None:
        """Ask for the job's state unless it was told within the last second; all who ask meanwhile
        share the answer."""
        async with self._freshening:
            known = self._jobs.get(job_id)
            if known is None or time.monotonic() - self._told_at.get(job_id, 0.0) < 1.0:
                return
            state = (await self._slurm.states([job_id])).get(job_id)
            self._told_at = {job_id: time.monotonic()}
            if state is not known.state and self._jobs.get(job_id) is known:
                await self.look(job_id)

    async def _look_for(self, job_ids: Iterable[int]) -> None:
        """Look at jobs whose state by number is not enough. They stay as they are while accounting
        is away: that proves nothing about them, and the others are to be followed all the same."""
        await asyncio.gather(*map(self._look_at, job_ids))

    async def _look_at(self, job_id: int) -> None:
        try:
            await self.look(job_id)
        except SlurmError as error:
            self._unfound = str(error)
            _log.warning("job not looked up", job=job_id, why=str(error))

    async def run(self) -> None:
        """Follow until cancelled."""
        next_all = next_ping = 0.0
        failures = 0
        while True:
            now = self._asking_since = time.monotonic()
            try:
                if now >= self._next_list:
                    await self._list()
                    now = self._asking_since = time.monotonic()
                everything = now >= next_all
                if everything:
                    next_all = now + self._slow * (1 if self._lease.held else _STANDBY_FACTOR)
                if await self._ask(everything):
                    next_ping = now + _PING_SECONDS
                elif now >= next_ping:
                    await self._watch_boot()
                    next_ping = now + _PING_SECONDS
                failures = 0
                self._answered()
                if everything and self.certain:
                    self.problem, self._unfound = self._unfound, ""
            except SlurmError as error:
                failures = min(failures + 1, 8)
                self._failed(error)
                # slurmctld schedules three seconds after its start: jobs that it has forgotten to
                # run must have been seen to by then
                most = 1.0 if self.live() else 10.0
                await asyncio.sleep(min(most, 0.25 * 2**failures) * (0.67 + 0.66 * random.random()))
                continue
            if time.monotonic() - now > _SLOW_SECONDS:
                self._relist()
            await self._pause(next_all)

    def _answered(self) -> None:
        """Who was kept from submitting because Slurm did not answer may do so now."""
        kept = not self._answers()
        self._away, self._asking_since = False, 0.0
        if kept:
            self._completed()

    def _failed(self, error: SlurmError) -> None:
        """Whatever was forgotten or done while Slurm was away shows in the next list."""
        self.problem = str(error)
        self._away, self._asking_since = True, 0.0
        _log.warning("slurm does not answer", why=str(error))
        due = time.monotonic() + _LANDING_SECONDS
        self._unanswered = dict.fromkeys(self._unanswered, due)
        self._relist()

    async def _pause(self, next_all: float) -> None:
        """Until the next look: soon while a change is expected, else when ``next_all`` says."""
        now = time.monotonic()
        self._fresh_until = {i: t for i, t in self._fresh_until.items() if t > now}
        if self._fresh_until and self._lease.held:
            await asyncio.sleep(self._fast)
            return
        self._wake.clear()
        try:
            await asyncio.wait_for(self._wake.wait(), max(self._fast, next_all - now))
        except TimeoutError:
            return

    async def _list(self) -> None:
        doubts, started = self._doubts, time.monotonic()
        self._next_list = started + self._resync  # sooner when somebody asks for it from here on
        booted = await self._slurm.booted()  # before, so that a later start shows
        known = {job.id for job in self.live()}
        before = dict(self._jobs)
        found = {job.id: job for job in await self._slurm.jobs()}
        await self._look_for(sorted(known - found.keys()))  # first: who lost a job may have another
        for job in found.values():
            if self._jobs.get(job.id) is before.get(job.id):  # else it was told of meanwhile
                self.put(job)
        self._booted = booted
        self._settle(started)
        self._doubts -= doubts
        if doubts:
            self._completed()

    def _settle(self, listed_at: float) -> None:
        """What became of the submits without an answer, by a list that was begun then."""
        for gang_id, due in list(self._unanswered.items()):
            there = any(job.state.live for job in self.of_gang(gang_id))
            if there or listed_at >= due:
                del self._unanswered[gang_id]
                due = time.monotonic() + _SECOND_LOOK_SECONDS  # one that landed later still
                self._touched(gang_id)
            self._next_list = min(self._next_list, due)

    async def _ask(self, everything: bool) -> bool:
        """One light call, if there is anything to ask for: the states, or now and then why one job
        waits, or whether slurmctld is another."""
        if everything and self._lease.held:
            self._beat += 1
            if self._beat % _BOOT_EVERY == 1 and self.live():
                await self._watch_boot()
                return True
            if (waiting := self._least_known()) is not None:
                new = waiting.id not in self._looked_at
                if self._beat % (2 if new else _REASON_EVERY) == 0:
                    await self._read_reason(waiting)
                    return True
        return await self._poll(everything)

    async def _watch_boot(self) -> None:
        """A slurmctld that was killed brings back jobs that had ended: they are in no poll."""
        if await self._slurm.booted() != self._booted:
            self._relist()

    async def _poll(self, everything: bool) -> bool:
        """Whether there was anything to ask for."""
        ids: Iterable[int] = self._fresh_until if not everything else (j.id for j in self.live())
        asked = [i for i in ids if i in self._jobs and not self._jobs[i].state.ended]
        if not asked:
            return False
        before = {job_id: self._jobs[job_id] for job_id in asked}
        with metrics.slurm_poll_seconds.time():
            states = await self._slurm.states(asked)
        changed = [i for i in asked if i not in states and i in self._jobs]
        for job_id, state in states.items():
            job = self._jobs.get(job_id)
            if job is None or job is not before.get(job_id) or state is job.state:
                continue  # unchanged; or told of meanwhile, and this answer may be older
            if state is JobState.RUNNING:
                self.put(msgspec.structs.replace(job, state=state, reason="", shares=()))
            else:
                changed.append(job_id)  # the number may be another's by now
            if state is JobState.PENDING:
                self._relist()  # requeued, or forgotten
        await self._look_for(changed)
        self._heard = time.monotonic()
        return True

    def _least_known(self) -> Job | None:
        """The pending job whose reason is oldest, those first that have none at all."""
        now = time.monotonic()
        pending = (
            j for j in self._jobs.values() if j.state is JobState.PENDING and self._mature(j, now)
        )
        return min(pending, key=lambda j: self._looked_at.get(j.id, 0.0), default=None)

    async def _read_reason(self, job: Job) -> None:
        try:
            await self.look(job.id)
        except SlurmUnavailable:
            raise
        except SlurmError as error:
            _log.warning("reason not read", job=job.id, why=str(error))

    def _mature(self, job: Job, now: float) -> bool:
        fresh = self._fresh_until.get(job.id, 0.0)
        return now > fresh - _FRESH_SECONDS + _REASON_AFTER_SECONDS
