"""What happens in one schedule: a list of steps, made from a seed, of which any may be left out."""

from __future__ import annotations

import random
from typing import Any

from msgspec import Struct

from extender.domain.model import Resources

GIB = 1024**3


class Wish(Struct, frozen=True, kw_only=True):
    """A workload."""

    kind: str  # "job", "gang" or "pod"
    name: str
    size: int = 1
    resources: Resources = Resources(4000, 8 * GIB, 4)
    runs: float = 0.0  # seconds until its pods succeed; 0: they run on
    gated: bool = True
    grace: int = 5
    again: int = 0  # how often a named pod is made again when it goes
    waits_for_failed: bool = False  # podReplacementPolicy: Failed
    annotations: dict[str, str] = {}


class Step(Struct, frozen=True):
    """One thing that happens to the world."""

    at: float
    what: str
    args: tuple[Any, ...] = ()

    def __str__(self) -> str:
        return f"{self.at:6.2f} {self.what} {' '.join(map(str, self.args))}"


class Plan(Struct, frozen=True, kw_only=True):
    seed: int
    nodes: tuple[tuple[str, int], ...]  # name, GPUs
    steps: tuple[Step, ...]
    horizon: float
    min_job_age: float = 300.0
    accounting_lag: float = 0.0
    accounting_keeps_stamps: bool = True
    replicas: int = 1
    recreate_lag: float = 0.1  # how long the Job controller takes
    jitter: bool = True


_SLURM_CALLS = ("submit", "states", "job", "jobs", "mark", "end", "finish", "history", "")
_SLURM_MODES = ("lost", "unheard", "late", "error", "denied", "unsent")
_KUBE_CALLS = ("patch", "status", "delete", "binding", "get", "")
_KUBE_MODES = ("lost", "unheard", "late", "error", "conflict")
_ENDS = ("CANCELLED", "TIMEOUT", "PREEMPTED", "NODE_FAIL", "OUT_OF_MEMORY", "DEADLINE", "FAILED")


def plan(seed: int) -> Plan:
    """The schedule of a seed."""
    dice = random.Random(seed)
    replicas = dice.choice((1, 1, 1, 1, 1, 1, 2))
    horizon = dice.choice((6.0, 10.0, 10.0, 15.0, 30.0))
    gpus = dice.choice((8, 8, 4))
    small = dice.choice((gpus, gpus, gpus // 2))
    nodes = tuple((f"n{i}", small if i else gpus) for i in range(dice.randint(2, 5)))
    wishes = [_wish(dice, i, gpus) for i in range(dice.choice((1, 1, 1, 1, 1, 2, 2, 3)))]
    steps = [Step(dice.uniform(0.0, horizon / 3), "start", (wish,)) for wish in wishes]
    for wish in wishes:
        steps += _to_workload(dice, wish, horizon)
    for _ in range(dice.choice((0, 1, 1, 2, 2, 3, 4))):
        steps.append(_fault(dice, horizon, [n for n, _ in nodes], replicas > 1))
    ends = [s.at + s.args[1] + 10.0 for s in steps if s.what == "crash" and s.args[1] > 10.0]
    ends += [s.at + 1.0 for s in steps if s.what == "kill slurmctld"]
    horizon = max([horizon, *ends])  # a long absence is to be one, too
    return Plan(
        seed=seed,
        nodes=nodes,
        replicas=replicas,
        recreate_lag=dice.choice((0.1, 0.1, 1.0, 8.0)),
        steps=tuple(sorted(steps, key=lambda step: step.at)),
        horizon=horizon,
        min_job_age=dice.choice((61.0, 90.0, 300.0)),
        accounting_lag=dice.choice((0.0, 0.0, 2.0, 8.0)),
        accounting_keeps_stamps=dice.random() < 0.8,
    )


def _wish(dice: random.Random, number: int, gpus: int) -> Wish:
    kind = dice.choice(("job", "job", "job", "gang", "pod"))
    each = dice.choice((gpus, gpus, gpus // 2, 1, 0))
    return Wish(
        kind=kind,
        name=f"{kind[0]}{number}",
        size=1 if kind == "pod" else dice.choice((2, 2, 2, 2, 3, 4)),
        resources=Resources(4000, 8 * GIB, each),
        runs=dice.choice((0.0, 0.0, 2.0, 6.0)),
        gated=dice.random() < 0.85,
        grace=dice.choice((1, 5, 30)),
        again=dice.choice((0, 0, 2)),
        waits_for_failed=dice.random() < 0.3,
    )


def _to_workload(dice: random.Random, wish: Wish, horizon: float) -> list[Step]:
    steps = []
    for _ in range(dice.choice((0, 0, 1, 1, 2))):
        at = dice.uniform(0.5, horizon)
        what = dice.choice(
            ("finish", "finish", "fail", "fail", "fail all", "delete pod", "delete all", "force")
            + (("delete job", "recreate", "suspend") if wish.kind == "job" else ())
        )
        pick = dice.randrange(8)
        if what == "recreate":
            steps.append(Step(at, "delete job", (wish.name,)))
            steps.append(Step(at + dice.choice((0.0, 0.05, 1.0, 4.0)), "start", (wish,)))
        elif what == "suspend":
            steps.append(Step(at, "suspend", (wish.name, True)))
            steps.append(Step(at + dice.uniform(0.1, 5.0), "suspend", (wish.name, False)))
        elif what == "delete job":
            steps.append(Step(at, what, (wish.name,)))
        else:
            steps.append(Step(at, what, (wish.name, pick)))
            if what == "delete all" and wish.kind != "job" and dice.random() < 0.7:
                steps.append(Step(at + dice.uniform(0.0, 3.0), "start", (wish,)))
    return steps


def _fault(dice: random.Random, horizon: float, nodes: list[str], replicas: bool) -> Step:
    at = dice.uniform(0.1, horizon)
    short = dice.choice((0.3, 1.0, 3.0, 8.0))
    what = dice.choice(
        ("sluice", "sluice", "sluice", "slurm call", "slurm call", "slurm call", "kube call")
        + ("kube call", "slurmctld", "slurmctld", "slurm job", "slurm job", "watch", "watch")
        + ("node", "foreign", "foreign", "scheduler", "api", "accounting")
        + (("freeze", "freeze", "freeze") if replicas else ())
    )
    if what == "sluice":
        return Step(
            at, "crash", (dice.choice((0, 0, *range(60))), dice.choice((0.1, 1.0, 6.0, 6.0, 100.0)))
        )
    if what == "freeze":
        return Step(at, "freeze", (dice.randrange(40), dice.choice((1.0, 4.0, 5.0, 12.0, 25.0))))
    if what == "slurm call":
        return _slurm_call(dice, at, horizon)
    if what == "kube call":
        call, mode = dice.choice(_KUBE_CALLS), dice.choice(_KUBE_MODES)
        return Step(
            at, "calls", (f"kube {call}", mode, dice.choice((2.0, 10.0)), dice.choice((1, 2, 20)))
        )
    if what == "slurmctld":
        how = dice.choice(("kill slurmctld", "kill slurmctld", "hang slurmctld", "lose state"))
        if how == "kill slurmctld":
            at += dice.choice((0.0, 0.0, 8.0))  # also when all has been quiet for a while
        return Step(at, how, (dice.choice((0.5, 3.0, 12.0, 20.0)),))
    if what == "slurm job":
        how = dice.choice(("end", "end", "end", "requeue", "hold"))
        return Step(at, "slurm job", (how, dice.randrange(4), dice.choice(_ENDS), short))
    if what == "watch":
        paths = dice.choice(
            (("pods",), ("pods",), ("jobs",), ("nodes",), ("pods", "jobs", "nodes"))
        )
        return Step(at, "watch", (paths, dice.choice((0.5, 3.0, 10.0, 35.0)), dice.random() < 0.5))
    if what == "node":
        how = dice.choice(("lose node", "delete node", "cordon", "slurm node down"))
        return Step(at, how, (dice.choice(nodes), dice.choice((2.0, 10.0))))
    if what == "foreign":
        return Step(
            dice.uniform(0.0, at), "foreign", (dice.randint(1, 2), dice.choice((2.0, 8.0, 100.0)))
        )
    if what == "scheduler":
        return Step(at, "restart scheduler", (dice.choice((0.0, 2.0, 8.0)),))
    if what == "api":
        return Step(at, "api down", (short,))
    return Step(at, "accounting away", (dice.choice((5.0, 20.0)),))


def _slurm_call(dice: random.Random, at: float, horizon: float) -> Step:
    call, mode = dice.choice(_SLURM_CALLS), dice.choice(_SLURM_MODES)
    seconds, calls = dice.choice((2.0, 10.0, 30.0)), dice.choice((1, 1, 2, 20))
    if dice.random() < 0.35:  # submits are few, and what matters most
        call, mode = "submit", dice.choice(("unheard", "late", "lost", mode))
        at, seconds = dice.uniform(0.0, horizon / 3), 30.0
    elif dice.random() < 0.15:
        call = mode = "refuse"
        at, seconds = dice.uniform(0.0, horizon / 3), 30.0
    return Step(at, "calls", (f"slurm {call}", mode, seconds, calls))
