"""Kubernetes' and Slurm's books: clean ones give nothing, each kind of disagreement its finding."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from extender.domain import wellknown as names
from extender.domain.books.compare import disagreements
from extender.domain.books.findings import Books, Finding, Kind, Terms
from extender.domain.model import (
    GangKind,
    Job,
    JobState,
    Namespace,
    Node,
    Owner,
    Pod,
    Resources,
    SlurmNode,
)
from extender.domain.policy import Defaults
from tests.builders import GIB, node, pod, share, stamp, workload
from tests.builders import job as slurm_job

NODES = ("n0", "n1", "n2", "n3")


def job(state: JobState = JobState.RUNNING, *, id: int = 7, **more: Any) -> Job:
    shares = more.pop("shares", tuple(share(n) for n in NODES))
    return slurm_job(
        state, *(shares if state is JobState.RUNNING else ()), id=id, user="alice", **more
    )


def on(index: int, to: str = "", *, job_id: int = 7, **more: Any) -> Pod:
    """A pod that Sluice placed and bound, with all of its answers."""
    to = to or NODES[index]
    answers = {
        names.GANG_ID: "train-uid",
        names.JOB_ID: str(job_id),
        names.NODE: to,
        names.RANK: str(index),
        names.RANKS: "4",
        names.NODELIST: "n[0-3]",
        names.NODES: "4",
    }
    answers |= more.pop("annotations", {})
    more = {"node": to, "phase": "Running", "labels": {names.JOB_NAME_LABEL: "train"}, **more}
    return pod(index, gates=(), annotations=answers, **more)


def without(p: Pod, *keys: str) -> Pod:
    return replace(p, annotations={k: v for k, v in p.annotations.items() if k not in keys})


def managed(name: str, **more: Any) -> Node:
    taints = more.pop("taints", ({"key": names.TAINT, "effect": "NoSchedule"},))
    return node(name, labels=more.pop("labels", {names.MANAGED: "true"}), taints=taints, **more)


def in_slurm(name: str, *states: str, **more: Any) -> SlurmNode:
    return SlurmNode(
        name=name,
        states=(*(states or ("MIXED",)), "EXTERNAL", "DYNAMIC_NORM"),
        address=more.pop("address", "10.0.0.1"),
        cpus=more.pop("cpus", 64),
        memory_mib=more.pop("memory_mib", 512 * 1024),
        gpus=more.pop("gpus", 8),
        features=more.pop("features", ("k8s",)),
        **more,
    )


WAITING = tuple(pod(i, job="next") for i in range(2))
PODS = tuple(on(i) for i in range(4))
NEXT = replace(job(JobState.PENDING, id=8), stamp=replace(stamp(2), gang="next", id="next-uid"))
PAST = replace(job(JobState.CANCELLED, id=6), stamp=replace(stamp(2), gang="past", id="past-uid"))
ML = Namespace("ml", {names.MANAGED: "true"}, {names.USER: "alice", names.ACCOUNT: "ml"})
CLEAN = Books(
    pods=(*PODS, *WAITING),
    workloads=(workload(4), replace(workload(2), name="next", uid="next-uid")),
    namespaces=(ML, Namespace("default")),
    nodes=(*(managed(n) for n in NODES), node("control-plane", gpus=0)),
    jobs=(job(), NEXT, PAST),
    slurm_nodes=tuple(in_slurm(n) for n in NODES),
)


def found(books: Books, **terms: Any) -> list[Finding]:
    return list(disagreements(books, Terms(**terms)))


def books(**changed: Any) -> Books:
    return replace(CLEAN, **changed)


def first(**changed: Any) -> Books:
    """The books with the first pod of the running gang changed."""
    return books(pods=(replace(PODS[0], **changed), *PODS[1:], *WAITING))


def with_job(changed: Job, *more: Job) -> Books:
    return books(jobs=(changed, NEXT, PAST, *more))


def with_node(changed: Node) -> Books:
    return books(nodes=(changed, *CLEAN.nodes[1:]))


def with_slurm_node(changed: SlurmNode) -> Books:
    return books(slurm_nodes=(changed, *CLEAN.slurm_nodes[1:]))


STRANGER = replace(in_slurm("n9", "IDLE"))
EIGHT = tuple(share(n) for n in ("n4", "n5", "n6", "n7"))
GPU_POD = Pod(
    namespace="other",
    name="notebook",
    uid="notebook-uid",
    node="n3",
    phase="Running",
    scheduler="default-scheduler",
    resources=Resources(1000, GIB, 2),
)
LONE = pod(None, job="lone", node="n0", gates=(), annotations={}, gpus=0)

# What is wrong, and kind, pod, job, node and a part of the message of the one finding that tells it
CASES: dict[str, tuple[Books, Kind, str, int | None, str, str]] = {
    "its pods are gone": (
        books(pods=WAITING),
        Kind.JOB_WITHOUT_PODS, "", 7, "", "RUNNING in Slurm, and no pod",
    ),
    "its pods have ended": (
        books(pods=(*(replace(p, phase="Succeeded") for p in PODS), *WAITING)),
        Kind.JOB_WITHOUT_PODS, "", 7, "", "no pod of its gang is alive",
    ),
    "its pods are gone while it waits": (
        books(pods=PODS),
        Kind.JOB_WITHOUT_PODS, "", 8, "", "PENDING",
    ),
    "only younger pods of the name are left": (
        books(
            pods=(*PODS, pod(None, annotations={names.GANG: "next", names.GANG_SIZE: "1"}, created=200.0)),
            jobs=(job(), PAST, replace(NEXT, stamp=stamp(kind=GangKind.PODS, id="ml/next/"))),
        ),
        Kind.JOB_WITHOUT_PODS, "", 8, "", "PENDING",
    ),
    "a second job of the gang": (
        with_job(job(), job(JobState.PENDING, id=9)),
        Kind.TWO_JOBS, "", 9, "", "has job 7 too",
    ),
    "its nodes were kept for a restart that did not come": (
        books(
            pods=WAITING,
            jobs=(job(stamp=stamp(started=True, hold=60.0, held=1000.0)), NEXT),
            at=1061.0,
        ),
        Kind.JOB_WITHOUT_PODS, "", 7, "", "no pod of its gang is alive",
    ),
    "it does not go": (
        books(
            pods=(replace(PODS[0], deleting=True, gone_by=1000.0), *WAITING),
            jobs=(job(JobState.CANCELLED), NEXT),
            at=1061.0,
        ),
        Kind.POD_JOB_ENDED, "train-0", 7, "n0", "is CANCELLED, and the pod lives",
    ),
    "the stamp says ended": (
        with_job(job(stamp=stamp(started=True, outcome="all pods have ended"))),
        Kind.JOB_NOT_ENDED, "", 7, "", "all pods have ended",
    ),
    "a damaged stamp, and no pods": (
        with_job(job(), replace(job(id=9), stamp=None, smudged=True)),
        Kind.JOB_STAMP, "", 9, "", "of user 'alice', and its stamp cannot be read",
    ),
    "another user": (
        with_job(replace(job(), user="bob")),
        Kind.JOB_USER, "", 7, "", "user 'bob', its namespace maps to 'alice'",
    ),
    "bound elsewhere": (
        first(node="n9"),
        Kind.POD_NODE_GONE, "train-0", 7, "n9", "Kubernetes does not have",
    ),
    "bound to another node": (
        first(node="control-plane"),
        Kind.POD_ELSEWHERE, "train-0", 7, "control-plane", "placed it on node n0",
    ),
    "the gate is gone": (
        books(pods=(*PODS, replace(WAITING[0], gates=(), labels={names.GATED: "true"}), WAITING[1])),
        Kind.POD_UNGATED, "next-0", None, "", "gate is gone",
    ),
    "half of the answers": (
        books(pods=(without(PODS[0], names.RANKS), *PODS[1:], *WAITING)),
        Kind.POD_ANSWERS, "train-0", 7, "n0", f"lacks {names.RANKS}",
    ),
    "an answer that is no number": (
        books(pods=(on(0, annotations={names.JOB_ID: "seven"}), *PODS[1:], *WAITING)),
        Kind.POD_ANSWERS, "train-0", None, "n0", f"no number in {names.JOB_ID}",
    ),
    "a rank twice": (
        books(pods=(*PODS[:3], on(3, annotations={names.RANK: "0"}), *WAITING)),
        Kind.SAME_RANK, "train-3", 7, "", "rank 0, and so has pod train-0",
    ),
    "its own job beside the gang's": (
        books(
            pods=(on(0, job_id=9, annotations={names.GANG_ID: "other-uid"}), *PODS[1:], *WAITING),
            jobs=(job(), NEXT, replace(job(id=9), stamp=stamp(id="third-uid"))),
        ),
        Kind.POD_JOB_FOREIGN, "train-0", 9, "n0", "gang ml/train",
    ),
    "one of four is not released": (
        books(pods=(*PODS[:3], pod(3), *WAITING)),
        Kind.GANG_WAITS, "train-3", 7, "", "3 pods are placed and 1 still wait",
    ),
    "none is released": (
        books(pods=(*(pod(i) for i in range(4)), *WAITING)),
        Kind.GANG_WAITS, "train-0", 7, "", "4 still wait",
    ),
    "never gated, and not answered": (
        books(pods=(*(pod(i, gates=()) for i in range(4)), *WAITING)),
        Kind.GANG_WAITS, "train-0", 7, "", "4 still wait",
    ),
    "Slurm lacks the node": (
        books(slurm_nodes=CLEAN.slurm_nodes[1:]),
        Kind.NODE_NOT_IN_SLURM, "", None, "n0", "Slurm does not have it",
    ),
    "Kubernetes lacks the node": (
        books(slurm_nodes=(*CLEAN.slurm_nodes, STRANGER)),
        Kind.NODE_NOT_IN_KUBERNETES, "", None, "n9", "Kubernetes does not have it",
    ),
    "the node is not managed": (
        books(slurm_nodes=(*CLEAN.slurm_nodes, replace(STRANGER, name="control-plane"))),
        Kind.NODE_NOT_IN_KUBERNETES, "", None, "control-plane", "without the label",
    ),
    "more CPUs": (
        with_slurm_node(in_slurm("n0", cpus=65)),
        Kind.NODE_LARGER_IN_SLURM, "", None, "n0", "65 CPUs in Slurm, 64",
    ),
    "more memory": (
        with_slurm_node(in_slurm("n0", memory_mib=512 * 1024 + 1)),
        Kind.NODE_LARGER_IN_SLURM, "", None, "n0", "524289 MiB in Slurm, 524288",
    ),
    "more GPUs": (
        with_node(managed("n0", gpus=7)),
        Kind.NODE_LARGER_IN_SLURM, "", None, "n0", "8 GPUs in Slurm, 7",
    ),
    "another address": (
        with_node(managed("n0", address="10.0.0.2")),
        Kind.NODE_ADDRESS, "", None, "n0", "10.0.0.1 in Slurm, 10.0.0.2",
    ),
    "drained": (
        with_slurm_node(in_slurm("n0", "MIXED", "DRAIN", reason="fan")),
        Kind.NODE_OUT_OF_SERVICE, "", None, "n0", "DRAIN in Slurm (fan), with 1 living pods",
    ),
    "down": (
        with_slurm_node(in_slurm("n0", "DOWN", "NOT_RESPONDING")),
        Kind.NODE_OUT_OF_SERVICE, "", None, "n0", "DOWN+NOT_RESPONDING",
    ),
    "no taint": (
        with_node(managed("n0", taints=())),
        Kind.NODE_UNTAINTED, "", None, "n0", "lacks the taint",
    ),
    "GPUs without Slurm": (
        books(pods=(*CLEAN.pods, GPU_POD)),
        Kind.POD_BESIDE_SLURM, "notebook", None, "n3", "2 GPUs",
    ),
    "GPUs of a node that its maker chose": (
        books(pods=(*CLEAN.pods, replace(GPU_POD, namespace="ml", scheduler="sluice"))),
        Kind.POD_BESIDE_SLURM, "notebook", None, "n3", "2 GPUs",
    ),
    "bound behind the gate": (
        books(pods=(*CLEAN.pods, replace(LONE, labels={names.GATED: "true"}))),
        Kind.POD_BESIDE_SLURM, "lone", None, "n0", "does not know it",
    ),
    "nobody's namespace": (
        books(namespaces=(ML, Namespace("vision", {names.MANAGED: "true"}))),
        Kind.NAMESPACE_USER, "", None, "", "'vision' has no Slurm user",
    ),
    "root's namespace": (
        books(namespaces=(ML, Namespace("vision", {names.MANAGED: "true"}, {names.USER: "root"}))),
        Kind.NAMESPACE_USER, "", None, "", "must never run jobs",
    ),
    "a pod's own opt-in in nobody's namespace": (
        books(pods=(*CLEAN.pods, replace(LONE, namespace="default", node="", gates=(names.GATE,)))),
        Kind.NAMESPACE_USER, "", None, "", "'default' has no Slurm user",
    ),
}  # fmt: skip

# What is wrong with a job, and what is told of each of its four pods
ALL_PODS: dict[str, tuple[Books, Kind, str]] = {
    "unknown": (books(jobs=(NEXT,)), Kind.POD_JOB_UNKNOWN, "neither slurmctld nor accounting"),
    "ended": (with_job(job(JobState.TIMEOUT)), Kind.POD_JOB_ENDED, "is TIMEOUT, and the pod lives"),
    "requeued": (with_job(job(JobState.PENDING)), Kind.POD_JOB_NOT_RUNNING, "is PENDING"),
    "suspended": (with_job(job(JobState.SUSPENDED)), Kind.POD_JOB_NOT_RUNNING, "is SUSPENDED"),
    "without a stamp": (
        with_job(replace(job(), stamp=None)), Kind.POD_JOB_FOREIGN, "no stamp that Sluice can read",
    ),
    "with a damaged stamp": (
        with_job(replace(job(), stamp=None, smudged=True)), Kind.POD_JOB_FOREIGN, "no stamp that",
    ),
    "of another cluster": (
        with_job(job(stamp=replace(stamp(), sluice="b"))), Kind.POD_JOB_FOREIGN, "cluster 'b'",
    ),
    "elsewhere": (
        books(
            jobs=(job(shares=EIGHT), NEXT),
            nodes=(*CLEAN.nodes, *(managed(s.name) for s in EIGHT)),
            slurm_nodes=(*CLEAN.slurm_nodes, *(in_slurm(s.name) for s in EIGHT)),
        ),
        Kind.POD_OUTSIDE_JOB, "does not hold the node",
    ),
}  # fmt: skip


def test_clean_books_give_nothing() -> None:
    assert found(CLEAN) == []


@pytest.mark.parametrize("wrong", CASES)
def test_each_disagreement_is_told_once(wrong: str) -> None:
    those, kind, pod_name, job_id, node_name, message = CASES[wrong]
    (finding,) = found(those)
    assert finding.kind is kind
    assert (finding.pod, finding.job, finding.node) == (pod_name, job_id, node_name)
    assert message in finding.message
    assert finding.advice
    assert finding.thing


@pytest.mark.parametrize("wrong", ALL_PODS)
def test_a_job_is_told_with_each_of_its_pods(wrong: str) -> None:
    those, kind, message = ALL_PODS[wrong]
    findings = found(those)
    assert [(f.kind, f.pod, f.job) for f in findings] == [(kind, p.name, 7) for p in PODS]
    assert all(message in f.message for f in findings)


def test_a_share_that_is_too_small_is_told_once_for_the_node() -> None:
    """Two pods on a node of which the job holds one pod's CPUs, memory or GPUs."""
    crowded = (*PODS[:3], on(3, "n2"), *WAITING)
    for short in ({"cpus": 4}, {"memory_mib": 8192}, {"gpus": 8}):
        on_n2 = replace(share("n2", 2), **short)
        shares = (share("n0"), share("n1"), on_n2, share("n3"))
        (finding,) = found(books(pods=crowded, jobs=(job(shares=shares), NEXT)))
        assert finding.kind is Kind.SHARE_EXCEEDED
        assert (finding.job, finding.node, finding.gang) == (7, "n2", "train")
        assert "has room for 1" in finding.message
        assert "train-3" in finding.advice


def test_a_job_in_the_place_of_a_lost_one_is_not_without_pods() -> None:
    """They are not taken over yet."""
    lost = job(JobState.LOST)
    for jobs in ((lost, job(JobState.PENDING, id=9), NEXT), (job(JobState.PENDING, id=9), NEXT)):
        findings = found(books(jobs=jobs))
        assert [(f.kind, f.pod) for f in findings] == [(Kind.POD_JOB_UNKNOWN, p.name) for p in PODS]


def test_pods_of_one_gang_in_two_live_jobs() -> None:
    split = (*PODS[:3], on(3, job_id=9), *WAITING)
    findings = found(books(pods=split, jobs=(job(), job(id=9), NEXT)))
    assert [(f.kind, f.job) for f in findings] == [(Kind.TWO_JOBS, 9), (Kind.GANG_SPLIT, None)]
    assert "7, 9" in findings[1].message


def test_a_node_that_was_never_ours_is_told_when_a_gang_got_it() -> None:
    elsewhere = job(id=9, shares=(share("c0"),), stamp=replace(stamp(1), id="third-uid"))
    third = on(0, "c0", job_id=9, annotations={names.GANG_ID: "third-uid"}, uid="third-0")
    strange = SlurmNode(name="c0", states=("MIXED",))
    findings = found(
        books(
            pods=(*CLEAN.pods, third),
            jobs=(*CLEAN.jobs, elsewhere),
            nodes=(*CLEAN.nodes, node("c0")),
            slurm_nodes=(*CLEAN.slurm_nodes, strange),
        )
    )
    assert [(f.kind, f.node) for f in findings] == [(Kind.NODE_NOT_IN_KUBERNETES, "c0")]
    assert "jobs 9 hold it" in findings[0].message


def test_a_node_that_left_is_told_with_the_jobs_and_the_pods_on_it() -> None:
    findings = found(books(nodes=CLEAN.nodes[1:]))
    assert [(f.kind, f.pod, f.node) for f in findings] == [
        (Kind.POD_NODE_GONE, "train-0", "n0"),
        (Kind.NODE_NOT_IN_KUBERNETES, "", "n0"),
    ]
    assert "jobs 7 hold it" in findings[1].message


# -- what is no disagreement

HEALTHY: dict[str, Books] = {
    "nothing at all": Books(),
    "pods that are ending, their job has ended": books(
        pods=(*(replace(p, deleting=True, gone_by=1000.0) for p in PODS), *WAITING),
        jobs=(job(JobState.PREEMPTED), NEXT),
        at=1059.0,
    ),
    "its nodes are kept for a restart, and no pod is there yet": books(
        pods=WAITING,
        jobs=(job(stamp=stamp(started=True, hold=60.0, held=1000.0)), NEXT),
        at=1059.0,
    ),
    "its nodes are kept for a restart": books(
        pods=(pod(0, created=1010.0), *WAITING),
        jobs=(job(stamp=stamp(started=True, hold=60.0, held=1000.0)), NEXT),
        at=1059.0,
    ),
    "pods that have ended keep their answers": books(
        pods=(*PODS, replace(on(0, job_id=3), phase="Failed", uid="old"), *WAITING)
    ),
    "a replacement waits while the pod before it is ending": books(
        pods=(*PODS[:3], replace(PODS[3], deleting=True), pod(3, uid="new", created=300.0), *WAITING)
    ),
    "a gang that is forming has no job": books(pods=(*PODS, *WAITING, pod(0, job="third"))),
    "pods without a gate wait": books(pods=(*PODS, *(replace(p, gates=()) for p in WAITING))),
    "the Job of pods that run is gone": books(workloads=CLEAN.workloads[1:]),
    "its Job has become a gang since": books(
        pods=(*PODS, WAITING[0]),
        jobs=(job(), replace(NEXT, stamp=stamp(1, kind=GangKind.POD, id="next-0-uid"))),
    ),
    "other pods on a managed node, without GPUs": books(
        pods=(*CLEAN.pods, replace(GPU_POD, resources=Resources(1000, GIB, 0)))
    ),
    "a DaemonSet's pod sees the GPUs": books(
        pods=(*CLEAN.pods, replace(GPU_POD, owner=Owner("DaemonSet", "exporter", "u")))
    ),
    "a static pod sees the GPUs": books(
        pods=(*CLEAN.pods, replace(GPU_POD, owner=Owner("Node", "n3", "u")))
    ),
    "GPU pods on a node that is not managed": books(
        pods=(*CLEAN.pods, replace(GPU_POD, node="control-plane"))
    ),
    "a node that slurmd serves": books(
        slurm_nodes=(*CLEAN.slurm_nodes, SlurmNode(name="c0", states=("IDLE",), features=("k8s",)))
    ),
    "a node that was retired": books(
        slurm_nodes=(*CLEAN.slurm_nodes, in_slurm("n9", "IDLE", "DRAIN"))
    ),
    "a drained node without pods": books(
        nodes=(*CLEAN.nodes, managed("n4")),
        slurm_nodes=(*CLEAN.slurm_nodes, in_slurm("n4", "IDLE", "DRAIN")),
    ),
    "a damaged stamp of a job that has ended": with_job(
        job(), replace(job(JobState.CANCELLED, id=9), stamp=None, smudged=True)
    ),
    "a job of somebody else": with_job(job(), replace(job(id=9), stamp=None)),
    "a job of another cluster": with_job(
        job(), job(id=9, shares=(), stamp=replace(stamp(id="x"), sluice="b"))
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", HEALTHY)
def test_what_is_no_disagreement(what: str) -> None:
    assert found(HEALTHY[what]) == []


def test_settings_say_what_is_to_agree() -> None:
    assert found(books(nodes=(managed("n0", taints=()), *CLEAN.nodes[1:])), taint=False) == []
    assert found(with_node(managed("n0", address="10.0.0.2")), manage=False) == []
    assert found(books(slurm_nodes=(*CLEAN.slurm_nodes, STRANGER)), feature="other") == []
    nobody = books(namespaces=(ML, Namespace("vision", {names.MANAGED: "true"})))
    assert found(nobody, defaults=Defaults(user="carol")) == []
    assert {f.kind for f in found(CLEAN, cluster="b")} == {Kind.POD_JOB_FOREIGN}
    assert found(CLEAN, scheduler="another") != []


def test_a_gang_that_is_being_released_does_not_look_as_if_it_stood_still() -> None:
    """The second look finds other pods waiting: it is another finding."""

    def released(count: int) -> Books:
        return books(pods=(*PODS[:count], *(pod(i) for i in range(count, 4)), *WAITING))

    (before,), (after,) = found(released(1)), found(released(2))
    assert before.identity != after.identity


def test_every_kind_is_in_the_tables() -> None:
    told = {kind for _, kind, *_ in [*CASES.values(), *ALL_PODS.values()]}
    assert set(Kind) - told == {Kind.SHARE_EXCEEDED, Kind.GANG_SPLIT}


def test_every_kind_is_in_the_manual() -> None:
    manual = (Path(__file__).parents[3] / "docs" / "operations.md").read_text()
    section = manual.partition("## When the books disagree")[2].partition("\n## ")[0]
    assert set(re.findall(r"`([A-Z]\w+)`", section)) == set(Kind)
