"""The HTTP application: who may ask what, and the server that it runs in."""

from __future__ import annotations

from typing import Any

import uvicorn
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from prometheus_client import CollectorRegistry
from starlette.types import Lifespan

import extender
from extender.api import debug, errors, health, metrics, scheduler
from extender.api.ports import Explain, Health, Scheduling

PREFIX = "/extender"  # urlPrefix in kube-scheduler's configuration ends with it


def create_api(
    scheduling: Scheduling,
    explain: Explain,
    health_port: Health,
    registry: CollectorRegistry,
    *,
    body_limit_bytes: int,
    lifespan: Lifespan[FastAPI] | None = None,
) -> FastAPI:
    """All routes: kube-scheduler's, people's, probes'. ``lifespan`` starts and stops the rest."""
    app = FastAPI(
        title="Sluice",
        version=extender.__version__,
        openapi_url="/v1/openapi.json",
        docs_url=None,  # they load scripts from the internet
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
    )
    metrics.register(registry)
    app.router.routes[:0] = [
        *scheduler.create_routes(scheduling, PREFIX, body_limit_bytes),
        *health.create_routes(health_port, registry),
    ]
    app.include_router(debug.create_router(explain))
    errors.install(app)
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]
    return app


def server(app: FastAPI, host: str, port: int) -> uvicorn.Server:
    """The server to ``await server.serve()``.

    kube-scheduler keeps idle connections for 90 s and does not repeat a POST that met a closing
    one, so the server must be the more patient side. No access log: one line a call would cost
    more than the call.
    """
    return uvicorn.Server(
        uvicorn.Config(
            scheduler.Front(app),
            proxy_headers=False,
            host=host,
            port=port,
            loop="uvloop",
            http="httptools",
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=120,
            timeout_graceful_shutdown=5,
        )
    )


def _openapi(app: FastAPI) -> dict[str, Any]:
    if not app.openapi_schema:
        document = get_openapi(title=app.title, version=app.version, routes=app.routes)
        document["components"] = {"schemas": debug.schemas()}
        for methods in document["paths"].values():
            for operation in methods.values():
                operation["responses"].pop("422", None)  # FastAPI's own; ours is 400 (errors.py)
        app.openapi_schema = document
    return app.openapi_schema
