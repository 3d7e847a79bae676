"""A wire tap between Sluice and a server: passes everything on, and remembers what was asked.

The server is slurmrestd, or the API server, as whom a kubeconfig says.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import yaml

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
    """Give Sluice ``url`` for the server's. Calls are noted when they have been answered; watches,
    which are answered as long as they last, are not."""

    def __init__(self, upstream: str, context: ssl.SSLContext | None = None) -> None:
        where = urlsplit(upstream)
        self._upstream = (where.hostname or "127.0.0.1", where.port or 80)
        self._context = context
        self._calls: list[Call] = []
        self._open: set[socket.socket] = set()
        self.losing = ""
        self.broken = False
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

    def writes(self, path: str = "") -> list[Call]:
        """The calls that are to change something."""
        return [call for call in self.calls(path=path) if call.method != "GET"]

    def forget(self) -> None:
        """Count from here on."""
        self._calls.clear()

    def submits(self) -> list[Call]:
        return self.calls("POST", "/job/submit")

    def lose_answers_of(self, path: str) -> None:
        """Carry calls with ``path`` in their path out, and break the connection then; "" ends it."""
        self.losing = path

    def cut(self) -> None:
        """Nothing gets through, and all that is under way breaks, until ``mend``."""
        self.broken = True
        for connection in list(self._open):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def mend(self) -> None:
        self.broken = False

    def connect(self) -> http.client.HTTPConnection:
        if self._context is None:
            return http.client.HTTPConnection(*self._upstream, timeout=120)
        return http.client.HTTPSConnection(*self._upstream, timeout=900, context=self._context)

    def note(self, call: Call) -> None:
        self._calls.append(call)

    def opened(self, connection: socket.socket) -> None:
        self._open.add(connection)

    def closed(self, connection: socket.socket) -> None:
        self._open.discard(connection)


class _Handler(BaseHTTPRequestHandler):
    """One connection of Sluice, with one of its own to the server."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    owner: Tap
    _connection: http.client.HTTPConnection | None = None

    def handle(self) -> None:
        self.owner.opened(self.connection)
        try:
            with suppress(ConnectionError):  # Sluice was killed
                super().handle()
        finally:
            self.owner.closed(self.connection)
            if self._connection is not None:
                self._connection.close()

    def _pass_on(self) -> None:
        started = time.time()
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.owner.broken:
            self.close_connection = True
            return
        headers = {k: v for k, v in self.headers.items() if k.lower() not in _HOP}
        try:
            if self._connection is None:
                self._connection = self.owner.connect()
            self._connection.request(self.command, self.path, body or None, headers)
            answer = self._connection.getresponse()
            if "watch=1" in self.path:
                self._stream(answer)
                return
            content = answer.read()
        except (OSError, http.client.HTTPException):
            self._note(started, body, 0)
            self.close_connection = True  # as the server's own end would do
            return
        self._note(started, body, answer.status)
        if self.owner.losing and self.owner.losing in self.path:
            self.close_connection = True
            return
        if answer.will_close:
            self._connection.close()
        with suppress(OSError):
            self._answer(answer, content)

    def _stream(self, answer: http.client.HTTPResponse) -> None:
        """Pass on what comes as it comes; the end of the connection is its end."""
        self.close_connection = True
        self._head(answer)
        self.send_header("Connection", "close")
        self.end_headers()
        while chunk := answer.read1():
            self.wfile.write(chunk)

    def _note(self, started: float, body: bytes, status: int) -> None:
        text = body.decode(errors="replace")
        self.owner.note(Call(started, self.command, self.path, text, status))

    def _head(self, answer: http.client.HTTPResponse) -> None:
        self.send_response_only(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in _HOP:
                self.send_header(name, value)

    def _answer(self, answer: http.client.HTTPResponse, content: bytes) -> None:
        self._head(answer)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _pass_on

    def log_message(self, *_: object) -> None:
        """Nothing: pytest's output is for the tests."""


def kube_tap(kubeconfig: Path) -> Tap:
    """Between Sluice and the API server, which takes all that comes for that kubeconfig's user."""
    config = yaml.safe_load(kubeconfig.read_text())
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    context = ssl.create_default_context(cafile=cluster["certificate-authority"])
    context.load_cert_chain(user["client-certificate"], user["client-key"])
    return Tap(cluster["server"], context)


def tapped_kubeconfig(tap: Tap, path: Path) -> Path:
    """A kubeconfig file to reach the API server through the tap."""
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "tap", "cluster": {"server": tap.url}}],
        "users": [{"name": "tap", "user": {}}],
        "contexts": [{"name": "tap", "context": {"cluster": "tap", "user": "tap"}}],
        "current-context": "tap",
    }
    path.write_text(yaml.safe_dump(content))
    return path
