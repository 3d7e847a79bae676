"""What was decided about each gang, and when: for people, and to write each thing once."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable

from extender.control import metrics
from extender.domain.decision import Decision, GangState
from extender.domain.views import Step, moment

_STEPS = 64
_AT_REST = (GangState.QUEUED, GangState.RUNNING, GangState.DONE)


class Journal:
    """The last decision and the timeline of every gang. Memory only: it starts anew with Sluice."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._steps: dict[str, deque[Step]] = {}
        self._last: dict[str, Decision] = {}

    def note(self, gang_id: str, what: str, *, counting: str = "") -> None:
        """Add a step unless it repeats the last one.

        Of steps in a row that all begin with ``counting`` ("Forming: 1 of 4 …") the first and the
        last stay.
        """
        steps = self._steps.setdefault(gang_id, deque(maxlen=_STEPS))
        if steps and steps[-1].what == what:
            return
        if counting and len(steps) > 1 and all(s.what.startswith(counting) for s in _last(steps)):
            steps.pop()
        at = moment(self._clock())
        assert at is not None
        steps.append(Step(at, what))

    def decided(self, gang_id: str, decision: Decision) -> bool:
        """Keep the decision; whether its state or reason is a new one."""
        before = self._last.get(gang_id)
        self._last[gang_id] = decision
        if before and (before.state, before.reason) == (decision.state, decision.reason):
            return False
        state = f"{decision.state}: "
        self.note(gang_id, state + decision.reason, counting=state)
        return True

    def last(self, gang_id: str) -> Decision | None:
        return self._last.get(gang_id)

    def steps(self, gang_id: str) -> tuple[Step, ...]:
        return tuple(self._steps.get(gang_id, ()))

    def restless(self) -> list[str]:
        """Gangs that are on their way somewhere."""
        return [i for i, d in self._last.items() if d.state not in _AT_REST]

    def forget(self, gang_id: str) -> None:
        self._steps.pop(gang_id, None)
        self._last.pop(gang_id, None)

    def count_states(self) -> None:
        """Set the gauge of gangs by state."""
        metrics.gangs.clear()
        for state, count in Counter(d.state for d in self._last.values()).items():
            metrics.gangs.labels(state=state).set(count)


def _last(steps: deque[Step]) -> tuple[Step, Step]:
    return steps[-2], steps[-1]
