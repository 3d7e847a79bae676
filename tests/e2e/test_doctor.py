"""`sluice doctor` on the real parts: nothing on a healthy cluster, and every fault by its name.

The faults are made by hand, most of them while Sluice is stopped, which would mend them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from extender.domain import wellknown as names
from extender.domain.model import GangKind, Stamp
from extender.slurm.requests import stamp_text
from tests.e2e.jobs import gang, indexed_job, pod
from tests.e2e.site import (
    ML,
    PLAIN,
    VISION,
    Site,
    answers,
    eventually,
    node_of,
    nodes_of,
    told,
    uids,
)
from tests.harness.fabric import Fabric
from tests.harness.kube import Object
from tests.harness.slurm import REST_VERSION, USERS

pytestmark = pytest.mark.e2e

LATE = Fabric(spines=1, leaves_per_spine=1, nodes_per_leaf=1, prefix="late-")


def doctor(site: Site, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command as an operator runs it, with the settings of the Sluice that runs or ran."""
    command = [
        sys.executable,
        "-m",
        "extender",
        "doctor",
        "--config",
        site.stack.sluice.config_file,
    ]
    return subprocess.run(
        [*map(str, command), *arguments],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=120,
    )


def findings(site: Site, *arguments: str) -> list[Object]:
    """What it says as JSON: ``kind``, ``pod``, ``job``, ``node`` and so on by name."""
    run = doctor(site, "--json", "--settle", "0.5", *arguments)
    listed: list[Object] = json.loads(run.stdout)
    assert run.returncode == (1 if listed else 0), run.stderr
    return listed


def named(listed: list[Object], *keys: str) -> list[tuple[Any, ...]]:
    return [tuple(finding[key] for key in ("kind", *keys)) for finding in listed]


@contextmanager
def stopped(site: Site) -> Iterator[None]:
    """Nobody mends anything; afterwards Sluice runs again and mends it all."""
    site.stack.sluice.stop()
    try:
        yield
    finally:
        site.stack.sluice.start(site.settings)


def test_a_healthy_cluster_gives_none(site: Site) -> None:
    """Gangs that run, wait and have ended, of Jobs, of named pods and of one."""
    site.submit(ML, indexed_job("done", 2, run="1s"), indexed_job("train", 8))
    site.submit(VISION, *gang("ring", 2), pod("lone", gpus=4))
    site.bound(3, VISION)
    site.ended("done")
    site.submit(ML, indexed_job("large", 16))
    site.gated(16, prefix="large")
    site.job("large", "PENDING")
    site.books_agree()
    run = doctor(site)
    assert (run.returncode, run.stderr) == (0, "")
    assert "The books agree (" in run.stdout
    assert "4 live jobs, 16 nodes" in run.stdout
    assert findings(site) == []


def test_a_busy_cluster_gives_none(site: Site) -> None:
    """Gangs come and go all the time: what is on its way is not taken for a disagreement."""
    command = [
        sys.executable,
        "-m",
        "extender",
        "doctor",
        "--config",
        site.stack.sluice.config_file,
    ]
    with subprocess.Popen(
        [*map(str, command), "--settle", "3"], stdout=subprocess.PIPE, text=True
    ) as run:
        count = 0
        while run.poll() is None:
            if len(site.states()) - count < 4:
                site.submit(ML, indexed_job(f"short-{count}", 2, run="200ms"))
                count += 1
        output = run.stdout.read() if run.stdout else ""
    assert run.returncode == 0, output
    assert count > 3


def test_what_happens_while_sluice_is_away_is_named_and_then_mended(site: Site) -> None:
    """A job without a gang, pods without a job, a gang that Slurm started, a node without taint."""
    nobody = {"name": "nobody", "labels": {names.MANAGED: "true"}}
    filler = site.fill(12)
    site.submit(ML, indexed_job("cut", 2), indexed_job("late", 4))
    site.bound(2, prefix="cut")
    site.gated(4, prefix="late")
    cut = site.job("cut", "RUNNING")
    site.job("late", "PENDING")
    with stopped(site):
        ghost = orphan(site)
        site.cancel(filler)
        late = site.job("late", "RUNNING")["job_id"]
        site.cancel(cut["job_id"])
        site.kube.patch("/api/v1/nodes/node-00", {"spec": {"taints": None}})
        site.kube.create("/api/v1/namespaces", {"metadata": nobody})
        site.tap.forget()
        listed = findings(site)
        text = doctor(site, "--settle", "0").stdout
        calls = site.tap.calls()
        site.kube.delete("/api/v1/namespaces/nobody")
    assert named(listed, "namespace", "gang", "job", "node") == [
        ("JobWithoutPods", ML, "ghost", ghost, ""),
        *(("PodJobEnded", ML, "cut", cut["job_id"], name) for name in nodes_of(cut)),
        ("GangWaits", ML, "late", late, ""),
        ("NodeUntainted", "", "", None, "node-00"),
        ("NamespaceUser", "nobody", "", None, ""),
    ]
    advice = {finding["kind"]: finding["advice"] for finding in listed}
    assert f"scancel {ghost}" in advice["JobWithoutPods"]
    assert "delete" in advice["PodJobEnded"]
    assert names.USER in advice["NamespaceUser"]
    assert text.startswith(f"JobWithoutPods:\n  gang ml/ghost, job {ghost}: ")
    assert "\n6 disagreements (" in text
    assert {call.method for call in calls} == {"GET"}
    site.books_agree(20)
    assert site.states("ghost") == ["CANCELLED"]
    site.bound(4, prefix="late")


def test_a_damaged_stamp(site: Site) -> None:
    """Sluice does not know its job again, and would never end it."""
    job_id = orphan(site)
    site.slurm.exec("scontrol", "update", f"jobid={job_id}", 'admincomment={"sluice":"kuber')
    (finding,) = findings(site)
    assert named([finding], "job") == [("JobStamp", job_id)]
    site.cancel(job_id)
    site.books_agree()


def orphan(site: Site) -> int:
    """A running Slurm job with a stamp of ours, of a gang that does not exist."""
    stamp = Stamp(
        sluice="kubernetes", namespace=ML, gang="ghost", kind=GangKind.JOB, id="ghost-uid"
    )
    body = {
        "job": {
            "name": "ghost", "account": "ml", "flags": ["EXTERNAL_JOB"], "minimum_nodes": 1,
            "current_working_directory": "/", "admin_comment": stamp_text(stamp),
            "user_id": str(USERS["alice"]), "group_id": str(USERS["alice"]),
        }
    }  # fmt: skip
    answer = site.slurm.rest("POST", f"/slurm/{REST_VERSION}/job/submit", body=body).json()
    site.job("ghost", "RUNNING")
    return int(answer["job_id"])


def test_a_pod_that_was_bound_behind_sluices_back(site: Site) -> None:
    """A Binding is checked by nobody but kube-scheduler's own filters, which it goes around."""
    scheduler = site.stack.control.children["sluice-scheduler"]
    scheduler.stop()
    try:
        site.submit(ML, pod("alone"))
        eventually(lambda: told(site.pod("alone")), "unbound".__eq__, 10, "released")
        astray = site.pod("alone")
        meant = answers(astray)["node"]
        other = next(name for name in site.order if name != meant)
        binding = {
            "apiVersion": "v1", "kind": "Binding", "metadata": {"name": "alone"},
            "target": {"apiVersion": "v1", "kind": "Node", "name": other},
        }  # fmt: skip
        with stopped(site):
            site.kube.create(f"/api/v1/namespaces/{ML}/pods/alone/binding", binding)
            (finding,) = findings(site)
    finally:
        scheduler.launch()
    assert named([finding], "pod", "node") == [("PodElsewhere", "alone", other)]
    assert meant in finding["message"]
    assert "delete" in finding["advice"]
    site.gone(uids([astray]))
    site.books_agree()


def test_gpus_that_slurm_does_not_know_of(site: Site) -> None:
    """A pod of the stock scheduler that tolerates our taint."""
    site.submit(PLAIN, pod("notebook", gpus=2, tolerations=[{"operator": "Exists"}]))
    (there,) = site.bound(1, PLAIN)
    (finding,) = findings(site)
    assert named([finding], "pod", "node") == [("PodBesideSlurm", "notebook", node_of(there))]


def test_a_node_that_left_kubernetes(site: Site) -> None:
    """Its pods are bound to nothing, and Slurm would place others there. Drained, it is retired."""
    site.stack.add_nodes(LATE)
    (name,) = (node.name for node in LATE.nodes())
    try:
        eventually(
            lambda: [n["name"] for n in site.slurm.nodes()], lambda n: name in n, 15, "known"
        )
        site.submit(ML, pod("alone", nodeSelector={"kubernetes.io/hostname": name}))
        site.bound(1)
        site.books_agree()
        site.kube.delete(f"/api/v1/nodes/{name}")
        listed = findings(site)
        assert named(listed, "pod", "node") == [
            ("PodNodeGone", "alone", name),
            ("NodeNotInKubernetes", "", name),
        ]
        assert f"scontrol delete nodename={name}" in listed[1]["advice"]
        site.delete(ML, "Pod", "alone", grace=0)
        site.ended("alone")
        site.slurm.exec("scontrol", "update", f"nodename={name}", "state=drain", "reason=retired")
        site.books_agree()
    finally:
        site.kube.delete(f"/api/v1/nodes/{name}")
        site.slurm.cancel_all()
        site.slurm.exec("scontrol", "delete", f"nodename={name}")


def test_a_node_that_is_drained_under_its_pods(site: Site) -> None:
    site.submit(ML, pod("alone"))
    (there,) = site.bound(1)
    name = node_of(there)
    site.slurm.exec("scontrol", "update", f"nodename={name}", "state=drain", "reason=bad fan")
    try:
        (finding,) = findings(site)
    finally:
        site.slurm.exec("scontrol", "update", f"nodename={name}", "state=resume")
    assert named([finding], "node") == [("NodeOutOfService", name)]
    assert "bad fan" in finding["message"]
    assert f"scontrol update nodename={name} state=resume" in finding["advice"]
    site.books_agree()


@pytest.mark.parametrize(
    ("variable", "value", "book", "why"),
    [
        ("SLUICE_SLURM__URL", "http://127.0.0.1:9", "Slurm's", "cannot be reached"),
        ("SLUICE_SLURM__TOKEN_FILE", "/nowhere", "Slurm's", "token file /nowhere"),
        ("SLUICE_KUBERNETES__KUBECONFIG", "/nowhere", "Kubernetes'", "/nowhere"),
    ],
)
def test_a_book_that_cannot_be_read(
    site: Site, variable: str, value: str, book: str, why: str
) -> None:
    run = doctor(site, **{variable: value})
    assert (run.returncode, run.stdout) == (2, "")
    assert f"{book} book cannot be read: " in run.stderr
    assert why in run.stderr
