"""Job descriptions as they are sent."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.slurm.requests import describe
from tests.unit.slurm.contract import HOSTILE, STAMP, request


def sent(**fields: Any) -> dict[str, Any]:
    described: dict[str, Any] = msgspec.json.decode(
        msgspec.json.encode(describe(request(**fields), ""))
    )
    return described


def test_a_plain_request_sends_what_was_asked_and_nothing_else() -> None:
    assert sent(tasks=3, gpus=4, cpus_per_task=2, memory_mib_per_task=2001) == {
        "name": "train",
        "user_id": "alice",
        "group_id": "alice",
        "flags": ["EXTERNAL_JOB"],
        "current_working_directory": "/",
        "environment": ["SLUICE=1"],
        "admin_comment": msgspec.json.encode(STAMP).decode(),
        "requeue": False,
        "minimum_nodes": 1,
        "tasks": 3,
        "cpus_per_task": 2,
        "tres_per_task": "gres/gpu:4",
        "memory_per_tres": "gres/gpu:501",
        "account": "ml",
        "partition": "gpu",
        "time_limit": {"set": True, "infinite": False, "number": 5},
        "constraints": "contract",
    }


@pytest.mark.parametrize(
    ("asked", "field", "value"),
    [
        ({"gpu_type": "h200", "gpus": 2}, "tres_per_task", "gres/gpu:h200:2"),
        ({"gpus": 0}, "memory_per_cpu", {"set": True, "infinite": False, "number": 1000}),
        ({"exclusive": True}, "shared", ["none"]),
        ({"hold": True}, "hold", True),
        ({"nice": 0}, "nice", 0),
        ({"nice": -5}, "nice", -5),
        ({"switches": 1}, "required_switches", {"set": True, "infinite": False, "number": 1}),
        ({"begin": "now+1hour"}, "begin_time", "now+1hour"),
        ({"dependency": "afterok:7"}, "dependency", "afterok:7"),
        ({"licenses": "a:1"}, "licenses", "a:1"),
        ({"wckey": "w"}, "wckey", "w"),
        ({"qos": "high"}, "qos", "high"),
        ({"reservation": "r"}, "reservation", "r"),
        ({"excluded_nodes": ("a", "b")}, "excluded_nodes", ["a", "b"]),
        ({"time_limit_minutes": 0xFFFFFFFF}, "time_limit", {"set": True, "infinite": True}),
        ({"comment": HOSTILE}, "comment", HOSTILE),
    ],
)
def test_each_wish_has_its_field(asked: dict[str, Any], field: str, value: Any) -> None:
    given_value = sent(**asked)[field]
    if isinstance(value, dict):
        given_value = {key: given_value[key] for key in value}
    assert given_value == value


def test_required_nodes_and_a_maximum_are_never_sent() -> None:
    assert not {"required_nodes", "maximum_nodes", "script"} & set(sent(exclusive=True))


def test_a_named_group_goes_with_any_user() -> None:
    assert describe(request(user="carol"), "users").group_id == "users"


@given(memory=st.integers(0, 2_000_000), gpus=st.integers(0, 16), cpus=st.integers(0, 256))
def test_memory_is_never_less_than_a_rank_needs_and_never_0(
    memory: int, gpus: int, cpus: int
) -> None:
    described = sent(gpus=gpus, cpus_per_task=cpus, memory_mib_per_task=memory)
    if gpus:
        each, parts = int(described["memory_per_tres"].rpartition(":")[2]), gpus
        assert "memory_per_cpu" not in described
    else:
        each, parts = described["memory_per_cpu"]["number"], described["cpus_per_task"]
        assert "memory_per_tres" not in described
    assert described["cpus_per_task"] >= 1
    assert each >= 1
    assert memory <= each * parts < memory + 2 * parts
