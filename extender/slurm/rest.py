"""The port to Slurm over slurmrestd. What each call costs was measured on slurmctld 26.05.5."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence

import httpx
import structlog
from msgspec import UNSET

from extender.domain.grace import Limits
from extender.domain.model import Job, JobRequest, JobState, NodeSpec, SlurmNode, Stamp
from extender.slurm import errors, limits, nodeconf, reading, wire
from extender.slurm.completer import Completer, wait_status
from extender.slurm.port import SlurmRefused, SlurmUnavailable
from extender.slurm.requests import describe, ended_text, stamp_text
from extender.slurm.restd import Counted, Slurmrestd
from extender.slurm.tokens import TokenSource

_log = structlog.get_logger(__name__)

# 500 ids make a URL of 8 kB, what proxies let through; slurmrestd itself took 60 kB.
_IDS_A_CALL = 500


class RestSlurm:
    """``Slurm`` (port.py) over slurmrestd.

    ``cluster`` is the name in the stamps of our jobs. ``group`` is the group that jobs run under;
    "" takes the one named like the user. Slurm wants one with every job (it would take the
    token's otherwise) and slurmrestd cannot tell a user's own.
    """

    def __init__(
        self,
        url: str,
        tokens: TokenSource,
        *,
        cluster: str,
        group: str = "",
        user_name: str = "",
        timeout_seconds: float = 10.0,
        list_timeout_seconds: float = 60.0,
        connect_timeout_seconds: float = 10.0,
        concurrency: int = 8,
        ca_file: str = "",
        complete_command: Sequence[str] = (),
        transport: httpx.AsyncBaseTransport | None = None,
        counted: Counted = lambda _call, _outcome: None,
        may_write: Callable[[], bool] = lambda: True,
    ) -> None:
        self._cluster = cluster
        self._group = group
        self._completer: Completer | None = None
        if complete_command:
            self._completer = Completer(complete_command, may_write=may_write)
        self._restd = Slurmrestd(
            url,
            tokens,
            user_name=user_name,
            timeout_seconds=timeout_seconds,
            list_timeout_seconds=list_timeout_seconds,
            connect_timeout_seconds=connect_timeout_seconds,
            concurrency=concurrency,
            ca_file=ca_file,
            transport=transport,
            counted=counted,
            may_write=may_write,
        )

    async def start(self) -> str:
        return await self._restd.version()

    async def close(self) -> None:
        await self._restd.close()
        if self._completer is not None:
            await self._completer.close()

    async def booted(self) -> float:
        """``req_time_start`` of sdiag, 7 kB: also set at midnight and by sdiag --reset."""
        answer = await self._restd.call("GET", "diag/", wire.Diag, "read diagnostics")
        return wire.number(answer.statistics.req_time_start) or 0.0

    async def submit(self, request: JobRequest) -> int:
        """An id counts, whatever else is said: slurmctld queues a job that cannot start yet (72xx,
        and 2014 with a constraint that no free node meets) and slurmrestd calls that an error."""
        answer = await self._restd.call(
            "POST",
            "job/submit",
            wire.Submitted,
            "submit the job",
            body=wire.Submission(describe(request, self._group)),
            failure=lambda problems, status: errors.submit_failure(problems, status, request),
            done=lambda submitted: submitted.job_id > 0,
        )
        if not answer.job_id:
            raise SlurmUnavailable("slurmrestd took the job and named no id for it")
        return answer.job_id

    async def states(self, ids: Iterable[int]) -> Mapping[int, JobState]:
        """One call whatever their number: for more ids than a URL holds, the states of all jobs."""
        wanted = list(ids)
        if not wanted:
            return {}
        if len(wanted) <= _IDS_A_CALL:
            return await self._states(wanted)
        everything = await self._states(())
        return {job_id: everything[job_id] for job_id in wanted if job_id in everything}

    async def _states(self, ids: Sequence[int]) -> Mapping[int, JobState]:
        """Without ids: of every job that slurmctld has."""
        answer = await self._restd.call(
            "GET",
            "jobs/state/",
            wire.JobStates,
            "read job states",
            params=[("job_id", str(job_id)) for job_id in ids],
        )
        return {
            int(entry.job_id): reading.state(entry.state)
            for entry in answer.jobs or ()
            if str(entry.job_id).isdigit()  # "12_3", "12_[4-9]": external jobs are no arrays
        }

    async def job(self, job_id: int) -> Job | None:
        """8 kB, and 3.4 kB more for each node of 16 cores that the job holds: 24 ms for 256 nodes.

        resources/{id} is smaller, but v0.0.43 lacks it, and two calls may see two states.
        """
        try:
            answer = await self._restd.call("GET", f"job/{job_id}", wire.Jobs, f"read job {job_id}")
        except SlurmRefused as error:
            if error.code == errors.NO_SUCH_JOB:
                return None
            raise
        found = (reading.job(info) for info in answer.jobs or ())
        return next((job for job in found if not self._foreign(job)), None)

    async def jobs(self) -> Sequence[Job]:
        """The list without allocations, then one call for each running job of ours: the
        allocations of everybody's jobs are most of the list."""
        answer = await self._restd.call(
            "GET", "jobs/", wire.Jobs, "list jobs", params=[("flags", "ALL")], long=True
        )
        listed = [reading.job(info) for info in answer.jobs or () if reading.accepted(info)]
        ours = [job for job in listed if job.smudged or (job.stamp and not self._foreign(job))]
        read = await asyncio.gather(*(self._with_shares(job) for job in ours))
        return [job for job in read if job is not None]

    async def _with_shares(self, job: Job) -> Job | None:
        if job.state in (JobState.RUNNING, JobState.SUSPENDED):
            return await self.job(job.id)
        return job

    async def history(self, job_id: int) -> Sequence[Job]:
        answer = await self._restd.call(
            "GET",
            f"job/{job_id}",
            wire.DbJobs,
            f"read job {job_id} in accounting",
            service="slurmdb",
        )
        records = [reading.recorded(record) for record in answer.jobs or ()]
        ours = (job for job in records if not self._foreign(job))
        return sorted(ours, key=lambda job: -job.submitted)

    def _foreign(self, job: Job) -> bool:
        """The job is another Sluice's: gangs of two clusters may have one id."""
        return job.stamp is not None and job.stamp.sluice != self._cluster

    async def mark(self, job_id: int, stamp: Stamp, nodes: Sequence[str] = ()) -> None:
        await self._restd.call(
            "POST",
            f"job/{job_id}",
            wire.Reply,
            f"mark job {job_id}",
            body=wire.StampUpdate(stamp_text(stamp), list(nodes) or UNSET, len(nodes) or UNSET),
        )

    async def end(self, job_id: int) -> None:
        """slurmrestd reports in ``status`` what became of each job, with HTTP 200 and no errors.

        An external job is CANCELLED and its nodes are free when this returns: it does not stay
        in COMPLETING, for there is no slurmd to wait for.
        """
        what = f"cancel job {job_id}"
        answer = await self._restd.call(
            "DELETE", f"job/{job_id}", wire.Killed, what, params=[("signal", "KILL")]
        )
        for status in answer.status or ():
            if status.error and status.error.code not in errors.ENDED:
                problem = wire.Problem(status.error.code, status.error.string)
                raise errors.failure([problem], 200, what)

    async def finish(self, job_id: int, exit_code: int, comment: str = "") -> None:
        """slurmrestd can only cancel, so a program does it that has libslurm (complete.py). It is
        not believed: a job that it left running would hold its nodes for good."""
        if self._completer is not None:
            problem = await self._completer.complete(job_id, wait_status(exit_code))
            state = (await self._states([job_id])).get(job_id)
            if state is None or state.ended:
                return
            _log.warning("job not completed, so cancelled", job=job_id, why=problem or "it runs on")
        await self._say_outcome(job_id, exit_code, comment)
        await self.end(job_id)

    async def _say_outcome(self, job_id: int, exit_code: int, comment: str) -> None:
        """Into the comment, which is all that tells a job that ended well from a cancelled one."""
        said = ended_text(exit_code)
        if said in comment:
            return
        try:
            await self._restd.call(
                "POST",
                f"job/{job_id}",
                wire.Reply,
                f"write the outcome of job {job_id}",
                body=wire.CommentUpdate("; ".join(filter(None, (comment, said)))),
            )
        except SlurmRefused as error:  # the comment is too long, or the job has ended
            _log.warning("outcome not written", job=job_id, why=str(error))

    async def nodes(self) -> Sequence[SlurmNode]:
        """2.6 kB a node."""
        answer = await self._restd.call("GET", "nodes/", wire.Nodes, "list nodes", long=True)
        return [reading.node(info) for info in answer.nodes or ()]

    async def limits(self, kill_wait_seconds: int) -> Limits:
        return await limits.read(self._restd, kill_wait_seconds)

    async def create_nodes(self, specs: Sequence[NodeSpec]) -> None:
        lines = nodeconf.lines(specs)
        if lines and await self._restd.version() == "v0.0.43":
            raise SlurmRefused(
                "slurmrestd 25.05 cannot create nodes: use scontrol create there, or Slurm 25.11"
            )
        for line in lines:
            await self._restd.call(
                "POST",
                "new/node/",
                wire.Reply,
                "create nodes",
                body=wire.NodeCreation(line),
                long=True,
            )
