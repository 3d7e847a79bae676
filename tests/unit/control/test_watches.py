"""In which order the collections are read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

from extender.control.cluster import Cluster
from extender.control.watches import Watches


class Lists:
    """An API server with nothing in it, whose list of Jobs takes until ``jobs`` is set."""

    def __init__(self) -> None:
        self.jobs = asyncio.Event()
        self.asked: list[str] = []

    async def request(self, _method: str, path: str, **_: Any) -> bytes:
        self.asked.append(path)
        if path.endswith("/jobs"):
            await self.jobs.wait()
        return b'{"metadata":{"resourceVersion":"1"},"items":[]}'

    async def watch(self, *_: Any) -> AsyncIterator[bytes]:
        await asyncio.sleep(3600)
        yield b""


async def test_pods_are_read_after_the_jobs_that_own_them() -> None:
    """Else a pod of another namespace that claims a gang would be believed if it came first."""
    kube, cluster = Lists(), Cluster("sluice", lambda _: None)
    watches = Watches(cast(Any, kube), cluster, *cast(Any, [None] * 3))
    async with asyncio.TaskGroup() as group:
        following = group.create_task(_follow(watches))
        await asyncio.sleep(0.01)
        assert "/api/v1/pods" not in kube.asked
        kube.jobs.set()
        await watches.synced()
        assert "/api/v1/pods" in kube.asked
        following.cancel()


async def _follow(watches: Watches) -> None:
    async with asyncio.TaskGroup() as group:
        watches.start(group)
