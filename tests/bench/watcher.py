"""An outside watcher: a process of its own that watches all pods and notes when it saw what.

It decodes four fields of each event and writes nothing. Its own CPU time is part of its answers.
Times are seconds since the epoch by this machine's clock, 0 for "not seen".
"""

from __future__ import annotations

import multiprocessing
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import yaml

COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
RANK = "sluice.dev/rank"
JOB_NAME = "batch.kubernetes.io/job-name"
WATCH = "/api/v1/pods?watch=1&timeoutSeconds=7200"


@dataclass
class Seen:
    """One pod. ``released``: without gates after it had some; ``index``: its completion index."""

    namespace: str
    name: str
    job: str
    index: int
    created: float
    gated: bool
    released: float = 0.0
    bound: float = 0.0
    node: str = ""
    rank: str = ""


class Watcher:
    """The watcher's handle; its methods are answered by the process."""

    def __init__(self, kubeconfig: Path) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, there = context.Pipe()
        self._process = context.Process(
            target=_run, args=(there, kubeconfig), name="watcher", daemon=True
        )
        self._process.start()
        there.close()
        self.clear()

    def clear(self) -> None:
        """Forget all pods."""
        self._ask("clear")

    def wait_bound(self, namespace: str, count: int, seconds: float) -> bool:
        """Return when ``count`` pods of the namespace are bound, or false when time is up."""
        return bool(self._ask("wait", "bound", namespace, count, seconds))

    def wait_created(self, namespace: str, count: int, seconds: float) -> bool:
        """The same for pods that exist."""
        return bool(self._ask("wait", "created", namespace, count, seconds))

    def pods(self, namespace: str) -> list[Seen]:
        """What was seen since ``clear``, pods that are gone included."""
        found: list[Seen] = self._ask("pods", namespace)
        return found

    def cpu_seconds(self) -> float:
        """CPU time that the watcher itself has used so far."""
        return float(self._ask("cpu"))

    def close(self) -> None:
        self._pipe.close()
        self._process.join(5)
        if self._process.is_alive():
            self._process.kill()

    def _ask(self, *question: object) -> Any:
        self._pipe.send(question)
        answer = self._pipe.recv()
        if isinstance(answer, Exception):
            raise answer
        return answer


# The process


class _Meta(msgspec.Struct):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resourceVersion: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class _Spec(msgspec.Struct):
    nodeName: str = ""
    schedulingGates: list[Any] = []


class _Pod(msgspec.Struct):
    metadata: _Meta = msgspec.field(default_factory=_Meta)
    spec: _Spec = msgspec.field(default_factory=_Spec)


class _Event(msgspec.Struct):
    type: str
    object: _Pod


_decode = msgspec.json.Decoder(_Event).decode


class _Book:
    """What was seen; filled by one thread, read by another."""

    def __init__(self) -> None:
        self._pods: dict[str, Seen] = {}
        self._counts: Counter[tuple[str, str]] = Counter()
        self._changed = threading.Condition()
        self._error: Exception | None = None
        self.version = ""  # of the last event

    def note(self, line: bytes, now: float) -> None:
        event = _decode(line)
        meta, spec = event.object.metadata, event.object.spec
        if event.type == "ERROR":
            raise RuntimeError(f"the watch failed: {line.decode(errors='replace')}")
        self.version = meta.resourceVersion
        with self._changed:
            seen = self._pods.get(meta.uid)
            if seen is None:
                if event.type != "ADDED":
                    return  # of an earlier measurement
                seen = self._pods[meta.uid] = Seen(
                    meta.namespace, meta.name, meta.labels.get(JOB_NAME, ""),
                    int(meta.annotations.get(COMPLETION_INDEX, -1)), now, bool(spec.schedulingGates),
                )  # fmt: skip
                self._count("created", meta.namespace)
            if seen.gated and not seen.released and not spec.schedulingGates:
                seen.released = now
            if spec.nodeName and not seen.bound:
                seen.bound, seen.node = now, spec.nodeName
                seen.rank = meta.annotations.get(RANK, "")
                self._count("bound", meta.namespace)

    def _count(self, what: str, namespace: str) -> None:
        self._counts[what, namespace] += 1
        self._changed.notify()

    def fail(self, error: Exception) -> None:
        with self._changed:
            self._error = error
            self._changed.notify()

    def clear(self) -> bool:
        with self._changed:
            self._pods.clear()
            self._counts.clear()
        return True

    def wait(self, what: str, namespace: str, count: int, seconds: float) -> bool:
        """Return when ``count`` pods were "created" or "bound", or false when time is up."""
        with self._changed:
            done = self._changed.wait_for(
                lambda: self._error or self._counts[what, namespace] >= count, seconds
            )
            if self._error is not None:
                raise self._error
        return bool(done)

    def pods(self, namespace: str) -> list[Seen]:
        with self._changed:
            return [pod for pod in self._pods.values() if pod.namespace == namespace]


def _run(pipe: Connection, kubeconfig: Path) -> None:
    book = _Book()
    threading.Thread(target=_follow, args=(kubeconfig, book), daemon=True).start()
    answers: dict[str, Callable[..., Any]] = {
        "clear": book.clear,
        "cpu": time.process_time,
        "pods": book.pods,
        "wait": book.wait,
    }
    while True:
        try:
            what, *arguments = pipe.recv()
        except (EOFError, KeyboardInterrupt):
            return
        try:
            pipe.send(answers[what](*arguments))
        except Exception as error:  # for the one who asked
            pipe.send(RuntimeError(f"watcher: {error}"))


def _follow(kubeconfig: Path, book: _Book) -> None:
    """Watch for ever. The API server ends the watch of a client that it cannot keep up with; it
    goes on where it ended then."""
    try:
        while True:
            with _connect(kubeconfig) as connection:
                for line in _lines(connection, book.version):
                    book.note(line, time.time())
    except Exception as error:
        book.fail(error)


def _connect(kubeconfig: Path) -> ssl.SSLSocket:
    config = yaml.safe_load(kubeconfig.read_text())
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    context = ssl.create_default_context(cafile=cluster["certificate-authority"])
    context.load_cert_chain(user["client-certificate"], user["client-key"])
    url = urlsplit(cluster["server"])
    host = url.hostname or ""
    plain = socket.create_connection((host, url.port or 443), timeout=30)
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
    connection = context.wrap_socket(plain, server_hostname=host)
    connection.settimeout(None)
    return connection


def _lines(connection: ssl.SSLSocket, version: str) -> Iterator[bytes]:
    """Start the watch, then give its lines. Raises RuntimeError when it is refused."""
    path = f"{WATCH}&resourceVersion={version}"
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: apiserver\r\n\r\n".encode())
    received = b""
    while b"\r\n\r\n" not in received:
        received += connection.recv(65536) or b"\r\n\r\n"
    head, _, rest = received.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200"):
        raise RuntimeError(f"the watch was refused: {head.decode(errors='replace')}")
    return _unchunked(connection, rest)


def _unchunked(connection: ssl.SSLSocket, received: bytes) -> Iterator[bytes]:
    """The lines in a body with chunked transfer coding (RFC 9112, 7.1)."""
    line = b""
    while True:
        size, found, rest = received.partition(b"\r\n")
        length = int(size, 16) if found else 0
        if found and not length:
            return
        if not found or len(rest) < length + 2:
            more = connection.recv(1 << 20)
            if not more:
                return
            received += more
            continue
        line, received = line + rest[:length], rest[length + 2 :]
        if line.endswith(b"\n"):
            yield from line.splitlines()
            line = b""
