"""Two replicas of Sluice, each with a tap on all that it writes: who leads, and who did what."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import httpx

from tests.e2e.site import Site, eventually, site_of
from tests.e2e.tap import Call, Tap, kube_tap, tapped_kubeconfig
from tests.harness import faulty
from tests.harness.sluice import Sluice
from tests.harness.stack import Stack

ACTS_WITHIN_SECONDS = 10.0
"""The other replica acts so soon after a leader was killed."""
LEASE_SECONDS = 6.0
"""A leader has stopped acting so soon after its last renewal: lease.duration_seconds."""


class Replica:
    """One of two. All that it writes, to Slurm and to Kubernetes, goes through its taps."""

    def __init__(self, stack: Stack, sluice: Sluice, slurm: Tap, name: str) -> None:
        self.sluice, self.slurm = sluice, slurm
        self.kube = kube_tap(stack.kubeconfig("sluice"))
        kubeconfig = tapped_kubeconfig(self.kube, stack.directory / f"{name}-tap.kubeconfig")
        self._settings: dict[str, Any] = {
            # libslurm would go past the tap
            "slurm": {"url": slurm.url, "complete_command": ""},
            # one release after the other, so that one can be in the middle of them
            "kubernetes": {"kubeconfig": str(kubeconfig), "patch_concurrency": 1},
        }

    def start(self, fault: str = "") -> None:
        """Returns when it is ready. ``fault``: where it kills itself, as tests/harness/faulty.py
        has it."""
        if fault:
            self.sluice.start(self._settings, {faulty.VARIABLE: fault}, program=faulty.PROGRAM)
        else:
            self.sluice.start(self._settings)

    # -- what it says of itself

    def _ask(self, path: str) -> httpx.Response:
        return httpx.get(f"{self.sluice.base_url}{path}", timeout=5)

    def leads(self) -> bool:
        """By its metric, and by what it says of the lease."""
        lines = self._ask("/metrics").text.splitlines()
        return "sluice_leader 1.0" in lines and self.lease() == ""

    def stands_by(self) -> bool:
        """By the same, and it is ready to answer kube-scheduler."""
        lines = self._ask("/metrics").text.splitlines()
        return "sluice_leader 0.0" in lines and "leads" in self.lease() and self.sluice.ready()

    def lease(self) -> str:
        """What /readyz says of the lease; "" while it leads."""
        parts = self._ask("/readyz").json()["parts"]
        (why,) = (part["why"] for part in parts if part["name"] == "lease")
        return str(why)

    # -- what it did

    def acts(self) -> list[Call]:
        """What only the leader does, in the order of time: the writes that are neither bindings,
        which kube-scheduler asks for, nor the election itself."""
        kube = (c for c in self.kube.writes() if "/leases" not in c.path and c not in self.binds())
        return sorted([*self.slurm.writes(), *kube], key=lambda call: call.at)

    def binds(self) -> list[Call]:
        return self.kube.writes("/binding")

    def releases(self) -> list[Call]:
        return [call for call in self.kube.calls("PATCH", "/pods/") if "Gates" in call.body]

    def forget(self) -> None:
        self.slurm.forget()
        self.kube.forget()

    # -- what happens to it

    def freeze(self) -> None:
        """SIGSTOP: it stands still, and knows nothing of it."""
        os.kill(self.sluice.child.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self.sluice.child.pid, signal.SIGCONT)

    def end(self) -> None:
        """It is gone, whatever was done to it before."""
        self.kube.mend()
        if self.sluice.alive:
            with suppress(ProcessLookupError):
                self.thaw()
        self.sluice.stop()

    def close(self) -> None:
        self.end()
        self.kube.close()


class Pair:
    """Two replicas: ``leader``, and ``standby``, which kube-scheduler asks."""

    def __init__(self, site: Site, leader: Replica, standby: Replica) -> None:
        self.site, self.leader, self.standby = site, leader, standby

    def start(self, fault: str = "") -> None:
        """Start both anew in their roles; what they did before is forgotten. ``fault`` is the
        leader's."""
        self.end()
        self.leader.start(fault)
        eventually(self.leader.leads, bool, 10, "the first replica to lead")
        self.standby.start()
        eventually(self.standby.stands_by, bool, 10, "the other replica to stand by")
        self.forget()

    def end(self) -> None:
        self.standby.end()
        self.leader.end()

    def forget(self) -> None:
        self.leader.forget()
        self.standby.forget()

    def leading(self) -> Sequence[Replica]:
        return [replica for replica in (self.leader, self.standby) if replica.leads()]

    def standby_acts(self, since: float) -> None:
        """Wait for what the standby does as the leader; it has to come in time."""
        acts = eventually(
            self.standby.acts,
            bool,
            since + ACTS_WITHIN_SECONDS + 5 - time.time(),
            "the other replica to act",
        )
        assert acts[0].at - since <= ACTS_WITHIN_SECONDS


@contextmanager
def pair_of(stack: Stack, tap: Tap) -> Iterator[Pair]:
    """Both run and nothing else does; afterwards Sluice does not run."""
    stack.sluice.stop()
    second_tap = Tap(stack.slurm.rest_url)
    standby = Replica(stack, stack.sluice, tap, "sluice")
    leader = Replica(stack, stack.second, second_tap, "sluice-second")
    try:
        pair = Pair(Site(stack, tap), leader, standby)
        pair.start()
        with site_of(stack, tap) as pair.site:
            yield pair
    finally:
        standby.close()
        leader.close()
        second_tap.close()
