"""Requests that cannot stand: said where people look, asked of Slurm once at the most, no loop."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from extender.domain import wellknown as names
from tests.e2e.jobs import gang, indexed_job, pod
from tests.e2e.site import ML, Site, condition, eventually, site_of, told, uids
from tests.e2e.tap import Tap
from tests.harness.kube import Object
from tests.harness.stack import Stack

pytestmark = pytest.mark.e2e

MANAGED = {names.MANAGED: "true"}
# Namespaces beside those of all tests: what each says about itself.
ODD = {
    "free": {names.USER: "alice"},
    "ghost": {names.USER: "alice", names.ACCOUNT: "visoin"},
    "nobody": {names.ACCOUNT: "ml"},
    "root": {names.USER: "root", names.ACCOUNT: "ml"},
    "stranger": {names.USER: "mallory", names.ACCOUNT: "ml"},
}


def asking(name: str, **annotations: str) -> list[Object]:
    asked = {names.PREFIX + key.replace("_", "-"): value for key, value in annotations.items()}
    return [indexed_job(name, 2, annotations=asked)]


def unlike(name: str, **annotations: str) -> list[Object]:
    """Two pods of a gang, of which only the second asks for something more."""
    pods = gang(name, 2)
    for key, value in annotations.items():
        pods[1]["metadata"]["annotations"][names.PREFIX + key.replace("_", "-")] = value
    return pods


@dataclass(frozen=True)
class Bad:
    """What is submitted, where, and the sentence (or its beginning) that has to come back."""

    name: str  # of the gang
    workloads: list[Object]
    sentence: str
    namespace: str = ML
    submits: int = 0  # 1 where only Slurm can know


CASES = [
    Bad(
        "unknown-word",
        asking("unknown-word", tme_limit="60"),
        "annotation sluice.dev/tme-limit is not one that Sluice knows: "
        "did you mean sluice.dev/time-limit?",
    ),
    Bad(
        "no-time",
        asking("no-time", time_limit="2h"),
        "annotation sluice.dev/time-limit: '2h' is not a time limit: write minutes (90), "
        "hours:minutes:seconds (1:30:00), days-hours (2-12), days-hours:minutes:seconds "
        "(2-12:30:00) or UNLIMITED",
    ),
    Bad(
        "zero-time",
        asking("zero-time", time_limit="0:00"),
        "annotation sluice.dev/time-limit: a time limit of '0:00' is zero: write at least 1 "
        "(one minute)",
    ),
    Bad(
        "no-truth",
        asking("no-truth", exclusive="yes"),
        'annotation sluice.dev/exclusive is \'yes\': write "true" or "false"',
    ),
    Bad(
        "no-number",
        asking("no-number", nice="very"),
        "annotation sluice.dev/nice is 'very': write a whole number from 0 to 2147483645",
    ),
    Bad(
        "closed-account",
        asking("closed-account", account="vision"),
        "annotation sluice.dev/account: account 'vision' is not open to namespace 'ml', which may "
        "use: ml",
    ),
    Bad(
        "many-gpus",
        [indexed_job("many-gpus", 2, gpus=9)],
        "a pod of gang 'many-gpus' asks for 9 GPUs, the largest managed node has 8: ask for at "
        "most 8 GPUs a pod and use more pods",
    ),
    Bad(
        "much-memory",
        [indexed_job("much-memory", 2, memory="600Gi")],
        "a pod of gang 'much-memory' asks for 4 CPUs, 614400 MiB and 8 GPUs together, which no "
        "managed node has (the most are 64 CPUs, 524288 MiB, 8 GPUs): ask for less a pod",
    ),
    Bad(
        "other-size",
        asking("other-size", gang_size="3"),
        "annotation sluice.dev/gang-size is '3' but Job 'other-size' has 2 completions: leave the "
        "annotation out, the Job says its size itself",
    ),
    Bad(
        "too-many-pods",
        [*gang("too-many-pods", 2), pod("too-many-pods-2", gang="too-many-pods", size=2)],
        "gang 'too-many-pods' has sluice.dev/gang-size 2 but 3 pods exist: raise the size or "
        "delete pods (the last is 'too-many-pods-2')",
    ),
    Bad(
        "no-size",
        [pod("no-size-0", gang="no-size", size="several")],
        "gang 'no-size' has sluice.dev/gang-size 'several': write how many pods the gang has, 1 "
        "or more",
    ),
    Bad(
        "two-sizes",
        [
            pod("two-sizes-0", gang="two-sizes", size=2),
            pod("two-sizes-1", gang="two-sizes", size=3),
        ],
        "the pods of gang 'two-sizes' disagree on sluice.dev/gang-size ('2', '3'): give all of "
        "them the same number",
    ),
    Bad(
        "two-queues",
        unlike("two-queues", qos="high"),
        "the pods of gang 'two-queues' disagree on sluice.dev/qos: a gang is one Slurm job, so "
        "give all of its pods the same values",
    ),
    Bad(
        "no-user",
        asking("no-user"),
        "namespace 'nobody' has no Slurm user: a cluster administrator sets the namespace "
        "annotation sluice.dev/user, or slurm.default_user in Sluice's settings",
        "nobody",
    ),
    Bad(
        "as-root",
        asking("as-root"),
        "namespace 'root' maps to Slurm user 'root', which must never run jobs: a cluster "
        "administrator sets sluice.dev/user to an ordinary user",
        "root",
    ),
    Bad(
        "as-stranger",
        asking("as-stranger"),
        "the Slurm host knows no user 'mallory'",
        "stranger",
        submits=1,
    ),
    Bad(
        "no-account",
        asking("no-account"),
        "account 'visoin' does not exist in Slurm, or user 'alice' may not use it",
        "ghost",
        submits=1,
    ),
    Bad(
        "no-partition",
        asking("no-partition", partition="tpu"),
        "partition 'tpu' does not exist in Slurm: name another",
        "free",
        submits=1,
    ),
    Bad(
        "no-qos",
        asking("no-qos", qos="platinum"),
        "QOS 'platinum' does not exist in Slurm, or ",
        "free",
        submits=1,
    ),
    Bad(
        "no-reservation",
        asking("no-reservation", reservation="course"),
        "reservation 'course' does not exist in Slurm",
        "free",
        submits=1,
    ),
    Bad(
        "no-feature",
        asking("no-feature", constraint="h200"),
        "constraint 'h200' names a feature that no node has, or is no valid expression",
        "free",
        submits=1,
    ),
]


@dataclass
class Seen:
    """What was there some seconds after all of them had been submitted."""

    pods: dict[str, list[Object]] = field(default_factory=dict)  # by gang
    events: dict[str, list[tuple[str, str, str]]] = field(default_factory=dict)  # by namespace
    jobs: list[Object] = field(default_factory=list)  # Slurm's, all of them
    submits: list[str] = field(default_factory=list)  # names, as often as they were submitted
    calls_a_second: float = 0.0


@pytest.fixture(scope="module")
def seen(stack: Stack, tap: Tap) -> Seen:
    """All cases at once, and the cluster after each has been refused and left alone for a while."""
    with site_of(stack, tap) as site:
        for namespace, annotations in ODD.items():
            site.kube.namespace(namespace, MANAGED, annotations)
        with site.paused():
            for case in CASES:
                site.submit(case.namespace, *case.workloads)

        def refused() -> dict[str, list[str]]:
            return {
                case.name: [condition(p)[1] for p in site.pods(case.namespace, f"{case.name}-")]
                for case in CASES
            }

        eventually(
            refused,
            lambda found: all(set(told) == {"Invalid"} for told in found.values()),
            30,
            "every pod told that it is refused",
        )
        before, started = len(tap.calls()), time.monotonic()
        time.sleep(4)  # in which a loop would show
        found = Seen(calls_a_second=(len(tap.calls()) - before) / (time.monotonic() - started))
        found.pods = {c.name: site.pods(c.namespace, f"{c.name}-") for c in CASES}
        for namespace in {case.namespace for case in CASES}:
            found.events[namespace] = [
                (e["type"], e["involvedObject"]["name"], e["message"])
                for e in site.kube.items(f"/api/v1/namespaces/{namespace}/events")
                if e["reason"] == "Refused"
            ]
        found.jobs = site.jobs()
        found.submits = [json.loads(call.body)["job"]["name"] for call in tap.submits()]
    for namespace in ODD:
        stack.admin.delete(f"/api/v1/namespaces/{namespace}")
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case.name))
def test_it_is_refused_with_a_sentence(seen: Seen, case: Bad) -> None:
    """The cause and what would be right, in the condition of every pod and in an Event; nothing
    in Slurm, and not asked twice."""
    pods = seen.pods[case.name]
    assert pods
    assert {told(p) for p in pods} == {"gated"}
    assert {p["status"]["phase"] for p in pods} == {"Pending"}
    for status, reason, message in map(condition, pods):
        assert (status, reason) == ("False", "Invalid")
        assert message.lower().startswith(case.sentence.lower())
    events = [e for e in seen.events[case.namespace] if e[1].startswith(case.name)]
    assert {kind for kind, *_ in events} == {"Warning"}
    assert {message for *_, message in events} == {condition(pods[0])[2]}
    assert case.name not in [job["name"] for job in seen.jobs]
    assert seen.submits.count(case.name) == case.submits


def test_all_of_them_together_are_no_load(seen: Seen) -> None:
    assert seen.calls_a_second < 1


# -- once it is mended


def test_what_is_mended_goes_on_by_itself(site: Site) -> None:
    """Whoever mends it (the Slurm administrator, the cluster administrator, the user) does
    nothing beside: no pod is deleted, nothing restarted."""
    site.kube.namespace("mended", MANAGED, {names.USER: "alice", names.ACCOUNT: "physics"})
    site.kube.namespace("userless", MANAGED)
    try:
        site.submit("mended", indexed_job("no-account", 2))
        site.submit("userless", indexed_job("no-user", 2))
        with site.paused():
            site.submit(ML, *gang("crowd", 2), pod("crowd-2", gang="crowd", size=2))
        for namespace in ("mended", "userless", ML):
            eventually(
                lambda namespace=namespace: [condition(p)[1] for p in site.pods(namespace)],  # type: ignore[misc]
                lambda reasons: set(reasons) == {"Invalid"},
                15,
                f"the refusal in {namespace}",
            )
        site.slurm.exec(
            "sacctmgr", "-i", "add", "account", "physics", "description=p", "organization=p"
        )
        site.slurm.exec("sacctmgr", "-i", "add", "user", "alice", "account=physics")
        site.kube.namespace("userless", MANAGED, {names.USER: "bob", names.ACCOUNT: "ml"})
        site.delete(ML, "Pod", "crowd-2", grace=0)
        site.bound(2, "userless", seconds=5)
        site.bound(2, ML, seconds=5)
        site.bound(2, "mended", seconds=45)
        eventually(
            lambda: {condition(p)[0] for p in site.pods("mended")},
            lambda statuses: statuses == {"True"},
            10,
            "the condition to say that they are placed",
        )
        assert site.job("no-account", "RUNNING")["account"] == "physics"
    finally:
        site.stack.wipe()
        for namespace in ("mended", "userless"):
            site.kube.delete(f"/api/v1/namespaces/{namespace}")
        site.slurm.exec("sacctmgr", "-i", "delete", "account", "physics", check=False)


def test_a_corrected_job_of_the_same_name_starts(site: Site) -> None:
    site.submit(ML, *asking("train", time_limit="2h"))
    eventually(
        lambda: [condition(p)[1] for p in site.pods()],
        lambda reasons: set(reasons) == {"Invalid"},
        10,
        "the refusal",
    )
    site.delete(ML, "Job", "train")
    eventually(site.pods, lambda pods: not pods, 10, "no pod left")
    site.submit(ML, *asking("train", time_limit="2:00:00"))
    site.bound(2)
    assert len(site.jobs()) == 1


def test_a_pod_too_many_waits_and_disturbs_nobody(site: Site) -> None:
    """It comes when the gang runs already."""
    site.submit(ML, *gang("crowd", 2))
    running = uids(site.bound(2))
    site.submit(ML, pod("crowd-2", gang="crowd", size=2))
    status, reason, message = eventually(
        lambda: condition(site.pod("crowd-2")), all, 10, "the condition of the third pod"
    )
    assert (status, reason) == ("False", "Invalid")
    assert "has sluice.dev/gang-size 2 but 3 pods exist" in message
    assert told(site.pod("crowd-2")) == "gated"
    assert running <= uids(site.pods())
    assert site.states() == ["RUNNING"]
    assert [condition(site.pod(f"crowd-{i}")) for i in range(2)] == [("", "", "")] * 2


# -- bad bodies


def test_a_malformed_body_gets_an_error_and_changes_nothing(site: Site) -> None:
    site.quiet()
    for verb in ("filter", "prioritize", "bind", "preempt"):
        for body in ("", "{", "[]", '{"Pod": 7}', '{"NodeNames": ["node-00"]}'):
            url = f"{site.stack.sluice.base_url}/extender/{verb}"
            answer = httpx.post(url, content=body, timeout=10)
            assert answer.status_code == 200
            said: Any = answer.json()
            assert said == [] if verb == "prioritize" else said["Error"]
    assert site.tap.calls() == []
    assert site.jobs() == []
