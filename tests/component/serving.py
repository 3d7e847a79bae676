"""The API in a real server, in a thread of the test."""

from __future__ import annotations

import asyncio
import http.client
import socket
import threading
import time
from collections.abc import Callable

import uvloop

from extender.api.app import server
from tests.unit.api.fakes import Memory, api

LIMIT = 32 << 20


class Slow(Memory):
    """A bind takes as long as it is told to."""

    bind_seconds = 0.0
    bound = 0

    async def bind(self, namespace: str, name: str, uid: str, node: str) -> str:
        await asyncio.sleep(self.bind_seconds)
        self.bound += 1
        return await super().bind(namespace, name, uid, node)


class Service:
    """uvicorn with uvloop and httptools on a free port of the loopback, answering from a memory."""

    def __init__(self) -> None:
        self.memory = Slow()
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = probe.getsockname()[1]
        self.server = server(api(self.memory, LIMIT), "127.0.0.1", self.port)
        self._thread = threading.Thread(target=uvloop.run, args=(self.server.serve(),))

    @property
    def url_prefix(self) -> str:
        return f"http://127.0.0.1:{self.port}/extender"

    def __enter__(self) -> Service:
        self._thread.start()
        wait_until(lambda: self.server.started)
        return self

    def __exit__(self, *_: object) -> None:
        self.server.should_exit = True
        self._thread.join(10)
        assert not self._thread.is_alive()

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)


def wait_until(done: Callable[[], bool], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.01)
