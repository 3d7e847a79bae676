"""How a gang ended, as Kubernetes and sacct tell it, and what makes Slurm end one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.e2e.site import ML, Site, eventually
from tests.harness.kube import Object


def workload(site: Site, name: str, namespace: str = ML) -> Object:
    """A Job."""
    found: Object = site.kube.get(f"/apis/batch/v1/namespaces/{namespace}/jobs/{name}")
    return found


def conditions(found: Object) -> dict[str, Object]:
    """What is true of a Job or pod, by type."""
    listed = found["status"].get("conditions", [])
    return {c["type"]: c for c in listed if c["status"] == "True"}


def failed(site: Site, name: str, seconds: float = 10) -> str:
    """Wait until the Job has failed; why, in Kubernetes' words: "<reason>: <message>"."""
    found = eventually(
        lambda: conditions(workload(site, name)),
        lambda seen: "Failed" in seen,
        seconds,
        f"Job {name} to fail",
    )
    return "{reason}: {message}".format(**found["Failed"])


def accounted(site: Site, job_id: int) -> dict[str, str]:
    """The accounting record of a job, as soon as it knows of the end. ``State`` is a word."""
    (record,) = eventually(
        lambda: site.slurm.sacct(f"--jobs={job_id}"),
        lambda found: [r for r in found if r["State"] not in ("PENDING", "RUNNING")],
        10,
        f"the accounting record of job {job_id}",
    )
    return record | {"State": record["State"].split()[0]}  # "CANCELLED by 2001"


def outcome(site: Site, job_id: int) -> tuple[str, str]:
    """State and exit code, as sacct has them."""
    record = accounted(site, job_id)
    return record["State"], record["ExitCode"]


# What ends a job, by the state that it makes. ``job_id`` runs, but for DEADLINE, where it waits.


def cancel(site: Site, job_id: int) -> None:
    site.cancel(job_id)


def run_out_of_time(site: Site, job_id: int) -> None:
    """As when the time limit is reached, which slurmctld looks at every half minute."""
    site.slurm.shell(f"scontrol update jobid={job_id} endtime=now+1second")


def run_out_of_memory(site: Site, job_id: int) -> None:
    """As slurmstepd reports it: the wait status is SIG_OOM, 253."""
    complete(site, job_id, 253)


def miss_the_deadline(site: Site, job_id: int) -> None:
    site.slurm.shell(f"scontrol update jobid={job_id} deadline=now+2seconds")


def complete(site: Site, job_id: int, wait_status: int = 0) -> None:
    """By hand, with libslurm, while its pods run."""
    site.slurm.shell(f"echo {job_id} {wait_status} | python3 /opt/sluice/complete.py")


def fail(site: Site, job_id: int) -> None:
    """By hand, with exit code 3."""
    complete(site, job_id, 3 << 8)


def lose_a_node(site: Site, job_id: int) -> None:
    """An administrator sets a node of the job down, and repairs it in ``repaired``."""
    job = site.slurm.job(job_id)
    assert job is not None
    node = site.slurm.shell(f"scontrol show hostnames '{job['nodes']}'", reads=True).split()[0]
    site.slurm.shell(f"scontrol update nodename={node} state=down reason=test")


@contextmanager
def repaired(site: Site) -> Iterator[None]:
    """Afterwards no node is down."""
    try:
        yield
    finally:
        down = [n["name"] for n in site.slurm.nodes() if "DOWN" in n["state"]]
        if down:
            site.slurm.shell(f"scontrol update nodename={','.join(down)} state=resume")
