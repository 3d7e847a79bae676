"""Stand-ins for what the API asks, and a way to call it without a network."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import httpx
from fastapi import FastAPI
from prometheus_client import CollectorRegistry

from extender.api.app import create_api
from extender.domain.views import (
    PASS,
    GangSummary,
    GangView,
    PartStatus,
    PodView,
    Verdict,
)

Json = Any


class Memory:
    """All ports at once; answers from its attributes, and remembers what it was asked."""

    def __init__(self) -> None:
        self.verdicts: dict[str, Verdict] = {}  # by pod name
        self.why_not_bound = ""
        self.crash: Exception | None = None
        self.views: list[GangView] = []
        self.pods: list[PodView] = []
        self.status: list[PartStatus] = [PartStatus("slurm", True)]
        self.stall = ""
        self.asked: list[tuple[str, ...]] = []

    def verdict(self, namespace: str, name: str, uid: str, scheduler: str) -> Verdict:
        self.asked.append(("verdict", namespace, name, uid, scheduler))
        if self.crash:
            raise self.crash
        return self.verdicts.get(name, PASS)

    async def bind(self, namespace: str, name: str, uid: str, node: str) -> str:
        self.asked.append(("bind", namespace, name, uid, node))
        if self.crash:
            raise self.crash
        return self.why_not_bound

    def gangs(self, namespace: str | None) -> Sequence[GangSummary]:
        if self.crash:
            raise self.crash
        return [v for v in self.views if namespace in (None, v.namespace)]

    async def gang(self, namespace: str, name: str) -> GangView | None:
        found = (v for v in self.views if (v.namespace, v.name) == (namespace, name))
        return next(found, None)

    async def pod(self, namespace: str, name: str) -> PodView | None:
        found = (p for p in self.pods if (p.namespace, p.name) == (namespace, name))
        return next(found, None)

    def parts(self) -> Sequence[PartStatus]:
        return self.status

    def stalled(self) -> str:
        return self.stall


def api(memory: Memory, body_limit_bytes: int = 1 << 20) -> FastAPI:
    return create_api(
        memory, memory, memory, CollectorRegistry(), body_limit_bytes=body_limit_bytes
    )


def call(
    app: FastAPI, method: str, path: str, body: bytes | None = None, **headers: str
) -> httpx.Response:
    """One request; an exception that the application lets through fails the test."""

    async def send() -> httpx.Response:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://sluice") as client:
            return await client.request(method, path, content=body, headers=headers)

    return asyncio.run(send())


def ask(app: FastAPI, verb: str, arguments: Json) -> Json:
    """What kube-scheduler gets back; fails on anything but 200."""
    body = arguments if isinstance(arguments, bytes) else json.dumps(arguments).encode()
    response = call(app, "POST", f"/extender/{verb}", body)
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    return response.json()


def pod(name: str = "train-0", **spec: Json) -> Json:
    """A pod as kube-scheduler sends it: far more than is read."""
    return {
        "metadata": {
            "name": name,
            "namespace": "vision",
            "uid": "uid-" + name,
            "creationTimestamp": "2026-12-01T10:00:00Z",
            "labels": {"batch.kubernetes.io/job-completion-index": "0"},
            "managedFields": [{"manager": "kcm", "fieldsV1": {"f:metadata": {"f:labels": {}}}}],
        },
        "spec": {
            "containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "8"}}}],
            "schedulerName": "sluice",
            **spec,
        },
        "status": {"phase": "Pending", "qosClass": "BestEffort"},
    }


def node(name: str) -> Json:
    return {"metadata": {"name": name, "uid": f"uid-{name}"}, "spec": {}, "status": {"images": []}}
