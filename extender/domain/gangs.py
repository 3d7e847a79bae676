"""Which pods belong together, how many there must be, and in which order their ranks go."""

from __future__ import annotations

import re
from collections.abc import Iterable

from msgspec import Struct

from extender.domain import wellknown as names
from extender.domain.model import Gang, GangKind, Namespace, Pod, Workload

_DIGITS = re.compile(r"([0-9]{1,4000})")  # int() takes 4,300 digits at the most
_MOST_NAME_BYTES = 200  # it stands twice in the stamp, for which Slurm may have room for 1,024
_STATEFUL_INDEX = "apps.kubernetes.io/pod-index"


class Membership(Struct, frozen=True):
    """The gang that a pod belongs to."""

    id: str
    kind: GangKind
    name: str


def natural(text: str) -> tuple[tuple[int, int, str], ...]:
    """A sort key in which "n2" comes before "n10"."""
    return tuple(
        (1, int(part), "") if i % 2 else (0, 0, part) for i, part in enumerate(_DIGITS.split(text))
    )


def opted_in(pod: Pod, namespace: Namespace | None, scheduler: str) -> bool:
    """The pod is Slurm's to place: it names our scheduler, and its namespace or itself opted in.

    A pod that is gated or placed already stays so when its namespace opts out: otherwise it would
    wait for ever, or run on nodes that Slurm hands out again.
    """
    if pod.scheduler != scheduler:
        return False
    if pod.node and names.JOB_ID not in pod.annotations:
        return False  # whoever made it chose the node; nothing is left to decide
    if pod.gated or names.JOB_ID in pod.annotations:
        return True
    labels = namespace.labels if namespace else {}
    return "true" in (labels.get(names.MANAGED), pod.labels.get(names.MANAGED))


def membership(pod: Pod, workload: Workload | None) -> Membership | None:
    """The gang of a pod, or ``None`` while its Job has not been seen yet.

    ``workload`` is the pod's owning Job where that is known. An Indexed Job is a gang when all of
    its pods run at once (parallelism = completions, the rule of Kubernetes' own gang scheduling);
    any other Job is a bag of lone pods.
    """
    gang_id = pod.annotations.get(names.GANG_ID)
    if gang_id and names.JOB_ID in pod.annotations:
        return _placed_in(gang_id, pod)
    if name := pod.annotations.get(names.GANG):
        owner = pod.owner.uid if pod.owner else ""
        return Membership(f"{pod.namespace}/{name}/{owner}", GangKind.PODS, name)
    owner_job = pod.owner if pod.owner and pod.owner.kind == "Job" else None
    if owner_job and names.COMPLETION_INDEX in pod.annotations:
        if workload is None:
            return None
        if _is_gang(workload):
            return Membership(owner_job.uid, GangKind.JOB, owner_job.name)
    return lone(pod)


def lone(pod: Pod) -> Membership:
    """The pod is a gang by itself."""
    return Membership(pod.uid, GangKind.POD, pod.name)


def _placed_in(gang_id: str, pod: Pod) -> Membership:
    """What was written at the release: the pod's owner may be gone or have let it go since."""
    if name := pod.annotations.get(names.GANG):
        return Membership(gang_id, GangKind.PODS, name)
    if gang_id == pod.uid:
        return lone(pod)
    return Membership(gang_id, GangKind.JOB, pod.labels.get(names.JOB_NAME_LABEL, pod.name))


def _is_gang(job: Workload) -> bool:
    return job.indexed and job.completions == job.parallelism and (job.completions or 0) > 1


def form(member: Membership, pods: Iterable[Pod], workload: Workload | None) -> Gang:
    """The gang that these pods make, its size, and what is wrong with it, if anything."""
    members = tuple(sorted(pods, key=_rank_order))
    size, problem = 1, ""
    if member.kind is GangKind.JOB:
        told = [int_or(p.annotations.get(names.RANKS), 0) for p in members]
        size = (workload.completions if workload else None) or max(told, default=0) or len(members)
        problem = _size_contradiction(members, size, f"Job {member.name!r} has {size} completions")
        if workload and not _is_gang(workload) and not problem:
            problem = (
                f"Job {member.name!r} now has parallelism {workload.parallelism} and completions "
                f"{size}, but its pods were made to start together: make both equal again, or "
                "delete the Job and create it anew"
            )
    elif member.kind is GangKind.PODS:
        size, problem = _declared_size(member.name, members)
    return Gang(
        id=member.id,
        kind=member.kind,
        namespace=members[0].namespace if members else "",
        name=member.name,
        size=size,
        pods=members,
        workload=workload,
        problem=problem,
    )


def rank_key(pod: Pod) -> int | None:
    """The rank that the workload itself gave to the pod: its completion or pod index."""
    for text in (pod.annotations.get(names.COMPLETION_INDEX), pod.labels.get(_STATEFUL_INDEX)):
        if (rank := int_or(text, -1)) >= 0:
            return rank
    return None


def _rank_order(pod: Pod) -> tuple[int, tuple[tuple[int, int, str], ...], float]:
    key = rank_key(pod)
    return (0, natural(pod.name), pod.created) if key is None else (key, (), pod.created)


def _declared_size(gang: str, pods: tuple[Pod, ...]) -> tuple[int, str]:
    if not gang.isprintable() or len(gang.encode()) > _MOST_NAME_BYTES:
        return 0, (
            f"annotation {names.GANG} of {len(gang)} characters is no name for a gang: write at "
            f"most {_MOST_NAME_BYTES} bytes of printable text"
        )
    texts = sorted({p.annotations.get(names.GANG_SIZE, "") for p in pods})
    if len(texts) > 1:
        listed = ", ".join(repr(t) if t else "none" for t in texts)
        return 0, (
            f"the pods of gang {gang!r} disagree on {names.GANG_SIZE} ({listed}): "
            "give all of them the same number"
        )
    size = int_or(texts[0], 0) if texts else 0
    if not 1 <= size <= 65533:
        return 0, (
            f"gang {gang!r} has {names.GANG_SIZE} {texts[0] if texts else ''!r}: "
            "write how many pods the gang has, 1 or more"
        )
    live = [p for p in pods if not p.terminal and not p.deleting]
    if len(live) > size:
        return size, (
            f"gang {gang!r} has {names.GANG_SIZE} {size} but {len(live)} pods exist: "
            f"raise the size or delete pods (the last is {live[-1].name!r})"
        )
    return size, ""


def _size_contradiction(pods: tuple[Pod, ...], size: int, fact: str) -> str:
    for pod in pods:
        declared = pod.annotations.get(names.GANG_SIZE)
        if declared is not None and declared != str(size):
            return (
                f"annotation {names.GANG_SIZE} is {declared!r} but {fact}: "
                "leave the annotation out, the Job says its size itself"
            )
    return ""


def int_or(text: str | None, default: int) -> int:
    """The text as a number of plain ASCII digits, or the default."""
    if text and text.isascii() and text.isdigit() and len(text) < 10:
        return int(text)
    return default
