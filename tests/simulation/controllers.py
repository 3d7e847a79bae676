"""Models of what runs beside Sluice: the Job controller, kube-scheduler and the kubelets."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from extender.domain import wellknown as names
from extender.domain.model import GangKind, Owner, Pod, Workload
from extender.domain.views import VerdictKind
from tests.simulation.kube import JOBS, NODES
from tests.simulation.truth import GangTruth, PodTruth

if TYPE_CHECKING:
    from tests.simulation.plan import Wish
    from tests.simulation.world import World

MOST_FAILURES = 12


class Workloads:
    """Makes pods for what the plan wishes: Jobs, named gangs, lone pods."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._count = 0
        self.gangs: dict[str, GangTruth] = {}  # by Sluice's gang id
        self.jobs: dict[str, GangTruth] = {}  # Jobs that exist, by name
        self._syncing: set[str] = set()

    # -- wishes -------------------------------------------------------------------------------

    def start(self, wish: Wish) -> None:
        if wish.kind == "job":
            self._start_job(wish)
        elif wish.kind == "gang":
            for i in range(wish.size):
                self._make(wish, f"{wish.name}-{i}", index=None)
        else:
            self._make(wish, wish.name, index=None)

    def _start_job(self, wish: Wish) -> None:
        if wish.name in self.jobs:
            return
        uid = self._uid(wish.name)
        gang = self._gang(uid, GangKind.JOB, wish.name, wish.size)
        gang.extra = {"wish": wish, "failed": 0, "done": False}
        self.jobs[wish.name] = gang
        self._world.say("workload", "Job %s of %d is created (%s)", wish.name, wish.size, uid)
        self._put(gang, suspended=False)
        self.sync(gang, 0.02)

    def _put(self, gang: GangTruth, **changes: Any) -> None:
        before = self._world.api.workload(gang.id)
        if before is None:
            before = Workload(
                namespace=gang.namespace,
                name=gang.name,
                uid=gang.id,
                completions=gang.size,
                parallelism=gang.size,
                indexed=True,
            )
        self._world.api.put(JOBS, replace(before, **changes))

    def delete_job(self, name: str) -> None:
        gang = self.jobs.pop(name, None)
        if gang is None:
            return
        self._world.say("workload", "Job %s is deleted (%s)", name, gang.id)
        self._world.api.remove(JOBS, gang.id)
        for pod in gang.living():
            self._world.timeline.after(self._world.lag(0.1), self._world.api.delete_pod, pod)
        for pod in gang.pods:
            if not pod.gone:
                self._world.timeline.after(self._world.lag(0.3), self._world.api.delete_pod, pod)

    def suspend(self, name: str, suspended: bool) -> None:
        gang = self.jobs.get(name)
        if gang and not gang.extra["done"]:
            self._world.say("workload", "Job %s suspend=%s", name, suspended)
            self._put(gang, suspended=suspended)
            self.sync(gang, 0.05)

    # -- the Job controller ---------------------------------------------------------------------

    def changed(self, truth: PodTruth) -> None:
        gang = truth.gang
        if gang.kind is GangKind.JOB:
            if gang.id not in self._syncing:
                self.sync(gang, 0.01 + self._world.lag(self._world.plan.recreate_lag))
        elif truth.gone and gang.extra.get("again", 0) > 0 and not self._world.settling:
            gang.extra["again"] -= 1
            wish: Wish = gang.extra["wish"]
            self._world.timeline.after(self._world.lag(0.5), self._again, wish, truth.pod.name)

    def _again(self, wish: Wish, name: str) -> None:
        self._make(wish, name, index=None)

    def sync(self, gang: GangTruth, seconds: float) -> None:
        self._syncing.add(gang.id)
        self._world.timeline.after(seconds, self._sync, gang)

    def _sync(self, gang: GangTruth) -> None:
        self._syncing.discard(gang.id)
        world = self._world
        job = world.api.workload(gang.id)
        if job is None or self.jobs.get(gang.name) is not gang:
            return
        wish: Wish = gang.extra["wish"]
        active = gang.living()
        if gang.extra["done"]:
            return
        if job.suspended:
            for pod in active:
                world.api.delete_pod(pod)
            return
        done = gang.succeeded()
        if done - job.completed:
            self._put(gang, completed=frozenset(done))
        failed = {p.pod.uid for p in gang.pods if p.pod.phase == "Failed" and not p.disrupted}
        if len(done) == gang.size or len(failed) > MOST_FAILURES:
            gang.extra["done"] = True
            world.say("workload", "Job %s is finished", gang.name)
            self._put(gang, finished=True)
            for pod in active:
                world.api.delete_pod(pod)
            return
        taken = {p.rank for p in active if not (p.pod.deleting and not wish.waits_for_failed)}
        for index in range(gang.size):
            if index not in done and index not in taken:
                self._make(wish, f"{wish.name}-{index}-{self._count}", index=index, gang=gang)

    # -- pods -----------------------------------------------------------------------------------

    def _make(
        self, wish: Wish, name: str, *, index: int | None, gang: GangTruth | None = None
    ) -> None:
        if ("ml", name) in self._world.api.pods:
            return
        uid = self._uid(name)
        annotations: dict[str, str] = dict(wish.annotations)
        owner = None
        if index is not None:
            annotations[names.COMPLETION_INDEX] = str(index)
            assert gang is not None
            owner = Owner("Job", wish.name, gang.id)
        elif wish.kind == "gang":
            annotations[names.GANG] = wish.name
            annotations[names.GANG_SIZE] = str(wish.size)
            gang = self._gang(f"ml/{wish.name}/", GangKind.PODS, wish.name, wish.size)
        else:
            gang = self._gang(uid, GangKind.POD, name, 1)
        if index is None:
            gang.extra.setdefault("wish", wish)
            gang.extra.setdefault("again", wish.again)
        pod = Pod(
            namespace="ml",
            name=name,
            uid=uid,
            created=float(int(self._world.time())),
            annotations=annotations,
            owner=owner,
            scheduler="sluice",
            gates=(names.GATE,) if wish.gated else (),
            resources=wish.resources,
            grace_seconds=wish.grace,
        )
        self._world.api.create_pod(pod, gang)

    def _gang(self, id: str, kind: GangKind, name: str, size: int) -> GangTruth:
        gang = self.gangs.get(id)
        if gang is None:
            gang = self.gangs[id] = GangTruth(id, kind, "ml", name, size)
        return gang

    def _uid(self, name: str) -> str:
        self._count += 1
        return f"u{self._count}-{name}"


class Scheduler:
    """kube-scheduler: its own filters, then /filter, then /bind, again after a pause."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._trying: dict[str, int] = {}  # pod uid -> number of the try under way
        self._tries = 0
        self._away = False

    def changed(self, truth: PodTruth) -> None:
        pod = truth.pod
        if truth.gone or pod.node or pod.gates or pod.deleting or pod.terminal or self._away:
            return
        if pod.uid not in self._trying:
            self._try_later(truth, 0.01, 0)

    def stop(self) -> None:
        """Tries under way are lost."""
        self._trying.clear()
        self._away = True

    def restart(self) -> None:
        """Pods are listed anew."""
        self._away = False
        for truth in list(self._world.api.pods.values()):
            self.changed(truth)

    def _try_later(self, truth: PodTruth, seconds: float, failures: int) -> None:
        self._tries += 1
        number = self._trying[truth.pod.uid] = self._tries
        delay = seconds + self._world.lag(0.05)
        self._world.timeline.after(delay, self._try, truth, number, failures)

    def _try(self, truth: PodTruth, number: int, failures: int) -> None:
        pod, world = truth.pod, self._world
        if self._trying.get(pod.uid) != number:
            return
        if truth.gone or pod.node or pod.deleting or pod.terminal:
            del self._trying[pod.uid]
            return
        again = (truth, min(8.0, 1.0 * 2**failures), failures + 1)
        replica = world.any_replica()
        if replica is None:
            self._try_later(*again)
            return
        verdict = replica.verdict(pod)
        if verdict.kind is not VerdictKind.NODE or not self.fits(pod, verdict.node):
            self._try_later(*again)
            return
        self._try_later(*again)  # in case nobody answers
        number = self._trying[pod.uid]
        binder = world.any_replica()
        if binder is None:
            return
        task = binder.bind(truth, verdict.node)
        task.add_done_callback(lambda done: self._bound(done, truth, number, failures))

    def _bound(self, done: asyncio.Task[str], truth: PodTruth, number: int, failures: int) -> None:
        if done.cancelled() or self._trying.get(truth.pod.uid) != number:
            return
        if error := done.exception():
            self._world.judge.broken("bind", f"bind raised {error!r}")
        elif done.result():
            self._world.say("kubernetes", "not bound: %s", done.result())
            self._try_later(truth, min(8.0, 1.0 * 2**failures), failures + 1)

    def fits(self, pod: Pod, name: str) -> bool:
        node = self._world.api.nodes.get(name)
        if node is None or node.unschedulable or not node.ready:
            return False
        pinned = [
            value
            for term in pod.node_affinity_terms
            for field in term.get("matchFields", ())
            for value in field["values"]
        ]
        if pinned and name not in pinned:
            return False
        gpus = node.gpus - pod.resources.gpus
        cpu = node.cpu_milli - pod.resources.cpu_milli
        for other in self._world.kubelet.on_node(name):
            gpus -= other.pod.resources.gpus
            cpu -= other.pod.resources.cpu_milli
        return gpus >= 0 and cpu >= 0


class Kubelet:
    """All kubelets: they run pods, end them with their grace, and are lost with their nodes."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.lost: set[str] = set()
        self._bound: dict[str, list[PodTruth]] = {}
        self._missed: list[PodTruth] = []

    def on_node(self, name: str) -> list[PodTruth]:
        """Pods that hold something of the node."""
        here = [p for p in self._bound.get(name, ()) if p.alive]
        self._bound[name] = here
        return here

    def start_pod(self, truth: PodTruth) -> None:
        self._bound.setdefault(truth.pod.node, []).append(truth)
        self._world.timeline.after(self._world.lag(0.3), self._running, truth)

    def _running(self, truth: PodTruth) -> None:
        if not truth.alive or truth.pod.phase != "Pending" or truth.pod.node in self.lost:
            return
        self._world.api.change_pod(truth, phase="Running")
        wish: Wish | None = truth.gang.extra.get("wish")
        if wish and wish.runs:
            seconds = wish.runs + self._world.lag(0.5)
            self._world.timeline.after(seconds, self.finish, truth, 0)

    def finish(self, truth: PodTruth, code: int) -> None:
        """Its containers end by themselves."""
        if not truth.alive or not truth.pod.node:
            return
        if truth.pod.node in self.lost:
            self._world.timeline.after(2.0, self.finish, truth, code)
            return
        phase = "Failed" if code else "Succeeded"
        self._world.say("kubernetes", "pod %s is %s", truth.pod.name, phase)
        ended = float(int(self._world.time())) if code else 0.0
        self._world.api.change_pod(truth, phase=phase, exit_code=code or None, failed_at=ended)
        if truth.pod.deleting:
            self._world.timeline.after(self._world.lag(0.05), self._world.api.remove_pod, truth)

    def end_pod(self, truth: PodTruth, grace: float) -> None:
        self._world.timeline.after(self._world.lag(grace), self._end, truth)

    def _end(self, truth: PodTruth) -> None:
        if truth.gone:
            return
        if truth.pod.node in self.lost:
            self._missed.append(truth)
            return
        if truth.pod.terminal:
            self._world.api.remove_pod(truth)
        else:
            self.finish(truth, 143)

    def lose(self, name: str) -> None:
        node = self._world.api.nodes.get(name)
        if node is None or name in self.lost:
            return
        self._world.say("fault", "node %s does not answer", name)
        self.lost.add(name)
        self._world.api.put(NODES, replace(node, ready=False))

    def find(self, name: str) -> None:
        if name not in self.lost:
            return
        self._world.say("fault", "node %s is back", name)
        self.lost.discard(name)
        node = self._world.api.nodes.get(name)
        if node is not None:
            self._world.api.put(NODES, replace(node, ready=True))
        missed, self._missed = self._missed, []
        for truth in missed:
            self._end(truth)
        for truth in self.on_node(name):
            if truth.pod.phase == "Pending":
                self._running(truth)

    def delete_node(self, name: str) -> None:
        """The node object goes; the pod collector removes its pods a little later."""
        self._world.say("fault", "node %s is deleted", name)
        self._world.api.remove(NODES, name)
        for truth in self.on_node(name):
            self._world.timeline.after(0.5 + self._world.lag(3.0), self._collect, truth)

    def _collect(self, truth: PodTruth) -> None:
        if truth.alive:
            self._world.api.change_pod(truth, phase="Failed")
        self._world.api.remove_pod(truth)
