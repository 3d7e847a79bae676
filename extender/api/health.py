"""/livez, /readyz and /metrics."""

from __future__ import annotations

from msgspec import json
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from extender.api.ports import Health


def create_routes(health: Health, registry: CollectorRegistry) -> list[Route]:
    async def livez(_: Request) -> Response:
        """200 while the event loop turns and no loop is stuck; 503 is a reason to restart."""
        why = health.stalled()
        return Response(f"{why or 'ok'}\n", 503 if why else 200, media_type="text/plain")

    async def readyz(_: Request) -> Response:
        """200 when every part is ready; else 503. Either way: each part, and why not."""
        parts = health.parts()
        ready = all(part.ready for part in parts)
        body = json.format(json.encode({"ready": ready, "parts": parts}), indent=2)
        return Response(body + b"\n", 200 if ready else 503, media_type="application/json")

    async def metrics(_: Request) -> Response:
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    return [Route("/livez", livez), Route("/readyz", readyz), Route("/metrics", metrics)]
