"""Lines of node configuration for POST new/node/: one for each kind of node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from extender.domain.model import NodeSpec
from extender.slurm.port import SlurmRefused

# What may stand in a value of slurm.conf without ending it or becoming another host list.
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_")
_VALUES = _PLAIN | frozenset(":,/")


def lines(specs: Sequence[NodeSpec]) -> list[str]:
    """One line for all nodes that differ in name and address only, at most 1,000 of them.

    slurmctld pairs the n-th name with the n-th address. Both lists are written out, not folded.
    Raises ``SlurmRefused`` for a name given twice (slurmctld would delete the first node) or a
    value that cannot stand in a configuration line.
    """
    twice = [name for name, count in Counter(spec.name for spec in specs).items() if count > 1]
    if twice:
        raise SlurmRefused(f"nodes named twice in one request: {', '.join(sorted(twice)[:5])}")
    groups: dict[NodeSpec, list[NodeSpec]] = {}
    for spec in specs:
        _check(spec)
        groups.setdefault(msgspec.structs.replace(spec, name="", address=""), []).append(spec)
    return [
        _line(kind, members[start : start + 1000])
        for kind, members in groups.items()
        for start in range(0, len(members), 1000)
    ]


def _line(kind: NodeSpec, members: Sequence[NodeSpec]) -> str:
    fields = {
        "NodeName": ",".join(member.name for member in members),
        # Without an address slurmctld looks each name up in DNS at every allocation.
        "NodeAddr": ",".join(member.address for member in members),
        "State": "EXTERNAL",
        "Sockets": kind.sockets,
        "CoresPerSocket": kind.cores_per_socket,
        "ThreadsPerCore": kind.threads_per_core,
        "RealMemory": kind.memory_mib,
        "Feature": ",".join(kind.features),
        "Gres": kind.gres,
        "Topology": kind.topology,
    }
    return " ".join(f"{key}={value}" for key, value in fields.items() if value != "")


def _check(spec: NodeSpec) -> None:
    if not spec.address:
        raise SlurmRefused(
            f"node {spec.name!r} has no address: slurmctld would look its name up in DNS at every"
            " allocation"
        )
    checks = (
        ("name", spec.name, _PLAIN),
        ("address", spec.address, _PLAIN | {":"}),
        *(("feature", feature, _PLAIN) for feature in spec.features),
        ("gres", spec.gres, _VALUES),
        ("topology", spec.topology, _VALUES),
    )
    for what, value, allowed in checks:
        if not (set(value) <= allowed) or (what in ("name", "feature") and not value):
            raise SlurmRefused(
                f"node {spec.name!r}: {what} {value!r} cannot stand in a Slurm configuration line"
            )
