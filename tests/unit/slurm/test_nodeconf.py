"""Lines of node configuration."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from extender.domain.model import NodeSpec
from extender.slurm.nodeconf import lines
from extender.slurm.port import SlurmRefused
from tests.unit.slurm.contract import HOSTILE, specs


def test_equal_nodes_share_a_line_and_keep_their_order() -> None:
    assert lines(specs("b2", "a10", "a9")) == [
        "NodeName=b2,a10,a9 NodeAddr=10.99.0.0,10.99.0.1,10.99.0.2 State=EXTERNAL Sockets=2"
        " CoresPerSocket=8 ThreadsPerCore=1 RealMemory=64000 Feature=k8s,contract Gres=gpu:8"
        " Topology=topo-tree:root:contract-spine:contract-leaf"
    ]


def test_nodes_that_differ_have_lines_of_their_own() -> None:
    one, two, three, four = specs("n1", "n2", "n3", "n4")
    two = msgspec.structs.replace(two, topology="topo-tree:root:s:l2")
    four = msgspec.structs.replace(four, gres="")
    names = [line.split()[0] for line in lines([one, two, three, four])]
    assert names == ["NodeName=n1,n3", "NodeName=n2", "NodeName=n4"]
    assert "Gres" not in lines([four])[0]


def test_a_line_has_at_most_1000_nodes() -> None:
    split = lines(specs(*(f"n{i}" for i in range(2500))))
    assert [line.split()[0].count(",") + 1 for line in split] == [1000, 1000, 500]


def test_no_nodes_no_lines() -> None:
    assert lines([]) == []


def test_names_that_stand_twice_are_named() -> None:
    with pytest.raises(SlurmRefused, match="twice in one request: a, b"):
        lines(specs("b", "a", "b", "a", "c"))


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": HOSTILE},
        {"name": ""},
        {"name": "a,b"},
        {"name": "a[0-3]"},
        {"name": "a State=DOWN"},
        {"address": "10.0.0.1 State=DOWN"},
        {"address": "10.0.0.1,10.0.0.2"},
        {"features": ("ok", "x Gres=gpu:99")},
        {"features": ("a,b",)},
        {"features": ("",)},
        {"gres": "gpu:8\nNodeName=x"},
        {"gres": "gpu:8 #"},
        {"topology": "t:root:a b"},
        {"topology": "t:root:a=b"},
    ],
)
def test_nothing_slips_into_a_line(wrong: dict[str, Any]) -> None:
    (spec,) = specs("good")
    with pytest.raises(SlurmRefused, match="cannot stand"):
        lines([msgspec.structs.replace(spec, **wrong)])


def test_a_node_needs_an_address() -> None:
    with pytest.raises(SlurmRefused, match="has no address"):
        lines([NodeSpec(name="n1", address="")])
