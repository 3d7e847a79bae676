"""Puts the parts together: settings in, a running service out. Starts and stops everything."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import time
from collections.abc import AsyncIterator, Coroutine, Sequence
from typing import Any

import structlog
from fastapi import FastAPI

from extender.api.app import create_api, server
from extender.connect import defaults, kube_of, slurm_of
from extender.control import metrics
from extender.control.actions import Actions
from extender.control.cluster import Cluster
from extender.control.explain import Explain
from extender.control.gangs import GangLoop
from extender.control.jobs import JobTable
from extender.control.journal import Journal
from extender.control.lease import Alone, Leadership, Lease
from extender.control.limits import LimitLoop
from extender.control.nodes import NodeLoop
from extender.control.reports import Reports
from extender.control.scheduling import Scheduling
from extender.control.watches import Watches
from extender.domain.views import PartStatus, moment
from extender.kube.client import KubeClient
from extender.settings import Settings
from extender.slurm.port import Slurm, SlurmError

_log = structlog.get_logger(__name__)
_STALL_SECONDS = 90.0


class Service:
    """Every part of one replica, wired. Made inside the running event loop."""

    def __init__(
        self, settings: Settings, slurm: Slurm, kube: KubeClient, lease: Lease | None = None
    ) -> None:
        scheduler = settings.kubernetes.scheduler_name
        self.slurm, self.lease = slurm, lease
        self._told: dict[str, tuple[tuple[bool, str], float]] = {}  # part -> status, since when
        self._leads: Leadership = lease or Alone()
        acting = kube.fenced(lambda: self._leads.held)  # bindings are every replica's to write
        self.gangs = GangLoop(settle_seconds=settings.gangs.settle_milliseconds / 1000)
        self.cluster = Cluster(scheduler, self.gangs.touch)
        self.jobs = JobTable(
            slurm,
            self.gangs.touch,
            self.gangs.touch_all,
            fast_seconds=settings.slurm.poll_min_milliseconds / 1000,
            slow_seconds=settings.slurm.poll_max_milliseconds / 1000,
            resync_seconds=settings.slurm.resync_seconds,
            lease=self._leads,
        )
        self.journal = Journal(time.time)
        self.scheduling = Scheduling(
            scheduler,
            self.cluster,
            self.jobs,
            kube,
            settings.kubernetes.bind_concurrency,
            self._leads,
        )
        self.nodes = NodeLoop(
            self.cluster,
            slurm,
            acting,
            self.gangs.touch_all,
            manage=settings.nodes.manage,
            taint=settings.nodes.taint,
            feature=settings.nodes.feature,
            root=settings.nodes.topology_root,
            sockets=settings.nodes.sockets_per_node,
            resync_seconds=settings.nodes.resync_seconds,
            lease=self._leads,
        )
        self.limits = LimitLoop(
            slurm,
            kill_wait_seconds=settings.slurm.kill_wait_seconds,
            resync_seconds=settings.slurm.resync_seconds,
        )
        self.reports = Reports(
            self.cluster,
            self.journal,
            acting,
            event_interval_seconds=settings.gangs.event_interval_seconds,
            limits=lambda: self.limits.now,
        )
        self.watches = Watches(
            kube, self.cluster, self.nodes, self.scheduling, self.reports, scheduler
        )
        self.explain = Explain(scheduler, self.cluster, self.jobs, self.journal)
        actions = Actions(
            self.cluster,
            self.jobs,
            self.nodes,
            self.scheduling,
            self.journal,
            slurm,
            acting,
            cluster_name=settings.cluster,
            defaults=defaults(settings),
            patches=settings.kubernetes.patch_concurrency,
        )
        self.gangs.wire(
            self.cluster,
            self.jobs,
            self.journal,
            actions,
            self.reports,
            lambda: self.nodes.synced,
            self._leads,
        )
        if lease is not None:
            lease.gained = self._begin

    def _begin(self) -> None:
        self.nodes.touch()
        self.gangs.begin()

    async def run(self) -> None:
        """All loops, until cancelled: Kubernetes is read first, then Slurm, then decisions."""
        async with asyncio.TaskGroup() as group:
            self.watches.start(group)
            await self.watches.synced()
            gc.collect()
            gc.freeze()  # what was read at start stays: later collections need not visit it
            await self._connect()
            if self.lease is None:
                self._begin()
            else:
                group.create_task(_kept(self.lease.run()))
            for loop in (self.nodes.run(), self.jobs.run(), self.gangs.run(), self.reports.run()):
                group.create_task(_kept(loop))
            group.create_task(_kept(self.limits.run()))

    async def _connect(self) -> None:
        pause = 0.5
        while True:
            try:
                version = await self.slurm.start()
                _log.info("slurm answers", api=version)
                return
            except SlurmError as error:
                self.jobs.problem = str(error)
                _log.warning("slurm does not answer", why=str(error))
            await asyncio.sleep(pause)
            pause = min(pause * 2, 10.0)

    # -- health -----------------------------------------------------------------------------

    def parts(self) -> Sequence[PartStatus]:
        problems = {
            **{f"watch {name}": why for name, why in self.watches.problems().items()},
            "slurm jobs": self.jobs.problem,
            "slurm nodes": self.nodes.problem,
        }
        told = {name: (not why, why) for name, why in problems.items()}
        told["lease"] = (True, self._leads.status)
        for name, now in told.items():
            if self._told.get(name, (None, 0.0))[0] != now:
                self._told[name] = (now, time.time())
        return [
            PartStatus(name, ready, why, moment(self._told[name][1]))
            for name, (ready, why) in told.items()
        ]

    def stalled(self) -> str:
        idle = time.monotonic() - self.gangs.turned
        if self.watches.all_synced and idle > _STALL_SECONDS and self.jobs.certain:
            return f"the gang loop has not turned for {idle:.0f} s"
        return ""


async def _kept(loop: Coroutine[Any, Any, None]) -> None:
    """A loop that ends by itself is a defect; the process ends with it and is started again."""
    await loop
    raise RuntimeError("a loop ended")


def _lease(settings: Settings, kube: KubeClient) -> Lease | None:
    chosen = settings.lease
    if not chosen.enabled:
        return None
    return Lease(
        kube,
        namespace=chosen.namespace,
        name=chosen.name,
        identity=chosen.identity or f"{socket.gethostname()}:{settings.http.port}",
        duration_seconds=chosen.duration_seconds,
    )


async def serve(settings: Settings) -> int:
    """Run one replica until it is told to stop; the process's exit code."""
    kube = await kube_of(settings)
    lease = _lease(settings, kube)
    slurm = slurm_of(
        settings,
        counted=lambda call, outcome: metrics.slurm_calls.labels(call, outcome).inc(),
        may_write=lambda: lease is None or lease.held,
    )
    service = Service(settings, slurm, kube, lease)
    failure: list[BaseException] = []

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        running = asyncio.create_task(service.run())
        running.add_done_callback(ended)
        try:
            yield
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            if lease is not None:
                await lease.release()
            await slurm.close()
            await kube.close()

    def ended(task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()):
            _log.error("a loop failed; the service stops", exc_info=error)
            failure.append(error)
            http.should_exit = True

    app = create_api(
        service.scheduling,
        service.explain,
        service,
        metrics.registry,
        body_limit_bytes=settings.http.body_limit_mib * 1024 * 1024,
        lifespan=lifespan,
    )
    http = server(app, settings.http.host, settings.http.port)
    _log.info("listening", host=settings.http.host, port=settings.http.port)
    await http.serve()
    return 1 if failure or not http.started else 0
