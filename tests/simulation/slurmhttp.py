"""slurmrestd over the model, below httpx: the true adapter (extender/slurm/rest.py) on top.

Statuses and bodies are those of 26.05.5 (tests/fakes/slurmrestd.py, docs in errors.py): errors come
in ``errors[]``, with HTTP 200 as well as with others.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import httpx
import msgspec

from extender.domain.model import Job, JobRequest, JobState, Stamp
from extender.slurm import reading
from extender.slurm.port import SlurmDenied, SlurmRefused, SlurmUnavailable, SlurmUnsent
from extender.slurm.rest import RestSlurm
from extender.slurm.tokens import FixedToken
from tests.simulation.slurmport import CLUSTER, Port
from tests.simulation.truth import JobTruth

if TYPE_CHECKING:
    from tests.simulation.replica import Replica
    from tests.simulation.world import World

Body = dict[str, Any]
VERSION = "v0.0.45"
_AWAY, _TOKEN = 1800, 1007
_NAMED = re.compile(r"job/(\d+)")


class HttpPort(RestSlurm):
    """``Slurm`` for one replica: the adapter, with the judge told of every submit."""

    def __init__(self, world: World, replica: Replica) -> None:
        self._world, self._replica = world, replica
        super().__init__(
            "http://slurmrestd:6820",
            FixedToken("token"),
            cluster=CLUSTER,
            transport=Restd(world, replica),
            may_write=replica.may_write,
        )

    async def submit(self, request: JobRequest) -> int:
        self._world.judge.submitting(self._replica, request)
        job_id = await super().submit(request)
        if (job := self._world.slurm.jobs.get(job_id)) is not None:
            job.acked_to.add(self._replica)
        return job_id


class Restd(httpx.AsyncBaseTransport):
    """Carries requests to the model by way of ``Port``, which has the faults."""

    def __init__(self, world: World, replica: Replica) -> None:
        self._world, self._replica = world, replica
        self._port = Port(world, replica)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        _, service, version, path = request.url.path.split("/", 3)
        if version != VERSION:
            return httpx.Response(404, text="Unable to find requested URL endpoint")
        what, execute, write = self._route(service, request, path)
        try:
            answer = await self._port.call(what, execute)
        except SlurmUnsent as error:
            raise httpx.ConnectError(str(error), request=request) from None
        except SlurmDenied:
            return _failed(511, _TOKEN, "Protocol authentication error")
        except SlurmRefused as error:
            return _failed(404 if error.code == 2017 else 422, error.code, str(error))
        except SlurmUnavailable as error:
            if what == "submit":
                asked = _request(msgspec.json.decode(request.content)["job"])
                self._replica.unanswered[asked.stamp.id] = self._world.now
            return self._silence(request, what, str(error))
        return httpx.Response(200, json={**write(answer), "errors": [], "warnings": []})

    def _silence(self, request: httpx.Request, what: str, why: str) -> httpx.Response:
        """What is no answer comes as a time-out, a broken connection, or a body that says so."""
        if not why.endswith(("error", "away")):
            if self._world.coin():
                raise httpx.ReadTimeout(why, request=request)
            raise httpx.ReadError(why, request=request)
        if what == "end":
            return _failed(403, 1, "Operation not permitted")
        empty: Body = {"jobs": [], "nodes": [], "job_id": 0, "results": None}
        status = 200 if self._world.coin() else 502
        return _failed(status, _AWAY, "Unable to contact slurm controller", **empty)

    def _route(
        self, service: str, request: httpx.Request, path: str
    ) -> tuple[str, Callable[[], Any], Callable[[Any], Body]]:
        """The call as the faults name it, what it does, and how its answer is written."""
        port, ctld = self._port, self._world.slurm
        body: Body = msgspec.json.decode(request.content) if request.content else {}
        method = request.method
        if path.startswith(("ping", "diag")):
            return "ping", lambda: ctld.booted, _diag
        if path in ("conf", "qos/", "partitions/"):
            return "limits", lambda: None, lambda _: {}
        if path.startswith("jobs/state"):
            ids = [int(one) for one in request.url.params.get_list("job_id")]
            return "states", lambda: port.find_states(ids), self._states
        if path.startswith("jobs"):
            return "jobs", self._everybodys, self._list
        if path.startswith("nodes"):
            return (
                "nodes",
                ctld.listed_nodes,
                lambda nodes: {
                    "nodes": [{"name": node.name, "state": list(node.states)} for node in nodes]
                },
            )
        if path == "job/submit":
            asked = _request(body["job"])
            return "submit", lambda: port.find_submit(asked), lambda job: {"job_id": job.id}
        match = _NAMED.match(path)
        assert match, f"{method} {path} is not modelled"
        job_id = int(match[1])
        meant = ctld.jobs.get(job_id)
        if service == "slurmdb":
            return "history", lambda: ctld.recorded(job_id), self._history
        if method == "GET":
            return "job", lambda: self._one(job_id), self._job
        if method == "DELETE":
            return (
                "end",
                lambda: port.find_end(job_id, JobState.CANCELLED, meant),
                lambda _: {"status": []},
            )
        if "admin_comment" not in body:
            return "mark", lambda: None, lambda _: {}
        stamp = msgspec.json.decode(body["admin_comment"], type=Stamp)
        nodes = body.get("required_nodes", ())
        return "mark", lambda: port.find_mark(job_id, stamp, nodes, meant), lambda _: {}

    # -- answers ------------------------------------------------------------------------------

    def _states(self, told: dict[int, tuple[JobTruth, JobState]]) -> Body:
        return {"jobs": [{"job_id": str(i), "state": [s]} for i, (_, s) in told.items()]}

    def _everybodys(self) -> tuple[float, list[tuple[JobTruth, Job]]]:
        ctld = self._world.slurm
        return self._world.now, [(job, ctld.told(job)) for job in ctld.jobs.values()]

    def _list(self, answer: tuple[float, list[tuple[JobTruth, Job]]]) -> Body:
        self._replica.listed_at, told = answer
        self._port.tell((job, one.state) for job, one in told)
        return {"jobs": [_info(one, detail=False) for _, one in told]}

    def _one(self, job_id: int) -> tuple[JobTruth, Job]:
        told = self._port.find_job(job_id)
        if told is None:
            raise SlurmRefused("Invalid job id specified", 2017)
        return told

    def _job(self, told: tuple[JobTruth, Job]) -> Body:
        self._port.tell([(told[0], told[1].state)])
        return {"jobs": [_info(told[1], detail=True)]}

    def _history(self, told: list[tuple[JobTruth, Job]]) -> Body:
        self._port.tell((job, one.state) for job, one in told)
        return {"jobs": [_record(one) for _, one in told]}


def _diag(booted: float) -> Body:
    return {"statistics": {"req_time_start": _number(booted)}}


def _failed(status: int, code: int, said: str, **body: Any) -> httpx.Response:
    problem = {"error_number": code, "error": said, "description": said, "source": "slurmctld"}
    return httpx.Response(status, json={**body, "errors": [problem], "warnings": []})


def _number(value: float) -> Body:
    return {"set": True, "infinite": False, "number": int(value)}


def _request(asked: Body) -> JobRequest:
    """The description of a job, read again."""
    stamp = reading.stamp(asked["admin_comment"])
    assert stamp is not None
    cpus, gpus = asked["cpus_per_task"], 0
    if per_task := asked.get("tres_per_task"):
        gpus = int(per_task.rpartition(":")[2])
        memory = gpus * int(asked["memory_per_tres"].rpartition(":")[2])
    else:
        memory = cpus * asked["memory_per_cpu"]["number"]
    return JobRequest(
        name=asked["name"],
        user=asked["user_id"],
        stamp=stamp,
        tasks=asked["tasks"],
        cpus_per_task=cpus,
        memory_mib_per_task=memory,
        gpus_per_task=gpus,
        excluded_nodes=tuple(asked.get("excluded_nodes", ())),
        required_nodes=tuple(asked.get("required_nodes", ())),
    )


def _info(job: Job, *, detail: bool) -> Body:
    shares = job.shares if detail else ()
    return {
        "job_id": job.id,
        "job_state": [job.state],
        "state_reason": job.reason or "None",
        "admin_comment": msgspec.json.encode(job.stamp).decode() if job.stamp else "",
        "user_name": job.user,
        "submit_time": _number(job.submitted),
        "start_time": _number(job.started),
        "end_time": _number(job.ended),
        "restart_cnt": job.restarts,
        "gres_detail": [f"gpu:{s.gpus}(IDX:0-{s.gpus - 1})" if s.gpus else "" for s in shares],
        "job_resources": {
            "nodes": {
                "allocation": [
                    {
                        "name": s.name,
                        "cpus": {"count": s.cpus},
                        "memory": {"allocated": s.memory_mib},
                    }
                    for s in shares
                ]
            }
        }
        if shares
        else None,
    }


def _record(job: Job) -> Body:
    return {
        "job_id": job.id,
        "comment": {"administrator": msgspec.json.encode(job.stamp).decode() if job.stamp else ""},
        "state": {"current": [job.state], "reason": "None"},
        "time": {"submission": job.submitted, "start": job.started, "end": job.ended},
        "user": job.user,
    }
