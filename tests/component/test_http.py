"""The API over real HTTP: uvicorn with uvloop and httptools, on a free port of the loopback."""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from structlog.testing import capture_logs

from extender.api.scheduler import ELSEWHERE
from extender.domain.views import WAITING, Verdict, VerdictKind
from tests.bench.filter_http import measure
from tests.component.serving import Service, wait_until
from tests.unit.api.fakes import node, pod

NAMES = [f"node-{i:04}" for i in range(5000)]


@pytest.fixture
def service() -> Iterator[Service]:
    with Service() as running:
        yield running


def post(connection: http.client.HTTPConnection, verb: str, arguments: Any) -> Any:
    connection.request("POST", f"/extender/{verb}", json.dumps(arguments).encode())
    response = connection.getresponse()
    assert response.status == 200
    return json.loads(response.read())


BINDING = {"PodName": "a", "PodNamespace": "ml", "PodUID": "u", "Node": "n1"}


def test_one_connection_serves_many_calls(service: Service) -> None:
    connection = service.connect()
    connection.connect()
    first = connection.sock
    service.memory.verdicts["a"] = Verdict(VerdictKind.NODE, NAMES[7])
    for _ in range(50):
        result = post(connection, "filter", {"Pod": pod("a"), "NodeNames": NAMES[:10]})
        assert result["NodeNames"] == [NAMES[7]]
        assert post(connection, "filter", {})["Error"]
        assert post(connection, "bind", BINDING) == {"Error": ""}
    assert connection.sock is first


def test_idle_connections_outlive_those_of_go(service: Service) -> None:
    """Go's client drops them after 90 s; one that we drop first loses a bind in flight."""
    assert service.server.config.timeout_keep_alive > 90


@pytest.mark.parametrize("form", ["names", "objects"])
def test_five_thousand_nodes(service: Service, form: str) -> None:
    memory = service.memory
    memory.verdicts["a"] = Verdict(VerdictKind.NODE, NAMES[4321])
    memory.verdicts["b"] = Verdict(VerdictKind.WAIT, message=WAITING)
    objects = {"items": [node(name) for name in NAMES]}
    sent = {"NodeNames": NAMES} if form == "names" else {"Nodes": objects}

    def kept(result: Any) -> list[str]:
        items = (result["Nodes"] or {"items": []})["items"]
        return [item["metadata"]["name"] for item in items] + (result["NodeNames"] or [])

    connection = service.connect()
    one = post(connection, "filter", {"Pod": pod("a"), **sent})
    none = post(connection, "filter", {"Pod": pod("b"), **sent})
    every = post(connection, "filter", {"Pod": pod("c"), **sent})
    assert kept(one) == [NAMES[4321]]
    assert one["FailedAndUnresolvableNodes"] == {
        name: ELSEWHERE for name in NAMES if name != NAMES[4321]
    }
    assert kept(none) == []
    assert none["FailedAndUnresolvableNodes"] == dict.fromkeys(NAMES, WAITING)
    assert kept(every) == NAMES


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_over_the_limit_is_refused_and_the_connection_lives(
    service: Service, chunked: bool
) -> None:
    connection = service.connect()
    block = b" " * (1 << 20)
    body = iter([block] * 33) if chunked else block * 33
    connection.request("POST", "/extender/filter", body, encode_chunked=chunked)
    response = connection.getresponse()
    assert response.status == 200
    why = json.loads(response.read())["Error"]
    assert why == "the request body is larger than http.body_limit_mib (32 MiB)"
    assert post(connection, "bind", BINDING) == {"Error": ""}


def test_binds_run_at_the_same_time(service: Service) -> None:
    """A gang's 256 binds wait for the API server together, not one after another."""
    service.memory.bind_seconds = 0.2
    started = time.monotonic()
    with ThreadPoolExecutor(64) as pool:
        bound = pool.map(lambda _: post(service.connect(), "bind", BINDING), range(256))
        assert list(bound) == [{"Error": ""}] * 256
    assert time.monotonic() - started < 20  # one after another: 51 s


def test_a_bind_ends_although_kube_scheduler_has_given_up(service: Service) -> None:
    service.memory.bind_seconds = 0.3
    connection = service.connect()
    connection.request("POST", "/extender/bind", json.dumps(BINDING).encode())
    connection.close()
    wait_until(lambda: service.memory.bound == 1)


def test_a_sender_who_leaves_in_the_middle_changes_nothing(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    body = json.dumps(BINDING).encode()
    head = f"POST /extender/bind HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body) + 9}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", service.port)) as raw:
        raw.sendall(head.encode() + body)
        time.sleep(0.1)
    post(service.connect(), "filter", {"Pod": pod(), "NodeNames": []})
    assert service.memory.bound == 0
    assert not caplog.records


@pytest.mark.parametrize(
    "garbage",
    [b"\0\0\0\0", b"GET / HTTP/9.9\r\n\r\n", b"POST /extender/filter HTTP/1.1\r\nHost x\r\n\r\n"],
)
def test_what_is_not_http_gets_no_5xx(service: Service, garbage: bytes) -> None:
    with socket.create_connection(("127.0.0.1", service.port), timeout=5) as raw:
        raw.sendall(garbage)
        raw.shutdown(socket.SHUT_WR)
        answer = raw.recv(4096)
    assert answer == b"" or answer.split()[1].startswith(b"4")
    assert post(service.connect(), "bind", BINDING) == {"Error": ""}


def test_people_and_probes_share_the_port(service: Service) -> None:
    connection = service.connect()
    for path, status in (
        ("/livez", 200),
        ("/readyz", 200),
        ("/metrics", 200),
        ("/v1/gangs", 200),
        ("/v1/gangs/a/b", 404),
        ("/nix", 404),
    ):
        connection.request("GET", path)
        response = connection.getresponse()
        response.read()
        assert response.status == status, path


def test_the_benchmark_measures(service: Service) -> None:
    """Loose limits: this asks whether it works, `make bench` asks how fast it is."""
    service.memory.verdicts["a"] = Verdict(VerdictKind.NODE, NAMES[0])
    result = measure(service.url_prefix, pod("a"), NAMES, calls=200, calls_with_all=20)
    assert 0 < result["one_name"]["p50_ms"] <= result["one_name"]["p99_ms"] < 100
    assert 0 < result["5000_names"]["p50_ms"] <= result["5000_names"]["p99_ms"] < 500


def test_a_defect_gives_people_a_sentence(service: Service) -> None:
    service.memory.crash = ZeroDivisionError("boom")
    connection = service.connect()
    with capture_logs() as logs:
        connection.request("GET", "/v1/gangs")
        response = connection.getresponse()
    assert response.status == 500
    assert json.loads(response.read()) == {
        "error": "Sluice failed to answer; its log has the cause"
    }
    assert [(line["event"], line["path"]) for line in logs] == [("request failed", "/v1/gangs")]
