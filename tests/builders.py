"""Values for tests, with the defaults that make a test read as what it is about."""

from __future__ import annotations

from typing import Any

from extender.domain import wellknown as names
from extender.domain.model import (
    Gang,
    GangKind,
    Job,
    JobState,
    Node,
    NodeShare,
    Owner,
    Pod,
    Resources,
    Stamp,
    Workload,
)

GIB = 1024**3


def pod(
    index: int | None = 0, *, job: str = "train", gpus: int = 8, uid: str = "", **more: Any
) -> Pod:
    """A gated pod of an Indexed Job; ``index=None`` for a pod of its own."""
    name = job if index is None else f"{job}-{index}"
    annotations = dict(more.pop("annotations", {}))
    if index is not None:
        annotations[names.COMPLETION_INDEX] = str(index)
        more.setdefault("owner", Owner("Job", job, f"{job}-uid"))
    more.setdefault("gates", (names.GATE,))
    return Pod(
        namespace=more.pop("namespace", "ml"),
        name=name,
        uid=uid or f"{name}-uid",
        scheduler="sluice",
        annotations=annotations,
        resources=more.pop("resources", Resources(4000, 8 * GIB, gpus)),
        created=more.pop("created", 100.0),
        **more,
    )


def placed(index: int, to: str, job_id: int = 7, **more: Any) -> Pod:
    """A pod that was released to its node."""
    annotations = {names.JOB_ID: str(job_id), names.NODE: to, names.RANK: str(index)}
    return pod(index, gates=(), annotations=annotations, **more)


def gang(*pods: Pod, size: int | None = None, **more: Any) -> Gang:
    """An Indexed Job's gang of these pods."""
    kind = more.pop("kind", GangKind.JOB)
    size = len(pods) if size is None else size
    return Gang(
        id=more.pop("id", "train-uid"),
        kind=kind,
        namespace="ml",
        name=more.pop("name", "train"),
        size=size,
        pods=pods,
        workload=more.pop("workload", workload(size) if kind is GangKind.JOB else None),
        **more,
    )


def workload(completions: int = 4, **more: Any) -> Workload:
    return Workload(
        namespace="ml",
        name="train",
        uid="train-uid",
        completions=completions,
        parallelism=more.pop("parallelism", completions),
        indexed=more.pop("indexed", True),
        **more,
    )


def node(name: str, spine: str = "s0", leaf: str = "l0", **more: Any) -> Node:
    return Node(
        name=name,
        labels={names.SPINE_LABEL: spine, names.LEAF_LABEL: leaf, **more.pop("labels", {})},
        address=more.pop("address", "10.0.0.1"),
        cpu_milli=more.pop("cpu_milli", 64000),
        memory_bytes=more.pop("memory_bytes", 512 * GIB),
        gpus=more.pop("gpus", 8),
        **more,
    )


def nodes(*names_: str, **more: Any) -> dict[str, Node]:
    return {name: node(name, **more) for name in names_}


def share(
    name: str, ranks: int = 1, *, cpus: int = 4, memory_mib: int = 8192, gpus: int = 8
) -> NodeShare:
    return NodeShare(name, cpus * ranks, memory_mib * ranks, gpus * ranks)


def stamp(size: int = 4, **more: Any) -> Stamp:
    return Stamp(
        sluice="kubernetes",
        namespace="ml",
        gang="train",
        kind=more.pop("kind", GangKind.JOB),
        id=more.pop("id", "train-uid"),
        size=size,
        newest=more.pop("newest", 100.0),
        **more,
    )


def job(state: JobState = JobState.PENDING, *shares: NodeShare, id: int = 7, **more: Any) -> Job:
    return Job(
        id=id,
        state=state,
        shares=shares,
        stamp=more.pop("stamp", stamp(more.pop("size", 4), started=more.pop("confirmed", True))),
        started=more.pop("started", 200.0),
        **more,
    )
