"""The invariants. Each is checked where it could break, against the truth of the models.

What Sluice could not know yet excuses it, and nothing else does: ``told_gone``, ``listed_at`` and
``acked_to`` say what a replica has been told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from extender.domain import wellknown as names
from extender.domain.decision import GangState
from extender.domain.gangs import int_or
from extender.domain.model import GangKind, JobRequest, JobState, Node, Stamp
from extender.domain.placement import ranks_that_fit
from extender.domain.topology import fabric_order
from extender.domain.translate import Shape
from tests.simulation.truth import GangTruth, JobTruth, PodTruth

if TYPE_CHECKING:
    from tests.simulation.replica import Replica
    from tests.simulation.world import World

ORPHAN_SECONDS = 150.0
"""How long a Slurm job may be without a gang while nothing fails: one sync and its retries."""
SAVED_SECONDS = 5.0
STALE_SECONDS = 2.0


class Violation(Struct, frozen=True):
    invariant: str
    what: str
    at: float

    def __str__(self) -> str:
        return f"{self.invariant}: {self.what} (at {self.at:.3f} s)"


class Judge:
    def __init__(self, world: World) -> None:
        self._world = world
        self.violation: Violation | None = None
        self._bind_known: set[tuple[int, str]] = set()

    def broken(self, invariant: str, what: str) -> None:
        if self.violation is None and not self._world.void:
            self.violation = Violation(invariant, what, self._world.now)
            self._world.say("INVARIANT", "%s: %s", invariant, what)
            self._world.timeline.stopped = True

    def writing(self, replica: Replica, what: str) -> None:
        """Only the holder of the Lease writes."""
        holder = self._world.api.lease_holder()
        if replica.identity and holder != replica.identity:
            self.broken("one acts", f"{replica} sends {what} while {holder or 'nobody'!r} leads")

    # -- Slurm jobs -----------------------------------------------------------------------------

    def submitting(self, replica: Replica, request: JobRequest) -> None:
        """Never two live jobs for a gang, as far as the replica could know."""
        gang = self._gang(request.stamp)
        if gang is None:
            self.broken("submit", f"a job is submitted for {request.stamp.id}, which never was")
            return
        self._world.say("sluice", "%s submits for %s (%d)", replica, gang.name, request.tasks)
        looked = replica.listed_at > replica.to_look_after(gang.id)
        for job in gang.live_jobs():
            if not looked or _told_of(replica, job):
                self.broken("one live job", f"{gang.name} is submitted again while {job!r} is live")
        need = gang.size - len(gang.succeeded())
        if request.tasks < need:
            self.broken(
                "all or none", f"{request.tasks} tasks for {gang.name}, which still has {need}"
            )

    def submitted(self, job: JobTruth) -> None:
        gang = self._gang(job.stamp)
        if gang is not None:
            job.gang = gang
            gang.jobs.append(job)

    def marked(self, replica: Replica, job: JobTruth, stamp: Stamp) -> None:
        if job.stamp is None or job.stamp.id != stamp.id:
            self._foreign(replica, job, "marked")

    def _foreign(self, replica: Replica, job: JobTruth, done: str) -> None:
        """A number that was given away while a call with it was under way excuses the call, and
        what comes of it: the schedule ends there."""
        if _told_of(replica, job):
            self.broken("foreign job", f"{job!r} of somebody else is {done} by {replica}")
        else:
            self._world.timeline.stopped = self._world.void = True

    def ending(self, replica: Replica, job: JobTruth) -> None:
        """The allocation is given back only when every pod is terminal or gone."""
        if job.gang is None:
            self._foreign(replica, job, "ended")
            return
        holding = [p.pod.name for p in job.gang.pods if p.granted is job and p.alive]
        if holding:
            self.broken("held to the end", f"{job!r} is ended while {', '.join(holding)} live")

    def allocated(self, job: JobTruth) -> None:
        if job.gang is not None:
            for pod in job.gang.living():  # their job was lost, and this one has its number
                same = pod.pod.annotations.get(names.JOB_ID) == str(job.id)
                if same and pod.granted is not None and pod.granted.vanished:
                    pod.granted, pod.granted_run = job, job.runs
        for share in job.shares:
            host = self._world.slurm.hosts[share.name]
            if min(self._world.slurm.free(host)) < 0:
                raise AssertionError(f"the model gave {share.name} twice")

    def start_forgotten(self, job: JobTruth) -> None:
        """slurmctld forgets only starts that it was not made to save."""
        world = self._world
        running = [p for p in job.gang.pods if p.granted is job and p.alive] if job.gang else []
        since = max(job.ran_since, world.troubled_until)
        if running and world.killed_at - since > SAVED_SECONDS:
            self.broken("start saved", f"the start of {job!r} was not saved")

    # -- pods -----------------------------------------------------------------------------------

    def released(self, replica: Replica, truth: PodTruth, told: dict[str, str]) -> None:
        gang, node = truth.gang, told.get(names.NODE, "")
        job_id, rank = int_or(told.get(names.JOB_ID), 0), int_or(told.get(names.RANK), -1)
        job = next((j for j in reversed(gang.jobs) if j.id == job_id), None)
        self._world.say(
            "sluice",
            "%s releases %s to %s as rank %d of job %d",
            replica,
            truth.pod.name,
            node,
            rank,
            job_id,
        )
        if job is None or not job.nodes_ever:
            self.broken("released early", f"{truth.pod.name}: job {job_id} was never allocated")
            return
        if node not in job.nodes_ever:
            self.broken("in its allocation", f"{truth.pod.name} is sent to {node}, not of {job!r}")
        taken_over = truth.granted is not None and truth.granted.vanished
        if truth.granted not in (None, job) and not taken_over:
            self.broken("released once", f"{truth.pod.name}: {truth.granted!r}, then {job!r}")
        for other in gang.living():
            if other is truth or other.granted is None:
                continue
            if other.granted is job and _rank(other) == rank:
                self.broken("ranks", f"{other.pod.name} and {truth.pod.name} are rank {rank}")
            if other.granted is not job and other.granted.live and job.live:
                self.broken("one live job", f"pods on {other.granted!r} and on {job!r}")
        if gang.kind is GangKind.JOB and rank != truth.rank:
            self.broken("ranks", f"{truth.pod.name} is rank {rank}")
        if not taken_over and all(p.granted is not job for p in gang.pods):
            self._all_there(gang, job)
        before, truth.granted, truth.granted_run = truth.granted, job, job.runs
        if before is None and replica.runs_told.get(job) == job.runs:
            self._in_order(gang, job, rank, node)

    def _all_there(self, gang: GangTruth, job: JobTruth) -> None:
        if self._world.watches_lag_until > self._world.now - STALE_SECONDS:
            return
        since = self._world.now - STALE_SECONDS
        there = {
            p.rank if gang.kind is GangKind.JOB else p.pod.uid for p in gang.pods if p.left > since
        }
        tasks = job.request.tasks if job.request else 1
        if len(there) < tasks:
            self.broken("all or none", f"{len(there)} of {tasks} pods of {gang.name} are there")

    def _in_order(self, gang: GangTruth, job: JobTruth, rank: int, node: str) -> None:
        """Index i on the i-th slot along the fabric, for a gang that starts whole."""
        request = job.request
        if job.runs > 1:
            return  # pods may be where an earlier run had put them
        if gang.kind is not GangKind.JOB or request is None or request.tasks != gang.size:
            return
        shape = Shape(request.cpus_per_task, request.memory_mib_per_task, request.gpus_per_task)
        shares = sorted(job.slots, key=lambda s: fabric_order(Node(name=s.name)))
        slots = [s.name for s in shares for _ in range(ranks_that_fit(s, shape))]
        if rank < len(slots) and slots[rank] != node:
            self.broken("ranks in order", f"rank {rank} is on {node}, slot {rank} on {slots[rank]}")

    def binding(self, replica: Replica, truth: PodTruth) -> None:
        if truth.granted is not None and replica.told_gone(truth.granted):
            self._bind_known.add((replica.number, truth.pod.uid))

    def bound(self, replica: Replica, truth: PodTruth, node: str) -> None:
        job = truth.granted
        if job is None:
            self.broken("in its allocation", f"{truth.pod.name} is bound and was never released")
            return
        if (replica.number, truth.pod.uid) in self._bind_known:
            self.broken("in its allocation", f"{truth.pod.name} is bound though {job!r} is over")
        if truth.pod.annotations.get(names.NODE) != node:
            self.broken("in its allocation", f"{truth.pod.name} is bound to {node}")
        share = job.nodes_ever.get(node)
        if share is None:
            self.broken("in its allocation", f"{truth.pod.name} is bound to {node}, not of {job!r}")
            return
        here = [p for p in truth.gang.pods if p.granted is job and p.alive and p.pod.node == node]
        here.append(truth)
        gpus = sum(p.pod.resources.gpus for p in here)
        cpus = sum(-(-p.pod.resources.cpu_milli // 1000) for p in here)
        if gpus > share.gpus or cpus > share.cpus:
            told = ", ".join(p.pod.name for p in here)
            self.broken("one pod a slot", f"{told} take {cpus} CPUs, {gpus} GPUs of {share}")

    def _split_anew(self, job: JobTruth, truth: PodTruth) -> bool:
        """The job was started again, and holds too little of the node for its pods there."""
        node = truth.pod.annotations.get(names.NODE)
        here = [
            p.pod.resources
            for p in truth.gang.pods
            if p.granted is job and p.alive and p.pod.annotations.get(names.NODE) == node
        ]
        gpus = sum(r.gpus for r in here)
        cpus = sum(-(-r.cpu_milli // 1000) for r in here)
        return any(s.name == node and (gpus > s.gpus or cpus > s.cpus) for s in job.shares)

    def deleted(self, truth: PodTruth) -> None:
        """A pod is deleted only because Slurm has ended its job."""
        job = truth.granted
        if job is not None:
            if job.ended_ever or self._fell(job, truth) or self._node_gone(job):
                return
            if self._split_anew(job, truth):
                return
            if any(
                p.granted is not job and p.granted.live for p in truth.gang.living() if p.granted
            ):
                return  # pods on two jobs: those on one of them have to go
            self.broken("nothing on silence", f"{truth.pod.name} is deleted, {job!r}")
            return
        for one in truth.gang.jobs:
            took = one.ended_ever and not one.by_sluice and not one.refused
            if took and one.stamp is not None and one.stamp.newest >= truth.pod.created:
                return
        self.broken("nothing on silence", f"{truth.pod.name} is deleted, no job of it has ended")

    def _fell(self, job: JobTruth, truth: PodTruth) -> bool:
        """slurmctld put the job back into its queue, and it did not come back in time."""
        if not job.live:
            return False
        if truth.granted_run <= job.requeued_run:
            return True  # that run of it is over, wherever the next one is
        if job.state is JobState.PENDING:
            return self._world.now - job.fell_at > 60.0
        return all(share.name != truth.pod.node for share in job.shares)

    def _node_gone(self, job: JobTruth) -> bool:
        return any(share.name not in self._world.api.nodes for share in job.slots)

    # -- from time to time ------------------------------------------------------------------------

    def audit(self) -> None:
        """Never a Slurm job without a gang for longer than one sync."""
        world = self._world
        for job in world.slurm.jobs.values():
            gang = job.gang
            if gang is None or job.state.ended:
                continue
            spare = len(gang.live_jobs()) > 1
            if not spare and gang.living():
                job.orphan_since = None
                continue
            if job.orphan_since is None:
                job.orphan_since = world.now
            since = max(job.orphan_since, world.troubled_until)
            if world.now - since > ORPHAN_SECONDS:
                why = "is one too many" if spare else "has no pods"
                self.broken(
                    "no orphan", f"{job!r} of {gang.name} {why} for {world.now - since:.0f} s"
                )

    # -- when faults have stopped -----------------------------------------------------------------

    def unsettled(self) -> list[str]:
        """What is not at rest, or where the books disagree."""
        found = []
        for gang in self._world.workloads.gangs.values():
            if why := self._unsettled(gang):
                found.append(f"{gang.name} ({gang.id}): {why}")
        return found

    def _unsettled(self, gang: GangTruth) -> str:
        living, live = gang.living(), gang.live_jobs()
        if not living:
            return f"{live[0]!r} has no pods" if live else ""
        if len(live) > 1:
            return f"{len(live)} live jobs"
        if any(p.pod.deleting for p in living):
            return "pods are ending"
        if gang.kind is not GangKind.JOB:
            if len(living) != gang.size:
                return ""  # nobody makes the missing pods: it waits, and says so
        elif len({p.rank for p in living} | gang.succeeded()) < gang.size:
            return "pods are missing"
        if live:
            return self._with_job(living, live[0])
        return self._without_job(gang, living)

    def _with_job(self, living: list[PodTruth], job: JobTruth) -> str:
        if job.state is JobState.PENDING:
            if any(p.granted is job for p in living):
                return "" if job.held or not self._fits(job) else "back in the queue though it fits"
            return "" if job.held or not self._fits(job) else "it fits and has not started"
        for pod in living:
            if pod.granted is not job:
                return f"{pod.pod.name} is not released for {job!r}"
            if not pod.pod.node:
                taken = not self._world.scheduler.fits(pod.pod, pod.pod.annotations[names.NODE])
                return "" if taken else f"{pod.pod.name} is not bound"
            if pod.pod.phase != "Running":
                return f"{pod.pod.name} is {pod.pod.phase}"
            if all(share.name != pod.pod.node for share in job.shares):
                return f"{pod.pod.name} runs on {pod.pod.node}, which {job!r} has not"
        return ""

    def _fits(self, job: JobTruth) -> bool:
        return self._world.slurm.place(job) is not None

    def _without_job(self, gang: GangTruth, living: list[PodTruth]) -> str:
        replica = self._world.acting()
        decision = replica.service.journal.last(gang.id) if replica else None
        if decision is None:
            return "nothing is decided"
        if decision.state is GangState.LOST:
            lost = [p for p in living if p.granted and not p.granted.listed]
            return "" if lost else f"called lost: {decision.reason}"
        if decision.state is GangState.INVALID and decision.reason:
            wish = gang.extra.get("wish")
            return "" if wish and not self._possible(wish.resources.gpus) else decision.reason
        return f"no job; {decision.state}: {decision.reason}"

    def _possible(self, gpus: int) -> bool:
        nodes = self._world.api.nodes.values()
        return any(n.gpus >= gpus and n.ready and not n.unschedulable for n in nodes)

    # -- readings -----------------------------------------------------------------------------------

    def _gang(self, stamp: Stamp | None) -> GangTruth | None:
        return self._world.workloads.gangs.get(stamp.id) if stamp else None


def _told_of(replica: Replica, job: JobTruth) -> bool:
    """Slurm has told the replica that there is this job."""
    return replica in job.acked_to or job.visible_since < replica.listed_at


def _rank(truth: PodTruth) -> int:
    return int_or(truth.pod.annotations.get(names.RANK), -1)
