"""How long Slurm lets jobs take to end, as far as slurmrestd tells it."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from extender.domain.grace import Limits
from extender.slurm.restd import Slurmrestd
from extender.slurm.wire import Number, Reply, number


class Configuration(Struct, frozen=True):
    KillWait: int | None = None


class Configured(Reply, frozen=True):
    """GET conf, since v0.0.45"""

    slurm_conf: Configuration | None = None


class QosLimits(Struct, frozen=True):
    grace_time: Number = None


class Qos(Struct, frozen=True):
    name: str | None = ""
    limits: QosLimits | None = None


class AllQos(Reply, frozen=True):
    """GET qos/ of slurmdb"""

    qos: list[Qos] | None = None


class Partition(Struct, frozen=True):
    name: str | None = ""
    grace_time: Number = None


class Partitions(Reply, frozen=True):
    """GET partitions/"""

    partitions: list[Partition] | None = None


async def read(restd: Slurmrestd, kill_wait_seconds: int) -> Limits:
    """Two or three light calls. ``kill_wait_seconds`` where slurmrestd does not tell KillWait.

    Raises ``SlurmError``.
    """
    if await restd.version() not in ("v0.0.43", "v0.0.44"):
        told = (await restd.call("GET", "conf", Configured, "read slurm.conf")).slurm_conf
        if told and told.KillWait is not None:
            kill_wait_seconds = told.KillWait
    qos = await restd.call("GET", "qos/", AllQos, "list QOS", service="slurmdb")
    partitions = await restd.call("GET", "partitions/", Partitions, "list partitions")
    return Limits(
        kill_wait=kill_wait_seconds,
        qos_grace=_set((q.name, q.limits.grace_time) for q in qos.qos or () if q.limits),
        partition_grace=_set((p.name, p.grace_time) for p in partitions.partitions or ()),
    )


def _set(found: Iterable[tuple[str | None, Number]]) -> dict[str, int]:
    seconds = {name or "": int(number(grace) or 0) for name, grace in found}
    return {name: grace for name, grace in seconds.items() if grace}
