"""A slurmrestd in memory, below httpx: bodies and statuses as 26.05.5 gave them.

``FakeSlurmrestd().transport`` goes into RestSlurm. It speaks ``versions``, knows its own tokens,
and can lose its slurmctld (``down``).
"""

from __future__ import annotations

import json
import re
import secrets
import time
from collections.abc import Sequence
from typing import Any
from urllib.parse import parse_qs

import httpx

from tests.fakes.slurmctld import OPERATORS, WORDS, FakeSlurmctld, Job, Node, Refusal

SPOKEN = ("v0.0.42", "v0.0.43", "v0.0.44", "v0.0.45")
UNKNOWN_URL = (
    "Unable to find requested URL endpoint. Please query the '/openapi/v3' endpoint or visit"
    " 'https://slurm.schedmd.com/rest_api.html' for the OpenAPI specification"
)
Body = dict[str, Any]


class FakeSlurmrestd:
    def __init__(self, versions: Sequence[str] = SPOKEN) -> None:
        self.slurmctld = FakeSlurmctld()
        self.versions = versions
        self.down = False
        self.kill_wait = 30  # slurm.conf
        self.qos = {"normal": 0, "high": 0}  # and their GraceTime
        self.partitions = {"gpu": 0}
        self.calls: list[str] = []
        self.bodies: list[Body] = []
        self._tokens: dict[str, tuple[str, float]] = {}
        self.transport = httpx.MockTransport(self.answer)

    def token(self, user: str = "slurm", lifespan_seconds: float = 3600) -> str:
        token = f"ey.{secrets.token_hex(16)}"
        self._tokens[token] = (user, time.time() + lifespan_seconds)
        return token

    def answer(self, request: httpx.Request) -> httpx.Response:
        self.calls.append(f"{request.method} {request.url.path}")
        if not request.headers.get("X-SLURM-USER-TOKEN"):
            return _text(401, "Authentication failure")
        if request.url.path == "/openapi/v3":
            paths: Body = {f"/slurm/{version}/ping/": {} for version in self.versions}
            return httpx.Response(200, json={"paths": paths})
        match = re.fullmatch(r"/(slurm|slurmdb)/(v[0-9.]+)/(.*)", request.url.path)
        if not match or match[2] not in self.versions:
            return _text(404, UNKNOWN_URL)
        service, version, path = match.groups()
        if service == "slurmdb":
            return self._qos() if path == "qos/" else self._accounting(path)
        if path == "ping/":
            return self._ping()
        handler = self._handler(request.method, path, version)
        if handler is None:
            return _text(404, UNKNOWN_URL)
        if (user := self._user(request)) is None:
            return _failed(511, 1007, "Unable to query job states")
        if self.down:
            return _unreachable(request.method, path)
        self.slurmctld.schedule()
        body = json.loads(request.content) if request.content else {}
        if body:
            self.bodies.append(body)
        try:
            response: httpx.Response = handler(
                path, user, body, parse_qs(request.url.query.decode())
            )
            return response
        except Refusal as no:
            return _failed(_status(no.code), no.code, no.description)

    def _user(self, request: httpx.Request) -> str | None:
        user, until = self._tokens.get(request.headers["X-SLURM-USER-TOKEN"], ("", 0.0))
        return user if until > time.time() else None

    def _handler(self, method: str, path: str, version: str) -> Any:
        if (method, path) == ("POST", "new/node/"):
            return None if version < "v0.0.44" else self._create
        if (method, path) == ("GET", "conf"):
            return None if version < "v0.0.45" else self._conf
        table = {
            ("GET", "jobs/"): self._list,
            ("GET", "jobs/state/"): self._states,
            ("POST", "job/submit"): self._submit,
            ("GET", "nodes/"): self._nodes,
            ("GET", "diag/"): self._diag,
            ("GET", "partitions/"): self._partitions,
        }
        by_id = {"GET": self._job, "POST": self._update, "DELETE": self._delete}
        if re.fullmatch(r"job/\d+", path):
            return by_id.get(method)
        return table.get((method, path))

    def _ping(self) -> httpx.Response:
        status = WORDS[1800] if self.down else "No error"
        return _ok(pings=[{"hostname": "localhost", "responding": not self.down, "status": status}])

    def _diag(self, *_: Any) -> httpx.Response:
        return _ok(statistics={"req_time_start": _number(self.slurmctld.booted)})

    def _submit(self, _: str, user: str, body: Body, __: Body) -> httpx.Response:
        asked = body["job"]
        if user not in OPERATORS and asked.get("user_id") != user:
            raise Refusal(2010)
        if user not in OPERATORS and asked.get("admin_comment"):
            raise Refusal(2002)
        job = self.slurmctld.submit(asked)
        return _ok(job_id=job.id, step_id="batch", job_submit_user_msg="")

    def _states(self, _: str, __: str, ___: Body, query: Body) -> httpx.Response:
        wanted = [int(job_id) for job_id in query.get("job_id", [])]
        found = self.slurmctld.jobs
        ids = [i for i in dict.fromkeys(wanted) if i in found] if wanted else list(found)
        return _ok(jobs=[{"job_id": str(i), "state": [found[i].state]} for i in ids])

    def _job(self, path: str, *_: Any) -> httpx.Response:
        job_id = _id(path)
        if job_id not in self.slurmctld.jobs:
            return _failed(404, 2017, f"Unable to query JobId={job_id}", jobs=[])
        return _ok(jobs=[_job_info(self.slurmctld.jobs[job_id], detail=True)])

    def _list(self, _: str, __: str, ___: Body, query: Body) -> httpx.Response:
        detail = query.get("flags") != ["ALL"]
        return _ok(jobs=[_job_info(job, detail) for job in self.slurmctld.jobs.values()])

    def _update(self, path: str, user: str, body: Body, _: Body) -> httpx.Response:
        if user not in OPERATORS:
            raise Refusal(2010, "Job update requested failed")
        self.slurmctld.update(_id(path), body)
        return _ok(results=None)

    def _delete(self, path: str, user: str, _: Body, query: Body) -> httpx.Response:
        assert query["signal"] == ["KILL"], "any other signal poisons the nodes"
        try:
            job = self.slurmctld.find(_id(path))
            if user not in OPERATORS and user != job.asked["user_id"]:
                raise Refusal(2002)
            self.slurmctld.end(job.id)
        except Refusal as no:
            error = {"string": WORDS[no.code], "code": no.code, "message": WORDS[no.code]}
            return _ok(status=[{"error": error, "step_id": str(_id(path))}])
        return _ok(status=[])

    def _nodes(self, *_: Any) -> httpx.Response:
        return _ok(nodes=[_node_info(node) for node in self.slurmctld.nodes.values()])

    def _create(self, _: str, user: str, body: Body, __: Body) -> httpx.Response:
        if user not in OPERATORS:
            raise Refusal(2010, "Failure to create node")
        self.slurmctld.create(body["node_conf"])
        return _ok()

    def _conf(self, *_: Any) -> httpx.Response:
        return _ok(slurm_conf={"KillWait": self.kill_wait})

    def _partitions(self, *_: Any) -> httpx.Response:
        return _ok(partitions=[{"name": n, "grace_time": s} for n, s in self.partitions.items()])

    def _qos(self) -> httpx.Response:
        return _ok(qos=[{"name": n, "limits": {"grace_time": s}} for n, s in self.qos.items()])

    def _accounting(self, path: str) -> httpx.Response:
        job = self.slurmctld.accounting.get(_id(path))
        return _ok(jobs=[_record(job)] if job else [])


def _id(path: str) -> int:
    return int(path.rpartition("/")[2])


def _ok(**body: Any) -> httpx.Response:
    return httpx.Response(200, json={**body, "meta": {}, "errors": [], "warnings": []})


def _text(status: int, text: str) -> httpx.Response:
    return httpx.Response(status, text=text, headers={"Connection": "Close"})


def _failed(http: int, code: int, description: str, **body: Any) -> httpx.Response:
    error = {
        "description": description,
        "error_number": code,
        "error": WORDS.get(code, "Unspecified error"),
        "source": "slurmctld",
    }
    return httpx.Response(
        http,
        json={**body, "meta": {}, "errors": [error], "warnings": []},
        headers={"Connection": "Close"},
    )


def _status(code: int) -> int:
    """The HTTP status that slurmrestd gives to an error number."""
    return {2017: 404, 22: 500, 9202: 500}.get(code, 422)


def _unreachable(method: str, path: str) -> httpx.Response:
    """What each call says when slurmctld is not there (after 10 to 20 seconds)."""
    if method == "DELETE":
        return _failed(403, 1, "Signal request failed", status=[])
    if method == "POST" and re.fullmatch(r"job/\d+", path):
        return _failed(500, 1000, "Job update requested failed", results=None)
    if path == "jobs/state/" or path.startswith("job/1"):
        return _failed(500, -1, "Unable to query job states", jobs=None)
    return _failed(502, 1800, "slurmctld is away")


def _number(value: int, *, infinite: bool = False) -> Body:
    return {"set": not infinite, "infinite": infinite, "number": value}


def _exit_code(number: int = 0) -> Body:
    signal = {"id": {"set": False, "infinite": False, "number": 0}, "name": ""}
    return {"status": ["SUCCESS"], "return_code": _number(number), "signal": signal}


def _job_info(job: Job, detail: bool) -> Body:
    asked = job.asked
    limit = asked.get("time_limit") or _number(60)
    detail = detail and bool(job.shares)
    return {
        "job_id": job.id,
        "job_state": [job.state],
        "state_reason": job.reason,
        "admin_comment": asked.get("admin_comment", ""),
        "comment": asked.get("comment", ""),
        "name": asked.get("name", ""),
        "user_name": asked["user_id"],
        "group_name": asked["group_id"],
        "account": asked.get("account", "ml"),
        "partition": asked.get("partition", "gpu"),
        "qos": asked.get("qos", "normal"),
        "flags": ["EXTERNAL_JOB"],
        "submit_time": _number(job.submitted),
        "start_time": _number(job.started),
        "end_time": _number(job.ended),
        "time_limit": _number(0, infinite=True) if limit.get("infinite") else limit,
        "exit_code": _exit_code(),
        "gres_detail": [_gres_detail(s.gpus) for s in job.shares] if detail and _gpus(job) else [],
        "job_resources": _resources(job) if detail else None,
    }


def _gpus(job: Job) -> bool:
    return job.state == "RUNNING" and any(share.gpus for share in job.shares)


def _gres_detail(gpus: int) -> str:
    return f"gpu:{gpus}(IDX:0-{gpus - 1})" if gpus > 1 else f"gpu:{gpus}(IDX:0)"


def _resources(job: Job) -> Body:
    allocation = [
        {
            "index": index,
            "name": share.node,
            "cpus": {"count": share.cpus, "used": 0},
            "memory": {"used": 0, "allocated": share.memory},
            "sockets": [],
        }
        for index, share in enumerate(job.shares)
    ]
    return {"nodes": {"count": len(allocation), "whole": False, "allocation": allocation}}


def _record(job: Job) -> Body:
    asked = job.asked
    return {
        "job_id": job.id,
        "comment": {"administrator": asked.get("admin_comment", ""), "job": "", "system": ""},
        "state": {"current": [job.state], "reason": job.reason},
        "time": {
            "submission": job.submitted,
            "start": job.started or 0xFFFFFFFE,
            "end": job.ended,
            "limit": asked.get("time_limit") or _number(60),
        },
        "exit_code": _exit_code(),
        "user": asked["user_id"],
        "account": asked.get("account", "ml"),
        "partition": asked.get("partition", "gpu"),
        "qos": asked.get("qos", "normal"),
    }


def _node_info(node: Node) -> Body:
    return {
        "name": node.name,
        "state": ["IDLE", "EXTERNAL", "DYNAMIC_NORM"],
        "address": node.address,
        "hostname": node.name,
        "cpus": node.cpus,
        "real_memory": node.memory,
        "gres": node.gres,
        "features": list(node.features),
        "topology": node.topology,
        "reason": "",
    }
