"""Watches in JSON, for the true reflector: resumed, cut, and gone (410)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import msgspec

from extender.kube.client import KubeError, KubeUnavailable
from tests.simulation.jsonwire import object_of
from tests.simulation.kube import Collection, Watcher

if TYPE_CHECKING:
    from tests.simulation.replica import Replica
    from tests.simulation.world import World


class Stream(Watcher):
    """One watch that is open."""

    def __init__(self, replica: Replica) -> None:
        super().__init__(replica, self._told)
        self._lines: asyncio.Queue[bytes | Exception] = asyncio.Queue()

    def _told(self, kind: str, versioned: tuple[int, Any]) -> None:
        version, value = versioned
        told = {"type": kind, "object": object_of(value, version)}
        self._lines.put_nowait(msgspec.json.encode(told))

    def cut(self, error: Exception) -> None:
        self._lines.put_nowait(error)

    async def next(self) -> bytes:
        line = await self._lines.get()
        if isinstance(line, Exception):
            raise line
        return line


async def watch(
    world: World, replica: Replica, collection: Collection, version: int
) -> AsyncIterator[bytes]:
    """What has changed since that version, and what changes from now on."""
    api = world.api
    await asyncio.sleep(world.lag(0.02))
    if world.faults.api_down or world.now < collection.away_until:
        raise KubeUnavailable(f"watch {collection.path}: the connection is refused")
    if version < collection.oldest:
        raise KubeError(410, "Expired", "too old resource version")
    stream = Stream(replica)
    collection.watchers.append(stream)
    for changed, kind, value in collection.log:
        if changed > version:
            api.tell_later(stream, kind, (changed, value))
    try:
        while True:
            yield await stream.next()
    finally:
        if stream in collection.watchers:
            collection.watchers.remove(stream)
