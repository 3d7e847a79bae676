"""Errors for people: JSON ``{"error": sentence}`` that names the thing and the next step."""

from __future__ import annotations

import difflib

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from msgspec import json
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

log = structlog.get_logger(__name__)


def refusal(status: int, sentence: str, headers: dict[str, str] | None = None) -> Response:
    body = json.encode({"error": sentence}) + b"\n"
    return Response(body, status, headers, media_type="application/json")


def install(app: FastAPI) -> None:
    """Every error of every route below ``app`` becomes a refusal."""

    async def http_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        path, headers = request.url.path, dict(error.headers or {})
        if error.status_code == 405:
            sentence = f"{request.method} {path}: only {headers.get('Allow', '')} works here"
        elif error.status_code == 404:
            sentence = f"there is no {path} here; {_nearest(app, path)}"
        else:
            sentence = str(error.detail)
        return refusal(error.status_code, sentence, headers)

    async def invalid(_: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return refusal(400, "; ".join(_invalid(found) for found in error.errors()))

    async def crash(request: Request, error: Exception) -> Response:
        log.error("request failed", path=request.url.path, exc_info=error)
        return refusal(500, "Sluice failed to answer; its log has the cause")

    app.add_exception_handler(HTTPException, http_error)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(Exception, crash)


def _nearest(app: FastAPI, path: str) -> str:
    known = [route.path for route in app.routes if isinstance(route, Route)]
    known += app.openapi()["paths"]
    near = difflib.get_close_matches(path, known, n=1)
    return f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"


def _invalid(found: dict[str, object]) -> str:
    location = found["loc"]
    assert isinstance(location, tuple)
    name = location[-1]
    if found["type"] == "extra_forbidden":
        return f"unknown parameter {name!r}; see /v1/openapi.json for those that exist"
    return f"parameter {name!r}: {found['input']!r} is not allowed: {found['msg']}"
