"""The timeline stays short and keeps what matters."""

import itertools

from extender.control.journal import Journal
from extender.domain.decision import Decision, GangState


def steps(*decisions: Decision) -> list[str]:
    clock = itertools.count(1.0)
    journal = Journal(lambda: next(clock))
    for decision in decisions:
        journal.decided("g", decision)
    return [step.what for step in journal.steps("g")]


def test_what_repeats_is_written_once() -> None:
    queued = Decision(GangState.QUEUED, "waits")
    assert steps(queued, queued) == ["Queued: waits"]


def test_of_a_count_the_first_and_the_last_stay() -> None:
    told = steps(
        *(Decision(GangState.FORMING, f"{i} of 9 pods exist") for i in range(1, 9)),
        Decision(GangState.SUBMITTING, "now"),
    )
    assert told == ["Forming: 1 of 9 pods exist", "Forming: 8 of 9 pods exist", "Submitting: now"]


def test_only_a_new_state_or_reason_is_news() -> None:
    journal = Journal(lambda: 1.0)
    assert journal.decided("g", Decision(GangState.QUEUED, "a"))
    assert not journal.decided("g", Decision(GangState.QUEUED, "a", actions=()))
    assert journal.decided("g", Decision(GangState.QUEUED, "b"))
