"""One replica leads, and knows in time when it no longer may."""

from __future__ import annotations

import asyncio
import json
from typing import Any, cast

import pytest

from extender.control.lease import Lease
from extender.kube.client import KubeClient, KubeError, KubeUnavailable

DURATION = 6


class Clock:
    """Seconds that pass only when a test says so."""

    def __init__(self) -> None:
        self.now = 100.0


class Leases:
    """An API server for one Lease; ``down`` answers nothing, ``lossy`` loses the answers."""

    def __init__(self) -> None:
        self.stored: dict[str, Any] | None = None
        self.down = self.lossy = False
        self.writes = 0

    async def request(self, method: str, _path: str, *, body: bytes | None = None) -> bytes:
        if self.down:
            raise KubeUnavailable("no answer")
        if method == "GET":
            if self.stored is None:
                raise KubeError(404, "NotFound", "not found")
            return json.dumps(self.stored).encode()
        sent = json.loads(body or b"{}")
        version = self.stored["metadata"]["resourceVersion"] if self.stored else ""
        if sent["metadata"].get("resourceVersion", "") != version:
            raise KubeError(409, "Conflict", "the object has been modified")
        self.writes += 1
        sent["metadata"]["resourceVersion"] = str(self.writes)
        self.stored = sent
        if self.lossy:
            raise KubeUnavailable("the answer was lost")
        return json.dumps(sent).encode()

    @property
    def holder(self) -> str:
        return str(self.stored["spec"]["holderIdentity"]) if self.stored else ""


class Replicas:
    """Replicas that take a turn when they are told to."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.api = clock, Leases()
        self.begun: list[str] = []

    def replica(self, name: str) -> Lease:
        made = Lease(
            cast(KubeClient, self.api),
            namespace="sluice-system",
            name="sluice",
            identity=name,
            duration_seconds=DURATION,
            clock=lambda: self.clock.now,
        )
        made.gained = lambda: self.begun.append(name)
        return made

    async def turn(self, replica: Lease) -> None:
        """One step of its loop."""
        task = asyncio.create_task(replica.run())
        await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
def world() -> Replicas:
    return Replicas(Clock())


async def test_the_first_leads_and_the_second_stands_by(world: Replicas) -> None:
    a, b = world.replica("a"), world.replica("b")
    for replica in (a, b):
        await world.turn(replica)
    assert (a.held, b.held, world.begun) == (True, False, ["a"])
    assert (a.status, b.status) == ("", "stands by: a leads")


async def test_who_renews_goes_on_leading(world: Replicas) -> None:
    a, b = world.replica("a"), world.replica("b")
    for _ in range(10):
        await world.turn(a)
        await world.turn(b)
        world.clock.now += DURATION / 3
    assert (world.api.holder, world.begun) == ("a", ["a"])
    assert world.api.stored is not None
    assert world.api.stored["spec"]["leaseTransitions"] == 0


async def test_one_that_died_is_replaced_after_the_duration(world: Replicas) -> None:
    a, b = world.replica("a"), world.replica("b")
    await world.turn(a)
    await world.turn(b)
    world.clock.now += DURATION - 0.1
    await world.turn(b)
    assert not b.held
    world.clock.now += 0.2
    await world.turn(b)
    assert (b.held, world.api.holder, world.begun) == (True, "b", ["a", "b"])


async def test_one_that_was_stopped_knows_at_once_that_it_no_longer_leads(world: Replicas) -> None:
    """Before it has asked anybody, and before the other begins."""
    a, b = world.replica("a"), world.replica("b")
    await world.turn(a)
    await world.turn(b)
    world.clock.now += DURATION - 0.5
    assert not a.held
    assert not b.held
    world.clock.now += 1
    await world.turn(b)
    await world.turn(a)
    assert (a.held, b.held) == (False, True)


async def test_without_the_api_server_nobody_leads_for_long(world: Replicas) -> None:
    a = world.replica("a")
    await world.turn(a)
    world.api.down = True
    await world.turn(a)
    assert a.held
    world.clock.now += DURATION
    await world.turn(a)
    assert not a.held
    assert "no answer" in a.status
    world.api.down = False
    await world.turn(a)
    assert (a.held, world.begun) == (True, ["a", "a"])


async def test_an_answer_that_was_lost_is_read_again(world: Replicas) -> None:
    a = world.replica("a")
    world.api.lossy = True
    await world.turn(a)
    assert not a.held
    world.api.lossy = False
    await world.turn(a)
    assert a.held


async def test_of_two_that_reach_for_it_one_gets_it(world: Replicas) -> None:
    a, b, c = (world.replica(name) for name in "abc")
    for replica in (a, b, c):
        await world.turn(replica)
    world.clock.now += DURATION + 0.1
    await asyncio.gather(world.turn(b), world.turn(c))
    assert sorted([b.held, c.held]) == [False, True]


async def test_a_restarted_replica_leads_again_at_once(world: Replicas) -> None:
    await world.turn(world.replica("a"))
    again = world.replica("a")
    await world.turn(again)
    assert again.held


async def test_who_leaves_in_good_order_lets_the_next_begin_at_once(world: Replicas) -> None:
    a, b = world.replica("a"), world.replica("b")
    await world.turn(a)
    await world.turn(b)
    await a.release()
    await world.turn(b)
    assert (a.held, b.held) == (False, True)


async def test_it_is_given_back_though_the_last_renewal_was_cut_short(world: Replicas) -> None:
    a, b = world.replica("a"), world.replica("b")
    await world.turn(a)
    await world.turn(b)
    world.api.lossy = True
    await world.turn(a)
    world.api.lossy = False
    await a.release()
    await world.turn(b)
    assert (a.held, b.held) == (False, True)


async def test_a_lease_that_was_deleted_is_no_invitation(world: Replicas) -> None:
    """The leader, which still leads, makes another before the next would."""
    a, b = world.replica("a"), world.replica("b")
    await world.turn(a)
    await world.turn(b)
    world.api.stored = None
    await world.turn(b)
    assert (a.held, b.held) == (True, False)
    await world.turn(a)  # its renewal is refused
    await world.turn(a)
    await world.turn(b)
    assert (a.held, b.held, world.api.holder) == (True, False, "a")


async def test_a_lease_that_was_deleted_is_made_anew_when_the_leader_has_died(
    world: Replicas,
) -> None:
    a, b = world.replica("a"), world.replica("b")
    await world.turn(a)
    await world.turn(b)
    world.api.stored = None
    world.clock.now += DURATION + 0.1
    await world.turn(b)
    assert (b.held, world.api.holder) == (True, "b")
