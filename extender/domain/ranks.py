"""Which ranks of a gang its pods have, wait for, or have come to an end with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ClusterShell.NodeSet import NodeSet, NodeSetException

from extender.domain.gangs import int_or, rank_key
from extender.domain.model import Gang, GangKind, Job, Pod
from extender.domain.wellknown import JOB_ID, NODE, NODELIST, RANK


def job_of(pod: Pod) -> int:
    return int_or(pod.annotations.get(JOB_ID), 0)


def node_of(pod: Pod) -> str:
    """Where the pod is bound, or is to be."""
    return pod.node or pod.annotations.get(NODE, "")


def living_on(gang: Gang, job: Job) -> list[Pod]:
    """The pods that hold what the job has allocated; one that is being deleted does so too."""
    return [p for p in gang.pods if job_of(p) == job.id and not p.terminal]


def folded(nodes: Sequence[str]) -> str:
    """Node names as Slurm folds them; once a gang, since it costs as much as a patch."""
    return str(NodeSet.fromlist(list(nodes)))


def allocation_of(placed: Sequence[Pod]) -> tuple[str, ...]:
    """All nodes that the job of these pods held when they were released, also those whose pods have
    ended since."""
    listed = (p.annotations.get(NODELIST, "") for p in placed)
    found = {node_of(p) for p in placed}
    for folded in set(filter(None, listed)):
        try:
            found |= set(NodeSet(folded))
        except NodeSetException:
            continue  # not what Sluice wrote
    return tuple(sorted(found - {""}))


def held(placed: Iterable[Pod]) -> dict[int, str]:
    """Rank -> node of the living pods that have one."""
    living = ((int_or(p.annotations.get(RANK), -1), p) for p in placed if not p.terminal)
    return {rank: p.annotations.get(NODE, "") for rank, p in living if rank >= 0}


def ranks_waiting(gang: Gang, unplaced: Sequence[Pod], placed: Sequence[Pod]) -> dict[int, Pod]:
    """Rank -> pod for the pods that wait. A rank that a living pod has is not given again."""
    living = held(placed)
    if gang.kind is GangKind.POD:
        return {0: unplaced[-1]} if not living else {}
    if gang.kind is GangKind.JOB or all(rank_key(p) is not None for p in unplaced):
        keyed = {rank_key(p) or 0: p for p in one_per_rank(unplaced)}
        return {rank: pod for rank, pod in keyed.items() if rank not in living}
    free = (rank for rank in range(gang.size) if rank not in living)
    return dict(zip(free, unplaced, strict=False))


def one_per_rank(pods: Iterable[Pod]) -> list[Pod]:
    """The youngest pod of each rank; pods without a rank of their own all count."""
    chosen: dict[object, Pod] = {}
    for pod in pods:
        key = rank_key(pod)
        slot: object = pod.uid if key is None else key
        if slot not in chosen or pod.created > chosen[slot].created:
            chosen[slot] = pod
    return list(chosen.values())


def ranks_done(gang: Gang) -> int:
    """Ranks that have succeeded: an owner that makes pods anew makes only the others.

    Pods without an owner that have ended are what is left of an earlier gang of the name.
    """
    if gang.kind is GangKind.POD:
        return 0
    done = one_per_rank(p for p in gang.pods if p.phase == "Succeeded" and p.owner)
    completed = gang.workload.completed if gang.workload else frozenset()
    return len(completed) + sum(1 for p in done if rank_key(p) not in completed)


def exit_code(gang: Gang, job: Job) -> int:
    """Of the pod that failed first: the others often fail because of it. 0 when none did. A pod
    that was replaced does not count, nor one of an earlier attempt, nor one that was deleted."""
    failed = [p for p in _last_tries(gang, job) if _failed(p)]
    if not failed:
        return 0
    first = min(failed, key=lambda p: p.failed_at or float("inf"))
    return first.exit_code or 1


def finished(gang: Gang, job: Job) -> bool:
    """The pods came to an end of their own: all succeeded, or one failed. Else they are gone, or
    ended because somebody deleted them, which is a cancellation."""
    tries = _last_tries(gang, job)
    done = bool(tries) and all(p.phase == "Succeeded" for p in tries)
    return done or any(map(_failed, tries))


def _last_tries(gang: Gang, job: Job) -> list[Pod]:
    after = job.stamp.after if job.stamp else 0.0
    tried = (p for p in gang.pods if p.created > after and (p.terminal or job_of(p)))
    return one_per_rank(p for p in tried if job_of(p) in (0, job.id))


def _failed(pod: Pod) -> bool:
    """By itself: the kubelet makes Failed also of a pod that it ends since it is being deleted. One
    that has failed before that is gone at once, for it has no grace."""
    return pod.phase == "Failed" and not pod.deleting
