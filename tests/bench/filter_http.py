"""How long /filter takes over HTTP with keep-alive, as kube-scheduler would see it.

``measure(base_url, pod, names)`` talks to a running service; the caller gives a pod and the node
names, so that the numbers are those of the memory that the service holds at that moment.
One connection, one call at a time, as kube-scheduler does it. The client is a bare socket: what it
costs itself is in ``client_microseconds``, measured against an echo on a socket pair, and is not
taken off the other numbers.
"""

from __future__ import annotations

import argparse
import gc
import json
import socket
import statistics
import threading
from collections.abc import Sequence
from time import perf_counter_ns
from typing import Any
from urllib.parse import urlsplit

Times = list[int]  # nanoseconds


def measure(
    base_url: str,
    pod: dict[str, Any],
    names: Sequence[str],
    *,
    calls: int = 2000,
    calls_with_all: int = 500,
) -> dict[str, Any]:
    """Milliseconds of /filter with the first name and with all of them.

    ``base_url`` is kube-scheduler's urlPrefix (http://127.0.0.1:8077/extender).
    """
    url = urlsplit(base_url)
    address = (url.hostname or "127.0.0.1", url.port or 80)
    path = f"{url.path.rstrip('/')}/filter"
    one = request(path, body(pod, names[:1]))
    many = request(path, body(pod, names))
    with socket.create_connection(address) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return {
            "one_name": summary(run(connection, one, calls)),
            f"{len(names)}_names": summary(run(connection, many, calls_with_all)),
            "request_bytes": {"one_name": len(one), f"{len(names)}_names": len(many)},
            "client_microseconds": {
                "one_name": round(client_cost(one) / 1000, 1),
                f"{len(names)}_names": round(client_cost(many) / 1000, 1),
            },
        }


def body(pod: dict[str, Any], names: Sequence[str]) -> bytes:
    """ExtenderArgs of a nodeCacheCapable extender, as Go writes them."""
    arguments = {"Pod": pod, "Nodes": None, "NodeNames": list(names)}
    return json.dumps(arguments, separators=(",", ":")).encode()


def request(path: str, content: bytes) -> bytes:
    head = (
        f"POST {path} HTTP/1.1\r\nHost: sluice\r\nUser-Agent: Go-http-client/1.1\r\n"
        f"Content-Length: {len(content)}\r\nContent-Type: application/json\r\n"
        "Accept-Encoding: gzip\r\n\r\n"
    )
    return head.encode() + content


def run(connection: socket.socket, message: bytes, calls: int) -> Times:
    """The times of ``calls`` calls after a tenth as many to warm up."""
    for _ in range(calls // 10):
        call(connection, message)
    times = []
    gc.collect()
    gc.disable()
    try:
        for _ in range(calls):
            started = perf_counter_ns()
            call(connection, message)
            times.append(perf_counter_ns() - started)
    finally:
        gc.enable()
    return times


def call(connection: socket.socket, message: bytes) -> bytes:
    """Send one request and read its response, which has to be a 200 with a Content-Length."""
    connection.sendall(message)
    received = b""
    while b"\r\n\r\n" not in received:
        received += _read(connection, 65536)
    head, _, content = received.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200 "):
        raise RuntimeError(f"{head.decode()}\n{content.decode()}")
    length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
    chunks, missing = [content], length - len(content)
    while missing > 0:
        chunks.append(_read(connection, min(missing, 1 << 20)))
        missing -= len(chunks[-1])
    return b"".join(chunks)


def client_cost(message: bytes, calls: int = 200) -> float:
    """Median nanoseconds of a call that is answered at once with as many bytes."""
    head, _, content = message.partition(b"\r\n\r\n")
    del head
    answer = f"HTTP/1.1 200 OK\r\ncontent-length: {len(content)}\r\n\r\n".encode() + content
    here, there = socket.socketpair()
    thread = threading.Thread(target=_echo, args=(there, len(message), answer), daemon=True)
    thread.start()
    with here:
        return statistics.median(run(here, message, calls))


def _echo(connection: socket.socket, size: int, answer: bytes) -> None:
    with connection:
        while True:
            missing = size
            while missing:
                received = len(connection.recv(missing))
                if not received:
                    return
                missing -= received
            connection.sendall(answer)


def _read(connection: socket.socket, size: int) -> bytes:
    received = connection.recv(size)
    if not received:
        raise RuntimeError("the service closed the connection")
    return received


def summary(times: Times) -> dict[str, float]:
    """p50, p99 and the longest, in milliseconds."""
    ordered = sorted(times)
    return {
        "calls": len(ordered),
        "p50_ms": round(ordered[len(ordered) // 2] / 1e6, 3),
        "p99_ms": round(ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)] / 1e6, 3),
        "max_ms": round(ordered[-1] / 1e6, 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("base_url", help="http://127.0.0.1:8077/extender")
    parser.add_argument("--pod", help="file with the pod as JSON", required=True)
    parser.add_argument("--nodes", help="file with one node name a line", required=True)
    given = parser.parse_args()
    with open(given.pod) as pod, open(given.nodes) as nodes:
        result = measure(given.base_url, json.load(pod), nodes.read().split())
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
