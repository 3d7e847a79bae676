"""What the API needs from the rest of Sluice. The control loops implement it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from extender.domain.views import GangSummary, GangView, PartStatus, PodView, Verdict


class Scheduling(Protocol):
    """What kube-scheduler asks."""

    def verdict(self, namespace: str, name: str, uid: str, scheduler: str) -> Verdict:
        """Where this pod may go. From memory: no I/O, no side effect, same answer to the same
        state. ``scheduler`` is the pod's spec.schedulerName."""

    async def bind(self, namespace: str, name: str, uid: str, node: str) -> str:
        """Bind the pod, or find it bound there: "". Otherwise why not. Never raises."""


class Explain(Protocol):
    """What people ask."""

    def gangs(self, namespace: str | None) -> Sequence[GangSummary]:
        """All gangs, or those of one namespace, from memory."""

    async def gang(self, namespace: str, name: str) -> GangView | None:
        """One gang; may ask Slurm once for its reason and estimate. ``None``: not known."""

    async def pod(self, namespace: str, name: str) -> PodView | None:
        """One pod; ``None``: not known."""


class Health(Protocol):
    """What probes ask."""

    def parts(self) -> Sequence[PartStatus]:
        """Every part that has to be ready before Sluice is."""

    def stalled(self) -> str:
        """Why only a restart can help ("the gang loop has not turned for 90 s"); "" otherwise."""
