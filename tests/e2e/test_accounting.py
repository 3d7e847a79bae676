"""What sacct says of gangs that ended by themselves, with the helper that has libslurm and without.

What it says when Slurm ended them is in test_slurm_ends.py.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.e2e.ends import outcome
from tests.e2e.jobs import gang, indexed_job
from tests.e2e.site import ML, Site
from tests.harness.kube import Object

pytestmark = pytest.mark.e2e


def ended(site: Site, name: str) -> tuple[str, str]:
    """State and exit code of the one Slurm job of that name, as sacct has them."""
    (job,) = site.ended(name)
    return outcome(site, job["job_id"])


@pytest.fixture
def without_helper(site: Site) -> Iterator[Site]:
    """Sluice without slurm.complete_command: slurmrestd can only cancel."""
    plain: Object = {"slurm": site.settings["slurm"] | {"complete_command": []}}
    site.stack.sluice.stop()
    site.stack.sluice.start(plain)
    yield site
    site.stack.sluice.stop()
    site.stack.sluice.start(site.settings)


def test_a_gang_whose_pods_succeed_is_completed(site: Site) -> None:
    site.submit(ML, indexed_job("well", 2, run="1s"))
    assert ended(site, "well") == ("COMPLETED", "0:0")


def test_a_gang_that_fails_has_the_exit_code_of_its_pod(site: Site) -> None:
    site.submit(ML, indexed_job("badly", 2, retries=0))
    site.finish(site.bound(2)[0]["metadata"]["name"], exit_code=3)
    assert ended(site, "badly") == ("FAILED", "3:0")


def test_the_exit_code_is_that_of_the_pod_that_failed_first(site: Site) -> None:
    """Rank 3 fails; the others end for it, whether the Job controller ends them or they themselves
    when they miss it."""
    site.submit(ML, indexed_job("job", 4, retries=0), *gang("pods", 4))
    site.bound(8)
    third = site.pods(prefix="job-3")[0]["metadata"]["name"]
    for name in (third, "pods-3"):
        site.finish(name, exit_code=7)
    time.sleep(1.1)  # Kubernetes writes down whole seconds
    for rank in range(3):
        site.finish(f"pods-{rank}", exit_code=143)
    assert ended(site, "job") == ("FAILED", "7:0")
    assert ended(site, "pods") == ("FAILED", "7:0")


def test_a_gang_that_is_deleted_is_cancelled(site: Site) -> None:
    """Its pods end by SIGTERM and are Failed: that is no failure of theirs."""
    site.submit(ML, indexed_job("job", 2), *gang("pods", 2))
    site.bound(4)
    site.delete(ML, "Job", "job")
    for name in ("pods-0", "pods-1"):
        site.delete(ML, "Pod", name)
    assert ended(site, "job") == ("CANCELLED", "0:0")
    assert ended(site, "pods") == ("CANCELLED", "0:0")


def test_without_the_helper_the_comment_says_how_it_ended(without_helper: Site) -> None:
    site = without_helper
    annotations = {"sluice.dev/comment": "run 7"}
    site.submit(ML, indexed_job("well", 2, run="1s"))
    site.submit(ML, indexed_job("badly", 2, retries=0, annotations=annotations))
    site.finish(site.bound(4)[0]["metadata"]["name"], exit_code=3)
    assert ended(site, "well") == ended(site, "badly") == ("CANCELLED", "0:0")
    (well,), (badly,) = site.jobs("well"), site.jobs("badly")
    assert well["comment"] == "its pods ended with exit code 0"
    assert badly["comment"] == "run 7; its pods ended with exit code 3"
