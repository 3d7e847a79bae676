"""One replica acts, the others stand by: leader election with a Lease of Kubernetes.

The rules are client-go's (tools/leaderelection): the holder renews; the others take over when they
have seen no renewal for the whole duration, by their own clocks, so that no clocks are compared.
The holder stops acting before that, also when it was stopped itself meanwhile (SIGSTOP, a frozen
machine): ``held`` is asked before every write, and only time decides.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Protocol

import msgspec
import structlog
from msgspec import Struct

from extender.control import metrics
from extender.kube.client import KubeClient, KubeError, KubeUnavailable, encode

_log = structlog.get_logger(__name__)


class _Meta(Struct):
    resourceVersion: str = ""


class _Spec(Struct):
    holderIdentity: str | None = ""
    acquireTime: str | None = None
    leaseTransitions: int | None = 0


class _Lease(Struct):
    metadata: _Meta = msgspec.field(default_factory=_Meta)
    spec: _Spec = msgspec.field(default_factory=_Spec)


_decode = msgspec.json.Decoder(_Lease).decode


class Leadership(Protocol):
    """Whether this replica may act."""

    @property
    def held(self) -> bool: ...

    @property
    def status(self) -> str:
        """For people: "" while it leads, else who does, or why nobody is known to."""


class Alone:
    """The only replica there is."""

    held = True
    status = ""


class Lease:
    """``gained()`` is called each time that this replica begins to lead."""

    def __init__(
        self,
        kube: KubeClient,
        *,
        namespace: str,
        name: str,
        identity: str,
        duration_seconds: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._kube = kube
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._namespace, self._name, self._identity = namespace, name, identity
        self._duration = duration_seconds
        self._renew_every = duration_seconds / 3
        self._margin = duration_seconds / 6
        self._until = 0.0  # this replica leads till then (monotonic)
        self._known: _Lease | None = None
        self._version = ""  # last seen, and since when (monotonic)
        self._changed = -math.inf
        self._problem = "the lease has not been read yet"
        self.gained: Callable[[], None] = lambda: None

    @property
    def held(self) -> bool:
        return self._clock() < self._until

    @property
    def status(self) -> str:
        if self.held:
            return ""
        holder = self._known.spec.holderIdentity if self._known else ""
        return self._problem or f"stands by: {holder or 'nobody'} leads"

    async def run(self) -> None:
        """Take part until cancelled."""
        while True:
            led = self.held
            try:
                async with asyncio.timeout(self._duration / 2):
                    await self._turn()
                self._problem = ""
            except KubeError as error:
                self._known = None  # read it anew
                if not (error.conflict or error.not_found):
                    self._say(f"lease {self._namespace}/{self._name}: {error}")
            except (KubeUnavailable, TimeoutError) as error:
                self._known = None  # the write may have been done
                self._say(f"lease {self._namespace}/{self._name}: {error or 'no answer in time'}")
            metrics.leader.set(self.held)
            if self.held and not led:
                _log.info("leads", identity=self._identity)
                self.gained()
            elif led and not self.held:
                _log.warning("leads no longer", identity=self._identity)
            await asyncio.sleep(self._renew_every if self.held else self._renew_every / 2)

    async def release(self) -> None:
        """Let another replica take over at once."""
        if not self.held:
            return
        self._until = 0.0
        try:
            await self._read()  # a renewal may have been cut short
            if self._known is not None and self._known.spec.holderIdentity == self._identity:
                await self._write("", self._known)
        except (KubeError, KubeUnavailable) as error:
            _log.warning("lease not given back", why=str(error))

    def _say(self, problem: str) -> None:
        if problem != self._problem:
            _log.warning("lease not in hand", why=problem)
        self._problem = problem

    async def _turn(self) -> None:
        """One step of the election."""
        if self._known is None or not self.held:
            await self._read()
        known = self._known
        holder = known.spec.holderIdentity if known else ""
        expired = self._clock() > self._changed + self._duration
        given_back = known is not None and holder in ("", None)
        if not (expired or given_back or holder == self._identity):  # also when it was deleted
            self._until = 0.0
            return
        asked = self._clock()
        self._known = await self._write(self._identity, known)
        self._until = asked + self._duration - self._margin

    async def _read(self) -> None:
        try:
            seen = _decode(await self._kube.request("GET", f"{self._path}/{self._name}"))
        except KubeError as error:
            if not error.not_found:
                raise
            self._known = None
            return
        if seen.metadata.resourceVersion != self._version:
            self._version, self._changed = seen.metadata.resourceVersion, self._clock()
        self._known = seen

    async def _write(self, identity: str, known: _Lease | None) -> _Lease:
        now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        transitions, acquired = 0, now
        if known:
            transitions = known.spec.leaseTransitions or 0
            if known.spec.holderIdentity == identity:
                acquired = known.spec.acquireTime or now
            else:
                transitions += 1
        body: dict[str, Any] = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self._name, "namespace": self._namespace},
            "spec": {
                "holderIdentity": identity,
                "leaseDurationSeconds": self._duration,
                "renewTime": now,
                "acquireTime": acquired,
                "leaseTransitions": transitions,
            },
        }
        if known is None:
            return _decode(await self._kube.request("POST", self._path, body=encode(body)))
        body["metadata"]["resourceVersion"] = known.metadata.resourceVersion
        path = f"{self._path}/{self._name}"
        return _decode(await self._kube.request("PUT", path, body=encode(body)))
