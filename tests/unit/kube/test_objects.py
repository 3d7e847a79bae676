"""Kubernetes' JSON to values: above all, what a pod really asks for."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from extender.domain import wellknown as names
from extender.domain.model import Owner, Pod, Resources
from extender.kube import objects

MIB = 1024**2


def read(**spec: Any) -> Pod:
    meta = {"name": "p", "namespace": "ml", "uid": "u", **spec.pop("metadata", {})}
    raw = {"metadata": meta, "spec": spec, "status": spec.pop("status", {})}
    return objects.pod(msgspec.json.decode(msgspec.json.encode(raw), type=objects.PodObject))


def asks(
    cpu: str = "0", memory: str = "0", gpus: str = "0", kind: str = "requests", **more: Any
) -> dict[str, Any]:
    return {"resources": {kind: {"cpu": cpu, "memory": memory, names.GPU_RESOURCE: gpus}}, **more}


SIDECAR = {"restartPolicy": "Always"}


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [
        ({"containers": [{}]}, Resources()),
        ({"containers": [asks("500m", "512Ki", "1")]}, Resources(500, 524288, 1)),
        ({"containers": [asks("1", "1Mi", "8", kind="limits")]}, Resources(1000, MIB, 8)),
        ({"containers": [asks("1"), asks("250m", "1Mi")]}, Resources(1250, MIB, 0)),
        ({"containers": [asks("1")], "initContainers": [asks("3"), asks("2")]}, Resources(3000)),
        ({"containers": [asks("2")], "initContainers": [asks("1", **SIDECAR)]}, Resources(3000)),
        (
            {"containers": [asks("2")], "initContainers": [asks("1", **SIDECAR), asks("4")]},
            Resources(5000),
        ),
        (
            {"containers": [asks("2")], "initContainers": [asks("4"), asks("1", **SIDECAR)]},
            Resources(4000),
        ),
        ({"containers": [asks("1")], "overhead": {"cpu": "100m", "memory": "1Mi"}}, Resources(1100, MIB)),
        (
            {"containers": [asks("1", "9Mi")], "resources": {"requests": {"cpu": "6"}}},
            Resources(6000, 9 * MIB),
        ),
        ({"containers": [{"resources": {"requests": {"cpu": 2}}}]}, Resources(2000)),
        ({"containers": [{"resources": {"requests": {"cpu": 0.5}}}]}, Resources(500)),
    ],
)  # fmt: skip
def test_what_a_pod_asks_for(spec: dict[str, Any], wanted: Resources) -> None:
    assert read(**spec).resources == wanted


@pytest.mark.parametrize(
    ("spec", "seconds"),
    [
        ({}, 30),
        ({"terminationGracePeriodSeconds": 120}, 120),
        ({"terminationGracePeriodSeconds": 0}, 0),
        ({"terminationGracePeriodSeconds": -1}, 1),
    ],
)
def test_how_long_a_pod_may_take_to_end(spec: dict[str, Any], seconds: int) -> None:
    assert read(**spec).grace_seconds == seconds


def test_a_pod_as_the_decisions_see_it() -> None:
    told = read(
        metadata={
            "creationTimestamp": "2026-12-01T10:00:00Z",
            "deletionTimestamp": "2026-12-01T10:00:05Z",
            "annotations": {names.GANG: "g", "huge": "x" * 100, names.COMPLETION_INDEX: "3"},
            "labels": {names.MANAGED: "true", "app": "x"},
            "ownerReferences": [
                {"kind": "Other", "name": "o", "uid": "1"},
                {"kind": "Job", "name": "train", "uid": "2", "controller": True},
            ],
        },
        schedulerName="sluice",
        schedulingGates=[{"name": names.GATE}, {"name": "theirs"}],
        nodeName="n1",
        affinity={
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"a": 1}]}
            }
        },
        status={
            "phase": "Failed",
            "containerStatuses": [
                {"state": {"terminated": {"exitCode": 0}}},
                {"state": {"terminated": {"exitCode": 4, "finishedAt": "2026-12-01T10:00:04Z"}}},
                {"state": {"terminated": {"exitCode": 3, "finishedAt": "2026-12-01T10:00:03Z"}}},
            ],
            "conditions": [{"type": "PodScheduled", "status": "False", "message": "no room"}],
        },
    )
    assert told == Pod(
        namespace="ml",
        name="p",
        uid="u",
        created=1796119200.0,
        labels={names.MANAGED: "true"},
        annotations={names.GANG: "g", names.COMPLETION_INDEX: "3"},
        owner=Owner("Job", "train", "2"),
        scheduler="sluice",
        gates=(names.GATE, "theirs"),
        node="n1",
        phase="Failed",
        deleting=True,
        gone_by=1796119205.0,
        exit_code=3,
        failed_at=1796119203.0,
        node_affinity_terms=({"a": 1},),
        scheduler_message="no room",
    )
    assert told.gated
    assert told.terminal


def test_a_job() -> None:
    raw = b"""{"metadata": {"name": "train", "namespace": "ml", "uid": "u"},
               "spec": {"completions": 4, "parallelism": 4, "completionMode": "Indexed",
                        "suspend": true, "activeDeadlineSeconds": 90},
               "status": {"conditions": [{"type": "Complete", "status": "True"}]}}"""
    told = objects.workload(msgspec.json.decode(raw, type=objects.JobObject))
    assert (told.completions, told.parallelism, told.indexed) == (4, 4, True)
    assert (told.suspended, told.finished, told.active_deadline_seconds) == (True, True, 90)


def test_a_node() -> None:
    raw = b"""{"metadata": {"name": "n1", "labels": {"a": "b"}},
               "spec": {"unschedulable": true, "taints": [{"key": "t", "effect": "NoSchedule"}]},
               "status": {"allocatable": {"cpu": "63500m", "memory": "1Gi", "nvidia.com/gpu": "8"},
                          "addresses": [{"type": "Hostname", "address": "n1"},
                                        {"type": "InternalIP", "address": "10.0.0.7"}],
                          "conditions": [{"type": "Ready", "status": "Unknown"}]}}"""
    told = objects.node(msgspec.json.decode(raw, type=objects.NodeObject))
    assert (told.cpu_milli, told.memory_bytes, told.gpus) == (63500, 1024**3, 8)
    assert (told.address, told.ready, told.unschedulable) == ("10.0.0.7", False, True)
    assert told.taints == ({"key": "t", "effect": "NoSchedule"},)


CONVERT: list[tuple[Any, Any]] = [
    (objects.PodObject, objects.pod),
    (objects.JobObject, objects.workload),
    (objects.NodeObject, objects.node),
    (objects.NamespaceObject, objects.namespace),
]


@pytest.mark.parametrize(("kind", "convert"), CONVERT)
def test_nulls_are_as_good_as_nothing(kind: Any, convert: Any) -> None:
    raw = b"""{"metadata": {"name": "x", "labels": null, "annotations": null, "ownerReferences": null,
                            "deletionTimestamp": null},
               "spec": {"containers": null, "tolerations": null, "schedulingGates": null,
                        "taints": null, "affinity": null},
               "status": {"conditions": null, "containerStatuses": null, "allocatable": null}}"""
    assert convert(msgspec.json.decode(raw, type=kind)).name == "x"
