"""Gangs and pods as plain text, for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from extender.domain.views import GangSummary, GangView, PodView, Step


def gangs(found: Sequence[GangSummary]) -> str:
    head = ("NAMESPACE", "NAME", "KIND", "STATE", "JOB", "SIZE", "REASON")
    rows = [
        (g.namespace, g.name, g.kind, g.state, _maybe(g.job_id), str(g.size), g.reason)
        for g in found
    ]
    return table(head, rows) if rows else "no gangs\n"


def gang(view: GangView) -> str:
    shape = f"{view.kind} of {view.size}, attempt {view.attempt}"
    facts = {
        "gang": f"{view.namespace}/{view.name} ({shape})",
        "state": view.state,
        "reason": view.reason,
        "start": _time(view.estimated_start) if view.estimated_start else "",
        "job": _maybe(view.job_id),
        "user": view.user,
        "account": view.account,
        "partition": view.partition,
        "qos": view.qos,
    }
    head = ("RANK", "POD", "NODE", "LEAF", "SPINE", "PHASE")
    rows = [
        (str(r.rank), r.pod, r.node or "-", r.leaf or "-", r.spine or "-", r.phase)
        for r in view.ranks
    ]
    return _sections(_facts(facts), table(head, rows) if rows else "", _timeline(view.timeline))


def pod(view: PodView) -> str:
    facts = {
        "pod": f"{view.namespace}/{view.name}",
        "why": view.why,
        "state": view.state,
        "gang": view.gang,
        "rank": _maybe(view.rank),
        "node": view.node,
        "job": _maybe(view.job_id),
    }
    return _sections(_facts(facts), _timeline(view.timeline))


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Columns as wide as they must be, two spaces apart; the last one is left ragged."""
    lines = [head, *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    padded = ("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)
    return "".join(f"{line}\n" for line in padded)


def _facts(facts: dict[str, str]) -> str:
    known = {name: value for name, value in facts.items() if value and value != "-"}
    width = max(map(len, known))
    return "".join(f"{name:<{width}}  {value}\n" for name, value in known.items())


def _timeline(steps: Iterable[Step]) -> str:
    return "".join(f"{_time(step.at)}  {step.what}\n" for step in steps)


def _sections(*sections: str) -> str:
    return "\n".join(section for section in sections if section)


def _maybe(number: int | None) -> str:
    return "-" if number is None else str(number)


def _time(at: datetime) -> str:
    return at.isoformat(sep=" ", timespec="milliseconds").replace("+00:00", "Z")
