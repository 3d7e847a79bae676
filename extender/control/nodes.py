"""Kubernetes' managed nodes as Slurm's external nodes.

Slurm's list is read first and only missing names are created: creating a name that exists deletes
that node, with its jobs.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import structlog

from extender.control.cluster import Cluster
from extender.control.lease import Alone, Leadership
from extender.domain.model import Node, NodeSpec
from extender.domain.topology import node_spec
from extender.domain.wellknown import MANAGED, TAINT
from extender.kube.client import STRATEGIC, KubeClient, KubeError, KubeUnavailable, encode
from extender.slurm.port import Slurm, SlurmError, SlurmRefused

_log = structlog.get_logger(__name__)
_TAINT = {"key": TAINT, "effect": "NoSchedule", "value": "slurm"}
_GATHER_SECONDS = 0.2
_STANDBY_SECONDS = 60.0


class NodeLoop:
    """Creates what is missing in Slurm and taints what is managed."""

    def __init__(
        self,
        cluster: Cluster,
        slurm: Slurm,
        kube: KubeClient,
        changed: Callable[[], None],
        *,
        manage: bool,
        taint: bool,
        feature: str,
        root: str,
        sockets: int,
        resync_seconds: float,
        lease: Leadership | None = None,
    ) -> None:
        self._lease = lease or Alone()
        self._cluster, self._slurm, self._kube = cluster, slurm, kube
        self._changed = changed
        self._manage, self._taint = manage, taint
        self._feature, self._root, self._sockets = feature, root, sockets
        self._resync = resync_seconds
        self._in_slurm: frozenset[str] | None = None  # None: never listed
        self.synced = False  # every managed node has been listed or tried once
        self._listed_at = 0.0
        self._listing = asyncio.Lock()
        self._wake = asyncio.Event()
        self.problem = "Slurm's nodes have not been listed yet"

    def in_slurm(self) -> frozenset[str]:
        """The names of Slurm's nodes as last listed."""
        return self._in_slurm or frozenset()

    async def relist(self) -> None:
        """Read the list anew; those who ask while it is being read share the next one."""
        asked = time.monotonic()
        async with self._listing:
            if self._listed_at < asked:
                await self._list()
        if self._missing():
            self.touch()

    def touch(self) -> None:
        """A managed node appeared or changed."""
        self._wake.set()

    async def run(self) -> None:
        """Follow until cancelled."""
        next_list = 0.0
        while True:
            self._wake.clear()
            if not self._lease.held:
                next_list, self.synced, self.problem = 0.0, False, ""
                await self._sleep(_STANDBY_SECONDS)
                continue
            try:
                if time.monotonic() >= next_list or self._in_slurm is None:
                    await self._list()
                    next_list = time.monotonic() + self._resync
                if self._missing() and self._manage:
                    await self._list()  # never create from an old list
                    await self._create(self._missing())
                self._say_missing()
                if not self.synced:
                    self.synced = True
                    self._changed()
                await self._taint_all()
                pause = self._resync
            except (SlurmError, KubeError, KubeUnavailable) as error:
                self.problem = f"nodes are not in step: {error}"
                _log.warning("nodes not in step", why=str(error))
                pause = 5.0
            await self._sleep(pause)

    async def _sleep(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._wake.wait(), seconds)
            await asyncio.sleep(_GATHER_SECONDS)
        except TimeoutError:
            return

    async def _list(self) -> None:
        self._listed_at = time.monotonic()
        self._in_slurm = frozenset(node.name for node in await self._slurm.nodes())

    def _missing(self) -> list[Node]:
        known = self.in_slurm()
        return [node for name, node in self._cluster.nodes.items() if name not in known]

    async def _create(self, missing: list[Node]) -> None:
        specs = [
            node_spec(n, root=self._root, feature=self._feature, sockets=self._sockets)
            for n in missing
            if n.cpu_milli and n.memory_bytes
        ]
        try:
            await self._slurm.create_nodes(specs)
        except SlurmRefused:
            await self._create_one_by_one(specs)
        await self._list()
        _log.info("nodes created in Slurm", count=len(specs))
        self._changed()

    async def _create_one_by_one(self, specs: list[NodeSpec]) -> None:
        """One node that Slurm refuses must not keep the others out."""
        await self._list()
        for spec in specs:
            if spec.name in self.in_slurm():
                continue
            try:
                await self._slurm.create_nodes([spec])
            except SlurmRefused as error:
                _log.error("node refused by Slurm", node=spec.name, why=str(error))

    def _say_missing(self) -> None:
        missing = self._missing()
        self.problem = ""
        if missing:
            _log.warning("nodes not in Slurm", count=len(missing), first=missing[0].name)

    async def _taint_all(self) -> None:
        if not self._taint:
            return
        untainted = [n for n in self._cluster.nodes.values() if not _tainted(n)]
        for start in range(0, len(untainted), 32):
            async with asyncio.TaskGroup() as group:
                for node in untainted[start : start + 32]:
                    group.create_task(self._taint_one(node))

    async def _taint_one(self, node: Node) -> None:
        body = {"spec": {"taints": [_TAINT]}}  # merged by key
        try:
            await self._kube.request(
                "PATCH", f"/api/v1/nodes/{node.name}", body=encode(body), content_type=STRATEGIC
            )
        except (KubeError, KubeUnavailable) as error:
            _log.warning("node not tainted", node=node.name, label=MANAGED, why=str(error))


def _tainted(node: Node) -> bool:
    return any(taint.get("key") == TAINT for taint in node.taints)
