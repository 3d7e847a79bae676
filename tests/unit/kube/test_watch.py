"""Following a collection: what the server says badly, or says for ever."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from extender.kube import objects
from extender.kube.client import KubeClient, KubeError
from extender.kube.watch import Reflector

PAGE = b'{"metadata":{"resourceVersion":"1"},"items":[]}'


class Server:
    """Lists as told, one answer after another; every watch ends in ``error``."""

    def __init__(self, *pages: bytes, lines: tuple[bytes, ...] = ()) -> None:
        self.pages = list(pages)
        self.lines = lines
        self.lists = 0

    async def request(self, *_: Any, **__: Any) -> bytes:
        self.lists += 1
        return self.pages.pop(0) if self.pages else PAGE

    async def watch(self, *_: Any) -> AsyncIterator[bytes]:
        for line in self.lines:
            yield line
        raise KubeError(410, "Expired", "too old resource version")


def reflector(server: Server) -> Reflector[Any]:
    return Reflector(
        cast(KubeClient, server),
        "/api/v1/namespaces",
        objects.NamespaceObject,
        objects.namespace,
        lambda n: n.name,
        lambda _: None,
        lambda _: None,
    )


@pytest.mark.parametrize(
    "server",
    [
        Server(b"<html>a proxy</html>"),
        Server(b'{"items":null}'),
        Server(lines=(b"<html>",)),
        Server(lines=(b'{"type":"ADDED","object":{"metadata":[]}}',)),
        Server(lines=(b'{"type":"ADDED","object":{"metadata":{"name":"\xff"}}}',)),
    ],
    ids=["page", "no metadata", "line", "object", "not UTF-8"],
)
async def test_an_answer_that_makes_no_sense_does_not_end_it(server: Server) -> None:
    following = reflector(server)
    run = asyncio.create_task(following.run())
    await asyncio.sleep(0.4)
    assert not run.done()
    assert server.lists >= 2
    run.cancel()


async def test_gone_for_ever_is_not_listed_for_ever_at_full_speed() -> None:
    server = Server()
    run = asyncio.create_task(reflector(server).run())
    await asyncio.sleep(0.5)
    run.cancel()
    assert 2 <= server.lists <= 8
