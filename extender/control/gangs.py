"""The loop: a gang was touched -> look at it -> decide -> act. One gang at a time, many gangs."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable

import msgspec
import structlog
from msgspec import Struct

from extender.control import metrics
from extender.control.actions import Actions
from extender.control.cluster import Cluster
from extender.control.jobs import JobTable
from extender.control.journal import Journal
from extender.control.lease import Leadership
from extender.control.reports import Reports
from extender.domain.decision import Decision, GangState, Submit
from extender.domain.lifecycle import decide
from extender.domain.model import Gang, Job, JobState, Workload
from extender.domain.policy import Refusal
from extender.domain.ranks import job_of
from extender.kube.client import KubeError, KubeUnavailable
from extender.slurm.port import SlurmError, SlurmRefused

_log = structlog.get_logger(__name__)
_RETRY_SECONDS = 1.0
_RETRY_MOST_SECONDS = 60.0
_REFUSED_SECONDS = 30.0
_REFUSED_MOST_SECONDS = 600.0
_SWEEP_SECONDS = 10.0
_PREDECESSOR_SECONDS = 3.0
"""How long what another replica had sent may still land: it stopped a second before at least."""


class _Refused(Struct):
    """Slurm's no to a submit: not asked again before ``until`` (monotonic), or until it changes."""

    request: object
    why: str
    until: float
    pause: float


class GangLoop:
    """Brings every touched gang one step further. ``touch`` is cheap and may come from anywhere."""

    def __init__(self, *, settle_seconds: float, concurrency: int = 64) -> None:
        self._settle = settle_seconds
        self._room = asyncio.Semaphore(concurrency)
        self._dirty: dict[str, float] = {}  # gang -> since when (monotonic)
        self._busy: set[str] = set()
        self._wake = asyncio.Event()
        self._refused: dict[str, _Refused] = {}
        self._failures: dict[str, int] = {}  # in a row
        self._timers: dict[str, asyncio.TimerHandle] = {}  # one a gang: its next try
        self.turned = time.monotonic()

    def wire(
        self,
        cluster: Cluster,
        jobs: JobTable,
        journal: Journal,
        actions: Actions,
        reports: Reports,
        may_submit: Callable[[], bool],
        lease: Leadership,
    ) -> None:
        """Connect what needs ``touch`` to be made before it."""
        self._lease = lease
        self._cluster, self._jobs, self._journal = cluster, jobs, journal
        self._actions, self._reports, self._may_submit = actions, reports, may_submit

    def touch(self, gang_id: str) -> None:
        self._dirty.setdefault(gang_id, time.monotonic())
        self._wake.set()

    def touch_all(self) -> None:
        for gang_id in (*self._cluster.gang_ids(), *self._jobs.gang_ids()):
            self.touch(gang_id)

    def begin(self) -> None:
        """This replica acts from now on. What the one before it had sent may still land: a gang
        without a job is not submitted before that is out of the question."""
        for gang_id in self._cluster.gang_ids():
            if not any(job.state.live for job in self._jobs.of_gang(gang_id)):
                self._jobs.unanswered(gang_id, _PREDECESSOR_SECONDS)
        self._jobs.doubt()
        self._failures.clear()
        for gang_id in self._cluster.gang_ids():  # who led before may not have told of it yet
            last, gang = self._journal.last(gang_id), self._cluster.gang(gang_id)
            if gang and last and last.state is not GangState.RUNNING:
                self._reports.decided(gang, last)
        self.touch_all()

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._sweep())
            while True:
                await self._wake.wait()
                await asyncio.sleep(self._settle)
                self._wake.clear()
                for gang_id in self._dirty.keys() - self._busy:
                    self._busy.add(gang_id)
                    group.create_task(self._turn(gang_id, self._dirty.pop(gang_id)))

    async def _sweep(self) -> None:
        """What depends on time alone is looked at now and then; what only waits is left alone."""
        while True:
            self.turned = time.monotonic()
            self._journal.count_states()
            for gang_id in self._journal.restless():
                if gang_id not in self._timers:
                    self.touch(gang_id)
            await asyncio.sleep(_SWEEP_SECONDS)

    async def _turn(self, gang_id: str, touched: float) -> None:
        try:
            async with self._room:
                metrics.delay_seconds.observe(time.monotonic() - touched)
                await self._reconcile(gang_id)
        except SlurmError as error:  # only while it stands by: actions are handled where they are
            _log.warning("job not looked up", gang=gang_id, why=str(error))
            self._retry(gang_id)
        except Exception:  # the loop must not stop for one gang; nothing is swallowed
            _log.exception("gang not handled", gang=gang_id)
            self._retry(gang_id)
        finally:
            self._busy.discard(gang_id)
            if gang_id in self._dirty:
                self._wake.set()

    def _later(self, gang_id: str, seconds: float) -> None:
        """Touch it then; in place of an earlier appointment, or failures would multiply them."""
        self._cancel_timer(gang_id)
        loop = asyncio.get_running_loop()
        self._timers[gang_id] = loop.call_later(seconds, self._due, gang_id)

    def _due(self, gang_id: str) -> None:
        del self._timers[gang_id]
        self.touch(gang_id)

    def _cancel_timer(self, gang_id: str) -> None:
        if timer := self._timers.pop(gang_id, None):
            timer.cancel()

    def _retry(self, gang_id: str) -> None:
        """After 1, 2, 4 … 60 s, give or take a third: many that failed together come apart."""
        failures = self._failures.get(gang_id, 0)
        self._failures[gang_id] = min(failures + 1, 10)
        pause = min(_RETRY_SECONDS * 2**failures, _RETRY_MOST_SECONDS)
        self._later(gang_id, pause * (0.67 + 0.66 * random.random()))

    async def _reconcile(self, gang_id: str) -> None:
        jobs = self._jobs.of_gang(gang_id)
        owner = self._cluster.workloads.get(gang_id)
        gang = self._cluster.gang(gang_id) or _remains(gang_id, jobs, owner)
        if gang is None:
            self._forget(gang_id)
            return
        decision = decide(
            gang,
            jobs,
            self._cluster.nodes,
            time.time(),
            certain=self._jobs.sure_of(gang_id) and self._may_submit(),
            gone_since=self._cluster.gone_since,
        )
        if decision.state is GangState.CHECKING and self._jobs.problem:
            why = f"Nothing is asked of Slurm before it answers: {self._jobs.problem}"
            decision = msgspec.structs.replace(decision, reason=why)
        if self._lease.held:
            await self._lead(gang, self._held_back(gang, decision))
        else:
            await self._stand_by(gang, decision)
        over = not any(job.state.live for job in self._jobs.of_gang(gang_id))
        if over and not gang.pods and gang_id not in self._cluster.workloads:
            self._forget(gang_id)

    async def _lead(self, gang: Gang, decision: Decision) -> None:
        self._record(gang, decision)
        if decision.actions and self._jobs.certain:  # else its job may be as it was before we led
            await self._act(gang, decision)
        elif decision.again_in > 0:
            self._later(gang.id, decision.again_in)

    async def _stand_by(self, gang: Gang, decision: Decision) -> None:
        """Know as much as the leader does, to answer kube-scheduler: which jobs have started."""
        self._journal.decided(gang.id, decision)
        for job_id in {job_of(pod) for pod in gang.pods if not pod.terminal} - {0}:
            job = self._jobs.get(job_id)
            if job is None or job.state is not JobState.RUNNING or not job.shares:
                await self._jobs.look(job_id)

    async def _act(self, gang: Gang, decision: Decision) -> None:
        try:
            await self._actions.carry_out(gang, decision.actions)
            self._refused.pop(gang.id, None)
            self._failures.pop(gang.id, None)
            self._cancel_timer(gang.id)
        except* Refusal as group:
            self._refuse(gang, decision, _first(group))
        except* SlurmRefused as group:
            if any(isinstance(action, Submit) for action in decision.actions):
                self._refuse(gang, decision, _first(group))
            else:  # a job that ended meanwhile cannot be marked: that says nothing about the gang
                self._failed(gang, _first(group))
        except* (SlurmError, KubeError, KubeUnavailable) as group:
            self._failed(gang, _first(group))

    def _failed(self, gang: Gang, why: str) -> None:
        _log.warning("action failed", gang=f"{gang.namespace}/{gang.name}", why=why)
        self._journal.note(gang.id, f"Will be tried again: {why}")
        self._retry(gang.id)

    # -- refusals ---------------------------------------------------------------------------

    def _refuse(self, gang: Gang, decision: Decision, why: str) -> None:
        before = self._refused.get(gang.id)
        pause = min(before.pause * 2, _REFUSED_MOST_SECONDS) if before else _REFUSED_SECONDS
        refused = _Refused(self._asked(gang), why, time.monotonic() + pause, pause)
        self._refused[gang.id] = refused
        self._later(gang.id, pause)
        self._record(gang, Decision(GangState.INVALID, why, job=decision.job))

    def _held_back(self, gang: Gang, decision: Decision) -> Decision:
        """A refused submit is not repeated before its time, unless what is asked has changed."""
        if not any(isinstance(action, Submit) for action in decision.actions):
            return decision
        refused = self._refused.get(gang.id)
        if refused is None:
            return decision
        if refused.request != self._asked(gang):
            del self._refused[gang.id]
            return decision
        if time.monotonic() >= refused.until:
            return decision
        return Decision(GangState.INVALID, refused.why, job=decision.job)

    def _asked(self, gang: Gang) -> object:
        """All that a translation depends on: when it changes, a refusal no longer stands."""
        shapes = frozenset((p.uid, p.resources, repr(p.annotations)) for p in gang.pods)
        nodes = self._cluster.nodes.values()
        most = (len(nodes), max((n.gpus for n in nodes), default=0))
        return shapes, repr(self._cluster.namespaces.get(gang.namespace)), most

    # -- records ----------------------------------------------------------------------------

    def _record(self, gang: Gang, decision: Decision) -> None:
        if self._journal.decided(gang.id, decision):
            self._reports.decided(gang, decision)

    def _forget(self, gang_id: str) -> None:
        self._refused.pop(gang_id, None)
        self._failures.pop(gang_id, None)
        self._cancel_timer(gang_id)
        self._journal.forget(gang_id)
        self._jobs.forget(gang_id)
        self._reports.forget(gang_id)


def _remains(gang_id: str, jobs: list[Job], owner: Workload | None) -> Gang | None:
    """A gang without pods, as its job's stamp tells of it."""
    stamps = [job.stamp for job in jobs if job.stamp]
    if not stamps:
        return None
    stamp = stamps[-1]
    return Gang(
        id=gang_id,
        kind=stamp.kind,
        namespace=stamp.namespace,
        name=stamp.gang,
        size=stamp.size,
        workload=owner,
    )


def _first(group: BaseExceptionGroup[BaseException]) -> str:
    """The text of the first exception in a group of groups."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error)
