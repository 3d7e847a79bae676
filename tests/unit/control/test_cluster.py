"""The memory of Kubernetes: what order the watches tell things in must not matter."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import msgspec
import pytest

from extender.control.cluster import Cluster
from extender.domain import wellknown as names
from extender.domain.model import Namespace
from tests.builders import node, pod, workload

ML = Namespace("ml", {names.MANAGED: "true"})


@pytest.fixture
def touched() -> list[str]:
    return []


@pytest.fixture
def cluster(touched: list[str]) -> Cluster:
    return Cluster("sluice", touched.append)


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_pods_jobs_and_namespaces_in_any_order(cluster: Cluster, order: tuple[int, ...]) -> None:
    def pods_seen() -> None:
        for i in range(4):
            cluster.pod_seen(pod(i))

    tell: list[Callable[[], None]] = [
        pods_seen,
        lambda: cluster.workload_seen(workload(4)),
        lambda: cluster.namespace_seen(ML),
    ]
    for i in order:
        tell[i]()
    gang = cluster.gang("train-uid")
    assert gang is not None
    assert (gang.size, len(gang.pods)) == (4, 4)


def test_a_namespace_that_opts_out_lets_its_pods_go(cluster: Cluster, touched: list[str]) -> None:
    cluster.namespace_seen(ML)
    cluster.pod_seen(pod(None, gates=()))
    assert cluster.gang_ids() == ["train-uid"]
    touched.clear()
    cluster.namespace_seen(Namespace("ml"))
    assert cluster.gang_ids() == []
    assert touched == ["train-uid"]


def test_a_gang_goes_with_its_last_pod(cluster: Cluster, touched: list[str]) -> None:
    cluster.namespace_seen(ML)
    cluster.workload_seen(workload(2))
    for i in range(2):
        cluster.pod_seen(pod(i))
    cluster.pod_gone(pod(0))
    assert cluster.gang("train-uid") is not None
    touched.clear()
    cluster.pod_gone(pod(1))
    assert cluster.gang("train-uid") is None
    assert touched == ["train-uid"]


def test_an_older_event_does_not_undo_an_answer(cluster: Cluster) -> None:
    """The watch may tell of the pod before our patch after the patch was answered."""
    cluster.namespace_seen(ML)
    cluster.workload_seen(workload(2))
    cluster.pod_seen(pod(0))
    cluster.answered(pod(0), {names.JOB_ID: "7", names.NODE: "n0", names.RANK: "0"})
    cluster.pod_seen(pod(0, phase="Pending"))
    assert cluster.pods["train-0-uid"].annotations[names.JOB_ID] == "7"
    assert not cluster.pods["train-0-uid"].gated
    newer = pod(0, gates=(), annotations={names.JOB_ID: "7", names.NODE: "n0", names.RANK: "0"})
    cluster.pod_seen(newer)
    assert cluster.pods["train-0-uid"] == newer


def test_a_pod_of_the_same_name_is_another_pod(cluster: Cluster) -> None:
    cluster.namespace_seen(ML)
    cluster.pod_seen(pod(None, uid="old"))
    cluster.pod_seen(pod(None, uid="new"))
    cluster.pod_gone(pod(None, uid="old"))
    found = cluster.find_pod("ml", "train")
    assert found is not None
    assert found.uid == "new"


def test_a_change_that_nothing_depends_on_touches_nobody(
    cluster: Cluster, touched: list[str]
) -> None:
    cluster.namespace_seen(ML)
    cluster.pod_seen(pod(None))
    touched.clear()
    cluster.pod_seen(pod(None))
    assert touched == []


def test_what_fits_is_worked_out_again_when_a_node_changes(cluster: Cluster) -> None:
    cluster.node_seen(node("n0"))
    assert cluster.fit([pod(0)]).unfit == frozenset()
    cluster.node_seen(node("n0", unschedulable=True))
    assert cluster.fit([pod(0)]).unfit == {"n0"}
    cluster.node_gone(node("n0"))
    assert cluster.fit([pod(0)]).sizes == ()


def test_it_is_known_since_when_a_node_is_gone(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    began = cluster.gone_since("n0")
    for away in range(3):
        cluster.node_seen(node("n0"))
        monkeypatch.setattr("time.time", lambda away=away: began + 3000 + away)
        cluster.node_gone(node("n0"))
        assert cluster.gone_since("n0") == began + 3000 + away
    assert cluster.gone_since("never seen") == began
    monkeypatch.setattr("time.time", lambda: began + 9000)
    cluster.node_gone(node("n1"))
    assert cluster._gone == {}


def test_pods_of_other_gangs_are_not_touched(cluster: Cluster, touched: list[str]) -> None:
    cluster.namespace_seen(ML)
    for name in ("a", "b"):
        cluster.pod_seen(pod(None, job=name))
    touched.clear()
    cluster.pod_seen(msgspec.structs.replace(pod(None, job="a"), phase="Running"))
    assert touched == ["a-uid"]


def test_a_job_that_goes_after_its_pods_is_told_of(cluster: Cluster, touched: list[str]) -> None:
    """Foreground deletion, as by ttlSecondsAfterFinished: the gang is kept until the Job goes."""
    cluster.namespace_seen(ML)
    cluster.workload_seen(workload(1))
    cluster.pod_seen(pod(0))
    cluster.pod_gone(pod(0))
    touched.clear()
    cluster.workload_gone(workload(1))
    assert touched == ["train-uid"]


def test_an_owner_in_another_namespace_is_not_believed(cluster: Cluster) -> None:
    cluster.namespace_seen(ML)
    cluster.namespace_seen(Namespace("evil", {names.MANAGED: "true"}))
    cluster.workload_seen(workload(2))
    cluster.pod_seen(pod(0, namespace="evil", uid="forged"))
    cluster.pod_seen(pod(0))
    cluster.pod_seen(pod(1))
    gang = cluster.gang("train-uid")
    assert gang is not None
    assert [p.namespace for p in gang.pods] == ["ml", "ml"]
    assert cluster.gang_of("forged") == "forged"


def test_nothing_is_kept_of_pods_whose_job_never_appears(cluster: Cluster) -> None:
    cluster.namespace_seen(ML)
    cluster.pod_seen(pod(0))
    cluster.pod_gone(pod(0))
    assert cluster._unowned == {}


def test_a_job_whose_parallelism_is_raised_keeps_running_pod_by_pod(cluster: Cluster) -> None:
    cluster.namespace_seen(ML)
    cluster.workload_seen(workload(4, parallelism=2))
    for i in (0, 1):
        cluster.pod_seen(pod(i))
    cluster.workload_seen(workload(4))
    for i in (2, 3):
        cluster.pod_seen(pod(i))
    assert sorted(cluster.gang_ids()) == [f"train-{i}-uid" for i in range(4)]
    cluster.workload_gone(workload(4))
    assert cluster._bags == set()


def test_a_forged_owner_does_not_break_up_the_gang(cluster: Cluster) -> None:
    cluster.namespace_seen(ML)
    cluster.workload_seen(workload(2))
    cluster.pod_seen(pod(0, namespace="evil", uid="forged"))
    for i in range(2):
        cluster.pod_seen(pod(i))
    assert cluster.gang_of("train-1-uid") == "train-uid"


def test_a_forged_owner_without_an_index_does_not_break_up_the_gang(cluster: Cluster) -> None:
    cluster.namespace_seen(ML)
    cluster.workload_seen(workload(2))
    owner = pod(0).owner
    cluster.pod_seen(pod(None, namespace="evil", uid="forged", owner=owner))
    for i in range(2):
        cluster.pod_seen(pod(i))
    assert cluster.gang_of("train-1-uid") == "train-uid"


def test_nothing_is_kept_of_owners_that_nobody_has(cluster: Cluster) -> None:
    cluster.pod_seen(pod(None, owner=pod(0).owner))
    assert cluster._bags == set()


def test_a_forged_gang_does_not_keep_others_from_their_name(cluster: Cluster) -> None:
    """Without the admission policies anybody may write what Sluice answers."""
    forged = {names.GANG_ID: "ml/ring/", names.JOB_ID: "7"}
    real = {names.GANG: "ring", names.GANG_SIZE: "1"}
    for text in (forged, {**forged, names.GANG: "ring"}):
        cluster.pod_seen(pod(None, namespace="evil", uid="forged", annotations=text))
        assert cluster.gang_of("forged") == "forged"
        cluster.pod_gone(pod(None, namespace="evil", uid="forged"))
    cluster.pod_seen(pod(None, namespace="evil", uid="forged", annotations=forged))
    cluster.pod_seen(pod(None, annotations=real))
    assert cluster.gang_of("train-uid") == "ml/ring/"
