"""The transport, against servers that say exactly these bytes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import httpx
import pytest

from extender.slurm.streams import StreamTransport

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Type: application/json\r\n\r\n{}"


class Server:
    """Answers the n-th request of its life with the n-th of ``answers`` (the last one stays)."""

    def __init__(self, *answers: bytes, hang_up: bool = False) -> None:
        self.answers, self.hang_up = answers, hang_up
        self.requests: list[bytes] = []
        self.connections = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        while True:
            try:
                head = await reader.readuntil(b"\r\n\r\n")
            except asyncio.IncompleteReadError:
                break
            length = next(
                (int(line[15:]) for line in head.lower().split(b"\r\n") if line[:15] == LENGTH), 0
            )
            self.requests.append(head + await reader.readexactly(length))
            writer.write(self.answers[min(len(self.requests), len(self.answers)) - 1])
            await writer.drain()
            if self.hang_up:
                break
        writer.close()


LENGTH = b"content-length:"


@asynccontextmanager
async def client(server: Server, seconds: float = 5.0) -> AsyncIterator[httpx.AsyncClient]:
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    async with httpx.AsyncClient(
        base_url=f"http://127.0.0.1:{port}", transport=StreamTransport(), timeout=seconds
    ) as made:
        yield made
    listening.close()


async def test_a_request_arrives_as_it_was_made() -> None:
    server = Server(OK)
    async with client(server) as http:
        response = await http.post(
            "/a/b?x=1&x=2", content='{"ü":1}'.encode(), headers={"X-Token": "t"}
        )
    assert (response.status_code, response.json()) == (200, {})
    (sent,) = server.requests
    assert sent.startswith(b"POST /a/b?x=1&x=2 HTTP/1.1\r\n")
    assert b"\r\nX-Token: t\r\n" in sent
    assert sent.endswith('\r\n\r\n{"ü":1}'.encode())


async def test_a_connection_serves_many_requests() -> None:
    server = Server(OK)
    async with client(server) as http:
        for _ in range(5):
            await http.get("/")
    assert (len(server.requests), server.connections) == (5, 1)


async def test_an_error_that_is_written_twice_is_read_once() -> None:
    error = (
        b"HTTP/1.1 422 UNPROCESSABLE CONTENT\r\nConnection: Close\r\nContent-Length: 13\r\n"
        b'\r\n{"errors":[]}'
    )
    server = Server(error + error, OK)
    async with client(server) as http:
        first, second = await http.get("/"), await http.get("/")
    assert (first.status_code, first.content) == (422, b'{"errors":[]}')
    assert (second.status_code, server.connections) == (200, 2)


@pytest.mark.parametrize(
    ("answer", "status", "content"),
    [
        (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b""),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + OK, 200, b"{}"),
        (b"HTTP/1.1 200\r\ncontent-length:0\r\n\r\n", 200, b""),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n",
            200,
            b"abc0123456789",
        ),
    ],
)
async def test_forms_of_answers(answer: bytes, status: int, content: bytes) -> None:
    server = Server(answer)
    async with client(server) as http:
        for _ in range(2):
            response = await http.get("/")
            assert (response.status_code, response.content) == (status, content)


async def test_an_answer_without_a_length_ends_with_the_connection() -> None:
    server = Server(b"HTTP/1.1 200 OK\r\n\r\nall of it", hang_up=True)
    async with client(server) as http:
        assert (await http.get("/")).text == "all of it"
        assert (await http.get("/")).text == "all of it"
    assert server.connections == 2


async def test_a_large_answer_is_whole() -> None:
    body = b"x" * 5_000_000
    server = Server(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    async with client(server) as http:
        assert (await http.get("/")).content == body


async def test_a_connection_that_the_server_closed_is_not_used_again() -> None:
    server = Server(OK, hang_up=True)
    async with client(server) as http:
        for _ in range(3):
            await http.get("/")
            await asyncio.sleep(0.02)
    assert server.connections == 3


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Le",
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n",
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nnonsense\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 2_000_000,
    ],
)
async def test_a_broken_answer_is_a_protocol_error(answer: bytes) -> None:
    async with client(Server(answer, hang_up=True)) as http:
        with pytest.raises(httpx.RemoteProtocolError):
            await http.get("/")


async def test_no_answer_in_time() -> None:
    async with client(Server(b""), seconds=0.05) as http:
        with pytest.raises(httpx.ReadTimeout):
            await http.get("/")


async def test_nobody_there() -> None:
    async with httpx.AsyncClient(transport=StreamTransport()) as http:
        with pytest.raises(httpx.ConnectError):
            await http.get("http://127.0.0.1:1/")
        with pytest.raises(httpx.ConnectError):
            await http.get("https://127.0.0.1:1/")


async def test_a_cancelled_request_leaves_no_answer_for_the_next_one() -> None:
    late: list[Callable[[], None]] = []
    seen = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        late.append(lambda: writer.write(OK.replace(b"{}", b"%02d" % len(late))))
        seen.set()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    async with httpx.AsyncClient(
        base_url=f"http://127.0.0.1:{port}", transport=StreamTransport()
    ) as http:
        first = asyncio.create_task(http.get("/"))
        await seen.wait()
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        seen.clear()
        second = asyncio.create_task(http.get("/"))
        await seen.wait()
        for answer in late:
            answer()
        assert (await second).content == b"02"
    listening.close()


async def test_a_header_with_a_line_break_is_not_sent() -> None:
    server = Server(OK)
    async with client(server) as http:
        with pytest.raises(httpx.LocalProtocolError):
            await http.get("/", headers={"X-Token": "a\r\nX-Other: b"})
    assert server.requests == []
