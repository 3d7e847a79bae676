"""An outside watcher: a process of its own that watches all pods and notes when it saw what.

It decodes four fields of each event and writes nothing. Its own CPU time is part of its answers.
Times are seconds since the epoch by this machine's clock, 0 for "not seen".
"""

from __future__ import annotations

import http.client
import multiprocessing
import ssl
import threading
import time
from collections.abc import Callable
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
        self._ask("ready")

    def clear(self) -> None:
        """Forget all pods."""
        self._ask("clear")

    def wait_bound(self, namespace: str, count: int, seconds: float) -> bool:
        """Return when ``count`` pods of the namespace are bound, or false when time is up."""
        return bool(self._ask("bound", namespace, count, seconds))

    def wait_created(self, namespace: str, count: int, seconds: float) -> bool:
        """The same for pods that exist."""
        return bool(self._ask("created", namespace, count, seconds))

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
    name: str
    namespace: str
    uid: str
    resourceVersion: str
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class _Spec(msgspec.Struct):
    nodeName: str = ""
    schedulingGates: list[Any] = []


class _Pod(msgspec.Struct):
    metadata: _Meta
    spec: _Spec


class _Event(msgspec.Struct):
    type: str
    object: _Pod


_decode = msgspec.json.Decoder(_Event).decode


class _Book:
    """What was seen; filled by one thread, read by another."""

    def __init__(self) -> None:
        self._pods: dict[str, Seen] = {}
        self._changed = threading.Condition()
        self.error: Exception | None = None

    def note(self, line: bytes, now: float) -> None:
        event = _decode(line)
        meta, spec = event.object.metadata, event.object.spec
        with self._changed:
            seen = self._pods.get(meta.uid)
            if seen is None:
                if event.type != "ADDED":
                    return  # of an earlier measurement
                seen = self._pods[meta.uid] = Seen(
                    meta.namespace, meta.name, meta.labels.get(JOB_NAME, ""),
                    int(meta.annotations.get(COMPLETION_INDEX, -1)), now, bool(spec.schedulingGates),
                )  # fmt: skip
            if seen.gated and not seen.released and not spec.schedulingGates:
                seen.released = now
            if spec.nodeName and not seen.bound:
                seen.bound, seen.node = now, spec.nodeName
                seen.rank = meta.annotations.get(RANK, "")
            self._changed.notify()

    def clear(self) -> bool:
        with self._changed:
            self._pods.clear()
        return True

    def wait(self, holds: Callable[[Seen], object], count: int, seconds: float) -> bool:
        def enough() -> bool:
            return self.error is not None or sum(bool(holds(p)) for p in self.all()) >= count

        with self._changed:
            done = self._changed.wait_for(enough, seconds)
        if self.error is not None:
            raise self.error
        return done

    def all(self) -> list[Seen]:
        return list(self._pods.values())


def _run(pipe: Connection, kubeconfig: Path) -> None:
    book = _Book()
    ready = threading.Event()
    threading.Thread(target=_watch, args=(kubeconfig, book, ready), daemon=True).start()
    if not ready.wait(30):
        book.error = RuntimeError("the watcher has no watch after 30 s")
    answers: dict[str, Callable[..., Any]] = {
        "ready": lambda: book.error or True,
        "clear": book.clear,
        "cpu": time.process_time,
        "pods": lambda namespace: [p for p in book.all() if p.namespace == namespace],
        "created": lambda ns, count, s: book.wait(lambda p: p.namespace == ns, count, s),
        "bound": lambda ns, count, s: book.wait(lambda p: p.bound and p.namespace == ns, count, s),
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


def _watch(kubeconfig: Path, book: _Book, ready: threading.Event) -> None:
    try:
        connection = _connect(kubeconfig)
        connection.request("GET", WATCH)
        answer = connection.getresponse()
        if answer.status != 200:
            raise RuntimeError(f"{answer.status} {answer.read(500)!r}")
        ready.set()
        while line := answer.readline():
            book.note(line, time.time())
        raise RuntimeError("the API server ended the watch")
    except Exception as error:
        book.error = error
        ready.set()


def _connect(kubeconfig: Path) -> http.client.HTTPSConnection:
    config = yaml.safe_load(kubeconfig.read_text())
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    context = ssl.create_default_context(cafile=cluster["certificate-authority"])
    context.load_cert_chain(user["client-certificate"], user["client-key"])
    url = urlsplit(cluster["server"])
    return http.client.HTTPSConnection(url.hostname or "", url.port or 443, context=context)
