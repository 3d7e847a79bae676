"""A bare HTTP/1.1 client: prepared requests on a few connections, nothing else.

It shows what a server can do by itself: a request costs this client about 0.1 ms.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import cast
from urllib.parse import urlsplit

import uvloop
import yaml

HEAD_END = b"\r\n\r\n"


def request(
    method: str,
    path: str,
    body: bytes = b"",
    content_type: str = "application/json",
    accept: str = "application/json",
    headers: str = "",
) -> bytes:
    """One request, ready to be written to a connection. ``headers``: more lines, each with CRLF."""
    head = f"{method} {path} HTTP/1.1\r\nHost: bench\r\nAccept: {accept}\r\n{headers}"
    if body:
        head += f"Content-Type: {content_type}\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + b"\r\n" + body


@dataclass(frozen=True)
class Server:
    """Where to send requests, and with TLS who we are there. ``hello``: one that costs little."""

    host: str
    port: int
    tls: ssl.SSLContext | None
    hello: bytes = request("GET", "/version")

    @classmethod
    def of(cls, kubeconfig: Path) -> Server:
        """The server of a kubeconfig that names certificate files."""
        config = yaml.safe_load(kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        tls = ssl.create_default_context(cafile=cluster["certificate-authority"])
        tls.load_cert_chain(user["client-certificate"], user["client-key"])
        url = urlsplit(cluster["server"])
        return cls(url.hostname or "", url.port or 443, tls)


@dataclass(frozen=True)
class Answer:
    """``body`` as it came, chunks and all."""

    status: int
    body: bytes
    milliseconds: float


@dataclass(frozen=True)
class Burst:
    """What a burst of requests took, and its answers in the order of the requests."""

    seconds: float
    answers: list[Answer]

    @property
    def median_milliseconds(self) -> float:
        times = sorted(answer.milliseconds for answer in self.answers)
        return round(times[len(times) // 2], 1)

    def check(self) -> Burst:
        """Raises RuntimeError with the first answer that is not a 2xx."""
        for answer in self.answers:
            if answer.status >= 300:
                raise RuntimeError(f"{answer.status}: {answer.body[:500].decode(errors='replace')}")
        return self


def burst(server: Server, requests: Sequence[bytes], connections: int) -> Burst:
    """Send all requests, one at a time on each connection; the connections are opened before."""
    return uvloop.run(_burst(server, requests, connections))


async def _burst(server: Server, requests: Sequence[bytes], connections: int) -> Burst:
    lines = [await _connect(server) for _ in range(min(connections, len(requests)))]
    left, answers = enumerate(requests), dict[int, Answer]()
    started = perf_counter()
    await asyncio.gather(*(_work(line, left, answers) for line in lines))
    took = perf_counter() - started
    for line in lines:
        line.close()
    return Burst(took, [answers[i] for i in range(len(requests))])


async def _connect(server: Server) -> _Line:
    loop = asyncio.get_running_loop()
    _, line = await loop.create_connection(_Line, server.host, server.port, ssl=server.tls)
    await line.call(server.hello)
    return line


async def _work(line: _Line, left: Iterator[tuple[int, bytes]], answers: dict[int, Answer]) -> None:
    for i, message in left:
        started = perf_counter()
        status, body = await line.call(message)
        answers[i] = Answer(status, body, (perf_counter() - started) * 1000)


class _Line(asyncio.Protocol):
    """One connection with at most one request on its way."""

    def __init__(self) -> None:
        self._received = b""
        self._waiting: asyncio.Future[tuple[int, bytes]] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def call(self, message: bytes) -> asyncio.Future[tuple[int, bytes]]:
        """Write a request; its status and body."""
        self._waiting = asyncio.get_running_loop().create_future()
        self._transport.write(message)
        return self._waiting

    def close(self) -> None:
        self._transport.close()

    def data_received(self, data: bytes) -> None:
        self._received += data
        end = self._received.find(HEAD_END)
        if end < 0 or self._waiting is None:
            return
        head = self._received[:end].lower()
        body = self._received[end + len(HEAD_END) :]
        if b"content-length:" in head:
            length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
            whole = len(body) >= length
        else:
            whole = body == b"0\r\n\r\n" or body.endswith(b"\r\n0\r\n\r\n")
        if whole:
            self._received = b""
            waiting, self._waiting = self._waiting, None
            waiting.set_result((int(head[9:12]), body))

    def connection_lost(self, exc: Exception | None) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(ConnectionError(str(exc or "closed by the server")))
