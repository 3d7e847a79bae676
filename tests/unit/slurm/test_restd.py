"""Versions, tokens, broken connections and strange answers."""

from __future__ import annotations

import asyncio
import json
import logging
import traceback
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest

from extender.domain.model import JobState
from extender.slurm.port import SlurmDenied, SlurmError, SlurmRefused, SlurmUnavailable
from extender.slurm.rest import RestSlurm
from extender.slurm.tokens import FixedToken
from tests.fakes.slurmrestd import FakeSlurmrestd
from tests.unit.slurm.contract import CLUSTER, NODES, request, specs

SECRET = "ey.very-secret-token"
Answer = Callable[[httpx.Request], httpx.Response]


def connect(transport: httpx.AsyncBaseTransport, **more: Any) -> RestSlurm:
    more = {"cluster": CLUSTER, **more}
    return RestSlurm("http://slurmrestd:6820", FixedToken(SECRET), transport=transport, **more)


def answering(answer: Answer) -> httpx.MockTransport:
    """A slurmrestd of v0.0.45 whose every other call is answered by ``answer``."""

    def handle(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/ping/"):
            return httpx.Response(200, json={"pings": [], "errors": []})
        return answer(request)

    return httpx.MockTransport(handle)


def problem(code: int, text: str = "words") -> dict[str, Any]:
    return {"errors": [{"error_number": code, "error": text, "description": "Call failed"}]}


# -- versions -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spoken", "agreed"),
    [
        (("v0.0.42", "v0.0.43"), "v0.0.43"),  # Slurm 25.05
        (("v0.0.41", "v0.0.42", "v0.0.43", "v0.0.44"), "v0.0.44"),  # 25.11
        (("v0.0.42", "v0.0.43", "v0.0.44", "v0.0.45"), "v0.0.45"),  # 26.05
        (("v0.0.44", "v0.0.45", "v0.0.46", "v0.0.47"), "v0.0.45"),  # later
    ],
)
async def test_the_newest_common_version_is_spoken(spoken: tuple[str, ...], agreed: str) -> None:
    restd = FakeSlurmrestd(spoken)
    slurm = RestSlurm(
        "http://x", FixedToken(restd.token()), cluster=CLUSTER, transport=restd.transport
    )
    assert await slurm.start() == agreed
    await slurm.jobs()
    assert restd.calls[-1] == f"GET /slurm/{agreed}/jobs/"
    await slurm.start()
    assert len([call for call in restd.calls if call.endswith("/ping/")]) <= 3
    await slurm.close()


async def test_without_a_common_version_both_sides_are_named() -> None:
    restd = FakeSlurmrestd(("v0.0.41", "v0.0.42"))
    slurm = RestSlurm(
        "http://x", FixedToken(restd.token()), cluster=CLUSTER, transport=restd.transport
    )
    with pytest.raises(SlurmRefused, match=r"v0\.0\.41, v0\.0\.42; .* v0\.0\.43 to v0\.0\.45"):
        await slurm.start()
    await slurm.close()


async def test_a_slurmrestd_that_was_replaced_is_asked_again() -> None:
    restd = FakeSlurmrestd(("v0.0.45",))
    slurm = RestSlurm(
        "http://x", FixedToken(restd.token()), cluster=CLUSTER, transport=restd.transport
    )
    await slurm.start()
    restd.versions = ("v0.0.44",)
    with pytest.raises(SlurmUnavailable, match=r"no longer knows jobs/ in v0\.0\.45"):
        await slurm.jobs()
    assert await slurm.jobs() == []
    assert await slurm.start() == "v0.0.44"
    await slurm.close()


async def test_nodes_cannot_be_created_in_the_oldest_version() -> None:
    restd = FakeSlurmrestd(("v0.0.43",))
    slurm = RestSlurm(
        "http://x", FixedToken(restd.token()), cluster=CLUSTER, transport=restd.transport
    )
    with pytest.raises(SlurmRefused, match="scontrol create"):
        await slurm.create_nodes(specs(*NODES))
    await slurm.create_nodes([])
    await slurm.close()


# -- tokens ---------------------------------------------------------------------------------


async def test_a_call_is_repeated_once_when_the_denied_token_has_a_successor() -> None:
    restd = FakeSlurmrestd()

    class Swapping(FixedToken):
        """Gives a bad token until it is told that it was refused."""

        def renew(self) -> None:
            self._token = restd.token()

    slurm = RestSlurm("http://x", Swapping("old"), cluster=CLUSTER, transport=restd.transport)
    assert await slurm.jobs() == []
    assert restd.calls[-2:] == ["GET /slurm/v0.0.45/jobs/"] * 2
    await slurm.close()


async def test_a_token_that_stays_bad_is_tried_once() -> None:
    restd = FakeSlurmrestd()
    slurm = connect(restd.transport)
    with pytest.raises(SlurmDenied):
        await slurm.jobs()
    assert restd.calls.count("GET /slurm/v0.0.45/jobs/") == 1
    await slurm.close()


async def test_the_token_is_in_no_text(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    def broken(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadError("it broke", request=request)

    texts = []
    for answer in (broken, lambda _: httpx.Response(401, text="Authentication failure")):
        slurm = connect(answering(answer), user_name="slurm")
        texts.append(f"{slurm!r} {vars(slurm)!r}")
        with pytest.raises(SlurmError) as raised:
            await slurm.submit(request())
        texts.append("".join(traceback.format_exception(raised.value)))
        assert raised.value.__context__ is None
        await slurm.close()
    assert "secret" not in caplog.text + "".join(texts)


async def test_headers() -> None:
    seen: list[httpx.Headers] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers)
        return httpx.Response(200, json={"jobs": []})

    for user in ("", "slurm"):
        slurm = connect(answering(answer), user_name=user)
        await slurm.jobs()
        await slurm.close()
    assert [h["X-SLURM-USER-TOKEN"] for h in seen] == [SECRET] * 2
    assert [h.get("X-SLURM-USER-NAME") for h in seen] == [None, "slurm"]


# -- what an answer means -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (200, problem(2045), SlurmRefused),  # 200 with errors[] is a failure
        (500, problem(9207), SlurmRefused),  # a field that cannot be parsed is no outage
        (500, problem(22), SlurmRefused),
        (422, problem(2085), SlurmRefused),
        (511, problem(1007), SlurmDenied),
        (500, problem(1007), SlurmDenied),
        (422, problem(6001), SlurmDenied),
        (422, problem(2002), SlurmDenied),
        (422, problem(2010), SlurmDenied),
        (403, problem(1, "Operation not permitted"), SlurmUnavailable),
        (500, problem(-1), SlurmUnavailable),
        (500, problem(1000), SlurmUnavailable),
        (502, problem(1800), SlurmUnavailable),
        (502, problem(5005), SlurmUnavailable),
        (502, problem(7000), SlurmUnavailable),
        (422, problem(2027), SlurmUnavailable),
        (500, {"jobs": []}, SlurmUnavailable),
        (200, {"errors": 3}, SlurmUnavailable),
        (200, "<html>", SlurmUnavailable),
        (500, "Unspecified error", SlurmUnavailable),
        (503, "<html>no upstream</html>", SlurmUnavailable),
        (403, "forbidden by a proxy", SlurmUnavailable),
        (301, "", SlurmUnavailable),
        (401, "Authentication failure", SlurmDenied),
    ],
)
async def test_the_body_decides(status: int, body: Any, error: type[SlurmError]) -> None:
    text = body if isinstance(body, str) else json.dumps(body)
    kind = "text/plain" if isinstance(body, str) else "application/json"

    def answer(_: httpx.Request) -> httpx.Response:
        return httpx.Response(status, text=text, headers={"content-type": kind})

    slurm = connect(answering(answer))
    for call in (slurm.jobs, slurm.nodes, lambda: slurm.end(7), lambda: slurm.states([7])):
        with pytest.raises(error):
            await call()
    await slurm.close()


async def test_warnings_are_no_failures() -> None:
    body = {"job_id": 7, "errors": [], "warnings": [{"description": "Job is in held state"}]}
    slurm = connect(answering(lambda _: httpx.Response(200, json=body)))
    assert await slurm.submit(request()) == 7
    await slurm.close()


async def test_a_job_that_is_queued_counts_though_an_error_stands_beside_it() -> None:
    body = {"job_id": 7, **problem(7203, "not enough of the topology is free")}
    slurm = connect(answering(lambda _: httpx.Response(422, json=body)))
    assert await slurm.submit(request()) == 7
    await slurm.close()


async def test_a_job_without_an_id_may_exist() -> None:
    slurm = connect(answering(lambda _: httpx.Response(200, json={"errors": []})))
    with pytest.raises(SlurmUnavailable, match="no id"):
        await slurm.submit(request())
    await slurm.close()


async def test_a_partition_for_root_alone_is_no_reason_to_distrust_the_token() -> None:
    slurm = connect(answering(lambda _: httpx.Response(422, json=problem(2002))))
    with pytest.raises(SlurmRefused, match="may not use partition 'gpu'"):
        await slurm.submit(request())
    await slurm.close()


async def test_text_that_is_not_utf8_hides_no_jobs() -> None:
    body = b'{"jobs":[{"job_id":1,"admin_comment":"","name":"n\xc3"},' + (
        b'{"job_id":2,"job_state":["PENDING"],"admin_comment":'
        b'"{\\"sluice\\":\\"contract-tests\\",\\"ns\\":\\"\xff\\",\\"gang\\":\\"g\\",'
        b'\\"kind\\":\\"Job\\",\\"id\\":\\"u\\"}"}]}'
    )
    slurm = connect(answering(lambda _: httpx.Response(200, content=body)))
    (job,) = await slurm.jobs()
    assert job.id == 2
    await slurm.close()


@pytest.mark.parametrize("cluster", ["contract-tests", "another"])
async def test_a_job_of_another_cluster_s_sluice_is_none_of_ours(cluster: str) -> None:
    """A pod may name any number: what is put into the table would be ended as ours."""
    stamp = {"sluice": cluster, "ns": "ml", "gang": "g", "kind": "Job", "id": "u"}
    job = {"job_id": 5, "job_state": ["RUNNING"], "admin_comment": json.dumps(stamp)}
    record = {"job_id": 5, "comment": {"administrator": job["admin_comment"]}}

    def answer(asked: httpx.Request) -> httpx.Response:
        jobs = [record if "slurmdb" in asked.url.path else job]
        return httpx.Response(200, json={"jobs": jobs, "errors": []})

    slurm = connect(answering(answer))
    ours = cluster == CLUSTER
    assert (await slurm.job(5) is not None) == ours
    assert bool(await slurm.history(5)) == ours
    await slurm.close()


async def test_the_states_of_array_jobs_break_nothing() -> None:
    """All jobs of the cluster are asked for when ours are too many for a URL."""
    told = [{"job_id": i, "state": ["RUNNING"]} for i in ("7", "8_3", "9_[1-5]", "10+1")]
    slurm = connect(answering(lambda _: httpx.Response(200, json={"jobs": told, "errors": []})))
    assert await slurm.states(range(1, 600)) == {7: JobState.RUNNING}
    await slurm.close()


async def test_what_became_of_a_cancelled_job_stands_in_the_status() -> None:
    codes = iter([2021, 2017, 2002, 1800])

    def answer(_: httpx.Request) -> httpx.Response:
        error = {"code": next(codes), "string": "words"}
        return httpx.Response(200, json={"status": [{"error": error}], "errors": []})

    slurm = connect(answering(answer))
    await slurm.end(7)
    await slurm.end(7)
    with pytest.raises(SlurmDenied):
        await slurm.end(7)
    with pytest.raises(SlurmUnavailable):
        await slurm.end(7)
    await slurm.close()


# -- connections ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (httpx.ConnectError("refused"), "cannot be reached"),
        (httpx.ConnectTimeout("slow"), "did not answer in time"),
        (httpx.ReadTimeout("slow"), "did not answer in time"),
        (httpx.RemoteProtocolError("gone"), "broke the connection"),
        (httpx.WriteError("gone"), "broke the connection"),
    ],
)
async def test_a_broken_connection_proves_nothing(fault: httpx.HTTPError, says: str) -> None:
    sent: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request.method)
        raise fault

    slurm = connect(answering(answer))
    for call in (slurm.submit(request()), slurm.end(1), slurm.jobs()):
        with pytest.raises(SlurmUnavailable, match=rf"slurmrestd at slurmrestd:6820 {says}"):
            await call
    assert (sent.count("POST"), sent.count("DELETE")) == (1, 1)
    assert sent.count("GET") <= 2
    await slurm.close()


async def test_a_read_over_a_connection_that_had_gone_idle_is_repeated() -> None:
    faults = iter([httpx.RemoteProtocolError("Server disconnected"), None])

    def answer(_: httpx.Request) -> httpx.Response:
        if fault := next(faults):
            raise fault
        return httpx.Response(200, json={"jobs": [{"job_id": 3, "state": "RUNNING"}]})

    slurm = connect(answering(answer))
    assert await slurm.states([3]) == {3: JobState.RUNNING}
    await slurm.close()


@pytest.mark.parametrize("count", [1, 500, 12_000])
async def test_the_states_of_all_jobs_are_one_call(count: int) -> None:
    """For more than a URL holds, the states of everybody's are asked for."""
    calls: list[httpx.Request] = []

    async def answer(asked: httpx.Request) -> httpx.Response:
        calls.append(asked)
        ids = asked.url.params.get_list("job_id") or map(str, range(count + 5))
        told = [{"job_id": i, "state": ["RUNNING"]} for i in ids]
        return httpx.Response(200, json={"pings": [], "jobs": told})

    slurm = connect(httpx.MockTransport(answer))
    await slurm.start()
    calls.clear()
    assert len(await slurm.states(range(count))) == count
    assert len(calls) == 1
    assert len(str(calls[0].url)) < 8192
    await slurm.close()


@pytest.fixture
async def busy() -> AsyncIterator[tuple[RestSlurm, list[int]]]:
    under_way, most = 0, [0]

    async def answer(_: httpx.Request) -> httpx.Response:
        nonlocal under_way
        under_way += 1
        most[0] = max(most[0], under_way)
        await asyncio.sleep(0.001)
        under_way -= 1
        return httpx.Response(200, json={"job_id": 1, "pings": [], "jobs": []})

    slurm = connect(httpx.MockTransport(answer), concurrency=3)
    yield slurm, most
    await slurm.close()


async def test_calls_are_bounded(busy: tuple[RestSlurm, list[int]]) -> None:
    slurm, most = busy
    await asyncio.gather(*(slurm.submit(request()) for _ in range(50)))
    assert most == [3]


async def test_credentials_in_the_url_are_not_shown() -> None:
    def answer(_: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    slurm = RestSlurm(
        "http://me:pass@host:1",
        FixedToken(SECRET),
        cluster=CLUSTER,
        transport=httpx.MockTransport(answer),
    )
    with pytest.raises(SlurmUnavailable) as raised:
        await slurm.start()
    assert "host:1" in str(raised.value)
    assert "pass" not in str(raised.value)
    await slurm.close()
