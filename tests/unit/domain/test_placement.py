"""Rank i on the i-th node along the fabric."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.domain.placement import Misfit, assign, ranks_that_fit, slots
from extender.domain.translate import Shape
from tests.builders import node, nodes, share

WHOLE = Shape(cpus=4, memory_mib=8192, gpus=8)
HALF = Shape(cpus=4, memory_mib=8192, gpus=4)


def test_slots_follow_the_fabric_and_not_the_names() -> None:
    fabric = {
        "n1": node("n1", "s1", "l2"),
        "n2": node("n2", "s0", "l1"),
        "n3": node("n3", "s0", "l0"),
        "n10": node("n10", "s0", "l0"),
    }
    assert slots([share(n) for n in fabric], WHOLE, fabric) == ("n3", "n10", "n2", "n1")


def test_several_ranks_to_a_node_where_they_fit() -> None:
    shares = [share("n1", 2, gpus=4), share("n0", 2, gpus=4)]
    assert slots(shares, HALF, nodes("n0", "n1")) == ("n0", "n0", "n1", "n1")


@pytest.mark.parametrize(
    ("given_share", "fit"),
    [
        (share("n", 1), 1),
        (share("n", 2, gpus=4), 1),
        (share("n", 1, cpus=3), 0),
        (share("n", 1, memory_mib=8191), 0),
        (share("n", 1, memory_mib=0), 1),
        (share("n", 1, gpus=7), 0),
    ],
)
def test_only_whole_ranks_fit(given_share: object, fit: int) -> None:
    assert ranks_that_fit(given_share, WHOLE) == fit  # type: ignore[arg-type]


def test_a_node_that_kubernetes_does_not_have_is_never_used() -> None:
    with pytest.raises(Misfit, match="n9, which Kubernetes does not have"):
        slots([share("n1"), share("n9")], WHOLE, nodes("n1", "n2"))


def test_the_whole_gang_gets_slots_in_order() -> None:
    assert assign([0, 1, 2], ["a", "b", "c"], {}, whole=True) == {0: "a", 1: "b", 2: "c"}


def test_a_replaced_rank_gets_its_own_slot() -> None:
    assert assign([1], ["a", "b", "c"], {0: "a", 2: "c"}, whole=True) == {1: "b"}
    assert assign([1], ["a", "a", "c"], {0: "a", 2: "c"}, whole=True) == {1: "a"}
    assert assign([1], ["a", "b", "c"], {2: "c"}, whole=True) == {1: "b"}  # rank 0 has succeeded


def test_a_rank_whose_slot_is_taken_gets_the_first_that_is_free() -> None:
    assert assign([1], ["a", "b", "c"], {0: "b"}, whole=True) == {1: "a"}


def test_ranks_of_a_part_of_a_gang_get_slots_in_order() -> None:
    assert assign([1, 3], ["a", "b"], {}, whole=False) == {1: "a", 3: "b"}


def test_too_few_slots() -> None:
    with pytest.raises(Misfit, match="room for 2 ranks, of which 2 are free, and 3"):
        assign([0, 1, 2], ["a", "b"], {}, whole=True)


@given(st.permutations(list(range(8))), st.integers(0, 8))
def test_every_call_gives_the_same_and_no_slot_twice(order: list[int], done: int) -> None:
    slot_nodes = [f"n{i // 2}" for i in range(8)]
    first = assign(list(range(8)), slot_nodes, {}, whole=True)
    taken = {rank: first[rank] for rank in order[:done]}
    rest = assign(sorted(order[done:]), slot_nodes, taken, whole=True)
    assert {**taken, **rest} == first
