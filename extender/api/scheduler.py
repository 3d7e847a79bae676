"""filter, prioritize, bind and preempt, as kube-scheduler calls them.

Always HTTP 200: kube-scheduler drops the body of any other status. Filter and prioritize answer
from memory. Nothing is decided here; ``Scheduling`` does that.
"""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from extender.api import wire
from extender.api.metrics import verdicts
from extender.api.ports import Scheduling
from extender.api.verb import Verb
from extender.domain.views import WAITING, Verdict, VerdictKind

# Constant texts: they become part of the pod's PodScheduled condition (see Verdict).
ELSEWHERE = "Slurm chose another node"
NOT_OFFERED = "Slurm chose a node that kube-scheduler's own filters rule out for this pod"


def create_routes(scheduling: Scheduling, prefix: str, body_limit_bytes: int) -> list[Route]:
    """The four verbs below ``prefix``.

    They are plain ASGI applications: a FastAPI route would put 0.1 ms on top of 0.25 (on
    loopback, one node name), and FastAPI's limit for bodies answers 413.
    """
    verbs = Verbs(scheduling)
    table = {
        "filter": (verbs.filter, failed_filter),
        "prioritize": (verbs.prioritize, failed_prioritize),
        "bind": (verbs.bind, failed_bind),
        "preempt": (verbs.preempt, failed_preempt),
    }
    return [
        Route(f"{prefix}/{name}", Verb(name, answer, failed, body_limit_bytes), methods=["POST"])
        for name, (answer, failed) in table.items()
    ]


class Front:
    """Sends kube-scheduler's calls straight to their verbs, and everything else to ``app``: the
    middleware that pages for people want costs as much as an answer to kube-scheduler."""

    def __init__(self, app: Starlette) -> None:
        self._app = app
        self._verbs = {
            route.path: route.endpoint
            for route in app.routes
            if isinstance(route, Route) and isinstance(route.endpoint, Verb)
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        verb = self._verbs.get(scope["path"]) if scope["type"] == "http" else None
        if verb is None or scope["method"] != "POST":
            await self._app(scope, receive, send)
        else:
            await verb(scope, receive, send)


class Verbs:
    """What each verb answers to a request body. ``wire.MALFORMED`` when it cannot be read."""

    def __init__(self, scheduling: Scheduling) -> None:
        self._scheduling = scheduling
        self._count = {kind: verdicts.labels(kind.value).inc for kind in VerdictKind}

    async def filter(self, body: bytes) -> bytes:
        """Leave what the verdict allows; every other node in FailedAndUnresolvableNodes, so that
        kube-scheduler evicts nobody for it."""
        args = wire.decode_args(body)
        verdict = self._verdict(args.pod)
        self._count[verdict.kind]()
        if verdict.kind is VerdictKind.RETRY:
            return failed_filter(verdict.message or WAITING)  # asked again after a pause
        result = wire.FilterResult()
        if args.node_names is not None:
            result.node_names, refused = sift(verdict, args.node_names)
            result.failed_and_unresolvable_nodes = refused
        if args.nodes != wire.NULL:
            nodes = wire.named_nodes(args.nodes)
            kept, refused = sift(verdict, list(nodes))
            result.nodes = wire.NodeList([nodes[name] for name in kept])
            result.failed_and_unresolvable_nodes |= refused
        return wire.encode(result)

    async def prioritize(self, body: bytes) -> bytes:
        """10 for Slurm's node, 0 for the others."""
        args = wire.decode_args(body)
        verdict = self._verdict(args.pod)
        names = args.node_names
        if names is None:
            names = list(wire.named_nodes(args.nodes))
        chosen = verdict.node if verdict.kind is VerdictKind.NODE else None
        return wire.encode([wire.HostPriority(name, 10 * (name == chosen)) for name in names])

    async def bind(self, body: bytes) -> bytes:
        args = wire.decode_binding(body)
        why_not = await self._scheduling.bind(
            args.pod_namespace, args.pod_name, args.pod_uid, args.node
        )
        return wire.encode(wire.BindingResult(why_not))

    async def preempt(self, body: bytes) -> bytes:
        """No victims for a pod that Slurm places: Slurm preempts by itself."""
        args = wire.decode_preemption(body)
        ours = self._verdict(args.pod).kind is not VerdictKind.PASS
        return wire.encode(wire.PreemptionResult({} if ours else wire.meta_victims(args)))

    def _verdict(self, pod: wire.Pod) -> Verdict:
        meta = pod.metadata
        return self._scheduling.verdict(meta.namespace, meta.name, meta.uid, pod.spec.scheduler)


def sift(verdict: Verdict, names: list[str]) -> tuple[list[str], dict[str, str]]:
    """The names that the verdict leaves, and why not for each of the others."""
    if verdict.kind is VerdictKind.PASS:
        return names, {}
    if verdict.kind is VerdictKind.WAIT:
        return [], dict.fromkeys(names, verdict.message or WAITING)
    if verdict.node not in names:
        return [], dict.fromkeys(names, NOT_OFFERED)
    refused = dict.fromkeys(names, ELSEWHERE)
    del refused[verdict.node]
    return [verdict.node], refused


def failed_filter(why: str) -> bytes:
    return wire.encode(wire.FilterResult(error=why))


def failed_prioritize(why: str) -> bytes:  # noqa: ARG001 (a bare list has no room for it)
    return b"[]"


def failed_bind(why: str) -> bytes:
    return wire.encode(wire.BindingResult(why))


def failed_preempt(why: str) -> bytes:
    return wire.encode(wire.PreemptionResult({}, why))
