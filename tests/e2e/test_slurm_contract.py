"""The contract of the port, on the real slurmrestd: what keeps the fake true."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from extender.slurm import nodeconf
from tests.harness.slurm import REST_VERSION
from tests.harness.stack import Stack
from tests.unit.slurm.contract import NODES, Contract, World, specs

pytestmark = pytest.mark.e2e


class RealWorld:
    transport: httpx.AsyncBaseTransport | None = None

    def __init__(self, stack: Stack) -> None:
        self._slurm = stack.slurm
        self.url = stack.slurm.rest_url

    def token(self, user: str, lifespan_seconds: float) -> str:
        return self._slurm.token(user, lifespan_seconds)

    def stop_slurmctld(self) -> None:
        self._slurm.stop("slurmctld")

    def start_slurmctld(self) -> None:
        self._slurm.launch("slurmctld")


@pytest.fixture(scope="module")
def nodes(stack: Stack) -> Iterator[None]:
    """The contract's nodes, for as long as its tests run: Kubernetes does not know them."""
    stack.sluice.stop()
    stack.wipe()
    for line in nodeconf.lines(specs(*NODES)):
        path = f"/slurm/{REST_VERSION}/new/node/"
        stack.slurm.rest("POST", path, body={"node_conf": line}).raise_for_status()
    yield
    stack.slurm.cancel_all()
    for name in NODES:
        path = f"/slurm/{REST_VERSION}/node/{name}"
        stack.slurm.rest("DELETE", path).raise_for_status()


class TestReal(Contract):
    @pytest.fixture
    def world(self, stack: Stack, nodes: None) -> World:  # noqa: ARG002
        return RealWorld(stack)
