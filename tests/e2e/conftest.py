"""One stack for all end-to-end tests: 16 nodes of 8 GPUs, four leaves under two spines."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from extender.domain import wellknown as names
from tests.e2e.faults import Bystanders
from tests.e2e.site import ML, PLAIN, VISION, Site, site_of
from tests.e2e.tap import Tap
from tests.harness.fabric import Fabric
from tests.harness.stack import Stack


@pytest.fixture(scope="session")
def stack(request: pytest.FixtureRequest) -> Iterator[Stack]:
    """The running stack; Sluice itself is started by the tests that need it."""
    capture = request.config.pluginmanager.getplugin("capturemanager")
    fabric = Fabric(spines=2, leaves_per_spine=2, nodes_per_leaf=4, gpus_per_node=8)
    with capture.global_and_fixture_disabled():  # progress must be seen while it happens
        running = Stack.start(fabric)
    with running:
        yield running
        running.keep_logs = request.session.testsfailed > 0


@pytest.fixture(scope="session")
def tap(stack: Stack) -> Iterator[Tap]:
    """Between Sluice and slurmrestd; the namespaces of the tests are there, too."""
    managed = {names.MANAGED: "true"}
    stack.admin.namespace(ML, managed, {names.USER: "alice", names.ACCOUNT: "ml"})
    stack.admin.namespace(VISION, managed, {names.USER: "carol", names.ACCOUNT: "vision"})
    stack.admin.namespace(PLAIN, {}, {names.USER: "bob", names.ACCOUNT: "ml"})
    tap = Tap(stack.slurm.rest_url)
    yield tap
    stack.sluice.stop()
    tap.close()


@pytest.fixture
def site(stack: Stack, tap: Tap) -> Iterator[Site]:
    """Sluice runs, nothing else does; afterwards it is so again."""
    with site_of(stack, tap) as site:
        yield site


@pytest.fixture
def bystanders(site: Site) -> Iterator[Bystanders]:
    """A gang that runs and one that waits; afterwards they are as they were, and the books agree."""
    bystanders = Bystanders(site)
    yield bystanders
    bystanders.check()
