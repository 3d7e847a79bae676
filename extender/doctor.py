"""``sluice doctor``: reads Kubernetes' book and Slurm's, and nothing else, and writes nothing.

The two are read at about the same time, not at the same instant, and a busy cluster is always on
its way from one state to the next: what disagrees counts when it does so twice.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from itertools import groupby
from typing import Any, TypeVar

import msgspec

from extender.connect import defaults, kube_of, slurm_of
from extender.domain.books.compare import disagreements
from extender.domain.books.findings import Books, Finding, Terms
from extender.domain.model import Job, JobState, Pod
from extender.domain.ranks import job_of
from extender.kube import objects
from extender.kube.client import KubeClient, KubeError, KubeUnavailable
from extender.kube.listing import pages
from extender.settings import Settings
from extender.slurm.port import Slurm, SlurmError

T = TypeVar("T")
_ALIVE = {"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"}


class Unreadable(Exception):
    """A book could not be read. The text says which and why; both, when neither could."""


class Report(msgspec.Struct, frozen=True):
    """What was read last, and what disagreed in every reading."""

    books: Books
    findings: tuple[Finding, ...]


async def examine(settings: Settings, settle_seconds: float) -> Report:
    """Compare the books; where they disagree, once more after ``settle_seconds``.

    Raises ``Unreadable``.
    """
    try:
        kube = await kube_of(settings)
    except KubeUnavailable as error:
        raise Unreadable(f"Kubernetes' book cannot be read: {error}") from error
    slurm = slurm_of(settings)
    try:
        return await compare(lambda: read(kube, slurm), terms(settings), settle_seconds)
    finally:
        await slurm.close()
        await kube.close()


def terms(settings: Settings) -> Terms:
    return Terms(
        cluster=settings.cluster,
        scheduler=settings.kubernetes.scheduler_name,
        feature=settings.nodes.feature,
        manage=settings.nodes.manage,
        taint=settings.nodes.taint,
        defaults=defaults(settings),
    )


async def compare(
    read_books: Callable[[], Awaitable[Books]], by: Terms, settle_seconds: float
) -> Report:
    """``Report.findings`` are those of a second reading that were in the first."""
    books = await read_books()
    first = disagreements(books, by)
    if not first:
        return Report(books, ())
    await asyncio.sleep(settle_seconds)
    books = await read_books()
    seen = {finding.identity for finding in first}
    return Report(books, tuple(f for f in disagreements(books, by) if f.identity in seen))


# -- reading ----------------------------------------------------------------------------------


async def read(kube: KubeClient, slurm: Slurm) -> Books:
    """Both books, side by side. Raises ``Unreadable``."""
    at = time.time()
    here, there = await asyncio.gather(
        _readable("Kubernetes'", _kubernetes(kube)), _readable("Slurm's", _slurm(slurm))
    )
    if isinstance(here, str) or isinstance(there, str):
        raise Unreadable("; ".join(why for why in (here, there) if isinstance(why, str)))
    named = await _readable("Slurm's", _named(slurm, here.pods, there.jobs))
    if isinstance(named, str):
        raise Unreadable(named)
    return msgspec.structs.replace(
        here, jobs=(*there.jobs, *named), slurm_nodes=there.slurm_nodes, at=at
    )


async def _readable(whose: str, reading: Awaitable[T]) -> T | str:
    """What was read, or why not."""
    try:
        return await reading
    except (KubeError, KubeUnavailable, SlurmError, ValueError) as error:
        return f"{whose} book cannot be read: {error}"


async def _kubernetes(kube: KubeClient) -> Books:
    pods, workloads, namespaces, nodes = await asyncio.gather(
        _listed(kube, "/api/v1/pods", objects.PodObject, objects.pod, _ALIVE),
        _listed(kube, "/apis/batch/v1/jobs", objects.JobObject, objects.workload),
        _listed(kube, "/api/v1/namespaces", objects.NamespaceObject, objects.namespace),
        _listed(kube, "/api/v1/nodes", objects.NodeObject, objects.node),
    )
    return Books(pods=pods, workloads=workloads, namespaces=namespaces, nodes=nodes)


async def _listed(
    kube: KubeClient,
    path: str,
    object_type: type[Any],
    convert: Callable[[Any], T],
    params: dict[str, str] | None = None,
) -> tuple[T, ...]:
    decode = msgspec.json.Decoder(object_type).decode
    found: list[T] = []
    try:
        async for page in pages(kube, path, params):
            found += (convert(decode(raw)) for raw in page.items or ())
    except (msgspec.MsgspecError, ValueError) as error:
        raise ValueError(f"{path} has something that is not understood: {error}") from error
    return tuple(found)


async def _slurm(slurm: Slurm) -> Books:
    await slurm.start()
    jobs, nodes = await asyncio.gather(slurm.jobs(), slurm.nodes())
    return Books(jobs=tuple(jobs), slurm_nodes=tuple(nodes))


async def _named(slurm: Slurm, pods: Sequence[Pod], jobs: Sequence[Job]) -> list[Job]:
    """The jobs that pods name and that are not in the list: somebody else's, or forgotten ones."""
    missing = sorted({job_of(pod) for pod in pods} - {job.id for job in jobs} - {0})
    found = await asyncio.gather(*(_look(slurm, number) for number in missing))
    return [job for job in found if job is not None]


async def _look(slurm: Slurm, number: int) -> Job | None:
    job = await slurm.job(number)
    if job is not None:
        return job
    record = next(iter(await slurm.history(number)), None)
    if record is None or record.state.ended:
        return record
    return msgspec.structs.replace(record, state=JobState.LOST)


# -- telling ----------------------------------------------------------------------------------


def as_text(report: Report) -> str:
    """For people: one line a finding, under its kind."""
    books = report.books
    read_last = (
        f"{len(books.pods)} living pods, {len(books.nodes)} nodes; in Slurm "
        f"{sum(job.state.live for job in books.jobs)} live jobs, "
        f"{len(books.slurm_nodes)} nodes"
    )
    if not report.findings:
        return f"The books agree ({read_last})."
    lines = []
    for kind, group in groupby(report.findings, key=lambda finding: finding.kind):
        lines.append(f"{kind}:")
        lines += [f"  {f.thing}: {f.message}. {f.advice}." for f in group]
    count = len(report.findings)
    lines.append(f"{count} disagreement{'s' * (count > 1)} ({read_last}).")
    return "\n".join(lines)


def as_json(report: Report) -> str:
    """For programs: a list of findings, each with all of its fields."""
    return msgspec.json.format(msgspec.json.encode(report.findings), indent=2).decode()
