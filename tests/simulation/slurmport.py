"""The port to Slurm over the model: answers late, lost, wrong or not at all, as slurmrestd's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from extender.domain.grace import Limits
from extender.domain.model import Job, JobRequest, JobState, NodeSpec, SlurmNode, Stamp
from extender.slurm.port import SlurmDenied, SlurmError, SlurmRefused, SlurmUnavailable, SlurmUnsent
from tests.simulation.truth import JobTruth

if TYPE_CHECKING:
    from tests.simulation.replica import Replica
    from tests.simulation.world import World

TIMEOUT_SECONDS = 10.0
CLUSTER = "kubernetes"
WRITES = ("submit", "mark", "end", "finish", "create")


class Port:
    """``Slurm`` (extender/slurm/port.py) for one replica."""

    def __init__(self, world: World, replica: Replica) -> None:
        self._world, self._replica = world, replica
        self._ctld = world.slurm

    async def start(self) -> str:
        await self.call("ping", lambda: None)
        return "simulated"

    async def close(self) -> None: ...

    async def booted(self) -> float:
        booted: float = await self.call("ping", lambda: self._ctld.booted)
        return booted

    async def submit(self, request: JobRequest) -> int:
        self._world.judge.submitting(self._replica, request)
        try:
            job: JobTruth = await self.call("submit", lambda: self.find_submit(request))
        except SlurmUnsent:
            raise
        except SlurmUnavailable:
            self._replica.unanswered[request.stamp.id] = self._world.now
            raise
        job.acked_to.add(self._replica)
        return job.id

    def find_submit(self, request: JobRequest) -> JobTruth:
        if not self._ctld.can_ever_hold(request):
            self._world.judge.submitted(self._ctld.refused(request, request.stamp))
            raise SlurmRefused("no node can ever hold that: ask for less", 2014)
        if any(name not in self._ctld.hosts for name in request.excluded_nodes):
            raise SlurmRefused("a node that was excluded is not one of Slurm's", 2018)
        if self._world.faults.fate("slurm refuse"):
            if self._world.coin():
                self._world.judge.submitted(self._ctld.refused(request, request.stamp))
                raise SlurmRefused("no node can ever hold that: ask for less", 2014)
            raise SlurmRefused("account 'ml' does not exist in Slurm", 2045)
        job = self._ctld.submit(request, request.stamp)
        self._world.judge.submitted(job)
        return job

    async def states(self, ids: Iterable[int]) -> Mapping[int, JobState]:
        asked = list(ids)
        told: dict[int, tuple[JobTruth, JobState]] = await self.call(
            "states", lambda: self.find_states(asked)
        )
        return {job_id: state for job_id, (_, state) in told.items()}

    def find_states(self, ids: list[int]) -> dict[int, tuple[JobTruth, JobState]]:
        jobs = self._ctld.jobs
        return {i: (jobs[i], jobs[i].state) for i in ids if i in jobs}

    async def job(self, job_id: int) -> Job | None:
        told: tuple[JobTruth, Job] | None = await self.call("job", lambda: self.find_job(job_id))
        if told is None:
            return None
        self.tell([(told[0], told[1].state)])
        return told[1]

    def find_job(self, job_id: int) -> tuple[JobTruth, Job] | None:
        job = self._ctld.jobs.get(job_id)
        return None if job is None else (job, self._ctld.told(job))

    async def jobs(self) -> Sequence[Job]:
        """As the adapter does it: only stamped jobs of this cluster, none that was refused."""
        at, told = await self.call("jobs", self._jobs)
        self._replica.listed_at = at
        self.tell((job, one.state) for job, one in told)
        return [one for _, one in told]

    def _jobs(self) -> tuple[float, list[tuple[JobTruth, Job]]]:
        found = [
            (job, self._ctld.told(job))
            for job in self._ctld.jobs.values()
            if job.stamp is not None
            and job.stamp.sluice == CLUSTER
            and not (job.state is JobState.FAILED and job.reason == "BadConstraints")
        ]
        return self._world.now, found

    async def history(self, job_id: int) -> Sequence[Job]:
        told: list[tuple[JobTruth, Job]] = await self.call(
            "history", lambda: self._ctld.recorded(job_id)
        )
        self.tell((job, one.state) for job, one in told)
        return [one for _, one in told]

    async def mark(self, job_id: int, stamp: Stamp, nodes: Sequence[str] = ()) -> None:
        meant = self._ctld.jobs.get(job_id)
        await self.call("mark", lambda: self.find_mark(job_id, stamp, nodes, meant))

    def find_mark(
        self, job_id: int, stamp: Stamp, nodes: Sequence[str], meant: JobTruth | None
    ) -> None:
        """``meant`` had the number when the call was sent."""
        job = self._ctld.jobs.get(job_id)
        self._given_away(job, meant)
        if job is None:
            raise SlurmRefused(f"Slurm refused to mark job {job_id}: Invalid job id", 2017)
        if job.state.ended:
            raise SlurmRefused(f"Slurm refused to mark job {job_id}: already finished", 2084)
        self._world.judge.marked(self._replica, job, stamp)
        if any(name not in self._ctld.hosts for name in nodes):
            raise SlurmRefused(f"Slurm refused to mark job {job_id}: Invalid node name", 2018)
        self._ctld.mark(job, stamp, nodes)

    async def end(self, job_id: int) -> None:
        meant = self._ctld.jobs.get(job_id)
        await self.call("end", lambda: self.find_end(job_id, JobState.CANCELLED, meant))

    async def finish(self, job_id: int, exit_code: int, comment: str = "") -> None:  # noqa: ARG002
        state = JobState.FAILED if exit_code else JobState.COMPLETED
        meant = self._ctld.jobs.get(job_id)
        await self.call("finish", lambda: self.find_end(job_id, state, meant))

    def _given_away(self, job: JobTruth | None, meant: JobTruth | None) -> None:
        """A number that came to another job while a write to it was under way: nothing can tell
        the two apart, and the schedule ends."""
        if job is not None and job is not meant:
            self._world.timeline.stopped = self._world.void = True

    def find_end(self, job_id: int, state: JobState, meant: JobTruth | None) -> None:
        job = self._ctld.jobs.get(job_id)
        self._given_away(job, meant)
        if job is None or job.state.ended:
            return
        if job.state is not JobState.RUNNING:
            state = JobState.CANCELLED
        self._world.say("sluice", "%s ends job %d", self._replica, job_id)
        self._world.judge.ending(self._replica, job)
        job.by_sluice = True
        self._ctld.end(job, state)

    async def nodes(self) -> Sequence[SlurmNode]:
        found: list[SlurmNode] = await self.call("nodes", self._ctld.listed_nodes)
        return found

    async def limits(self, kill_wait_seconds: int) -> Limits:
        return Limits(kill_wait=kill_wait_seconds)

    async def create_nodes(self, specs: Sequence[NodeSpec]) -> None:
        await self.call("create", lambda: self._ctld.create(specs))

    def tell(self, told: Iterable[tuple[JobTruth, JobState]]) -> None:
        """The replica learns from an answer that has the whole job where it runs, or that it runs
        no more: nothing is to be bound for it. (The light poll says numbers, which come again.)"""
        for job, state in told:
            if state is JobState.RUNNING:
                self._replica.runs_told[job] = job.runs
            fell = state is job.state is JobState.PENDING and job.runs
            if state.ended or fell:
                job.known_gone.add(self._replica)

    # -- the way there and back ---------------------------------------------------------------

    async def call(self, what: str, execute: Callable[[], Any]) -> Any:
        replica, world = self._replica, self._world
        if not replica.alive:
            raise asyncio.CancelledError
        if what in WRITES and not replica.may_write():
            raise SlurmUnsent(f"another replica leads; not sent: {what}")
        if what in WRITES:
            world.judge.writing(replica, what)
        future: asyncio.Future[Any] = replica.loop.create_future()
        mode = world.faults.fate(f"slurm {what}") or world.faults.slurmctld_mode()
        if mode is None:
            world.timeline.after(world.lag(0.01), self._arrive, future, what, execute)
            return await future
        world.say("fault", "%s: %s is %s", replica, what, mode)
        self._fail(future, what, mode, execute)
        return await future

    def _fail(
        self,
        future: asyncio.Future[Any],
        what: str,
        mode: str,
        execute: Callable[[], Any],
    ) -> None:
        world = self._world
        error: SlurmError = SlurmUnavailable(f"slurmrestd did not {what}: {mode}")
        after = world.lag(TIMEOUT_SECONDS)
        if mode == "denied":
            error, after = SlurmDenied("the token has expired"), world.lag(0.02)
        elif mode == "error":
            after = world.lag(0.02)
        elif mode == "unsent":
            error, after = SlurmUnsent(f"slurmrestd cannot be reached to {what}"), world.lag(0.02)
        elif mode == "unheard":
            world.timeline.after(world.lag(0.05), self._silently, execute)
        elif mode == "late":
            after = TIMEOUT_SECONDS
            world.timeline.after(TIMEOUT_SECONDS + world.lag(15.0), self._silently, execute)
        elif mode == "hung":
            after = TIMEOUT_SECONDS
            thaw = world.faults.slurmctld_thaws() - world.now + world.lag(0.2)
            if thaw < TIMEOUT_SECONDS:
                world.timeline.after(thaw, self._arrive, future, what, execute)
                return
            world.timeline.after(thaw, self._silently, execute)
        world.timeline.after(after, _refuse, future, error)

    def _silently(self, execute: Callable[[], Any]) -> None:
        """Carried out, and nobody hears what came of it."""
        if not self._ctld.up:
            return
        try:
            execute()
        except SlurmError:
            return

    def _arrive(self, future: asyncio.Future[Any], what: str, execute: Callable[[], Any]) -> None:
        world = self._world
        if not self._ctld.up:
            error: SlurmError = SlurmUnavailable(f"slurmctld did not {what}: it is away")
            world.timeline.after(world.lag(1.0), _refuse, future, error)
            return
        if not self._replica.alive and world.coin():
            return  # it never left the machine
        try:
            answer = execute()
        except SlurmError as error:
            world.timeline.after(world.lag(0.01), _refuse, future, error)
            return
        world.timeline.after(world.lag(0.01), _answer, future, answer)


def _answer(future: asyncio.Future[Any], value: Any) -> None:
    if not future.done():
        future.set_result(value)


def _refuse(future: asyncio.Future[Any], error: SlurmError) -> None:
    if not future.done():
        future.set_exception(error)
