"""A model of slurmctld and its accounting: queue, allocations, ends, and what a crash forgets.

Knows nothing of calls; slurmport.py and slurmhttp.py do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from extender.domain.model import (
    Job,
    JobRequest,
    JobState,
    NodeShare,
    NodeSpec,
    SlurmNode,
    Stamp,
)
from extender.slurm.port import SlurmRefused
from tests.simulation.clock import EPOCH
from tests.simulation.truth import JobTruth

if TYPE_CHECKING:
    from tests.simulation.world import World

_Disk = dict[int, tuple[JobTruth, JobState, tuple[NodeShare, ...], Stamp | None, float, bool]]


class Host:
    """A node of Slurm's, and what is free of it."""

    __slots__ = ("address", "cpus", "gpus", "memory_mib", "name", "up")

    def __init__(self, name: str, cpus: int, memory_mib: int, gpus: int) -> None:
        self.name = name
        self.cpus = cpus
        self.memory_mib = memory_mib
        self.gpus = gpus
        self.up = True
        self.address = ""


class Slurmctld:
    def __init__(self, world: World) -> None:
        self._world = world
        self.hosts: dict[str, Host] = {}
        self.jobs: dict[int, JobTruth] = {}
        self.accounting: dict[int, list[JobTruth]] = {}
        self.ever: list[JobTruth] = []
        self.next_id = 1
        self.min_job_age = 20.0
        self.accounting_lag = 0.0
        self._disk: _Disk = {}
        self._disk_next_id = 1
        self._saving = False
        self._passing = False
        self.up = True
        self.booted = EPOCH

    # -- submit, start, end -------------------------------------------------------------------

    def submit(self, request: JobRequest, stamp: Stamp | None) -> JobTruth:
        job = JobTruth(self.next_id, stamp, request, request.user, self._world.now)
        self.next_id += 1
        self.jobs[job.id] = job
        self.accounting.setdefault(job.id, []).append(job)
        self.ever.append(job)
        job.held = request.hold
        job.required = request.required_nodes
        self._world.say("slurm", "job %d is queued (%d tasks)", job.id, request.tasks)
        self.changed()
        return job

    def refused(self, request: JobRequest, stamp: Stamp | None) -> JobTruth:
        """slurmctld keeps a record of a job that no node can ever hold."""
        job = self.submit(request, stamp)
        self.end(job, JobState.FAILED)
        job.reason, job.refused = "BadConstraints", True
        return job

    def changed(self) -> None:
        """Something is free or waits: look at the queue before long, and save before long."""
        if not self._passing:
            self._passing = True
            backfill = self._world.lag(1.0) > 0.7  # else the main scheduler, at once
            self._world.timeline.after(
                0.05 + self._world.lag(4.0 if backfill else 0.5), self._schedule
            )
        self.save_soon()

    def save_soon(self) -> None:
        if not self._saving:
            self._saving = True
            self._world.timeline.after(self._world.lag(1.5), self._save)

    def _save(self) -> None:
        if not self.up:
            return
        self._saving = False
        self._disk = {
            j.id: (j, j.state, j.shares, j.stamp, j.started, j.held) for j in self.jobs.values()
        }
        self._disk_next_id = self.next_id

    def _schedule(self) -> None:
        self._passing = False
        if not self.up:
            return
        now = self._world.now
        for job in list(self.jobs.values()):
            if job.state is not JobState.PENDING or job.request is None:
                continue
            if job.held or job.hold_until > now:
                job.reason = "JobHeldAdmin"
                continue
            shares = self.place(job)
            if shares is None:
                job.reason = "Resources"
                continue
            self._start(job, shares)

    def _start(self, job: JobTruth, shares: tuple[NodeShare, ...]) -> None:
        self._world.say(
            "slurm",
            "job %d starts on %s",
            job.id,
            ", ".join(f"{s.name} ({s.cpus} CPUs, {s.gpus} GPUs)" for s in shares),
        )
        job.state, job.reason, job.shares = JobState.RUNNING, "None", shares
        job.started = job.ran_since = self._world.now
        job.slots = shares
        job.runs += 1
        job.known_gone.clear()
        for share in shares:
            job.nodes_ever[share.name] = share
        self._world.judge.allocated(job)

    def free(self, host: Host) -> tuple[int, int, int]:
        cpus, memory, gpus = host.cpus, host.memory_mib, host.gpus
        for job in self.jobs.values():
            if job.state is JobState.RUNNING:
                for share in job.shares:
                    if share.name == host.name:
                        cpus -= share.cpus
                        memory -= share.memory_mib
                        gpus -= share.gpus
        return cpus, memory, gpus

    def place(self, job: JobTruth) -> tuple[NodeShare, ...] | None:
        """Where it would start now; ``None``: it has to wait."""
        request = job.request
        assert request is not None
        left = request.tasks
        shares = []
        hosts = [h for h in self.hosts.values() if h.up and h.name not in request.excluded_nodes]
        if job.required:
            hosts = [h for h in hosts if h.name in job.required]
        self._world.shuffle(hosts)
        for host in hosts:
            cpus, memory, gpus = self.free(host)
            limits = [cpus // request.cpus_per_task, memory // request.memory_mib_per_task]
            if request.gpus_per_task:
                limits.append(gpus // request.gpus_per_task)
            ranks = min(left, *limits)
            if ranks > 0:
                shares.append(
                    NodeShare(
                        host.name,
                        ranks * request.cpus_per_task,
                        ranks * request.memory_mib_per_task,
                        ranks * request.gpus_per_task,
                    )
                )
                left -= ranks
            if not left:
                return tuple(shares)
        return None

    def can_ever_hold(self, request: JobRequest) -> bool:
        return any(
            h.cpus >= request.cpus_per_task
            and h.memory_mib >= request.memory_mib_per_task
            and h.gpus >= request.gpus_per_task
            for h in self.hosts.values()
            if h.name not in request.excluded_nodes
        )

    def end(self, job: JobTruth, state: JobState) -> None:
        self._world.say("slurm", "job %d is %s", job.id, state)
        job.state, job.ended, job.ended_ever = state, self._world.now, True
        job.shares = ()
        self._world.timeline.after(self.min_job_age, self._purge, job)
        self.changed()
        self._world.slurm_ended(job)

    def _purge(self, job: JobTruth) -> None:
        if self.jobs.get(job.id) is job and job.state.ended:
            del self.jobs[job.id]
            job.listed = False

    def requeue(self, job: JobTruth, hold: float) -> None:
        self._world.say("slurm", "job %d is requeued", job.id)
        job.state, job.shares, job.reason = JobState.PENDING, (), "BeginTime"
        job.hold_until = self._world.now + hold
        job.restarts += 1
        job.requeued_run = job.runs
        self._world.timeline.after(hold, self.changed)
        self.changed()

    def mark(self, job: JobTruth, stamp: Stamp, nodes: Sequence[str] = ()) -> None:
        """An update. The nodes are required of a pending job; one that runs loses all others, and
        can get none that it has not."""
        if (
            nodes
            and job.state is JobState.RUNNING
            and not set(nodes) <= {s.name for s in job.shares}
        ):
            raise SlurmRefused(f"node list of job {job.id}: Invalid node name specified", 2018)
        job.stamp = stamp
        if nodes and job.state is JobState.RUNNING:
            job.shares = tuple(share for share in job.shares if share.name in nodes)
            self.changed()
        elif nodes:
            job.required = tuple(nodes)
        self.save_soon()

    # -- crashes ------------------------------------------------------------------------------

    def crash(self) -> None:
        """kill -9: memory is lost. ``restart`` reads what was saved last."""
        self._world.say("fault", "slurmctld is killed")
        self.up = False

    def restart(self) -> None:
        self._world.say("fault", "slurmctld is started again")
        before, self.jobs = self.jobs, {}
        now = self._world.now
        for job_id, (job, state, shares, stamp, started, held) in self._disk.items():
            if job.state.ended and not state.ended:
                self._world.say("slurm", "job %d is live again: its end was not saved", job_id)
                job.visible_since = now
                job.acked_to.clear()
                job.known_gone.clear()
            if job.state is JobState.RUNNING and state is JobState.PENDING:
                self._world.say("slurm", "job %d is PENDING again: its start was not saved", job_id)
                job.fell_at = now
                self._world.judge.start_forgotten(job)
            if state is JobState.RUNNING and not shares:
                state = JobState.PENDING
            job.state, job.shares, job.stamp, job.started, job.held = (
                state,
                shares,
                stamp,
                started,
                held,
            )
            job.listed = True
            self.jobs[job_id] = job
            if state.ended:
                self._world.timeline.after(self.min_job_age, self._purge, job)
        for job in before.values():
            if self.jobs.get(job.id) is not job:
                self._world.say("slurm", "job %d is forgotten", job.id)
                job.listed, job.vanished = False, True
        self.next_id = self._disk_next_id
        self.up, self._saving, self._passing = True, False, False
        self.booted = EPOCH + now
        self.changed()

    def lose_everything(self) -> None:
        """Started on an empty state directory: no jobs, and numbers begin again."""
        self._world.say("fault", "slurmctld has lost all of its state")
        for job in self.jobs.values():
            job.listed, job.vanished = False, job.vanished or not job.state.ended
        self.jobs, self._disk = {}, {}
        self.next_id = self._disk_next_id = 1
        self.booted = EPOCH + self._world.now
        self.changed()

    # -- what it tells ------------------------------------------------------------------------

    def told(self, job: JobTruth) -> Job:
        request = job.request
        return Job(
            id=job.id,
            state=job.state,
            reason="" if job.reason == "None" else job.reason,
            stamp=job.stamp,
            user=job.user,
            account=request.account if request else "",
            partition=request.partition if request else "",
            submitted=EPOCH + int(job.submitted),
            started=EPOCH + int(job.started) if job.started else 0.0,
            ended=EPOCH + int(job.ended) if job.state.ended else 0.0,
            comment=job.comment,
            restarts=job.restarts,
            shares=job.shares if job.state is JobState.RUNNING else (),
        )

    def recorded(self, job_id: int) -> list[tuple[JobTruth, Job]]:
        """What accounting has of the jobs with this number, the newest first."""
        found = ((job, self._recorded(job)) for job in reversed(self.accounting.get(job_id, [])))
        return [(job, record) for job, record in found if record is not None]

    def _recorded(self, job: JobTruth) -> Job | None:
        """It hears of everything later, and never of the end of a job that slurmctld lost."""
        heard = self._world.now - self.accounting_lag
        if job.submitted > heard:
            return None
        state = job.state
        if job.vanished or (state.ended and job.ended > heard):
            state = JobState.RUNNING if job.started else JobState.PENDING
        told = self.told(job)
        return Job(
            id=job.id,
            state=state,
            stamp=job.stamp if self._world.plan.accounting_keeps_stamps else None,
            user=job.user,
            submitted=told.submitted,
            started=told.started,
            ended=told.ended if state.ended else 0.0,
        )

    def add_host(self, host: Host) -> None:
        self.hosts[host.name] = host
        self.changed()

    def create(self, specs: Sequence[NodeSpec]) -> None:
        for spec in specs:
            if spec.name in self.hosts:
                self._world.judge.broken("node", f"Slurm node {spec.name} is created again")
            gpus = int(spec.gres.rpartition(":")[2]) if spec.gres else 0
            cpus = spec.sockets * spec.cores_per_socket * spec.threads_per_core
            self.add_host(Host(spec.name, cpus, spec.memory_mib, gpus))

    def listed_nodes(self) -> list[SlurmNode]:
        return [
            SlurmNode(name=h.name, states=("IDLE",) if h.up else ("DOWN",), cpus=h.cpus)
            for h in self.hosts.values()
        ]
