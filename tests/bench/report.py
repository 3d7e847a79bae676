"""The results as tables for people. Medians with the least and the most in brackets."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tests.bench.arena import PLAIN, SLUICE

Row = dict[str, Any]
STAGES = ("created", "submit", "slurm", "patches", "binds")
PROCESSES = ("etcd", "kube-apiserver", "kube-controller-manager", "default-scheduler",
             "sluice-scheduler", "kwok", "sluice", "slurmctld", "slurmrestd")  # fmt: skip


def text(results: dict[str, Any]) -> str:
    """All that was measured."""
    writers: dict[str, Callable[[Any], list[str]]] = {
        "writes": of_writes, "slurm": of_slurm, "gangs": of_gangs, "singles": of_singles,
        "waiting": of_waiting, "crowd": of_waiting, "filter": of_filter,
    }  # fmt: skip
    where = results["machine"]
    lines = [
        f"{where['date']}, {where['cpus']} CPUs ({where['cpu_model']}), {where['nodes']} nodes, "
        f"{where['nodes_a_leaf']} to a leaf, {where['leaves_a_spine']} leaves to a spine; "
        f"median (least-most) of {results['runs']} runs; load before: {where['load_before']}",
    ]
    for name, write in writers.items():
        if name in results:
            lines += ["", *write(results[name])]
    return "\n".join(lines)


def of_gangs(rows: list[Row]) -> list[str]:
    lines = []
    for size in sorted({row["pods"] for row in rows}):
        ours, plain = (
            [r for r in rows if r["pods"] == size and r["scheduler"] == s] for s in (SLUICE, PLAIN)
        )
        own = [r["total"] - r["stages"]["slurm"] for r in ours]
        least = [r["total"] for r in plain]
        ratio = statistics.median(own) / statistics.median(least)
        lines.append([
            str(size), spread(least), spread(r["total"] for r in ours), spread(own), f"{ratio:.2f}",
            *(f"{median(r['stages'][s] for r in ours):.2f}" for s in STAGES),
        ])  # fmt: skip
    heading = ["pods", "plain s", "Sluice s", "without slurm", "ratio", *STAGES]
    return [
        "Gangs of whole nodes: Job created to all pods bound, seconds",
        *table(heading, lines),
        "",
        *table(
            ["pods", "scheduler", "leaves (least)", "spines (least)", "rank i on node i", "leaf changes",
             "slurmrestd calls", "CPU-s", *PROCESSES, "others"],
            [_gang_costs(rows, size, s) for size in sorted({r["pods"] for r in rows})
             for s in (PLAIN, SLUICE)],
        ),
    ]  # fmt: skip


def _gang_costs(rows: list[Row], size: int, scheduler: str) -> list[str]:
    ours = [r for r in rows if r["pods"] == size and r["scheduler"] == scheduler]
    places = [r["placement"] for r in ours]
    cpu = [median(r["cpu_seconds"].get(p, 0.0) for r in ours) for p in PROCESSES]
    return [
        str(size), scheduler,
        f"{span(p['leaves'] for p in places)} ({places[0]['least_leaves']})",
        f"{span(p['spines'] for p in places)} ({places[0]['least_spines']})",
        f"{sum(p['rank_i_on_node_i'] for p in places)} of {len(places)}",
        span(p["leaf_changes_along_ranks"] for p in places),
        span(sum(r["slurmrestd_calls"].values()) for r in ours),
        f"{median(sum(r['cpu_seconds'].get(p, 0.0) for p in PROCESSES) for r in ours):.2f}",
        *(f"{seconds:.2f}" for seconds in cpu),
        f"{median(r['cpu_seconds_of_others'] for r in ours):.2f}",
    ]  # fmt: skip


def of_singles(rows: list[Row]) -> list[str]:
    lines = []
    for scheduler in (PLAIN, SLUICE):
        ours = [r for r in rows if r["scheduler"] == scheduler]
        lines.append([
            scheduler, spread((r["pods_per_second"] for r in ours), 1),
            span(r["bound"] for r in ours), spread(r["total"] for r in ours),
            spread(r["pods_created"] for r in ours),
            span(sum(r["slurmrestd_calls"].values()) for r in ours),
            *(f"{median(r['cpu_seconds'].get(p, 0.0) for r in ours):.2f}" for p in PROCESSES),
        ])  # fmt: skip
    return [
        f"{rows[0]['jobs']} Jobs of one pod with one GPU, at once",
        *table(["scheduler", "pods/s", "bound", "all bound s", "all created s", "slurmrestd calls",
                *(f"{p} CPU-s" for p in PROCESSES)], lines),
    ]  # fmt: skip


def of_waiting(row: Row) -> list[str]:
    names = [*PROCESSES, "slurmdbd", "mariadbd", "watcher"]
    states = [
        ("full, none waiting", row["full_cluster"]),
        (f"being told why, {row['telling']['seconds']:.0f} s", row["telling"]),
        (f"waiting, {row['waiting']['seconds']:.0f} s", row["waiting"]),
    ]
    lines = [
        [what, *(f"{state['cpu_percent'].get(n, 0.0):.1f}" for n in names),
         f"{sum(state['slurmrestd_calls_a_second'].values()):.1f}"]
        for what, state in states
    ]  # fmt: skip
    return [
        f"{row['pods']} pods waiting in {row['gangs']} gangs on a full cluster: % of one core, calls "
        "to slurmrestd a second; "
        f"{row['bound_of_the_waiting']} of them bound; the service holds {row['rss_mib']['sluice']} MiB and looks at all gangs within "
        f"{row['slowest_turn_seconds']} s",
        *table(["", *names, "calls/s"], lines),
    ]


def of_filter(row: Row) -> list[str]:
    lines = [
        [
            kind,
            names.replace("_", " "),
            *(f"{times[k]:.2f}" for k in ("p50_ms", "p99_ms", "max_ms")),
        ]
        for kind in ("placed", "waiting")
        for names, times in row[kind].items()
        if names.endswith(("_name", "_names"))
    ]
    return [
        f"/filter over HTTP with keep-alive, {row['nodes']} nodes and {row['pods']} pods in memory "
        f"(stand-in API server, real Slurm): milliseconds; the service holds {row['rss_mib']} MiB",
        *table(["pod", "names", "p50", "p99", "max"], lines),
    ]


def of_writes(rows: list[Row]) -> list[str]:
    lines = []
    for what in dict.fromkeys(r["what"] for r in rows):
        ours = [r for r in rows if r["what"] == what]
        lines.append([
            what, spread(r["seconds"] for r in ours),
            spread((r["apiserver_cpu_ms_a_pod"] for r in ours), 1),
            spread((r["etcd_cpu_ms_a_pod"] for r in ours), 1),
        ])  # fmt: skip
    return [
        f"The API server alone, {rows[0]['pods']} pods",
        *table(["", "seconds", "API server CPU ms a pod", "etcd CPU ms a pod"], lines),
    ]


def of_slurm(row: Row) -> list[str]:
    lines = [[str(a["nodes"]), spread(a["seconds"])] for a in row["allocations"]]
    many = row["submits"]
    return [
        "Slurm alone",
        *table(["whole nodes", "submit to start s"], lines),
        f"{many[0]['jobs']} jobs of one GPU: {spread((m['submits_per_second'] for m in many), 0)} "
        f"submits/s, {spread((m['started_per_second'] for m in many), 0)} started/s",
    ]


def median(values: Iterable[float]) -> float:
    return float(statistics.median(values))


def spread(values: Iterable[float], digits: int = 2) -> str:
    """1.23 (1.20-1.31)"""
    known = list(values)
    least, most = min(known), max(known)
    return f"{median(known):.{digits}f} ({least:.{digits}f}-{most:.{digits}f})"


def span(values: Iterable[int]) -> str:
    """7 or 7-9"""
    known = list(values)
    return f"{min(known)}" if min(known) == max(known) else f"{min(known)}-{max(known)}"


def table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns as wide as they need, the first to the left, the others to the right."""
    every = [list(heading), *(list(row) for row in rows)]
    widths = [max(len(row[i]) for row in every) for i in range(len(heading))]
    return [
        "  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))])
        for row in every
    ]  # fmt: skip
