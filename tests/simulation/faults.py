"""Which calls fail, and how. Windows are opened by the steps of a plan and close by themselves.

Modes: lost (never carried out, no answer), unheard (carried out, no answer), late (no answer, and
carried out after the caller gave up), error (an answer that says no more than that it failed),
conflict, denied.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.world import World


class Window:
    __slots__ = ("left", "mode", "target", "until")

    def __init__(self, target: str, mode: str, until: float, calls: int) -> None:
        self.target = target
        self.mode = mode
        self.until = until
        self.left = calls


class Faults:
    def __init__(self, world: World) -> None:
        self._world = world
        self._windows: list[Window] = []
        self._api_down_until = 0.0
        self._hung_until = 0.0
        self.last = 0.0  # when something was wrong for the last time

    def open(self, target: str, mode: str, seconds: float, calls: int) -> None:
        """``target``: "slurm submit", "kube patch", or "slurm" and "kube" for all calls."""
        until = self._world.now + seconds
        self._windows.append(Window(target, mode, until, calls))

    def fate(self, call: str) -> str | None:
        """What befalls this call; ``None``: nothing."""
        if not self._windows:
            return None
        now = self._world.now
        for window in self._windows:
            if window.left and now <= window.until and call.startswith(window.target):
                window.left -= 1
                self.last = now
                return window.mode
        self._windows = [w for w in self._windows if w.left and w.until >= now]
        return None

    # -- whole parts --------------------------------------------------------------------------

    @property
    def api_down(self) -> bool:
        return self._world.now < self._api_down_until

    def take_api_down(self, seconds: float) -> None:
        self._api_down_until = max(self._api_down_until, self._world.now + seconds)
        self.last = max(self.last, self._api_down_until)

    def hang(self, seconds: float) -> None:
        self._hung_until = max(self._hung_until, self._world.now + seconds)
        self.last = max(self.last, self._hung_until)

    def slurmctld_mode(self) -> str | None:
        return "hung" if self._world.now < self._hung_until else None

    def slurmctld_thaws(self) -> float:
        return self._hung_until

    def end(self) -> None:
        """No more faults from here on."""
        self._windows = []
        self._api_down_until = min(self._api_down_until, self._world.now)
        self._hung_until = min(self._hung_until, self._world.now)
