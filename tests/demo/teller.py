"""Puts screen, stack and claims together: what a chapter of the demo works with."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.demo import facts
from tests.demo.facts import Facts, Place, SlurmJob
from tests.demo.screen import Screen
from tests.harness.controlplane import RUN_TIME_ANNOTATION
from tests.harness.kube import MERGE
from tests.harness.progress import step
from tests.harness.stack import Stack

ROOT = Path(__file__).parents[2]
EXAMPLES = "deploy/examples"
EVERY_SECONDS = 0.15
Object = dict[str, Any]


class ClaimFailed(Exception):
    """A claim does not hold; the text is a sentence."""


class Teller:
    """``screen`` to tell, ``stack`` to act on; ``claims`` counts those that held.

    ``by_plain``: where plain kube-scheduler put the ranks, for later chapters to compare with.
    """

    def __init__(self, screen: Screen, stack: Stack) -> None:
        self.screen = screen
        self.stack = stack
        self.claims = 0
        self.by_plain: list[Place] = []

    def read(self) -> Facts:
        return facts.read(self.stack)

    def claim(
        self, text: str, problem: Callable[[Facts], str], within_seconds: float = 5.0
    ) -> Facts:
        """Read the facts until ``problem`` is "" for them: a tick, and those facts.

        Raises ClaimFailed, after a cross, when it is not so within the time.
        """
        deadline = time.monotonic() + within_seconds
        with step(f"checking: {text.rstrip('.')}"):
            while True:
                found = self.read()
                wrong = problem(found)
                if not wrong or time.monotonic() > deadline:
                    break
                time.sleep(EVERY_SECONDS)
        if wrong:
            self.screen.cross(text)
            raise ClaimFailed(f"The claim “{text}” does not hold: {wrong}.")
        self.screen.tick(text)
        self.claims += 1
        return found

    # What a user does

    def apply(self, example: str, namespace: str, **changes: Any) -> None:
        """kubectl apply of a file in deploy/examples. ``changes``: over its pod template's spec."""
        file = f"{EXAMPLES}/{example}.yaml"
        manifest = yaml.safe_load((ROOT / file).read_text())
        manifest["spec"]["template"]["spec"] |= changes
        self.stack.admin.apply(manifest, namespace)

    def annotations(self, example: str) -> str:
        """The lines of a file in deploy/examples that are annotations for Slurm."""
        lines = (ROOT / EXAMPLES / f"{example}.yaml").read_text().splitlines()
        return "\n".join(line.strip() for line in lines if line.lstrip().startswith("sluice.dev/"))

    def delete(self, job: str, namespace: str) -> None:
        """kubectl delete job."""
        self.stack.admin.delete(
            f"/apis/batch/v1/namespaces/{namespace}/jobs/{job}", grace_seconds=0
        )

    def program_ends(self, job: str, namespace: str) -> None:
        """Have kwok report that the program in each pod of the Job has ended well."""
        ended = {"metadata": {"annotations": {RUN_TIME_ANNOTATION: "0s"}}}
        for pod in self.read().gang(namespace, job):
            self.stack.admin.patch(f"/api/v1/namespaces/{namespace}/pods/{pod.name}", ended, MERGE)

    # What Sluice says

    def explain(self, namespace: str, job: str, accept: str) -> httpx.Response:
        """GET of the explain endpoint. Raises httpx.HTTPError."""
        url = self.explain_url(namespace, job)
        return httpx.get(url, headers={"Accept": accept}, timeout=30).raise_for_status()

    def explain_url(self, namespace: str, job: str) -> str:
        return f"{self.stack.sluice.base_url}/v1/gangs/{namespace}/{job}"

    def says_the_same(self, namespace: str, slurm: SlurmJob) -> str:
        """Whether Sluice explains the job with Slurm's reason and planned start; what differs."""
        view = self.explain(namespace, slurm.name, "application/json").json()
        planned = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(slurm.started))
        if f"(Slurm: {slurm.reason})" not in view["reason"]:
            return f"Slurm's reason is {slurm.reason}, Sluice says: {view['reason']}"
        if not str(view["estimated_start"]).startswith(planned):
            return f"Slurm plans {planned}Z, Sluice says {view['estimated_start']}"
        return ""
