"""A gang as one Slurm job, and every way in which it cannot be one."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from extender.domain import wellknown as names
from extender.domain.feasibility import fit
from extender.domain.model import Gang, JobRequest, Namespace, Resources
from extender.domain.policy import Defaults, Refusal
from extender.domain.translate import UNLIMITED_MINUTES, job_request, shape
from tests.builders import GIB, gang, node, pod, workload

ML = Namespace("ml", {}, {names.USER: "alice", names.ACCOUNT: "ml"})


def request(
    g: Gang, namespace: Namespace = ML, defaults: Defaults = Defaults(), **more: Any
) -> JobRequest:
    pods = [p for p in g.pods if not p.terminal]
    return job_request(
        g,
        pods,
        namespace,
        fit(pods, more.pop("nodes", [node("n0"), node("n1")])),
        defaults,
        cluster="kubernetes",
        attempt=1,
        **more,
    )


def asking(**annotations: str) -> Gang:
    told = {names.PREFIX + key.replace("_", "-"): value for key, value in annotations.items()}
    return gang(pod(0, annotations=told), pod(1, annotations=told))


def refusal(
    g: Gang, namespace: Namespace = ML, defaults: Defaults = Defaults(), **more: Any
) -> str:
    with pytest.raises(Refusal) as refused:
        request(g, namespace, defaults, **more)
    return str(refused.value)


def test_one_job_for_the_whole_gang() -> None:
    job = request(gang(*(pod(i) for i in range(4))))
    assert (job.tasks, job.cpus_per_task, job.memory_mib_per_task, job.gpus_per_task) == (
        4,
        4,
        8192,
        8,
    )
    assert (job.user, job.account, job.name) == ("alice", "ml", "train")
    assert (job.stamp.id, job.stamp.size, job.stamp.newest) == ("train-uid", 4, 100.0)


@pytest.mark.parametrize(
    ("ranks", "gpus", "cpu_milli", "least"),
    [
        (4, 8, 1000, 4),
        (2, 4, 1000, 1),
        (5, 3, 1000, 3),  # two to a node
        (6, 0, 16_000, 2),  # four to a node, by CPU
        (3, 1, 33_000, 3),  # one to a node, by CPU
    ],
)
def test_slurm_is_told_on_how_few_nodes_the_ranks_can_be(
    ranks: int, gpus: int, cpu_milli: int, least: int
) -> None:
    each = Resources(cpu_milli, GIB, gpus)
    job = request(gang(*(pod(i, resources=each) for i in range(ranks))))
    assert job.least_nodes == least


def test_a_node_that_cannot_be_used_does_not_count_however_large_it_is() -> None:
    large = node("n9", gpus=16, unschedulable=True)
    job = request(gang(pod(0), pod(1)), nodes=[node("n0"), node("n1"), large])
    assert job.least_nodes == 2


@pytest.mark.parametrize(
    ("resources", "cpus", "mib"),
    [
        (Resources(0, 0, 0), 1, 1),
        (Resources(1, 1, 0), 1, 1),
        (Resources(1500, 524288, 0), 2, 1),
        (Resources(2000, 3 * GIB + 1, 0), 2, 3073),
    ],
)
def test_nothing_is_rounded_down_or_zero(resources: Resources, cpus: int, mib: int) -> None:
    rank = shape([pod(0, resources=resources)])
    assert (rank.cpus, rank.memory_mib) == (cpus, mib)


def test_every_rank_is_as_large_as_the_largest_pod() -> None:
    rank = shape(
        [pod(0, resources=Resources(1000, 4 * GIB, 8)), pod(1, resources=Resources(3000, GIB, 0))]
    )
    assert msgspec.structs.astuple(rank) == (3, 4096, 8)


def test_every_request_annotation_reaches_slurm() -> None:
    job = request(
        asking(
            account="ml",
            partition="gpu",
            qos="high",
            reservation="maint",
            time_limit="1:30:00",
            constraint="h200&nvlink",
            licenses="matlab:2",
            nice="100",
            wckey="paper",
            switches="1",
            exclusive="true",
            begin="now+1hour",
            dependency="afterok:5",
            comment="hello",
            hold="true",
            hold_on_restart="10m",
        )
    )
    told = msgspec.structs.asdict(job) | {"hold_on_restart": job.stamp.hold}
    wanted = {
        "account": "ml",
        "partition": "gpu",
        "qos": "high",
        "reservation": "maint",
        "time_limit_minutes": 90,
        "constraint": "h200&nvlink",
        "licenses": "matlab:2",
        "nice": 100,
        "wckey": "paper",
        "switches": 1,
        "exclusive": True,
        "begin": "now+1hour",
        "dependency": "afterok:5",
        "comment": "hello",
        "hold": True,
        "hold_on_restart": 600.0,
    }
    assert {key: told[key] for key in wanted} == wanted
    tested = {names.PREFIX + k.replace("_minutes", "").replace("_", "-") for k in wanted}
    assert tested == names.REQUESTS - {names.GANG, names.GANG_SIZE}


@pytest.mark.parametrize(
    ("limit", "deadline", "default", "minutes"),
    [
        ("2:00", 600, "60", 2),
        ("", 90, "60", 2),
        ("", None, "60", 60),
        ("", None, "", None),
        ("UNLIMITED", 600, "60", UNLIMITED_MINUTES),
    ],
)
def test_time_limit_annotation_then_deadline_then_default(
    limit: str, deadline: int | None, default: str, minutes: int | None
) -> None:
    annotations = {names.TIME_LIMIT: limit} if limit else {}
    g = gang(
        pod(0, annotations=annotations), workload=workload(1, active_deadline_seconds=deadline)
    )
    assert request(g, defaults=Defaults(time_limit=default)).time_limit_minutes == minutes


def test_excluded_never_required() -> None:
    assert request(gang(pod(0)), excluded={"n10", "n3"}).excluded_nodes == ("n3", "n10")
    assert request(gang(pod(0)), excluded={"n10", "n3"}).required_nodes == ()


def test_a_job_in_place_of_one_that_was_lost_is_for_the_same_nodes() -> None:
    again = request(gang(pod(0)), excluded={"n0", "n3"}, required=("n1", "n0"), fell=5.0)
    assert (again.required_nodes, again.excluded_nodes) == (("n0", "n1"), ("n3",))
    assert (again.least_nodes, again.stamp.fell) == (2, 5.0)


@pytest.mark.parametrize(
    ("annotations", "says"),
    [
        ({"time_limit": "2 hours"}, "annotation sluice.dev/time-limit: '2 hours' is not a time limit: write minutes"),
        ({"nice": "-5"}, "annotation sluice.dev/nice is '-5': write a whole number from 0"),
        ({"nice": "very"}, "annotation sluice.dev/nice is 'very': write a whole number"),
        ({"switches": "0"}, "annotation sluice.dev/switches is '0': write a whole number from 1"),
        ({"exclusive": "yes"}, 'annotation sluice.dev/exclusive is \'yes\': write "true" or "false"'),
        ({"acount": "ml"}, "annotation sluice.dev/acount is not one that Sluice knows: did you mean sluice.dev/account?"),
        ({"account": "vision"}, "account 'vision' is not open to namespace 'ml', which may use: ml"),
        ({"comment": "x" * 2000}, "has 2000 characters: at most 1024"),
    ],
)  # fmt: skip
def test_bad_values_name_the_thing_and_what_is_right(
    annotations: dict[str, str], says: str
) -> None:
    assert says in refusal(asking(**annotations))


def test_pods_that_disagree() -> None:
    g = gang(pod(0), pod(1, annotations={names.QOS: "high"}))
    assert "disagree on sluice.dev/qos" in refusal(g)


@pytest.mark.parametrize(
    ("resources", "says"),
    [
        (Resources(1000, GIB, 9), "asks for 9 GPUs, the largest managed node has 8"),
        (Resources(65000, GIB, 8), "65 CPUs, 1024 MiB and 8 GPUs together, which no managed node"),
    ],
)
def test_more_than_any_node_has(resources: Resources, says: str) -> None:
    assert says in refusal(gang(pod(0, resources=resources)))


def test_no_managed_node_yet() -> None:
    assert "label nodes with sluice.dev/managed=true" in refusal(gang(pod(0)), nodes=[])


def namespaced(**annotations: str) -> Namespace:
    return Namespace("ml", {}, {names.PREFIX + k: v for k, v in annotations.items()})


@pytest.mark.parametrize("user", ["root", "slurm", "0"])
def test_never_as_root(user: str) -> None:
    assert "must never run jobs" in refusal(gang(pod(0)), namespaced(user=user))


def test_a_namespace_without_a_user() -> None:
    assert "has no Slurm user" in refusal(gang(pod(0)), Namespace("ml"))


@pytest.mark.parametrize(
    ("namespace", "asks", "field", "value"),
    [
        ({"account": "ml"}, {}, "account", "ml"),
        ({"accounts": "vision,ml"}, {}, "account", "vision"),
        ({"accounts": "vision,ml"}, {"account": "ml"}, "account", "ml"),
        ({"account": "ml", "accounts": "vision"}, {"account": "vision"}, "account", "vision"),
        ({}, {}, "account", "fallback"),
        ({"qos": "low,high"}, {}, "qos", "low"),
        ({"qos": "low,high"}, {"qos": "high"}, "qos", "high"),
        ({"partitions": "gpu, cpu"}, {"partition": "cpu"}, "partition", "cpu"),
        ({"reservations": "a,b"}, {"reservation": "b"}, "reservation", "b"),
        ({}, {"reservation": "any"}, "reservation", "any"),
    ],
)
def test_what_a_namespace_may_use(
    namespace: dict[str, str], asks: dict[str, str], field: str, value: str
) -> None:
    job = request(
        asking(**asks), namespaced(user="alice", **namespace), Defaults(account="fallback")
    )
    assert getattr(job, field) == value


@pytest.mark.parametrize(
    ("namespace", "asks", "says"),
    [
        ({"accounts": "vision,ml"}, {"account": "x"}, "which may use: vision, ml"),
        ({"qos": "low"}, {"qos": "high"}, "QOS 'high' is not open to namespace 'ml', which may use: low"),
        ({"partitions": "gpu"}, {"partition": "cpu"}, "which may use: gpu"),
        ({"reservations": "a"}, {"reservation": "b"}, "which may use: a"),
    ],
)  # fmt: skip
def test_what_a_namespace_may_not_use(
    namespace: dict[str, str], asks: dict[str, str], says: str
) -> None:
    assert says in refusal(asking(**asks), namespaced(user="alice", **namespace))


def test_a_job_name_is_plain_whatever_the_gang_is_called() -> None:
    hostile = gang(pod(0), name="a\nb;c$(d)é")
    name = request(hostile).name
    assert name
    assert set(name) <= set("abcd-.")
