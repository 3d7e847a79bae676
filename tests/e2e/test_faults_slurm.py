"""A part of Slurm is away for a time, or refuses the token: nothing is deleted, nothing lost, nothing
done twice, and what happened meanwhile is made up for."""

from __future__ import annotations

import time
from pathlib import Path

import httpx
import pytest

from tests.e2e.faults import Bystanders, down, hung
from tests.e2e.jobs import gang, indexed_job
from tests.e2e.site import ML, Site, eventually, state, steadily
from tests.harness.kube import Object

pytestmark = pytest.mark.e2e


def before(site: Site) -> None:
    """Gangs that run, of which one will end and one be deleted."""
    site.submit(ML, *gang("ends", 2), indexed_job("deleted", 2))
    site.bound(2, prefix="ends")
    site.bound(2, prefix="deleted")


def meanwhile(site: Site) -> None:
    """One ends, one is deleted, one comes."""
    for pod in ("ends-0", "ends-1"):
        site.finish(pod)
    site.delete(ML, "Job", "deleted")
    site.submit(ML, indexed_job("comes", 4))


def afterwards(site: Site, seconds: float = 60) -> None:
    """All of it was dealt with, once."""
    site.bound(4, prefix="comes", seconds=seconds)
    assert site.states("comes") == ["RUNNING"]
    for name, wanted in (("ends", "COMPLETED"), ("deleted", "CANCELLED")):
        (job,) = site.ended(name, seconds=30)
        assert state(job) == wanted
    eventually(site.stack.sluice.ready, bool, 15, "Sluice to be ready again")


def untouched(site: Site, bystanders: Bystanders, seconds: float) -> None:
    """For so long the pods of those that run and wait stay, and the one that came waits."""
    pods = {name: pods for name, (pods, _) in bystanders.before.items()}

    def seen() -> dict[str, set[str]]:
        return {
            name: {p["metadata"]["uid"] for p in site.pods(prefix=name)}
            for name in ("steady", "queued")
        }

    steadily(seen, pods.__eq__, seconds, "the pods stay")
    site.gated(4, prefix="comes")


def says(site: Site, part: str, seconds: float) -> None:
    """/readyz names what does not answer."""
    eventually(
        lambda: site.ask("/readyz"),
        lambda answer: answer.status_code == 503 and part in answer.text,
        seconds,
        f"/readyz to name {part}",
    )


# -- slurmctld and slurmrestd


def test_slurmctld_is_stopped_for_a_minute(site: Site, bystanders: Bystanders) -> None:
    before(site)
    with down(site, "slurmctld", "TERM"):
        until = time.monotonic() + 60
        meanwhile(site)
        says(site, "slurmctld", 40)
        untouched(site, bystanders, until - time.monotonic())
    afterwards(site)


def filtered(site: Site, pod: Object) -> list[str]:
    """The nodes that /filter leaves, within the two seconds that kube-scheduler waits for it."""
    url = f"{site.stack.sluice.base_url}/extender/filter"
    asked = {"Pod": pod, "NodeNames": site.order}
    found: list[str] = httpx.post(url, json=asked, timeout=2).json()["NodeNames"]
    return found


def test_slurmctld_hangs_while_it_is_asked_for_a_job(site: Site, bystanders: Bystanders) -> None:
    """Sluice gives the submit up after ten seconds; slurmctld carries it out when it wakes up."""
    before(site)
    site.tap.forget()
    with hung(site, "slurmctld"):
        meanwhile(site)
        eventually(site.tap.submits, bool, 40, "the submit to be given up")
        assert filtered(site, site.pods(prefix="comes")[0]) == [], "from memory"
        untouched(site, bystanders, 10)
    afterwards(site)
    assert len(site.jobs("comes")) == 1
    assert [call.status < 300 for call in site.tap.submits()] == [False], "it was that one"


def test_slurmrestd_is_killed(site: Site, bystanders: Bystanders) -> None:
    before(site)
    with down(site, "slurmrestd"):
        meanwhile(site)
        says(site, "slurmrestd", 10)
        untouched(site, bystanders, 3)
    afterwards(site)


# -- accounting


@pytest.mark.parametrize("daemon", ["slurmdbd", "mariadb"])
@pytest.mark.usefixtures("bystanders")
def test_accounting_is_away(site: Site, daemon: str) -> None:
    """Gangs start and end all the same; accounting is told of it when it is back."""
    before(site)
    with down(site, daemon):
        meanwhile(site)
        afterwards(site)
    told = {"ends": "COMPLETED", "comes": "RUNNING", "deleted": "CANCELLED"}
    eventually(
        lambda: {
            job["name"]: record["State"].partition(" ")[0]
            for job in site.jobs()
            for record in site.slurm.sacct(f"--jobs={job['job_id']}")
            if job["name"] in told
        },
        told.__eq__,
        40,
        "accounting to know all of it",
    )


# -- the token


def test_a_token_that_expired_is_replaced_without_a_restart(
    site: Site, bystanders: Bystanders
) -> None:
    before(site)
    token = site.slurm.token_file
    good = token.read_text()
    try:
        replace(token, site.slurm.token(lifespan_seconds=-60))
        meanwhile(site)
        says(site, "token", 10)
        untouched(site, bystanders, 2)
        assert site.jobs("comes") == []
    finally:
        replace(token, good)
    afterwards(site)


def replace(token: Path, text: str) -> None:
    """As a rotated Secret is: another file under the same name."""
    fresh = token.with_suffix(".new")
    fresh.write_text(text)
    fresh.replace(token)
