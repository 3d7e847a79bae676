"""A gang that ends as a whole and is made again by its Job: a new attempt.

The Job controller waits ten seconds before it makes a failed pod anew.
"""

from __future__ import annotations

import pytest

from extender.domain import wellknown as names
from tests.e2e.jobs import indexed_job
from tests.e2e.site import ML, Site, answers, eventually, node_of, state, steadily, uids
from tests.harness.kube import Object

pytestmark = pytest.mark.e2e


def fail_all(site: Site, pods: list[Object]) -> set[str]:
    """All at once; the UIDs of those that failed."""
    with site.paused():
        for failed in pods:
            site.finish(failed["metadata"]["name"], exit_code=3)
    return uids(pods)


def bound_again(site: Site, before: set[str]) -> list[Object]:
    """The pods made in place of those, as soon as all are bound."""
    return eventually(
        lambda: [p for p in site.pods() if p["metadata"]["uid"] not in before],
        lambda pods: len(pods) == len(before) and all(p["spec"].get("nodeName") for p in pods),
        40,
        "the next attempt bound",
    )


def test_a_gang_that_restarts_as_a_whole_gets_a_slurm_job_of_its_own(site: Site) -> None:
    site.submit(ML, indexed_job("train", 2))
    before = fail_all(site, site.bound(2))
    after = bound_again(site, before)
    first, second = site.jobs("train")
    assert (state(first), state(second)) == ("FAILED", "RUNNING")
    assert {answers(p)["job-id"] for p in after} == {str(second["job_id"])}
    site.books_agree()


def test_with_hold_on_restart_it_keeps_its_nodes(site: Site) -> None:
    """Also while Sluice itself is started anew. The attempt is counted all the same."""
    site.submit(ML, indexed_job("train", 2, annotations={names.HOLD_ON_RESTART: "2m"}))
    pods = site.bound(2)
    before = fail_all(site, pods)
    eventually(
        lambda: site.ask("/v1/gangs/ml/train").json()["state"],
        "Restarting".__eq__,
        5,
        "the nodes to be kept",
    )
    site.stack.sluice.kill()
    site.stack.sluice.start(site.settings)
    steadily(lambda: site.states("train"), lambda s: s == ["RUNNING"], 2, "the nodes are kept")
    after = bound_again(site, before)
    assert site.states("train") == ["RUNNING"]
    assert list(map(node_of, after)) == list(map(node_of, pods))
    assert site.ask("/v1/gangs/ml/train").json()["attempt"] == 2
    site.books_agree()


def test_the_nodes_are_given_back_when_nothing_comes_in_time(site: Site) -> None:
    """The next attempt, ten seconds later, asks anew."""
    site.submit(ML, indexed_job("train", 2, annotations={names.HOLD_ON_RESTART: "3s"}))
    before = fail_all(site, site.bound(2))
    (ended,) = site.ended("train", seconds=9)
    assert state(ended) == "FAILED"
    bound_again(site, before)
    assert site.states("train") == ["FAILED", "RUNNING"]
    site.books_agree()


def test_a_job_that_is_deleted_keeps_nothing(site: Site) -> None:
    site.submit(ML, indexed_job("train", 2, annotations={names.HOLD_ON_RESTART: "2m"}))
    fail_all(site, site.bound(2))
    site.delete(ML, "Job", "train")
    site.ended("train")
    site.idle()


def test_a_duration_that_is_none_is_refused(site: Site) -> None:
    site.submit(ML, indexed_job("train", 2, annotations={names.HOLD_ON_RESTART: "soon"}))
    said = eventually(
        site.events, lambda seen: any(r == "Refused" for r, _ in seen), 10, "the refusal"
    )
    assert any("'soon' is not a duration: write 90s" in message for _, message in said)
    assert site.jobs("train") == []
