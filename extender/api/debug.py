"""/v1: gangs and pods for people, as JSON or, for ``Accept: text/plain``, as text."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Query, Request
from msgspec import json
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from starlette.responses import Response

from extender.api import text
from extender.api.errors import refusal
from extender.api.ports import Explain
from extender.domain.views import GangSummary, GangView, PodView

REFS = "#/components/schemas/{name}"
ERROR = {
    "application/json": {
        "schema": {"type": "object", "properties": {"error": {"type": "string"}}},
    }
}
Flag = Annotated[bool, BeforeValidator(lambda value: value == "" or value)]  # ?pretty is true


class One(BaseModel):
    model_config = ConfigDict(extra="forbid")

    pretty: Flag = Field(False, description="Indent the JSON.")


class Many(One):
    namespace: str | None = Field(None, description="Only gangs of this namespace.")


def create_router(explain: Explain) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["explain"])

    @router.get("/gangs", responses=_ok({"gangs": list[GangSummary]}, "All gangs."))
    async def list_gangs(request: Request, query: Annotated[Many, Query()]) -> Response:
        """All gangs, in the order of their names."""
        found = sorted(explain.gangs(query.namespace), key=lambda g: (g.namespace, g.name))
        if wants_text(request):
            return _text(text.gangs(found))
        return _json({"gangs": [_summary(gang) for gang in found]}, query.pretty)

    @router.get("/gangs/{namespace}/{name}", responses=_ok(GangView, "The gang."))
    async def show_gang(
        request: Request, namespace: str, name: str, query: Annotated[One, Query()]
    ) -> Response:
        """One gang: state, Slurm job, reason, ranks and nodes, and what was decided when."""
        view = await explain.gang(namespace, name)
        if view is None:
            return _unknown("gang", namespace, name)
        return _text(text.gang(view)) if wants_text(request) else _json(view, query.pretty)

    @router.get("/pods/{namespace}/{name}", responses=_ok(PodView, "The pod."))
    async def show_pod(
        request: Request, namespace: str, name: str, query: Annotated[One, Query()]
    ) -> Response:
        """One pod: why it is where it is, or is not."""
        view = await explain.pod(namespace, name)
        if view is None:
            return _unknown("pod", namespace, name)
        return _text(text.pod(view)) if wants_text(request) else _json(view, query.pretty)

    return router


def schemas() -> dict[str, Any]:
    """The JSON schemas that ``_ok`` refers to, for OpenAPI's components."""
    return json.schema_components([GangSummary, GangView, PodView], ref_template=REFS)[1]


def wants_text(request: Request) -> bool:
    accept = request.headers.get("accept", "")
    return "text/plain" in accept and "json" not in accept


def _summary(gang: GangSummary) -> GangSummary:
    """Without ranks and timeline, which a list has no use for."""
    return GangSummary(**{name: getattr(gang, name) for name in GangSummary.__struct_fields__})


def _unknown(kind: str, namespace: str, name: str) -> Response:
    inside = f"/v1/gangs?namespace={quote(namespace)}"
    return refusal(404, f"Sluice knows no {kind} {namespace}/{name}; GET {inside} lists the gangs")


def _json(value: object, pretty: bool) -> Response:
    body = json.encode(value)
    if pretty:
        body = json.format(body, indent=2)
    return Response(body + b"\n", media_type="application/json")


def _text(content: str) -> Response:
    return Response(content, media_type="text/plain")


def _ok(shape: Any, description: str) -> dict[int | str, dict[str, Any]]:
    """OpenAPI's description of a response; ``shape`` is a type, or a dict of them."""
    if isinstance(shape, dict):
        inner = {name: _schema(kind) for name, kind in shape.items()}
        schema: dict[str, Any] = {"type": "object", "properties": inner}
    else:
        schema = _schema(shape)
    content = {"application/json": {"schema": schema}, "text/plain": {"schema": {"type": "string"}}}
    return {
        200: {"description": description, "content": content},
        400: {"description": "A parameter is wrong.", "content": ERROR},
        404: {"description": "Not known.", "content": ERROR},
    }


def _schema(shape: Any) -> dict[str, Any]:
    return json.schema_components([shape], ref_template=REFS)[0][0]
