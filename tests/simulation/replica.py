"""One simulated process of Sluice: the real service on a loop of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from extender import app
from extender.app import Service
from extender.control import watches
from extender.control.lease import Lease
from extender.control.reports import Reports
from extender.domain.model import Pod
from extender.domain.views import Verdict
from extender.kube.client import JSON, KubeClient, KubeStandby
from extender.kube.watch import Reflector
from extender.settings import Settings
from tests.simulation import standins
from tests.simulation.clock import ProcessLoop, State
from tests.simulation.streams import watch
from tests.simulation.truth import JobTruth, PodTruth

if TYPE_CHECKING:
    from tests.simulation.world import World

SETTINGS = Settings(
    slurm=cast(
        Any,
        {
            "default_user": "alice",
            "poll_min_milliseconds": 1000,
            "poll_max_milliseconds": 3000,
            "resync_seconds": 30,
        },
    ),
    nodes=cast(Any, {"taint": False}),
    gangs=cast(Any, {"settle_milliseconds": 50}),
)


LEASE_SECONDS = 6


class Replica:
    """``identity`` is its name in the Lease; "" for the only replica there is."""

    def __init__(self, world: World, number: int, identity: str = "") -> None:
        self.world = world
        self.number = number
        self.identity = identity
        self.lease: Lease | None = None
        self.loop = ProcessLoop(world.timeline)
        self.listed_at = -1.0  # when slurmctld answered the last whole list that it got
        self._look_after = world.now  # it began to run, or to lead
        self.runs_told: dict[JobTruth, int] = {}  # the run whose nodes it was told
        self.unanswered: dict[str, float] = {}  # gang -> when a submit was left without an answer
        self._finished: asyncio.Task[Any] | None = None
        self.loop.enter(self._start)

    def __str__(self) -> str:
        return f"replica {self.number}"

    def _start(self) -> None:
        kube = cast(KubeClient, Kube(self.world, self))
        if self.identity:
            self.lease = Lease(
                kube,
                namespace="sluice-system",
                name="sluice",
                identity=self.identity,
                duration_seconds=LEASE_SECONDS,
                clock=standins.clock.monotonic,
            )
        self.service = Service(SETTINGS, self.world.port(self), kube, self.lease)
        if self.lease is not None:
            self._begin, self.lease.gained = self.lease.gained, self._gained
        self._finished = self.loop.create_task(self.service.run())

    @property
    def alive(self) -> bool:
        return self.loop.state is not State.DEAD

    @property
    def answers(self) -> bool:
        return self.loop.state is State.RUNNING

    def _gained(self) -> None:
        self._look_after = self.world.now
        self.world.say("sluice", "%s leads", self)
        self._begin()

    def to_look_after(self, gang_id: str) -> float:
        """From when on Slurm's list has to be, that a submit for the gang may rely on."""
        return max(self._look_after, self.unanswered.get(gang_id, 0.0))

    @property
    def leads(self) -> bool:
        return self.answers and (self.lease is None or self.lease.held)

    def may_write(self) -> bool:
        """What the adapters ask right before a write."""
        return self.lease is None or self.lease.held

    @property
    def problem(self) -> str:
        """What went wrong inside, which is never to happen."""
        if self.loop.errors:
            return str(self.loop.errors[0])
        if self._finished and self._finished.done() and not self._finished.cancelled():
            return repr(self._finished.exception())
        return ""

    def kill(self) -> None:
        self.loop.kill()
        self.world.api.leave(self)

    def verdict(self, pod: Pod) -> Verdict:
        found = self.loop.enter(
            self.service.scheduling.verdict, pod.namespace, pod.name, pod.uid, pod.scheduler
        )
        return cast(Verdict, found)

    def bind(self, truth: PodTruth, node: str) -> asyncio.Task[str]:
        pod = truth.pod
        self.world.judge.binding(self, truth)
        call = self.service.scheduling.bind(pod.namespace, pod.name, pod.uid, node)
        return cast("asyncio.Task[str]", self.loop.enter(self.loop.create_task, call))

    def told_gone(self, job: JobTruth) -> bool:
        return self in job.known_gone


class Kube:
    """``KubeClient`` over the model."""

    def __init__(
        self, world: World, replica: Replica, may_write: Callable[[], bool] | None = None
    ) -> None:
        self.world, self.replica, self._may_write = world, replica, may_write

    def fenced(self, may_write: Callable[[], bool]) -> Kube:
        return Kube(self.world, self.replica, may_write)

    async def close(self) -> None: ...

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        content_type: str = JSON,  # noqa: ARG002
        params: Any = None,  # noqa: ARG002
    ) -> bytes:
        if not self.replica.alive:
            raise asyncio.CancelledError
        if method != "GET" and self._may_write is not None:
            if not self._may_write():
                raise KubeStandby(f"{method} {path} was not sent: another replica leads")
            self.world.judge.writing(self.replica, f"{method} {path}")
        return await self.world.api.call(self.replica, method, path, body)

    def watch(
        self,
        path: str,
        params: Mapping[str, str],
        seconds: int,  # noqa: ARG002
    ) -> AsyncIterator[bytes]:
        world = self.world
        version = int(params["resourceVersion"])
        return watch(world, self.replica, world.api.collections[path], version)


class DirectReflector:
    """In place of ``Reflector``: the same promises, without JSON. For most schedules."""

    def __init__(
        self,
        client: Any,
        path: str,
        object_type: type[Any],  # noqa: ARG002
        convert: Callable[[Any], Any],  # noqa: ARG002
        key: Callable[[Any], str],
        seen: Callable[[Any], None],
        gone: Callable[[Any], None],
        params: dict[str, str] | None = None,  # noqa: ARG002
    ) -> None:
        self._kube: Kube = client
        self._path = path
        self._key, self._seen, self._gone = key, seen, gone
        self._known: dict[str, Any] = {}
        self.synced = asyncio.Event()
        self.problem = ""

    async def run(self) -> None:
        self._kube.world.api.follow(self._path, self._kube.replica, self._told)
        await asyncio.get_running_loop().create_future()

    def _told(self, kind: str, value: Any) -> None:
        if kind == "LISTED":
            fresh = {self._key(one): one for one in value}
            for key in self._known.keys() - fresh.keys():
                self._gone(self._known.pop(key))
            self._known = fresh
            for one in value:
                self._seen(one)
            self.synced.set()
        elif kind == "DELETED":
            self._known.pop(self._key(value), None)
            self._gone(value)
        else:
            self._known[self._key(value)] = value
            self._seen(value)


class SilentReports:
    """In place of ``Reports``, whose writes no decision depends on."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def decided(self, *_: Any) -> None: ...

    def forget(self, *_: Any) -> None: ...

    def pod_gone(self, *_: Any) -> None: ...

    async def run(self) -> None:
        await asyncio.get_running_loop().create_future()


def wire(wiring: str) -> None:
    """Which parts the next services get: "light" leaves JSON and reports out."""
    light = wiring != "full"
    cast(Any, watches).Reflector = DirectReflector if light else Reflector
    cast(Any, app).Reports = SilentReports if light else Reports
