"""A stand-in for the API server: lists and watches of objects that never change, over HTTP.

It is for a watch cache larger than one machine's control plane can be filled with in reasonable
time. Lists come in pages as the API server makes them, watches stay open and tell nothing, writes
are accepted and dropped.
"""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import parse_qs

import uvicorn

Collections = dict[str, list[str]]  # path -> objects as JSON
Send = Callable[[dict[str, Any]], Awaitable[None]]


class StandIn:
    """The process that serves the collections; ``close`` ends it."""

    def __init__(self, port: int, collections: Collections) -> None:
        self._url = f"http://127.0.0.1:{port}"
        context = multiprocessing.get_context("spawn")
        self._process = context.Process(target=_run, args=(port, collections), daemon=True)
        self._process.start()

    def close(self) -> None:
        self._process.kill()
        self._process.join(5)

    def kubeconfig(self) -> dict[str, Any]:
        """For a client that needs no rights."""
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "standin",
            "contexts": [{"name": "standin", "context": {"cluster": "standin", "user": "anyone"}}],
            "clusters": [{"name": "standin", "cluster": {"server": self._url}}],
            "users": [{"name": "anyone", "user": {}}],
        }


def _run(port: int, collections: Collections) -> None:
    app = _Application(collections)
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="error", lifespan="off")


class _Application:
    """ASGI."""

    def __init__(self, collections: Collections) -> None:
        self._collections = collections

    async def __call__(self, scope: Any, receive: Callable[[], Any], send: Send) -> None:
        while (await receive()).get("more_body"):
            pass
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        items = self._collections.get(scope["path"])
        query = parse_qs(scope["query_string"].decode())
        if scope["method"] != "GET" or items is None:
            await send({"type": "http.response.body", "body": b"{}"})
        elif "watch" in query:
            await send({"type": "http.response.body", "body": b"", "more_body": True})
            await receive()  # the client's end of it
        else:
            start, limit = _number(query, "continue", 0), _number(query, "limit", len(items))
            await send({"type": "http.response.body", "body": _page(items, start, limit)})


def _page(items: list[str], start: int, limit: int) -> bytes:
    stop = start + limit
    meta = {"resourceVersion": "1000000", "continue": str(stop) if stop < len(items) else ""}
    return f'{{"metadata":{json.dumps(meta)},"items":[{",".join(items[start:stop])}]}}'.encode()


def _number(query: dict[str, list[str]], key: str, default: int) -> int:
    return int(query[key][0]) if key in query else default
