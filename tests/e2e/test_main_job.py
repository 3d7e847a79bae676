"""The main job: pods of a gang wait behind a gate, Slurm allocates, pods run where it said.

Each statement is read back from the API server and from Slurm.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from extender.domain import wellknown as names
from tests.e2e.jobs import gang, indexed_job, plain_job, pod
from tests.e2e.site import (
    ML,
    PLAIN,
    VISION,
    Site,
    condition,
    eventually,
    node_of,
    nodes_of,
    number,
    steadily,
)

pytestmark = pytest.mark.e2e


# -- a gang is one Slurm job


def test_an_indexed_job_is_one_slurm_job_of_its_size(site: Site) -> None:
    site.submit(ML, indexed_job("train", 4))
    pods = site.bound(4)
    job = site.job("train", "RUNNING")
    assert sorted(map(node_of, pods)) == sorted(nodes_of(job))
    assert (number(job["tasks"]), number(job["cpus"])) == (4, 16)
    assert "gres/gpu=32" in job["tres_alloc_str"].split(",")
    assert "EXTERNAL_JOB" in job["flags"]
    assert len(site.tap.submits()) == 1


def test_pods_that_name_a_gang_are_one_slurm_job(site: Site) -> None:
    site.submit(ML, *gang("pair", 2))
    assert sorted(map(node_of, site.bound(2))) == sorted(nodes_of(site.job("pair", "RUNNING")))


def test_a_lone_pod_is_a_gang_of_one(site: Site) -> None:
    site.submit(ML, pod("alone", gpus=2))
    (bound,) = site.bound(1)
    job = site.job("alone", "RUNNING")
    assert [node_of(bound)] == nodes_of(job)
    assert "gres/gpu=2" in job["tres_alloc_str"].split(",")


def test_pods_of_a_plain_job_are_a_slurm_job_each(site: Site) -> None:
    """They need nothing of each other, so one that fits need not wait for those that do not."""
    site.submit(ML, plain_job("bag", 3))
    pods = site.bound(3)
    jobs = {job["name"]: nodes_of(job) for job in site.jobs()}
    assert jobs == {p["metadata"]["name"]: [node_of(p)] for p in pods}


def test_gangs_of_one_name_in_two_namespaces_are_two(site: Site) -> None:
    site.submit(ML, *gang("pair", 2))
    site.submit(VISION, *gang("pair", 2))
    theirs = [{node_of(p) for p in site.bound(2, namespace)} for namespace in (ML, VISION)]
    jobs = {job["user_name"]: set(nodes_of(job)) for job in site.jobs("pair")}
    assert jobs == {"alice": theirs[0], "carol": theirs[1]}


def test_pods_are_gated_when_they_are_created(site: Site) -> None:
    with site.watch() as watch:
        site.submit(ML, indexed_job("train", 2))
        site.bound(2)
    for events in watch.by_pod().values():
        first = events[0]
        assert first.kind == "ADDED"
        assert first.gates == [names.GATE]
        assert first.pod["spec"]["schedulerName"] == names.SCHEDULER
        assert names.TAINT in [t.get("key") for t in first.pod["spec"]["tolerations"]]


def test_a_pod_may_opt_in_by_itself(site: Site) -> None:
    """In a namespace that did not; whose name it runs under is still the namespace's to say."""
    site.submit(PLAIN, pod("volunteer", labels={names.MANAGED: "true"}))
    (bound,) = site.bound(1, PLAIN)
    job = site.job("volunteer", "RUNNING")
    assert (nodes_of(job), job["user_name"]) == ([node_of(bound)], "bob")


# -- under whose name, and in which queue


def test_the_namespace_says_user_and_account(site: Site) -> None:
    """A namespace never runs as root, as Slurm's own user or as another namespace's user."""
    site.submit(ML, pod("of-ml"))
    site.submit(VISION, pod("of-vision"))
    site.bound(1, ML)
    site.bound(1, VISION)
    told = {
        job["name"]: (job["user_name"], job["group_name"], job["account"]) for job in site.jobs()
    }
    assert told == {
        "of-ml": ("alice", "alice", "ml"),
        "of-vision": ("carol", "carol", "vision"),
    }


@pytest.fixture
def queues(site: Site) -> Iterator[None]:
    """A second partition and a reservation in Slurm."""
    site.slurm.exec(
        "scontrol", "create", "partitionname=debug", "nodes=ALL", "state=UP", "maxtime=60"
    )
    site.slurm.exec(
        "scontrol", "create", "reservation", "reservationname=course", "users=alice",
        "starttime=now", "duration=60", "nodes=node-08,node-09", "flags=ignore_jobs",
    )  # fmt: skip
    yield
    site.slurm.cancel_all()
    site.slurm.exec("scontrol", "delete", "reservation=course")
    site.slurm.exec("scontrol", "delete", "partition=debug")


@pytest.mark.usefixtures("queues")
def test_annotations_choose_the_queue(site: Site) -> None:
    asked = {
        names.ACCOUNT: "ml",
        names.PARTITION: "debug",
        names.QOS: "high",
        names.RESERVATION: "course",
        names.TIME_LIMIT: "0:45:00",
        names.COMMENT: "for the course",
    }
    site.submit(ML, indexed_job("lesson", 2, annotations=asked))
    pods = site.bound(2)
    job = site.job("lesson", "RUNNING")
    assert (job["account"], job["partition"], job["qos"]) == ("ml", "debug", "high")
    assert (job["resv_name"], number(job["time_limit"])) == ("course", 45)
    assert job["comment"] == "for the course"
    assert [node_of(p) for p in pods] == ["node-08", "node-09"]


def test_time_limits(site: Site) -> None:
    """Also the unlimited one, which Slurm writes as infinite and not as a number."""
    limits: dict[str, tuple[dict[str, str], int | None]] = {  # annotations and the minutes in Slurm
        "of-the-partition": ({}, 60),
        "of-the-job": ({}, 2),  # its deadline of 90 s, rounded up
        "of-its-own": ({names.TIME_LIMIT: "1-02:30:00"}, 1590),
        "unlimited": ({names.TIME_LIMIT: "UNLIMITED"}, None),
    }
    for name, (asked, _) in limits.items():
        job = indexed_job(name, 2, annotations=asked)
        if name in ("of-the-job", "of-its-own"):
            job["spec"]["activeDeadlineSeconds"] = 90
        site.submit(ML, job)
    site.bound(8)
    found = {job["name"]: number(job["time_limit"]) for job in site.jobs()}
    assert found == {name: minutes for name, (_, minutes) in limits.items()}


# -- all or none


def test_an_incomplete_gang_asks_for_nothing(site: Site) -> None:
    """Two pods of three hold no node and stand in no queue; the third starts all of them."""
    first, second, third = gang("trio", 3)
    site.submit(ML, first, second)
    site.gated(2)
    steadily(site.jobs, lambda jobs: not jobs, 2, "no Slurm job for two pods of three")
    assert not site.tap.submits()
    site.submit(ML, third)
    assert sorted(map(node_of, site.bound(3))) == sorted(nodes_of(site.job("trio", "RUNNING")))


def test_a_gang_queues_while_the_cluster_is_full_and_starts_by_itself(site: Site) -> None:
    """kube-scheduler never asks while no node is free, and no Kubernetes event tells of the
    start: both come from Slurm alone. No pod is released before all nodes are there."""
    filler = site.fill(13)
    before = site.filter_calls()
    with site.watch() as watch:
        site.submit(ML, indexed_job("train", 4))
        site.gated(4)
        assert nodes_of(site.job("train", "PENDING")) == []
        steadily(
            lambda: [p["spec"].get("schedulingGates") for p in site.pods()],
            all,
            2,
            "all four pods gated, though three nodes are free",
        )
        assert site.filter_calls() == before
        site.cancel(filler)
        pods = site.bound(4)
    job = site.job("train", "RUNNING")
    started = number(job["start_time"]) or 0
    released = [next(e.at for e in events if not e.gates) for events in watch.by_pod().values()]
    assert len(released) == 4
    assert started <= min(released)
    assert max(released) < started + 5
    assert sorted(map(node_of, pods)) == sorted(nodes_of(job))
    assert len(site.tap.submits()) == 1


def test_slurms_reason_for_waiting_reaches_the_user(site: Site) -> None:
    """A limit of the QOS holds the gang back: its name is in the pod's condition and Event."""
    site.slurm.exec("sacctmgr", "-i", "modify", "qos", "high", "set", "GrpTRES=cpu=4")
    try:
        site.submit(ML, indexed_job("greedy", 2, annotations={names.QOS: "high"}))
        site.gated(2)
        eventually(
            lambda: site.jobs("greedy")[0]["state_reason"],
            lambda reason: reason == "QOSGrpCpuLimit",
            15,
            "Slurm's reason",
        )
        told = "waits: QOS 'high' has reached its limit of CPUs (Slurm: QOSGrpCpuLimit)"
        eventually(
            lambda: [condition(p) for p in site.pods()],
            lambda seen: all(told in message for *_, message in seen),
            15,
            "the condition of both pods",
        )
        eventually(
            lambda: site.events(about="greedy"),
            lambda seen: any(r == "Queued" and told in message for r, message in seen),
            5,
            "the Event of the Job",
        )
    finally:
        site.slurm.exec("sacctmgr", "-i", "modify", "qos", "high", "set", "GrpTRES=cpu=-1")
    site.bound(2)
