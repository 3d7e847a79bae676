"""What the demo claims, each as a function of the facts: "" when it holds, else what is wrong.

Pure: a test may call them with facts that are made up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tests.demo.facts import Facts, Place, SlurmJob


def nodes_known(facts: Facts, count: int) -> str:
    """Slurm has every node, below a switch that is the node's rack."""
    if len(facts.places) != count:
        return f"Kubernetes has {len(facts.places)} nodes"
    missing = [place.node for place in facts.places if place.node not in facts.switches]
    if missing:
        return f"Slurm does not know {_names(missing)}"
    astray = [p.node for p in facts.places if not facts.switches[p.node].endswith(p.rack)]
    return f"Slurm has {_names(astray)} elsewhere in the network" if astray else ""


def free_nodes(facts: Facts, count: int) -> str:
    """So many nodes have no pod."""
    free = len(facts.free())
    return "" if free == count else f"{free} nodes are free"


def all_run(facts: Facts, namespace: str, job: str, count: int) -> str:
    """All pods of the Job are bound and run."""
    pods = facts.gang(namespace, job)
    running = sum(1 for pod in pods if pod.node and pod.phase == "Running")
    return "" if running == count else f"{running} of {count} pods of {namespace}/{job} run"


def none_left(facts: Facts, namespace: str, job: str) -> str:
    """No pod of the Job exists any more."""
    pods = [p for p in facts.pods if (p.namespace, p.job) == (namespace, job)]
    return f"{len(pods)} pods of {namespace}/{job} are still there" if pods else ""


def on_one_rack(places: Sequence[Place]) -> str:
    """All in the same rack."""
    racks = sorted({place.rack for place in places})
    return "" if len(racks) == 1 else f"they are spread over {', '.join(racks) or 'nothing'}"


def in_rank_order(facts: Facts, places: Sequence[Place]) -> str:
    """Rank i is on the i-th of its nodes along the fabric, one rank to a node."""
    order = [place for place in facts.places if place in places]
    for rank, (is_on, should) in enumerate(zip(places, order, strict=False)):
        if is_on != should:
            return f"rank {rank} is on {is_on.node}, and {should.node} comes first in the fabric"
    return "" if len(places) == len(order) else "several ranks share a node"


def where_slurm_says(facts: Facts, namespace: str, job: str) -> str:
    """The pods' nodes in Kubernetes are the nodes of the job in Slurm."""
    bound = {pod.node for pod in facts.gang(namespace, job)}
    slurm = facts.jobs.get(job)
    if slurm is None or not slurm.runs:
        return f"Slurm runs no job {job}"
    if bound == set(slurm.nodes):
        return ""
    return f"Kubernetes has it on {_names(bound)}, Slurm on {_names(slurm.nodes)}"


def only_jobs(facts: Facts, names: Sequence[str]) -> str:
    """Slurm knows these jobs and no others."""
    known = sorted(facts.jobs)
    return "" if known == sorted(names) else f"Slurm knows the jobs {_names(known)}"


def waits(facts: Facts, job: str) -> str:
    """The job is in Slurm's queue, for want of free nodes, with a planned start."""
    slurm = facts.jobs.get(job)
    if slurm is None:
        return f"Slurm knows no job {job}"
    if not slurm.waits or slurm.reason not in ("Resources", "Priority"):
        return f"Slurm has job {job} as {slurm.state}, reason {slurm.reason}"
    return "" if slurm.started else f"Slurm has not planned a start of job {job} yet"


def holds_nothing(facts: Facts, namespace: str, job: str, count: int) -> str:
    """All its pods are gated and unbound; Slurm gave nodes to the jobs that run, and to no other."""
    pods = facts.gang(namespace, job)
    if bound := [pod.name for pod in pods if pod.node or not pod.gated]:
        return f"{_names(bound)} is bound or free to be"
    if len(pods) != count:
        return f"{len(pods)} of {count} pods of {namespace}/{job} exist"
    if facts.jobs[job].nodes:
        return f"Slurm has given it {_names(facts.jobs[job].nodes)}"
    running = {node for slurm in facts.jobs.values() if slurm.runs for node in slurm.nodes}
    if facts.allocated != running:
        return f"Slurm holds {_names(facts.allocated ^ running)} for no job that runs"
    return ""


def told_in_kubernetes(facts: Facts, namespace: str, job: str) -> str:
    """An Event of the Job and each pod's condition name the reason that Slurm has for the job."""
    reason = f"(Slurm: {facts.jobs[job].reason})"
    if not any(name == job and reason in message for name, message in facts.events):
        return f"no Event of Job {job} says {reason}"
    pods = facts.gang(namespace, job)
    silent = [pod.name for pod in pods if reason not in pod.told]
    return f"{_names(silent)} does not say {reason}" if silent else ""


def passes(facts: Facts, small: str, large: str) -> str:
    """The small job came later and runs, while the large one waits."""
    ahead, behind = facts.jobs.get(small), facts.jobs[large]
    if ahead is None or not ahead.runs:
        return f"Slurm does not run job {small}"
    if not behind.waits:
        return f"job {large} does not wait any more"
    return "" if ahead.id > behind.id else f"job {small} was there before {large}"


def not_later(before: SlurmJob, now: SlurmJob, tolerance_seconds: int) -> str:
    """The planned start has not moved back."""
    moved = now.started - before.started
    return "" if moved <= tolerance_seconds else f"its start has moved back by {moved} s"


def over(facts: Facts, namespace: str, job: str) -> str:
    """All pods of the Job have succeeded, and Slurm does not run its job any more."""
    if live := facts.gang(namespace, job):
        return f"{len(live)} pods of {namespace}/{job} have not ended"
    ended = [p.phase for p in facts.pods if (p.namespace, p.job) == (namespace, job)]
    good = ended.count("Succeeded")
    if not good or good < len(ended):
        return f"{good} of {len(ended)} pods of {namespace}/{job} have succeeded"
    slurm = facts.jobs[job]
    return f"Slurm has job {job} as {slurm.state}" if slurm.runs or slurm.waits else ""


def takes_over(facts: Facts, first: str, second: str) -> str:
    """The first job has ended, and the second started after that."""
    ended, begun = facts.jobs[first], facts.jobs[second]
    if ended.waits or ended.runs:
        return f"job {first} is {ended.state} in Slurm"
    return "" if begun.runs else f"job {second} is {begun.state} in Slurm"


@dataclass(frozen=True)
class Record:
    """What accounting should say of a job: whom it bills, for how many GPUs, and if it runs."""

    account: str
    gpus: int
    runs: bool = False


def recorded(rows: Sequence[Mapping[str, str]], expected: Mapping[str, Record]) -> str:
    """Accounting (rows of sacct) has one record for each job, by name, and no other."""
    found = {
        row["JobName"]: Record(row["Account"], gpus(row["AllocTRES"]), row["State"] == "RUNNING")
        for row in rows
    }
    if len(rows) != len(found):
        return f"there are {len(rows)} records of {len(found)} jobs"
    for name in sorted(found.keys() | expected.keys()):
        if found.get(name) != expected.get(name):
            return f"{name} is recorded as {found.get(name)}, not as {expected.get(name)}"
    return ""


def backfilled(rows: Sequence[Mapping[str, str]], name: str) -> str:
    """Accounting says that Slurm's backfill scheduler started the job."""
    flags = next((row["Flags"] for row in rows if row["JobName"] == name), "nothing")
    return "" if "SchedBackfill" in flags else f"it says {flags} of {name}"


def ended_well(rows: Sequence[Mapping[str, str]], expected: Mapping[str, Record]) -> str:
    """The admin comment of every job that has ended says that its pods had."""
    for row in rows:
        if not expected[row["JobName"]].runs and "all pods have ended" not in row["AdminComment"]:
            return f"the comment on {row['JobName']} is {row['AdminComment'] or 'empty'}"
    return ""


def gpus(tres: str) -> int:
    """GPUs in Slurm's list of trackable resources, "cpu=16,gres/gpu=32,node=4"."""
    parts = dict(part.split("=", 1) for part in tres.split(",") if "=" in part)
    return int(parts.get("gres/gpu", 0))


def _names(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"
