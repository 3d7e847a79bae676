"""What the running service tells people and probes, held against what is true outside of it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from extender.domain import wellknown as names
from tests.e2e.jobs import gang, indexed_job, pod
from tests.e2e.site import ML, PLAIN, VISION, Site, answers, eventually, node_of, nodes_of, number
from tests.harness.kube import Object

pytestmark = pytest.mark.e2e


def gang_view(site: Site, name: str, state: str, seconds: float = 10) -> Any:
    """The gang as soon as it is shown in the state."""
    return eventually(
        lambda: site.ask(f"/v1/gangs/ml/{name}").json(),
        lambda view: view.get("state") == state,
        seconds,
        f"gang {name} shown as {state}",
    )


def steps(view: Any) -> list[str]:
    """The timeline's first words."""
    return [step["what"].split(" ")[0].rstrip(":") for step in view["timeline"]]


# -- a gang, and its pods


def test_a_running_gang(site: Site) -> None:
    site.submit(ML, indexed_job("train", 4))
    pods = site.bound(4)
    job = site.job("train", "RUNNING")
    view = gang_view(site, "train", "Running")
    assert view["job_id"] == job["job_id"]
    assert (view["user"], view["account"], view["partition"]) == ("alice", "ml", "gpu")
    assert (view["kind"], view["size"], view["qos"]) == ("Job", 4, "normal")
    assert view["reason"] == f"Runs as Slurm job {job['job_id']}."
    assert view["nodes"] == [n for n in site.order if n in nodes_of(job)]
    place = {node.name: f"{node.spine}/{node.leaf}" for node in site.stack.nodes}
    shown = [(r["rank"], r["pod"], r["node"], r["switch_path"]) for r in view["ranks"]]
    assert shown == [
        (i, p["metadata"]["name"], node_of(p), place[node_of(p)]) for i, p in enumerate(pods)
    ]
    assert [s for s in steps(view) if s != "Forming"] == [
        "Submitting", "Submitted", "Queued", "Starting", "Starting", "Running",
    ]  # fmt: skip
    times = [datetime.fromisoformat(step["at"]) for step in view["timeline"]]
    assert times == sorted(times)
    told = site.ask(f"/v1/pods/ml/{pods[2]['metadata']['name']}").json()
    assert (told["gang"], told["rank"], told["node"]) == ("train", 2, node_of(pods[2]))
    assert told["why"] == (
        f"Slurm job {job['job_id']} placed it on node {node_of(pods[2])}, where it is bound."
    )


def test_a_queued_gang_says_why_and_until_when(site: Site) -> None:
    site.fill(16)
    site.submit(ML, indexed_job("train", 4))
    view = gang_view(site, "train", "Queued")
    job = site.job("train", "PENDING")
    assert view["job_id"] == job["job_id"]
    assert (view["nodes"], {rank["node"] for rank in view["ranks"]}) == ([], {""})
    view = eventually(
        lambda: site.ask("/v1/gangs/ml/train").json(),
        lambda view: view["estimated_start"],
        20,  # Slurm's backfill makes the estimate, every five seconds
        "an estimate of the start",
    )
    start = number(site.job("train", "PENDING")["start_time"])
    assert datetime.fromisoformat(view["estimated_start"]).timestamp() == start
    sentence = f"Slurm job {job['job_id']} is next in line and waits for enough free nodes"
    assert view["reason"] == f"{sentence} (Slurm: Resources)."
    told = site.ask(f"/v1/pods/ml/{site.pods()[0]['metadata']['name']}").json()
    assert (told["state"], told["why"], told["node"]) == ("Queued", view["reason"], "")


def test_a_gang_that_is_not_complete_yet(site: Site) -> None:
    site.submit(ML, *gang("trio", 3)[:2])
    view = gang_view(site, "trio", "Forming")
    assert view["reason"].startswith("2 of 3 pods exist")
    assert view["job_id"] is None


def test_a_refused_gang(site: Site) -> None:
    site.submit(ML, indexed_job("train", 2, annotations={names.TIME_LIMIT: "soon"}))
    view = gang_view(site, "train", "Invalid")
    assert view["reason"].startswith("annotation sluice.dev/time-limit: 'soon' is not a time limit")
    assert view["job_id"] is None
    told = site.ask(f"/v1/pods/ml/{site.pods()[0]['metadata']['name']}").json()
    assert told["why"] == view["reason"]


def test_a_pod_that_names_the_scheduler_and_did_not_opt_in(site: Site) -> None:
    site.submit(PLAIN, pod("stray", schedulerName=names.SCHEDULER))
    told = eventually(
        lambda: site.ask("/v1/pods/plain/stray").json(), lambda t: "why" in t, 5, "the pod"
    )
    assert told["state"] == "Ignored"
    assert f"has the label {names.MANAGED}=true" in told["why"]


@pytest.mark.parametrize("path", ["/v1/gangs/ml/nobody", "/v1/pods/ml/nobody", "/v1/gang/ml/x"])
def test_what_is_not_known_is_a_404_with_a_sentence(site: Site, path: str) -> None:
    answer = site.ask(path)
    assert answer.status_code == 404
    assert path.rpartition("/")[0].rpartition("/")[2] in answer.json()["error"]


def test_the_list_of_gangs(site: Site) -> None:
    site.submit(ML, indexed_job("one", 2), pod("two"))
    site.submit(VISION, pod("three"))
    site.bound(3)
    site.bound(1, VISION)

    def listed(query: str) -> list[Object]:
        gangs: list[Object] = site.ask(f"/v1/gangs{query}").json()["gangs"]
        return gangs

    assert [(g["namespace"], g["name"]) for g in listed("")] == [
        ("ml", "one"), ("ml", "two"), ("vision", "three"),
    ]  # fmt: skip
    assert [g["name"] for g in listed("?namespace=vision")] == ["three"]
    assert {g["job_id"] for g in listed("")} == {job["job_id"] for job in site.jobs()}


# -- probes


def parts(site: Site) -> dict[str, str]:
    """The parts that are not ready, and why."""
    answer = site.ask("/readyz").json()
    return {part["name"]: part["why"] for part in answer["parts"] if not part["ready"]}


@pytest.mark.parametrize(
    ("daemon", "gangs"), [("slurmrestd", 1), ("slurmctld", 1), ("slurmrestd", 0)]
)
def test_readyz_says_which_part_is_not_ready(site: Site, daemon: str, gangs: int) -> None:
    """Alive all the while: a restart of Sluice would mend nothing."""
    if gangs:
        site.submit(ML, pod("alone"))
        site.bound(1)
    eventually(site.stack.sluice.ready, bool, 15, "all parts ready")
    site.slurm.stop(daemon)
    try:
        seen = eventually(lambda: parts(site), bool, 30, "a part that is not ready")
        assert list(seen) == ["slurm jobs"]
        assert daemon in seen["slurm jobs"]
        assert site.ask("/readyz").status_code == 503
        assert site.ask("/livez").status_code == 200
    finally:
        site.slurm.launch(daemon)
    eventually(lambda: parts(site), lambda left: not left, 30, "all parts ready again")
    assert site.ask("/readyz").status_code == 200


def test_metrics_count_what_happened(site: Site) -> None:
    writes = ("release", "binding")
    before = {what: site.count(written(what)) for what in writes}
    submits = site.count("sluice_submits_total")
    site.submit(ML, indexed_job("train", 4))
    site.bound(4)
    assert site.count("sluice_submits_total") - submits == len(site.tap.submits()) == 1
    for what in writes:
        assert site.count(written(what)) - before[what] == 4
    assert site.count("sluice_nodes") == 16
    assert len({answers(p)["job-id"] for p in site.pods()}) == 1


def written(what: str) -> str:
    return f'sluice_kube_writes_total{{outcome="done",what="{what}"}}'
