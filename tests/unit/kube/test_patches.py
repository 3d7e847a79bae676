"""The one patch that releases a pod."""

from __future__ import annotations

from typing import Any

from extender.domain import wellknown as names
from extender.domain.endings import disruption_of
from extender.domain.model import JobState
from extender.kube.patches import binding, condition, disruption, release
from tests.builders import pod

PIN = {"key": "metadata.name", "operator": "In", "values": ["n3"]}


def released(**more: Any) -> dict[str, Any]:
    return release(
        pod(2, **more),
        gang_id="train-uid",
        job_id=7,
        node="n3",
        rank=2,
        ranks=4,
        nodelist="n[1-4]",
        node_count=4,
    )


def terms(patch: dict[str, Any]) -> Any:
    affinity = patch["spec"]["affinity"]["nodeAffinity"]
    return affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]


def test_answers_pin_and_gate_go_in_one_write() -> None:
    patch = released()
    assert patch["metadata"]["uid"] == "train-2-uid"
    assert set(patch["metadata"]["annotations"]) == names.ANSWERS
    assert terms(patch) == [{"matchFields": [PIN]}]
    assert patch["spec"]["schedulingGates"] == [{"$patch": "delete", "name": names.GATE}]


def test_every_existing_term_is_pinned_and_otherwise_kept() -> None:
    zone = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
    field = {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n9"]}]}
    given = (zone, field)
    assert terms(released(node_affinity_terms=given)) == [
        {**zone, "matchFields": [PIN]},
        {"matchFields": [*field["matchFields"], PIN]},
    ]
    assert given == (zone, field)


def test_a_pod_without_gate_gets_the_answers_only() -> None:
    assert "spec" not in released(gates=())


def test_binding_names_the_uid() -> None:
    body = binding("ml", "train-2", "u", "n3")
    assert body["metadata"] == {"name": "train-2", "namespace": "ml", "uid": "u"}
    assert body["target"]["name"] == "n3"


def test_condition_is_bounded() -> None:
    body = condition("u", placed=False, reason="Invalid", message="x" * 5000, at="now")
    (told,) = body["status"]["conditions"]
    assert (told["type"], told["status"], len(told["message"])) == (names.CONDITION, "False", 1024)


def disrupted(**more: Any) -> dict[str, Any]:
    why = disruption_of(JobState.TIMEOUT)
    return disruption(pod(1, **more), why, message="Slurm job 7 is TIMEOUT", at="now")


def test_a_pod_is_told_slurm_s_state_in_the_type_of_a_condition() -> None:
    body = disrupted(node="n1")
    kinds = [(c["type"], c["status"], c["reason"]) for c in body["status"]["conditions"]]
    assert kinds == [
        (names.DISRUPTION_TARGET, "True", "SlurmTimeout"),
        (names.TIMEOUT, "True", "SlurmTimeout"),
    ]
    assert body["metadata"]["uid"] == "train-1-uid"


def test_only_a_pod_that_no_kubelet_has_is_failed_at_once() -> None:
    assert disrupted()["status"]["phase"] == "Failed"
    assert "phase" not in disrupted(node="n1")["status"]
