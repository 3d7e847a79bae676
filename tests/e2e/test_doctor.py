"""`sluice doctor` on the real parts: nothing on a healthy cluster, and every fault by its name."""

from __future__ import annotations

import pytest

from tests.e2e.jobs import gang, indexed_job, pod
from tests.e2e.site import ML, VISION, Site

pytestmark = pytest.mark.e2e


def test_a_healthy_cluster_gives_none(site: Site) -> None:
    """Gangs that run, wait and have ended, of Jobs, of named pods and of one."""
    site.submit(ML, indexed_job("done", 2, run="1s"), indexed_job("train", 8))
    site.submit(VISION, *gang("ring", 2), pod("lone", gpus=4))
    site.bound(3, VISION)
    site.ended("done")
    site.submit(ML, indexed_job("large", 16))
    site.gated(16, prefix="large")
    site.job("large", "PENDING")
    site.books_agree()
