"""Which pods belong together, and how many there must be."""

import pytest

from extender.domain import wellknown as names
from extender.domain.gangs import Membership, form, membership, natural, opted_in, rank_key
from extender.domain.model import Gang, GangKind, Namespace, Pod
from tests.builders import placed, pod, workload

MANAGED = {names.MANAGED: "true"}


def formed(*pods: Pod, jobs: object = None) -> Gang:
    member = membership(pods[0], jobs)  # type: ignore[arg-type]
    assert member is not None
    return form(member, pods, jobs)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("namespace_labels", "pod_labels", "scheduler", "taken"),
    [
        (MANAGED, {}, "sluice", True),
        ({}, MANAGED, "sluice", True),
        ({}, {}, "sluice", False),
        ({names.MANAGED: "false"}, {}, "sluice", False),
        (MANAGED, {}, "other", False),
    ],
)
def test_opt_in(
    namespace_labels: dict[str, str], pod_labels: dict[str, str], scheduler: str, taken: bool
) -> None:
    plain = pod(labels=pod_labels, gates=())
    assert opted_in(plain, Namespace("ml", namespace_labels), scheduler) is taken


@pytest.mark.parametrize("taken", [pod(0), placed(0, "n0")], ids=["gated", "placed"])
def test_a_namespace_that_opts_out_keeps_what_it_has(taken: Pod) -> None:
    assert opted_in(taken, Namespace("ml"), "sluice")


def test_an_indexed_job_is_one_gang() -> None:
    gang = formed(pod(1), pod(0), pod(10), pod(2), jobs=workload(4))
    assert (gang.id, gang.size, gang.kind) == ("train-uid", 4, GangKind.JOB)
    assert [p.name for p in gang.pods] == ["train-0", "train-1", "train-2", "train-10"]


def test_a_pod_waits_for_its_job_to_be_seen() -> None:
    assert membership(pod(0), None) is None


PLACED = {names.JOB_ID: "7", names.GANG_ID: "gang-uid"}


@pytest.mark.parametrize(
    ("orphan", "member"),
    [
        (pod(0, annotations=PLACED), Membership("gang-uid", GangKind.JOB, "train-0")),
        (
            pod(0, annotations=PLACED, owner=None, labels={names.JOB_NAME_LABEL: "train"}),
            Membership("gang-uid", GangKind.JOB, "train"),
        ),
        (
            pod(0, annotations=PLACED | {names.GANG: "g"}),
            Membership("gang-uid", GangKind.PODS, "g"),
        ),
        (
            pod(0, annotations=PLACED, uid="gang-uid"),
            Membership("gang-uid", GangKind.POD, "train-0"),
        ),
    ],
)
def test_a_placed_pod_keeps_its_gang_whatever_becomes_of_its_owner(
    orphan: Pod, member: Membership
) -> None:
    assert membership(orphan, None) == member


def test_a_gang_id_without_a_job_is_nobody_s_word() -> None:
    liar = pod(None, annotations={names.GANG_ID: "theirs"})
    assert membership(liar, None) == Membership("train-uid", GangKind.POD, "train")


@pytest.mark.parametrize(
    "job",
    [workload(4, parallelism=2), workload(4, indexed=False), workload(1)],
    ids=["some at a time", "not indexed", "only one"],
)
def test_other_jobs_are_bags_of_lone_pods(job: object) -> None:
    gang = formed(pod(0), jobs=job)
    assert (gang.kind, gang.size, gang.id) == (GangKind.POD, 1, "train-0-uid")


def test_pods_that_name_a_gang() -> None:
    asks = {names.GANG: "g", names.GANG_SIZE: "2"}
    gang = formed(pod(None, job="b", annotations=asks), pod(None, job="a", annotations=asks))
    assert (gang.kind, gang.name, gang.size, gang.problem) == (GangKind.PODS, "g", 2, "")
    assert [p.name for p in gang.pods] == ["a", "b"]


def test_gangs_of_one_name_in_two_namespaces_stay_two() -> None:
    asks = {names.GANG: "g", names.GANG_SIZE: "2"}
    one, other = (pod(None, namespace=ns, annotations=asks) for ns in ("ml", "vision"))
    assert membership(one, None) != membership(other, None)


@pytest.mark.parametrize(
    ("sizes", "says"),
    [
        (["2", "3"], "disagree on sluice.dev/gang-size ('2', '3')"),
        (["2", None], "disagree on sluice.dev/gang-size (none, '2')"),
        (["two", "two"], "write how many pods the gang has"),
        (["0"], "write how many pods the gang has"),
        (["-1"], "write how many pods the gang has"),
        (["²"], "write how many pods the gang has"),
        ([None], "write how many pods the gang has"),
        (["1", "1"], "has sluice.dev/gang-size 1 but 2 pods exist"),
    ],
)
def test_a_size_that_contradicts_the_pods(sizes: list[str | None], says: str) -> None:
    pods = [
        pod(
            None,
            job=f"p{i}",
            annotations={names.GANG: "g", **({names.GANG_SIZE: size} if size else {})},
        )
        for i, size in enumerate(sizes)
    ]
    assert says in formed(*pods).problem


def test_a_size_that_contradicts_the_job() -> None:
    gang = formed(pod(0, annotations={names.GANG_SIZE: "3"}), jobs=workload(4))
    assert "'3' but Job 'train' has 4 completions" in gang.problem


def test_natural_order() -> None:
    assert sorted(["n10", "n2", "n1", "a", "10", "9"], key=natural) == [
        "9",
        "10",
        "a",
        "n1",
        "n2",
        "n10",
    ]


ODD_NUMBERS = ["²", "٣", "-1", "1_0", "9" * 5000, "1\n", ""]


@pytest.mark.parametrize("text", ODD_NUMBERS)
def test_what_a_tenant_writes_for_an_index_breaks_nothing(text: str) -> None:
    odd = pod(0)
    odd.annotations[names.COMPLETION_INDEX] = text
    assert rank_key(odd) is None
    assert len(formed(odd, pod(1), jobs=workload(2)).pods) == 2


@pytest.mark.parametrize("text", ["a²b", "²", "n٣", "9" * 5000])
def test_any_name_has_a_place_in_the_order(text: str) -> None:
    assert natural(text) < natural(chr(0x10FFFF))
    assert natural("n2") < natural("n10")


def test_a_job_that_is_made_smaller_says_what_to_do() -> None:
    gang = form(
        Membership("train-uid", GangKind.JOB, "train"),
        [pod(0), pod(1)],
        workload(4, parallelism=2),
    )
    assert gang.problem.startswith("Job 'train' now has parallelism 2 and completions 4")


def test_a_pod_that_was_put_on_a_node_is_not_slurms() -> None:
    assert not opted_in(pod(0, gates=(), node="n0"), Namespace("ml", MANAGED), "sluice")
    assert opted_in(placed(0, "n0", node="n0"), Namespace("ml", MANAGED), "sluice")


@pytest.mark.parametrize("name", ["r" * 201, "ring\n", "ü" * 101])
def test_a_name_that_has_no_room_in_a_stamp_is_refused(name: str) -> None:
    """A job could be submitted whose stamp cannot take the reason for its end."""
    named = {names.GANG: name, names.GANG_SIZE: "1"}
    assert "no name for a gang" in formed(pod(None, annotations=named)).problem
    named = {names.GANG: "r" * 200, names.GANG_SIZE: "1"}
    assert formed(pod(None, annotations=named)).problem == ""
