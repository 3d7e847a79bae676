"""The contract of the port, on the fake slurmrestd."""

from __future__ import annotations

import httpx
import pytest

from extender.slurm import nodeconf
from tests.fakes.slurmrestd import FakeSlurmrestd
from tests.unit.slurm.contract import NODES, Contract, World, specs


class FakeWorld:
    url = "http://slurmrestd"

    def __init__(self) -> None:
        self.restd = FakeSlurmrestd()
        self.transport: httpx.AsyncBaseTransport | None = self.restd.transport

    def token(self, user: str, lifespan_seconds: float) -> str:
        return self.restd.token(user, lifespan_seconds)

    def stop_slurmctld(self) -> None:
        self.restd.down = True

    def start_slurmctld(self) -> None:
        self.restd.down = False


class TestFake(Contract):
    @pytest.fixture
    def world(self) -> World:
        world = FakeWorld()
        for line in nodeconf.lines(specs(*NODES)):
            world.restd.slurmctld.create(line)
        return world
