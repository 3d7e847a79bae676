"""From a schedule that breaks an invariant to a short one that still does."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec.structs import replace

from tests.simulation.plan import Plan, Step, Wish

Breaks = Callable[[Plan], bool]


def shrink(plan: Plan, breaks: Breaks, *, most: int = 400) -> Plan:
    """The smallest plan found in ``most`` tries that ``breaks`` the same invariant."""
    left = most
    smaller = True
    while smaller and left > 0:
        smaller = False
        for candidate in _candidates(plan):
            left -= 1
            if left < 0:
                break
            if breaks(candidate):
                plan, smaller = candidate, True
                break
    return plan


def _candidates(plan: Plan) -> Iterator[Plan]:
    """Plans with less in them, the boldest cuts first."""
    steps = plan.steps
    size = len(steps) // 2
    while size:
        for start in range(0, len(steps), size):
            yield replace(plan, steps=steps[:start] + steps[start + size :])
        size //= 2
    if plan.jitter:
        yield replace(plan, jitter=False)
    for i, step in enumerate(steps):
        for smaller in _smaller(step):
            yield replace(plan, steps=(*steps[:i], smaller, *steps[i + 1 :]))
    if len(plan.nodes) > 1:
        yield replace(plan, nodes=plan.nodes[:-1])
    if plan.accounting_lag:
        yield replace(plan, accounting_lag=0.0)
    if plan.min_job_age < 300.0:
        yield replace(plan, min_job_age=300.0)


def _smaller(step: Step) -> Iterator[Step]:
    if step.what == "start":
        wish: Wish = step.args[0]
        for changed in ({"again": 0}, {"runs": 0.0}, {"gated": True}, {"waits_for_failed": False}):
            if any(getattr(wish, key) != value for key, value in changed.items()):
                yield Step(step.at, step.what, (replace(wish, **changed),))
        if wish.size > 2:
            yield Step(step.at, step.what, (replace(wish, size=wish.size - 1),))
    if step.what == "calls" and step.args[3] > 1:
        yield Step(step.at, step.what, (*step.args[:3], 1))
    if step.at != round(step.at):
        yield Step(float(round(step.at)), step.what, step.args)
