"""A wire tap between Sluice and slurmrestd: passes everything on, and remembers what was asked."""

from __future__ import annotations

import http.client
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length"}

PING = "/diag/"


@dataclass(frozen=True)
class Call:
    """One request, and the HTTP status that it got (0: no answer)."""

    at: float
    method: str
    path: str
    body: str
    status: int


class Tap:
    """Give Sluice ``url`` for slurmrestd's. Calls are noted when they have been answered."""

    def __init__(self, upstream: str) -> None:
        where = urlsplit(upstream)
        self._upstream = (where.hostname or "127.0.0.1", where.port or 80)
        self._calls: list[Call] = []
        self.losing = ""
        tap = self

        class Handler(_Handler):
            owner = tap

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="tap", daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def calls(self, method: str = "", path: str = "") -> list[Call]:
        """Those with the method, and ``path`` somewhere in their path; but not the ping that tells
        /readyz every ten seconds whether Slurm is there."""
        return [
            call
            for call in list(self._calls)
            if method in ("", call.method) and path in call.path and not call.path.endswith(PING)
        ]

    def forget(self) -> None:
        """Count from here on."""
        self._calls.clear()

    def submits(self) -> list[Call]:
        return self.calls("POST", "/job/submit")

    def lose_answers_of(self, path: str) -> None:
        """Carry calls with ``path`` in their path out, and break the connection then; "" ends it."""
        self.losing = path

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(*self._upstream, timeout=120)

    def note(self, call: Call) -> None:
        self._calls.append(call)


class _Handler(BaseHTTPRequestHandler):
    """One connection of Sluice, with one of its own to slurmrestd."""

    protocol_version = "HTTP/1.1"
    owner: Tap
    _connection: http.client.HTTPConnection | None = None

    def handle(self) -> None:
        with suppress(ConnectionError):  # Sluice was killed
            super().handle()

    def _pass_on(self) -> None:
        started = time.time()
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {k: v for k, v in self.headers.items() if k.lower() not in _HOP}
        try:
            if self._connection is None:
                self._connection = self.owner.connect()
            self._connection.request(self.command, self.path, body or None, headers)
            answer = self._connection.getresponse()
            content = answer.read()
        except (OSError, http.client.HTTPException):
            self._note(started, body, 0)
            self.close_connection = True  # as slurmrestd's own end would do
            return
        self._note(started, body, answer.status)
        if self.owner.losing and self.owner.losing in self.path:
            self.close_connection = True
            return
        if answer.will_close:
            self._connection.close()
        with suppress(OSError):
            self._answer(answer, content)

    def _note(self, started: float, body: bytes, status: int) -> None:
        text = body.decode(errors="replace")
        self.owner.note(Call(started, self.command, self.path, text, status))

    def _answer(self, answer: http.client.HTTPResponse, content: bytes) -> None:
        self.send_response_only(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in _HOP:
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_DELETE = _pass_on

    def log_message(self, *_: object) -> None:
        """Nothing: pytest's output is for the tests."""
