"""filter, prioritize, bind and preempt: what goes in, what comes out."""

from __future__ import annotations

import json
from typing import Any

import pytest
from structlog.testing import capture_logs

from extender.api.scheduler import ELSEWHERE, NOT_OFFERED
from extender.api.verb import INTERNAL
from extender.domain.views import PASS, WAITING, Verdict, VerdictKind
from tests.unit.api.fakes import Memory, api, ask, call, node, pod

ON_N2 = Verdict(VerdictKind.NODE, "n2")
WAIT = Verdict(VerdictKind.WAIT, message=WAITING)
NAMES = ["n1", "n2", "n3"]


def placed(verdict: Verdict, name: str = "train-0") -> Memory:
    memory = Memory()
    memory.verdicts[name] = verdict
    return memory


@pytest.mark.parametrize(
    ("verdict", "sent", "kept", "refused"),
    [
        (PASS, NAMES, NAMES, {}),
        (PASS, [], [], {}),
        (ON_N2, NAMES, ["n2"], {"n1": ELSEWHERE, "n3": ELSEWHERE}),
        (ON_N2, ["n2"], ["n2"], {}),
        (ON_N2, ["n1", "n3"], [], {"n1": NOT_OFFERED, "n3": NOT_OFFERED}),
        (ON_N2, [], [], {}),
        (WAIT, NAMES, [], dict.fromkeys(NAMES, WAITING)),
        (Verdict(VerdictKind.WAIT), ["n1"], [], {"n1": WAITING}),
    ],
)
class TestFilter:
    def test_names(
        self, verdict: Verdict, sent: list[str], kept: list[str], refused: dict[str, str]
    ) -> None:
        arguments = {"Pod": pod(), "Nodes": None, "NodeNames": sent}
        assert ask(api(placed(verdict)), "filter", arguments) == {
            "Nodes": None,
            "NodeNames": kept,
            "FailedNodes": {},
            "FailedAndUnresolvableNodes": refused,
            "Error": "",
        }

    def test_objects(
        self, verdict: Verdict, sent: list[str], kept: list[str], refused: dict[str, str]
    ) -> None:
        """nodeCacheCapable: false; Go writes an empty list of nodes as null."""
        items = [node(name) for name in sent] or None
        arguments = {"Pod": pod(), "Nodes": {"metadata": {}, "items": items}, "NodeNames": None}
        assert ask(api(placed(verdict)), "filter", arguments) == {
            "Nodes": {"items": [node(name) for name in kept]},
            "NodeNames": None,
            "FailedNodes": {},
            "FailedAndUnresolvableNodes": refused,
            "Error": "",
        }


def test_kept_nodes_go_back_byte_for_byte() -> None:
    odd = b'{ "metadata":{"name":"n2", "big": 123456789012345678901234567890, "e":1E+2} }'
    body = b'{"Pod":%s,"Nodes":{"items":[{"metadata":{"name":"n1"}},%s]},"NodeNames":null}'
    content = body % (json.dumps(pod()).encode(), odd)
    response = call(api(placed(ON_N2)), "POST", "/extender/filter", content)
    assert odd in response.content


def test_no_nodes_in_either_form_is_no_error() -> None:
    result = ask(api(placed(ON_N2)), "filter", {"Pod": pod(), "Nodes": None, "NodeNames": None})
    assert result["Error"] == ""
    assert result["NodeNames"] is None


def test_the_answer_is_a_subset_even_when_the_memory_is_wrong() -> None:
    unknown = Verdict(VerdictKind.NODE, "not-there")
    result = ask(api(placed(unknown)), "filter", {"Pod": pod(), "NodeNames": NAMES})
    assert result["NodeNames"] == []


def test_filter_asks_with_the_pods_identity() -> None:
    memory = Memory()
    ask(api(memory), "filter", {"Pod": pod("a"), "NodeNames": NAMES})
    assert memory.asked == [("verdict", "vision", "a", "uid-a", "sluice")]


def test_a_pod_without_scheduler_name_has_the_default_schedulers() -> None:
    memory, plain = Memory(), pod("a")
    del plain["spec"]["schedulerName"]
    ask(api(memory), "filter", {"Pod": plain, "NodeNames": NAMES})
    del plain["spec"]
    ask(api(memory), "filter", {"Pod": plain, "NodeNames": NAMES})
    assert [asked[-1] for asked in memory.asked] == ["default-scheduler"] * 2


@pytest.mark.parametrize("form", ["names", "objects"])
@pytest.mark.parametrize(
    ("verdict", "scores"),
    [(PASS, [0, 0, 0]), (WAIT, [0, 0, 0]), (ON_N2, [0, 10, 0])],
)
def test_prioritize(verdict: Verdict, scores: list[int], form: str) -> None:
    nodes = {"items": [node(name) for name in NAMES]}
    sent = {"NodeNames": NAMES} if form == "names" else {"Nodes": nodes}
    result = ask(api(placed(verdict)), "prioritize", {"Pod": pod(), **sent})
    expected = zip(NAMES, scores, strict=True)
    assert result == [{"Host": name, "Score": score} for name, score in expected]
    assert all(type(entry["Score"]) is int for entry in result)


@pytest.mark.parametrize("why_not", ["", "pod vision/train-0 runs on n1 already"])
def test_bind(why_not: str) -> None:
    memory = Memory()
    memory.why_not_bound = why_not
    binding = {"PodName": "train-0", "PodNamespace": "vision", "PodUID": "u", "Node": "n2"}
    assert ask(api(memory), "bind", binding) == {"Error": why_not}
    assert memory.asked == [("bind", "vision", "train-0", "u", "n2")]


META = {"n1": {"Pods": [{"UID": "a"}, {"UID": "b"}], "NumPDBViolations": 1}}
FULL = {"n1": {"Pods": [pod("a"), pod("b")], "NumPDBViolations": 1}}
BY_UID = {"n1": {"Pods": [{"UID": "uid-a"}, {"UID": "uid-b"}], "NumPDBViolations": 1}}


@pytest.mark.parametrize(
    ("verdict", "meta", "full", "victims"),
    [
        (PASS, META, None, META),
        (PASS, None, FULL, BY_UID),
        (PASS, {}, None, {}),
        (PASS, None, None, {}),
        (PASS, {"n1": {"Pods": None}}, None, {"n1": {"Pods": [], "NumPDBViolations": 0}}),
        (PASS, {"n1": None}, None, {}),
        (
            PASS,
            None,
            {"n1": {"Pods": None}, "n2": None},
            {"n1": {"Pods": [], "NumPDBViolations": 0}},
        ),
        (ON_N2, META, None, {}),
        (WAIT, None, FULL, {}),
    ],
)
def test_preempt(verdict: Verdict, meta: Any, full: Any, victims: Any) -> None:
    arguments = {"Pod": pod(), "NodeNameToVictims": full, "NodeNameToMetaVictims": meta}
    result = ask(api(placed(verdict)), "preempt", arguments)
    assert result == {"NodeNameToMetaVictims": victims}


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH"])
def test_other_methods_are_named(method: str) -> None:
    response = call(api(Memory()), method, "/extender/filter")
    assert response.status_code == 405
    assert response.json() == {"error": f"{method} /extender/filter: only POST works here"}


class TestFailures:
    """Always 200, the reason where the result type has room for it, nothing is changed."""

    VERBS = ("filter", "prioritize", "bind", "preempt")
    BODIES = (
        b"",
        b"{",
        b"null",
        b"[]",
        b"7",
        b'"x"',
        b"{}",
        b"\xff\xfe",
        b'{"Pod":null}',
        b'{"Pod":{}}',
        b'{"Pod":{"metadata":null}}',
        b'{"Pod":{"metadata":{"name":7,"namespace":"a","uid":"u"}}}',
        b'{"Pod":{"metadata":{"name":"\xff","namespace":"a","uid":"u"}}}',
        b'{"Pod":{"metadata":{"name":"\\ud800","namespace":"a","uid":"u"}}}',
        b'{"Pod":{"metadata":{"name":"p","namespace":"a","uid":"u"}},"NodeNames":"n1",'
        b'"Nodes":7,"NodeNameToMetaVictims":[],"NodeNameToVictims":[]}',
        b'{"Pod":{"metadata":{"name":"p","namespace":"a","uid":"u"}},"Nodes":{"items":[7]},'
        b'"NodeNameToMetaVictims":{"n":{"Pods":7}}}',
        b'{"PodName":"p","PodNamespace":"a","PodUID":"u"}',
        b"[" * 200_000,
        b'{"x":' * 200_000,
        b'{"Pod":{"metadata":{"name":"p","namespace":"a","uid":"u"},"status":' + b"[" * 200_000,
        b'{"Pod":' + b"9" * 5000 + b"}",
    )

    @pytest.mark.parametrize("body", BODIES, ids=lambda body: repr(body[:40]))
    @pytest.mark.parametrize("verb", VERBS)
    def test_malformed(self, verb: str, body: bytes) -> None:
        memory = Memory()
        self.refused(verb, ask(api(memory, 4 << 20), verb, body), "the request body is ")
        assert not [asked for asked in memory.asked if asked[0] == "bind"]

    @pytest.mark.parametrize("verb", VERBS)
    def test_too_large(self, verb: str) -> None:
        result = ask(api(Memory(), 1 << 20), verb, b" " * ((1 << 20) + 1))
        self.refused(verb, result, "the request body is larger than http.body_limit_mib (1 MiB)")

    @pytest.mark.parametrize("verb", VERBS)
    def test_a_defect_is_logged_and_named(self, verb: str) -> None:
        memory = Memory()
        memory.crash = ZeroDivisionError("boom")
        binding = {"PodName": "a", "PodNamespace": "b", "PodUID": "c", "Node": "d"}
        with capture_logs() as logs:
            result = ask(api(memory), verb, {"Pod": pod(), "NodeNames": NAMES, **binding})
        self.refused(verb, result, INTERNAL)
        assert logs[0]["event"] == "verb failed"
        assert logs[0]["exc_info"]

    def refused(self, verb: str, result: Any, why: str) -> None:
        if verb == "prioritize":
            assert result == []
            return
        rest = {
            "filter": {
                "Nodes": None,
                "NodeNames": None,
                "FailedNodes": {},
                "FailedAndUnresolvableNodes": {},
            },
            "bind": {},
            "preempt": {"NodeNameToMetaVictims": {}},
        }
        error = result.pop("Error")
        assert error.startswith(why)
        assert "\n" not in error
        assert result == rest[verb]
