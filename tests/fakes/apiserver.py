"""A few routes of kube-apiserver over real HTTP, for tests of what Sluice does with its answers.

It answers as kube-apiserver 1.36 did: 409 for a second binding, 404 for a pod that is not there,
409 for a patch that names another UID, lists in pages. Anything deeper is tested on the real one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer
from kubernetes.aio.client import Configuration

from extender.kube.client import KubeClient


class FakeApiServer:
    """Pods by (namespace, name); every write is in ``calls`` as "VERB path".

    ``others`` are the objects of the other collections, by path; a page has ``page`` objects at the
    most, however many are asked for.
    """

    def __init__(self) -> None:
        self.others: dict[str, list[dict[str, Any]]] = {}
        self.page = 500
        self.pods: dict[tuple[str, str], dict[str, Any]] = {}
        self.calls: list[str] = []
        self.bodies: list[dict[str, Any]] = []
        self.lose_answers = False  # carry the call out, then answer 500

    def add(self, namespace: str, name: str, uid: str, scheduler: str = "sluice") -> None:
        self.pods[namespace, name] = {
            "metadata": {"namespace": namespace, "name": name, "uid": uid},
            "spec": {"schedulerName": scheduler},
        }

    def app(self) -> web.Application:
        app = web.Application()
        pod = "/api/v1/namespaces/{namespace}/pods/{name}"
        app.router.add_get(pod, self._get)
        app.router.add_patch(pod, self._patch)
        app.router.add_patch(pod + "/status", self._patch_status)
        app.router.add_delete(pod, self._delete)
        app.router.add_post(pod + "/binding", self._bind)
        for path in ("/api/v1/pods", "/api/v1/nodes", "/api/v1/namespaces", "/apis/batch/v1/jobs"):
            app.router.add_get(path, self._list)
        return app

    def _find(self, request: web.Request) -> dict[str, Any]:
        key = request.match_info["namespace"], request.match_info["name"]
        if key not in self.pods:
            raise web.HTTPNotFound(
                text=f'{{"reason":"NotFound","message":"pods {key[1]} not found"}}'
            )
        return self.pods[key]

    async def _get(self, request: web.Request) -> web.Response:
        return web.json_response(self._find(request))

    async def _list(self, request: web.Request) -> web.Response:
        found = self.others.get(request.path, [])
        if request.path == "/api/v1/pods":
            found = [pod for pod in self.pods.values() if _selected(pod, request)]
        start = int(request.query.get("continue") or 0)
        end = start + min(self.page, int(request.query["limit"]))
        more = {"continue": str(end)} if end < len(found) else {}
        return web.json_response(
            {"metadata": {"resourceVersion": "7", **more}, "items": found[start:end]}
        )

    async def _write(self, request: web.Request) -> tuple[dict[str, Any], dict[str, Any]]:
        self.calls.append(f"{request.method} {request.path}")
        body = await request.json()
        self.bodies.append(body)
        return self._find(request), body

    def _answer(self, body: dict[str, Any]) -> web.Response:
        if self.lose_answers:
            return web.json_response({"message": "etcd is away"}, status=500)
        return web.json_response(body)

    async def _bind(self, request: web.Request) -> web.Response:
        pod, body = await self._write(request)
        if pod["spec"].get("nodeName") or body["metadata"]["uid"] != pod["metadata"]["uid"]:
            return web.json_response(
                {"reason": "Conflict", "message": "already assigned"}, status=409
            )
        pod["spec"]["nodeName"] = body["target"]["name"]
        return self._answer({"kind": "Status", "status": "Success"})

    async def _patch(self, request: web.Request) -> web.Response:
        pod, body = await self._write(request)
        if body["metadata"]["uid"] != pod["metadata"]["uid"]:
            return web.json_response({"reason": "Conflict", "message": "uid"}, status=409)
        pod["metadata"].setdefault("annotations", {}).update(body["metadata"]["annotations"])
        return self._answer(pod)

    async def _patch_status(self, request: web.Request) -> web.Response:
        pod, body = await self._write(request)
        if body["metadata"]["uid"] != pod["metadata"]["uid"]:
            return web.json_response({"reason": "Conflict", "message": "uid"}, status=409)
        pod["status"] = body["status"]
        return self._answer(pod)

    async def _delete(self, request: web.Request) -> web.Response:
        pod, _ = await self._write(request)
        del self.pods[pod["metadata"]["namespace"], pod["metadata"]["name"]]
        return self._answer(pod)


def _selected(pod: dict[str, Any], request: web.Request) -> bool:
    """Of field selectors those that say which phases are left out."""
    left_out = request.query.get("fieldSelector", "").replace("status.phase!=", "").split(",")
    return pod.get("status", {}).get("phase", "Pending") not in left_out


@asynccontextmanager
async def serving(fake: FakeApiServer) -> AsyncIterator[KubeClient]:
    """The fake on a free port, and a client of it."""
    server = TestServer(fake.app())
    await server.start_server()
    configuration = Configuration()
    configuration.host = f"http://127.0.0.1:{server.port}"
    client = KubeClient(configuration, timeout_seconds=5.0)
    try:
        yield client
    finally:
        await client.close()
        await server.close()
