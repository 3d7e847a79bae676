"""One schedule: the models, the replicas of Sluice, and the steps of a plan, run to a verdict."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from extender.domain import wellknown as names
from extender.domain.model import GangKind, JobRequest, JobState, Namespace, Node, Stamp
from extender.slurm.port import Slurm
from tests.simulation import standins
from tests.simulation.clock import EPOCH, Timeline
from tests.simulation.controllers import Kubelet, Scheduler, Workloads
from tests.simulation.faults import Faults
from tests.simulation.judge import Judge, Violation
from tests.simulation.kube import JOBS, NAMESPACES, NODES, PODS, ApiServer
from tests.simulation.plan import GIB, Plan, Step, Wish
from tests.simulation.replica import Replica
from tests.simulation.slurmctld import Host, Slurmctld
from tests.simulation.slurmhttp import HttpPort
from tests.simulation.slurmport import Port
from tests.simulation.truth import JobTruth, PodTruth

SETTLE_SECONDS = 500.0
_PATHS = {"pods": PODS, "jobs": JOBS, "nodes": NODES}


class Outcome(Struct, frozen=True):
    violation: Violation | None
    story: tuple[str, ...]
    steps: int  # callbacks that were run
    settled_after: float  # seconds after the last fault


class World:
    def __init__(self, plan: Plan, *, wiring: str = "light", tells: bool = False) -> None:
        self.plan = plan
        self.in_json = wiring == "full"
        self._http = wiring == "http"
        self._tells = tells
        self.story: list[str] = []
        self._dice = random.Random(plan.seed ^ 0x5EED)
        self.timeline = Timeline()
        standins.clock.timeline = self.timeline
        standins.chance.seed(plan.seed)
        standins.defects.clear()
        self.settling = False
        self.void = False  # nothing more can be said of this schedule
        self.troubled_until = 0.0
        self.watches_lag_until = 0.0
        self.killed_at = 0.0
        self.judge = Judge(self)
        self.faults = Faults(self)
        self.api = ApiServer(self)
        self.slurm = Slurmctld(self)
        self.slurm.min_job_age, self.slurm.accounting_lag = plan.min_job_age, plan.accounting_lag
        self.workloads = Workloads(self)
        self.scheduler = Scheduler(self)
        self.kubelet = Kubelet(self)
        self.replicas: list[Replica] = []
        self._born = 0

    # -- small things ---------------------------------------------------------------------------

    @property
    def now(self) -> float:
        return self.timeline.now

    def time(self) -> float:
        return EPOCH + self.timeline.now

    def lag(self, most: float) -> float:
        """A delay: any up to ``most`` seconds."""
        return most * self._dice.random() if self.plan.jitter else most / 2

    def coin(self) -> bool:
        return self._dice.random() < 0.5

    def shuffle(self, items: list[Any]) -> None:
        if self.plan.jitter:
            self._dice.shuffle(items)

    def say(self, who: str, text: str, *args: object) -> None:
        if self._tells:
            self.story.append(f"{self.now:9.3f}  {who:<11} {text % args if args else text}")

    def port(self, replica: Replica) -> Slurm:
        return HttpPort(self, replica) if self._http else Port(self, replica)

    def trouble(self, seconds: float) -> None:
        self.troubled_until = max(self.troubled_until, self.now + seconds)

    # -- what models tell each other --------------------------------------------------------------

    def pod_changed(self, truth: PodTruth) -> None:
        if truth.left > self.now and (truth.gone or truth.pod.deleting or truth.pod.terminal):
            truth.left = self.now
        self.workloads.changed(truth)
        self.scheduler.changed(truth)

    def slurm_ended(self, job: JobTruth) -> None: ...

    def any_replica(self) -> Replica | None:
        able = [r for r in self.replicas if r.answers]
        return able[0] if len(able) == 1 else self._dice.choice(able) if able else None

    def acting(self) -> Replica | None:
        """The replica that leads, or the first that could."""
        able = [r for r in self.replicas if r.answers]
        return next((r for r in able if r.leads), able[0] if able else None)

    # -- running ----------------------------------------------------------------------------------

    def run(self) -> Outcome:
        plan = self.plan
        self.api.put(NAMESPACES, Namespace("ml", {names.MANAGED: "true"}))
        for name, gpus in plan.nodes:
            self._add_node(name, gpus)
        for identity in ("a", "b") if plan.replicas > 1 else ("",):
            self.start_replica(identity)
        for step in plan.steps:
            self.timeline.at(step.at, self._step, step)
        self.timeline.at(5.0, self._audit)
        self.timeline.run(plan.horizon)
        waited = self._settle() if not self.timeline.stopped else 0.0
        for replica in self.replicas:
            replica.loop.kill()
        return Outcome(self.judge.violation, tuple(self.story), self.timeline.steps, waited)

    def _audit(self) -> None:
        self.judge.audit()
        for replica in self.replicas:
            if replica.alive and replica.problem:
                self.judge.broken("no defect", replica.problem)
        if standins.defects:
            self.judge.broken("no defect", standins.defects.pop())
        self.timeline.after(10.0, self._audit)

    def _settle(self) -> float:
        """Faults stop; everything is to come to rest in bounded time."""
        self.say("fault", "all faults stop")
        self.settling = True
        self._end_faults()
        start, pause = self.now, 1.0
        quiet = 0
        while self.now - start < SETTLE_SECONDS:
            self.timeline.run(self.now + pause)
            if self.timeline.stopped:
                return self.now - start
            pause = min(pause * 1.3, 10.0)
            quiet = 0 if self.judge.unsettled() else quiet + 1
            if quiet == 2:
                self._audit()
                return self.now - start
        self.judge.broken("settles", "; ".join(self.judge.unsettled()))
        return self.now - start

    def _end_faults(self) -> None:
        self.faults.end()
        if not self.slurm.up:
            self.slurm.restart()
        for name in sorted(self.kubelet.lost):
            self.kubelet.find(name)
        for host in self.slurm.hosts.values():
            host.up = True
        for node in list(self.api.nodes.values()):
            if node.unschedulable:
                self.api.put(NODES, replace(node, unschedulable=False))
        for job in self.slurm.jobs.values():
            job.held = False
            job.hold_until = 0.0
        self.slurm.changed()
        for replica in self.replicas:
            if replica.alive and not replica.answers:
                replica.loop.thaw()
        self._fill_up()
        self.scheduler.restart()

    # -- replicas -----------------------------------------------------------------------------------

    def start_replica(self, identity: str) -> Replica:
        self._born += 1
        replica = Replica(self, self._born, identity)
        self.replicas.append(replica)
        self.say("sluice", "%s starts", replica)
        return replica

    def _crash(self, steps: int, away: float) -> None:
        replica = self.acting()
        if replica is None:
            return
        if steps:
            replica.loop.fuse = (steps, lambda: self._kill(replica, away))
        else:
            self._kill(replica, away)

    def _kill(self, replica: Replica, away: float) -> None:
        if not replica.alive:
            return
        self.say("fault", "%s is killed", replica)
        self.trouble(away)
        replica.kill()
        self.replicas.remove(replica)
        if self.settling:
            self._fill_up()
        else:
            self.timeline.after(away, self._fill_up)

    def _fill_up(self) -> None:
        """Whoever keeps replicas running starts the one that is missing, under its old name."""
        there = {replica.identity for replica in self.replicas}
        for identity in ("a", "b") if self.plan.replicas > 1 else ("",):
            if identity not in there:
                self.start_replica(identity)

    # -- steps ----------------------------------------------------------------------------------------

    def _step(self, step: Step) -> None:
        self.say("step", "%s", step)
        name = step.what.replace(" ", "_")
        do: Callable[..., None] = getattr(self, f"do_{name}")
        do(*step.args)

    def do_start(self, wish: Wish) -> None:
        self.workloads.start(wish)

    def do_delete_job(self, name: str) -> None:
        self.workloads.delete_job(name)

    def do_suspend(self, name: str, suspended: bool) -> None:
        self.workloads.suspend(name, suspended)

    def _pods(self, name: str) -> list[PodTruth]:
        return [p for p in self.api.pods.values() if p.gang.name == name and p.alive]

    def _pick(self, name: str, pick: int) -> list[PodTruth]:
        pods = self._pods(name)
        return [pods[pick % len(pods)]] if pods else []

    def do_finish(self, name: str, pick: int) -> None:
        for pod in self._pick(name, pick):
            self.kubelet.finish(pod, 0)

    def do_fail(self, name: str, pick: int) -> None:
        for pod in self._pick(name, pick):
            self.kubelet.finish(pod, 1 + pick)

    def do_fail_all(self, name: str, pick: int) -> None:
        for pod in self._pods(name):
            self.kubelet.finish(pod, 1 + pick)

    def do_delete_pod(self, name: str, pick: int) -> None:
        for pod in self._pick(name, pick):
            self.api.delete_pod(pod)

    def do_delete_all(self, name: str, _pick: int) -> None:
        for pod in self._pods(name):
            self.api.delete_pod(pod)

    def do_force(self, name: str, pick: int) -> None:
        for pod in self._pick(name, pick):
            self.api.delete_pod(pod, grace=0)

    def do_crash(self, steps: int, away: float) -> None:
        self._crash(steps, away)

    def do_freeze(self, steps: int, seconds: float) -> None:
        replica = self.acting()
        if replica is None:
            return
        replica.loop.fuse = (steps, lambda: self._freeze(replica, seconds))

    def _freeze(self, replica: Replica, seconds: float) -> None:
        self.say("fault", "%s is frozen", replica)
        self.trouble(seconds)
        replica.loop.freeze()
        self.timeline.after(seconds, self._thaw, replica)

    def _thaw(self, replica: Replica) -> None:
        if replica.alive and not replica.answers:
            self.say("fault", "%s wakes up", replica)
            replica.loop.thaw()

    def do_calls(self, target: str, mode: str, seconds: float, calls: int) -> None:
        self.trouble(seconds + 12.0)
        self.faults.open(target, mode, seconds, calls)

    def do_kill_slurmctld(self, seconds: float) -> None:
        if self.slurm.up:
            self.killed_at = self.now
            self.slurm.crash()
            self.timeline.after(seconds, self._slurmctld_back)

    def _slurmctld_back(self) -> None:
        if not self.slurm.up:
            self.slurm.restart()
            self.trouble(1.0)

    def do_hang_slurmctld(self, seconds: float) -> None:
        self.say("fault", "slurmctld hangs")
        self.trouble(seconds + 12.0)
        self.faults.hang(seconds)

    def do_lose_state(self, _seconds: float) -> None:
        if self.slurm.up:
            self.slurm.lose_everything()

    def do_slurm_job(self, how: str, pick: int, state: str, seconds: float) -> None:
        ours = [j for j in self.slurm.jobs.values() if j.live and j.gang is not None]
        if not ours or not self.slurm.up:
            return
        job = ours[pick % len(ours)]
        if how == "end":
            pending = job.state is JobState.PENDING
            self.slurm.end(job, JobState.CANCELLED if pending else JobState(state))
        elif how == "requeue" and job.state is JobState.RUNNING:
            job.fell_at = self.now
            self.slurm.requeue(job, seconds)
        elif how == "hold" and job.state is JobState.PENDING:
            job.held = True

    def do_watch(self, paths: tuple[str, ...], seconds: float, gone: bool) -> None:
        self.trouble(seconds)
        self.watches_lag_until = max(self.watches_lag_until, self.now + seconds)
        for replica in self.replicas:
            self.api.break_watches(replica, [_PATHS[p] for p in paths], seconds, gone)

    def do_lose_node(self, name: str, seconds: float) -> None:
        self.trouble(seconds)
        self.kubelet.lose(name)
        self.timeline.after(seconds, self.kubelet.find, name)

    def do_delete_node(self, name: str, _seconds: float) -> None:
        if name in self.api.nodes:
            self.kubelet.delete_node(name)

    def do_cordon(self, name: str, seconds: float) -> None:
        self._cordon(name, True)
        self.timeline.after(seconds, self._cordon, name, False)

    def _cordon(self, name: str, cordoned: bool) -> None:
        node = self.api.nodes.get(name)
        if node is not None:
            self.api.put(NODES, replace(node, unschedulable=cordoned))

    def do_slurm_node_down(self, name: str, seconds: float) -> None:
        host = self.slurm.hosts.get(name)
        if host is None or not self.slurm.up:
            return
        self.say("fault", "Slurm node %s is down", name)
        host.up = False
        for job in list(self.slurm.jobs.values()):
            if job.state is JobState.RUNNING and any(s.name == name for s in job.shares):
                self.slurm.end(job, JobState.NODE_FAIL)
        self.timeline.after(seconds, self._host_up, host)

    def _host_up(self, host: Host) -> None:
        host.up = True
        self.slurm.changed()

    def do_foreign(self, tasks: int, seconds: float) -> None:
        if not self.slurm.up:
            return
        stamp = Stamp(sluice="other", namespace="x", gang="x", kind=GangKind.POD, id="x")
        request = JobRequest(
            name="theirs",
            user="bob",
            stamp=stamp,
            tasks=tasks,
            cpus_per_task=8,
            memory_mib_per_task=1024,
            gpus_per_task=self.plan.nodes[0][1],
        )
        job = self.slurm.submit(request, stamp if self.coin() else None)
        self.timeline.after(seconds, self._end_foreign, job)

    def _end_foreign(self, job: JobTruth) -> None:
        if not self.slurm.up:
            self.timeline.after(1.0, self._end_foreign, job)
        elif job.live:
            self.slurm.end(job, JobState.COMPLETED)

    def do_restart_scheduler(self, away: float) -> None:
        self.scheduler.stop()
        self.timeline.after(away, self.scheduler.restart)

    def do_api_down(self, seconds: float) -> None:
        self.say("fault", "the API server does not answer")
        self.trouble(seconds + 10.0)
        self.faults.take_api_down(seconds)
        for replica in self.replicas:
            self.api.break_watches(replica, list(_PATHS.values()), seconds, self.coin())
        self.watches_lag_until = max(self.watches_lag_until, self.now + seconds)

    def do_accounting_away(self, seconds: float) -> None:
        self.trouble(seconds + 10.0)
        self.faults.open("slurm history", "error", seconds, 1000)

    def _add_node(self, name: str, gpus: int) -> None:
        node = Node(
            name=name,
            labels={names.MANAGED: "true"},
            address="10.0.0.1",
            cpu_milli=32000,
            memory_bytes=256 * GIB,
            gpus=gpus,
        )
        self.api.put(NODES, node)
        self.slurm.add_host(Host(name, 32, 256 * 1024, gpus))


def simulate(plan: Plan, *, wiring: str = "light", tells: bool = False) -> Outcome:
    """Run one schedule to its verdict. ``tells``: with its story. The same plan gives the same."""
    return World(plan, wiring=wiring, tells=tells).run()
