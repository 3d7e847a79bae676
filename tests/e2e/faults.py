"""What the tests of faults have in common: who must not notice anything, and how Slurm forgets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from extender.domain import wellknown as names
from tests.e2e.jobs import indexed_job
from tests.e2e.site import ML, Site, eventually, state, told, uids

HELD = {names.HOLD: "true"}
"""Annotations of a gang that waits until somebody releases its Slurm job."""
_STATE = "/var/lib/slurm/slurmctld/job_state"

Gangs = dict[str, tuple[set[str], list[tuple[int, str]]]]


class Bystanders:
    """A gang of four that runs and a gang of two that waits: no fault may touch them."""

    def __init__(self, site: Site) -> None:
        self.site = site
        site.submit(ML, indexed_job("steady", 4), indexed_job("queued", 2, annotations=HELD))
        site.bound(4, prefix="steady")
        site.gated(2, prefix="queued")
        site.job("queued", "PENDING")
        self.before = self.now()

    @property
    def waiting_job(self) -> int:
        """The Slurm job of the gang that waits."""
        return self.before["queued"][1][0][0]

    def now(self) -> Gangs:
        """Their pods by UID and their Slurm jobs with states."""
        return {
            name: (
                uids(self.site.pods(prefix=name)),
                [(job["job_id"], state(job)) for job in self.site.jobs(name)],
            )
            for name in ("steady", "queued")
        }

    def check(self) -> None:
        """Nothing has happened to them; and all of Kubernetes' and Slurm's books agree."""
        site = self.site
        eventually(self.now, self.before.__eq__, 5, f"the bystanders as they were: {self.before}")
        assert {told(p) for p in site.pods(prefix="queued")} == {"gated"}
        site.books_agree()

    def release(self) -> None:
        """The one that waited starts, and is none the worse for its waiting."""
        site = self.site
        site.slurm.exec("scontrol", "release", str(site.job("queued", "PENDING")["job_id"]))
        site.bound(2, prefix="queued")


# -- slurmctld's memory


def saved_at(site: Site) -> float:
    """When slurmctld last wrote its jobs to its disk; 0 when it never has."""
    return float(site.slurm.shell(f"stat -c %.Y {_STATE} || echo 0", reads=True))


def save(site: Site, job_id: int) -> None:
    """Have slurmctld save all that has happened until now, by an update of that job."""
    before = saved_at(site)
    site.slurm.exec("scontrol", "update", f"jobid={job_id}", "comment=saved")
    eventually(lambda: saved_at(site), lambda at: at > before, 10, "slurmctld to save its state")


@contextmanager
def forgotten(site: Site, job_id: int) -> Iterator[None]:
    """slurmctld is killed at the end of the block and started again, and knows nothing of what
    happened in it.

    By itself it saves its jobs up to five seconds after an update, and after starts and ends not at
    all before its checkpoint. That it saves nothing meanwhile is made sure of.
    """
    save(site, job_id)
    in_the_way = f"{_STATE}.new"
    site.slurm.exec("mkdir", in_the_way)
    try:
        yield
        site.slurm.kill("slurmctld")
    finally:
        site.slurm.exec("rmdir", in_the_way)
        site.slurm.launch("slurmctld")


# -- parts that are away


@contextmanager
def down(site: Site, daemon: str, signal: str = "KILL") -> Iterator[None]:
    """The daemon of Slurm is ended by the signal, and started again after the block."""
    site.slurm.kill(daemon, signal)
    try:
        yield
    finally:
        site.slurm.launch(daemon)


@contextmanager
def hung(site: Site, daemon: str) -> Iterator[None]:
    """The daemon of Slurm stands still; what it was sent meanwhile it reads after the block."""
    pid = str(site.slurm.pid(daemon))
    site.slurm.exec("kill", "-STOP", pid)
    try:
        yield
    finally:
        site.slurm.exec("kill", "-CONT", pid)
