"""A gang as one Slurm job: what its pods ask for, in Slurm's terms.

All ranks of a Slurm step are alike, so each rank is as large as the largest pod of the gang.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from extender.domain import wellknown as names
from extender.domain.feasibility import Fit
from extender.domain.gangs import natural
from extender.domain.model import (
    Gang,
    GangKind,
    JobRequest,
    Namespace,
    Node,
    Pod,
    Resources,
    Stamp,
)
from extender.domain.policy import Defaults, Refusal, grant, unknown_annotation
from extender.domain.quantity import duration_seconds, mib_up, time_limit_minutes

_PLAIN = re.compile(r"[^A-Za-z0-9_.-]")
_BOOLEANS = {"true": True, "false": False}
_MAX_TEXT = 1024


class Shape(Struct, frozen=True):
    """One rank in Slurm's units."""

    cpus: int
    memory_mib: int
    gpus: int


def shape(pods: Iterable[Pod]) -> Shape:
    """The rank that holds any of the pods. Never 0 CPUs or MiB: that means "all" to Slurm."""
    largest = Resources()
    for pod in pods:
        r = pod.resources
        largest = Resources(
            max(largest.cpu_milli, r.cpu_milli),
            max(largest.memory_bytes, r.memory_bytes),
            max(largest.gpus, r.gpus),
        )
    return Shape(
        cpus=max(1, -(-largest.cpu_milli // 1000)),
        memory_mib=mib_up(largest.memory_bytes),
        gpus=largest.gpus,
    )


def job_request(
    gang: Gang,
    pods: Sequence[Pod],
    namespace: Namespace,
    fit: Fit,
    defaults: Defaults,
    *,
    cluster: str,
    attempt: int,
    excluded: Iterable[str] = (),
    ranks: int = 0,
    required: Sequence[str] = (),
    fell: float = 0.0,
) -> JobRequest:
    """The job for these pods (the waiting ones of the gang, one a rank).

    ``fit`` is of these pods, ``excluded`` are Slurm names that Kubernetes could not use.
    ``required`` are the nodes where the pods run already, since their job was lost at ``fell``; it
    had ``ranks``.
    ``Refusal`` with a sentence when the request can never work.
    """
    asked = _agreed_annotations(gang, pods)
    given = grant(namespace, asked, defaults)
    rank = shape(pods)
    _must_fit_some_node(gang, rank, fit.sizes)
    return JobRequest(
        name=_PLAIN.sub("-", gang.name)[:64] or "gang",
        user=given.user,
        stamp=Stamp(
            sluice=cluster,
            namespace=gang.namespace,
            gang=gang.name,
            kind=gang.kind,
            id=gang.id,
            attempt=attempt,
            first=attempt,
            size=ranks or len(pods),
            newest=max((p.created for p in pods), default=0.0),
            fell=fell,
            hold=_duration(asked, names.HOLD_ON_RESTART),
        ),
        tasks=ranks or len(pods),
        least_nodes=len(required) or _least_nodes(len(pods), rank, fit.usable),
        cpus_per_task=rank.cpus,
        memory_mib_per_task=rank.memory_mib,
        gpus_per_task=rank.gpus,
        account=given.account,
        partition=given.partition,
        qos=given.qos,
        reservation=given.reservation,
        time_limit_minutes=_time_limit(gang, asked, defaults),
        constraint=_text(asked, names.CONSTRAINT),
        licenses=_text(asked, names.LICENSES),
        nice=_integer(asked, names.NICE, 0, 2147483645),
        wckey=_text(asked, names.WCKEY),
        switches=_integer(asked, names.SWITCHES, 1, 1_000_000),
        exclusive=_boolean(asked, names.EXCLUSIVE),
        begin=_text(asked, names.BEGIN),
        dependency=_text(asked, names.DEPENDENCY),
        comment=_text(asked, names.COMMENT),
        hold=_boolean(asked, names.HOLD),
        required_nodes=tuple(sorted(required, key=natural)),
        excluded_nodes=tuple(sorted(set(excluded) - set(required), key=natural)),
    )


def _agreed_annotations(gang: Gang, pods: Sequence[Pod]) -> dict[str, str]:
    """The request annotations, which all pods of a gang must share."""
    merged: dict[str, str] = {}
    for pod in pods:
        if problem := unknown_annotation(pod.annotations):
            raise Refusal(problem)
        own = {k: v for k, v in pod.annotations.items() if k in names.REQUESTS}
        if pod is not pods[0] and own != merged:
            differ = sorted(k for k in own.keys() | merged.keys() if own.get(k) != merged.get(k))
            raise Refusal(
                f"the pods of gang {gang.name!r} disagree on {', '.join(differ)}: a gang is one "
                "Slurm job, so give all of its pods the same values"
            )
        merged = own
    return merged


def _must_fit_some_node(gang: Gang, rank: Shape, nodes: Sequence[Node]) -> None:
    if not nodes:
        raise Refusal(f"no node is managed by Slurm yet: label nodes with {names.MANAGED}=true")
    most = max(n.gpus for n in nodes)
    if rank.gpus > most:
        raise Refusal(
            f"a pod of gang {gang.name!r} asks for {rank.gpus} GPUs, the largest managed node has "
            f"{most}: ask for at most {most} GPUs a pod and use more pods"
        )
    if not any(_ranks_on(n, rank) for n in nodes):
        cpus, mib = (
            max(n.cpu_milli for n in nodes) // 1000,
            max(n.memory_bytes for n in nodes) >> 20,
        )
        raise Refusal(
            f"a pod of gang {gang.name!r} asks for {rank.cpus} CPUs, {rank.memory_mib} MiB and "
            f"{rank.gpus} GPUs together, which no managed node has (the most are {cpus} CPUs, "
            f"{mib} MiB, {most} GPUs): ask for less a pod"
        )


def _ranks_on(node: Node, rank: Shape) -> int:
    """How many ranks fit on the node while it is empty."""
    counts = [node.cpu_milli // 1000 // rank.cpus, (node.memory_bytes >> 20) // rank.memory_mib]
    if rank.gpus:
        counts.append(node.gpus // rank.gpus)
    return min(counts)


def _least_nodes(ranks: int, rank: Shape, nodes: Sequence[Node]) -> int:
    """No allocation can do with fewer nodes.

    Slurm's search of the tree looks for that many: told 1, it begins with a broken leaf and goes
    on in the next one where a whole leaf would have held the gang.
    """
    most = max((_ranks_on(node, rank) for node in nodes), default=0)
    return -(-ranks // most) if most else 1


def _time_limit(gang: Gang, asked: Mapping[str, str], defaults: Defaults) -> int | None:
    text = asked.get(names.TIME_LIMIT, "")
    if text:
        return _limit(text, f"annotation {names.TIME_LIMIT}")
    deadline = gang.workload.active_deadline_seconds if gang.workload else None
    if deadline and gang.kind is GangKind.JOB:
        return max(1, -(-deadline // 60))
    return _limit(defaults.time_limit, "slurm.default_time_limit") if defaults.time_limit else None


def _limit(text: str, where: str) -> int:
    try:
        minutes = time_limit_minutes(text)
    except ValueError as error:
        raise Refusal(f"{where}: {error}") from None
    return UNLIMITED_MINUTES if minutes is None else minutes


UNLIMITED_MINUTES = 0xFFFFFFFF
"""Slurm's INFINITE (slurm.h): no limit but the partition's."""


def _duration(asked: Mapping[str, str], key: str) -> float:
    """In seconds; 0 when it is not asked for."""
    text = asked.get(key)
    if text is None:
        return 0.0
    try:
        return float(duration_seconds(text))
    except ValueError as error:
        raise Refusal(f"annotation {key}: {error}") from None


def _text(asked: Mapping[str, str], key: str) -> str:
    text = asked.get(key, "").strip()
    if len(text) > _MAX_TEXT:
        raise Refusal(f"annotation {key} has {len(text)} characters: at most {_MAX_TEXT} are read")
    return text


def _integer(asked: Mapping[str, str], key: str, least: int, most: int) -> int | None:
    text = asked.get(key)
    if text is None:
        return None
    try:
        number = int(text)
    except ValueError:
        number = least - 1
    if not least <= number <= most:
        raise Refusal(f"annotation {key} is {text!r}: write a whole number from {least} to {most}")
    return number


def _boolean(asked: Mapping[str, str], key: str) -> bool:
    text = asked.get(key)
    if text is None:
        return False
    if text not in _BOOLEANS:
        raise Refusal(f'annotation {key} is {text!r}: write "true" or "false"')
    return _BOOLEANS[text]
