"""Sluice's jobs in Slurm as last told, by number and by gang. Memory only.

Numbers come again when slurmctld has lost its state: a job is the same only with the same stamp.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec
import structlog

from extender.domain.model import Job, JobState

_TRACE_SECONDS = 5.0
_TRACE_MOST_SECONDS = 320.0
_log = structlog.get_logger(__name__)


class JobBook:
    """``touched(gang_id)`` tells of every change."""

    def __init__(self, touched: Callable[[str], None]) -> None:
        self._touched = touched
        self._jobs: dict[int, Job] = {}
        self._by_gang: dict[str, set[int]] = {}
        self._lost: dict[str, Job] = {}  # by gang: no longer slurmctld's
        self._traces: dict[str, tuple[float, float]] = {}  # gang -> when again (monotonic), pause

    # -- readings ---------------------------------------------------------------------------

    def of_gang(self, gang_id: str) -> list[Job]:
        known = [self._jobs[i] for i in self._by_gang.get(gang_id, ())]
        return [*known, self._lost[gang_id]] if gang_id in self._lost else known

    def get(self, job_id: int) -> Job | None:
        return self._jobs.get(job_id)

    def has(self, job: Job) -> bool:
        """slurmctld knows this job as far as is known: its number is not another's by now."""
        current = self._jobs.get(job.id)
        return current is not None and not another(job, current)

    def live(self) -> list[Job]:
        return [job for job in self._jobs.values() if job.state.live]

    def gang_ids(self) -> list[str]:
        return [*self._by_gang, *(self._lost.keys() - self._by_gang.keys())]

    # -- changes ----------------------------------------------------------------------------

    def put(self, job: Job) -> None:
        """A job as seen now."""
        before = self._jobs.get(job.id)
        if job.stamp is None and before is not None:
            job = msgspec.structs.replace(job, stamp=before.stamp)
        if job.stamp is None:
            return
        if before is not None and another(before, job):
            self._drop(before.id)
            self._lose(before)
        lost = self._lost.get(job.stamp.id)
        if lost is not None and lost.id == job.id:
            del self._lost[job.stamp.id]  # pods cannot tell it from the one that has its number now
        self._jobs[job.id] = job
        self._by_gang.setdefault(job.stamp.id, set()).add(job.id)
        if before is None or before.state is not job.state:
            self.soon(job.id)
        if before != job:
            self._touched(job.stamp.id)

    def forget(self, gang_id: str) -> None:
        """The gang is gone and its jobs have ended."""
        self._lost.pop(gang_id, None)
        self._traces.pop(gang_id, None)
        for job_id in self._by_gang.pop(gang_id, ()):
            self._drop(job_id)

    def _drop(self, job_id: int) -> None:
        job = self._jobs.pop(job_id, None)
        self._dropped(job_id)
        if job and job.stamp:
            self._by_gang.get(job.stamp.id, set()).discard(job_id)
            if not self._by_gang.get(job.stamp.id, True):
                del self._by_gang[job.stamp.id]
            self._touched(job.stamp.id)

    def _lose(self, job: Job) -> None:
        """The job is gone from slurmctld's memory, though it had not ended."""
        if job.stamp is not None and job.state.live:
            _log.warning("slurmctld has lost a job", job=job.id)
            self._keep_lost(job.stamp.id, job)

    def _may_trace(self, gang_id: str) -> bool:
        """Whether it is time to ask for a job of the gang of which nothing is known."""
        now = time.monotonic()
        due, pause = self._traces.get(gang_id, (0.0, _TRACE_SECONDS))
        if now < due:
            return False
        self._traces[gang_id] = now + pause, min(pause * 2, _TRACE_MOST_SECONDS)
        return True

    def _keep_lost(self, gang_id: str, job: Job) -> None:
        self._traces.pop(gang_id, None)
        if not job.state.ended:
            known = self._lost.get(gang_id)
            since = known.ended if known and known.id == job.id else time.time()
            job = msgspec.structs.replace(job, state=JobState.LOST, ended=since)
        if self._lost.get(gang_id) != job:
            self._lost[gang_id] = job
            self._touched(gang_id)

    def soon(self, job_id: int) -> None:
        """A job is new, or in another state: more is to be expected of it."""

    def _dropped(self, job_id: int) -> None:
        """A job is no longer in the book."""


def another(ours: Job, told: Job) -> bool:
    """Whether Slurm tells of another job of the same id: numbers come again when slurmctld has
    lost its state. An answer without a stamp (accounting need not keep it) goes by the user."""
    if ours.stamp is None:
        return False
    if told.stamp is not None:
        return (told.stamp.id, told.stamp.first) != (ours.stamp.id, ours.stamp.first)
    return bool(ours.user and told.user) and ours.user != told.user
