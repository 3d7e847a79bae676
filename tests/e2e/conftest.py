"""One stack for all end-to-end tests: 16 nodes of 8 GPUs, four leaves under two spines."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

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
