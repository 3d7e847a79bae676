"""Pods that take longer to end than Slurm reckons with are warned of, once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from extender.domain import wellknown as names
from tests.e2e.jobs import indexed_job
from tests.e2e.site import ML, Site, eventually

pytestmark = pytest.mark.e2e


def warnings(site: Site) -> list[str]:
    return [text for reason, text in site.events(about="train") if reason == "GraceTooLong"]


@pytest.fixture
def qos_with_grace(site: Site) -> Iterator[str]:
    """QOS high has a GraceTime of 20 s, and Sluice has read it. Nobody preempts high."""
    site.slurm.shell("sacctmgr -i modify qos high set gracetime=20")
    site.stack.sluice.stop()
    site.stack.sluice.start(site.settings)
    yield "high"
    site.slurm.shell("sacctmgr -i modify qos high set gracetime=0")
    site.stack.sluice.stop()
    site.stack.sluice.start(site.settings)


def test_a_grace_beyond_kill_wait_is_warned_of(site: Site) -> None:
    site.submit(ML, indexed_job("train", 2, terminationGracePeriodSeconds=120))
    site.bound(2)
    (said,) = eventually(lambda: warnings(site), bool, 5, "the warning")
    assert "may take 120 s to end (terminationGracePeriodSeconds), Slurm's KillWait is 30 s" in said


def test_a_grace_beyond_a_qos_grace_time_is_warned_of(site: Site, qos_with_grace: str) -> None:
    annotations = {names.QOS: qos_with_grace}
    job = indexed_job("train", 2, annotations=annotations, terminationGracePeriodSeconds=25)
    site.submit(ML, job)
    site.bound(2)
    (said,) = eventually(lambda: warnings(site), bool, 5, "the warning")
    assert "may take 25 s to end" in said
    assert "the GraceTime of Slurm's QOS 'high' is 20 s" in said


def test_a_grace_that_fits_is_not_worth_a_word(site: Site) -> None:
    site.submit(ML, indexed_job("train", 2, terminationGracePeriodSeconds=30))
    site.bound(2)
    site.delete(ML, "Job", "train")
    eventually(lambda: site.states("train"), lambda s: s == ["CANCELLED"], 10, "the end")
    assert not warnings(site)
