"""Sluice as it is, but it kills itself with SIGKILL at one call: before it, or after its answer.

    SLUICE_FAULTS="submit before 2; mark after 1" python -m tests.harness.faulty serve --config FILE

A new process is there for each fault, when the one before has died. The command ends after the
last, with 0. With "bind stop 1" and nothing else it stops itself (SIGSTOP) before that call, and
goes on when it is told to. The fault points are in this wiring and nowhere in Sluice.
"""

from __future__ import annotations

import inspect
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import extender.app
from extender import cli
from extender.connect import kube_of, slurm_of
from extender.kube.client import KubeClient
from extender.settings import Settings
from extender.slurm.port import Slurm

PROGRAM = ("-m", "tests.harness.faulty")
VARIABLE = "SLUICE_FAULTS"

SLURM_CALLS = ("submit", "states", "job", "jobs", "mark", "end", "finish", "nodes", "create_nodes")
"""Methods of the port to Slurm."""
KUBE_CALLS = {
    "release": ("PATCH", "/pods/", b"schedulingGates"),
    "bind": ("POST", "/binding", b""),
    "disrupt": ("PATCH", "/status", b"DisruptionTarget"),
    "condition": ("PATCH", "/status", b"sluice.dev/Placed"),
    "delete": ("DELETE", "/pods/", b""),
    "event": ("POST", "/events", b""),
    "lead": ("PUT", "/leases/", b""),
}
"""Writes to the API server: method, and what stands somewhere in path and body."""
CALLS = (*SLURM_CALLS, *KUBE_CALLS)


@dataclass
class Fault:
    """What happens at the ``count``-th call of a kind: ``when`` "before" it or "after" its answer
    the process dies, at "stop" it stops before it."""

    call: str
    when: str
    count: int

    @classmethod
    def parse(cls, text: str) -> Fault:
        call, when, count = text.split()
        if call not in CALLS or when not in ("before", "after", "stop"):
            raise SystemExit(f"{VARIABLE}={text!r}: want '<call> before|after|stop <number>'")
        return cls(call, when, int(count))

    def __str__(self) -> str:
        return f"{self.call} {self.when} {self.count}"

    def passes(self, call: str, when: str) -> None:
        """The process is "before" or "after" such a call."""
        if (call, when) != (self.call, "before" if self.when == "stop" else self.when):
            return
        self.count -= 1
        if self.count == 0:
            os.kill(os.getpid(), signal.SIGSTOP if self.when == "stop" else signal.SIGKILL)


class FaultySlurm:
    """The port to Slurm, with the fault around each of its calls."""

    def __init__(self, real: Slurm, fault: Fault) -> None:
        self._real, self._fault = real, fault

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._real, name)
        return _around(call, name, self._fault) if inspect.iscoroutinefunction(call) else call


def _around(call: Callable[..., Any], name: str, fault: Fault) -> Callable[..., Any]:
    async def called(*args: Any, **kwargs: Any) -> Any:
        fault.passes(name, "before")
        answer = await call(*args, **kwargs)
        fault.passes(name, "after")
        return answer

    return called


class FaultyKube:
    """The client of the API server, with the fault around its writes."""

    def __init__(self, real: KubeClient, fault: Fault) -> None:
        self._real, self._fault = real, fault

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def fenced(self, *args: Any) -> FaultyKube:
        return FaultyKube(self._real.fenced(*args), self._fault)

    async def request(self, method: str, path: str, **more: Any) -> bytes:
        body = more.get("body") or b""
        kinds = [
            name
            for name, (verb, where, what) in KUBE_CALLS.items()
            if method == verb and where in path and what in body
        ]
        for kind in kinds:
            self._fault.passes(kind, "before")
        answer = await self._real.request(method, path, **more)
        for kind in kinds:
            self._fault.passes(kind, "after")
        return answer


def wire(fault: Fault) -> None:
    """Put the fault between Sluice's parts and the two sides."""

    async def faulty_kube(settings: Settings) -> KubeClient:
        return cast(KubeClient, FaultyKube(await kube_of(settings), fault))

    def faulty_slurm(settings: Settings, **more: Any) -> Slurm:
        return cast(Slurm, FaultySlurm(cast(Slurm, slurm_of(settings, **more)), fault))

    extender.app.kube_of = faulty_kube  # type: ignore[attr-defined]
    extender.app.slurm_of = faulty_slurm  # type: ignore[attr-defined,assignment]


def main() -> int:
    faults = [Fault.parse(text) for text in os.environ[VARIABLE].split(";")]
    if faults[0].when == "stop":
        wire(faults[0])
        cli.main()
    for fault in faults:
        print(f"dies at: {fault}", flush=True)
        # what was imported is kept: a process of its own for each would take a second more
        if (child := os.fork()) == 0:
            wire(fault)
            cli.main()
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status) or os.WTERMSIG(status) != signal.SIGKILL:
            print(f"did not die at: {fault}", flush=True)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
