"""Whatever is sent: never a 5xx, never a traceback, and the answer has the shape Go decodes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.domain.views import PASS, Verdict, VerdictKind
from tests.unit.api.fakes import Memory, api, call

VERBS = st.sampled_from(["filter", "prioritize", "bind", "preempt"])
TEXT = st.text(max_size=8)
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)
NAMES = st.lists(st.sampled_from(["n1", "n2", "n3", "", "n\u00fc"]) | TEXT, max_size=6)


def maybe(good: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Mostly what is right, sometimes null, sometimes anything."""
    return st.integers(0, 19).flatmap(lambda n: JUNK if n == 0 else st.none() if n == 1 else good)


def record(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries({key: maybe(value) for key, value in fields.items()})


META = record(name=TEXT, namespace=TEXT, uid=TEXT)
POD = st.fixed_dictionaries({"metadata": META}, optional={"spec": record(schedulerName=TEXT)})
NODE = record(metadata=record(name=TEXT))
VICTIMS = record(
    Pods=st.lists(record(UID=TEXT, metadata=META), max_size=2), NumPDBViolations=st.integers(0, 9)
)
ARGUMENTS = {
    "filter": record(Pod=POD, NodeNames=NAMES, Nodes=record(items=st.lists(NODE, max_size=4))),
    "bind": record(PodName=TEXT, PodNamespace=TEXT, PodUID=TEXT, Node=TEXT),
    "preempt": record(
        Pod=POD,
        NodeNameToVictims=st.dictionaries(TEXT, maybe(VICTIMS), max_size=3),
        NodeNameToMetaVictims=st.dictionaries(TEXT, maybe(VICTIMS), max_size=3),
    ),
}
CALLS = VERBS.flatmap(
    lambda verb: st.tuples(st.just(verb), ARGUMENTS.get(verb, ARGUMENTS["filter"]))
)


class Everywhere(Memory):
    """Answers every pod with the same verdict."""

    answer: Verdict = PASS

    def verdict(self, namespace: str, name: str, uid: str, scheduler: str) -> Verdict:
        super().verdict(namespace, name, uid, scheduler)
        return self.answer


MEMORY = Everywhere()
APP = api(MEMORY)
VERDICTS = st.builds(Verdict, st.sampled_from(VerdictKind), st.sampled_from(["n1", "", "zz"]), TEXT)


def check(verb: str, content: bytes) -> Any:
    """The answer, after a look at its status and shape."""
    response = call(APP, "POST", f"/extender/{verb}", content)
    assert response.status_code == 200
    result = response.json()
    if verb == "prioritize":
        assert isinstance(result, list)
        assert all(set(entry) == {"Host", "Score"} for entry in result)
    elif verb == "preempt":
        assert isinstance(result["NodeNameToMetaVictims"], dict)
    else:
        assert isinstance(result["Error"], str)
    return result


@settings(max_examples=150, deadline=None)
@given(VERBS, st.binary(max_size=64))
def test_bytes(verb: str, content: bytes) -> None:
    check(verb, content)


@settings(max_examples=250, deadline=None)
@given(CALLS, VERDICTS)
def test_nearly_right(asked: tuple[str, Any], verdict: Verdict) -> None:
    verb, arguments = asked
    MEMORY.answer = verdict
    result = check(verb, json.dumps(arguments).encode())
    if verb == "filter" and not result["Error"]:
        sent = set(arguments.get("NodeNames") or [])
        kept = set(result["NodeNames"] or [])
        refused = set(result["FailedAndUnresolvableNodes"])
        assert kept <= sent
        assert kept | refused >= sent
        assert not kept & refused


@settings(max_examples=150, deadline=None)
@given(CALLS, st.data())
def test_cut_or_flipped(asked: tuple[str, Any], data: st.DataObject) -> None:
    """A good body that a broken proxy shortened, or in which one byte turned into another."""
    verb, arguments = asked
    content = bytearray(json.dumps(arguments).encode())
    content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    check(verb, bytes(content))
    check(verb, bytes(content[: data.draw(st.integers(0, len(content)))]))


@pytest.mark.parametrize("verb", ["filter", "prioritize", "bind", "preempt"])
def test_large_odd_bodies(verb: str) -> None:
    for content in (
        b'{"a":' * 1_000_000,
        b'{"Pod":{"metadata":{"name":"p","namespace":"n","uid":"u","x":"' + b"\\u0000" * 100_000,
        b"1" * 900_000,
        b" " * 900_000,
        b'"' + b"\xed\xa0\x80" * 1000 + b'"',
        b"\xef\xbb\xbf{}",
        json.dumps({"NodeNames": ["n"] * 100_000}).encode(),
    ):
        check(verb, content)
