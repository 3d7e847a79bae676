"""`make demo`: it tells all its claims and leaves nothing; a claim that is wrong ends it with 1."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.demo import claims
from tests.demo.claims import Record
from tests.demo.facts import Facts, Place, Pod, SlurmJob
from tests.demo.screen import Screen
from tests.harness.runs import RUN_VARIABLE

ROOT = Path(__file__).parents[2]
SECONDS = 300  # beside other tests; alone it takes less than 60


@dataclass(frozen=True)
class Told:
    """How a run ended, what it said, and the directory of its stack."""

    code: int
    output: str
    errors: str
    runs: Path

    def ticks(self) -> list[str]:
        return re.findall(r"^ +✓ (.*)$", self.output, re.MULTILINE)


def demo(runs: Path, **environment: str) -> Told:
    """Run the demo as `make demo` does, with its stack's directory in ``runs``."""
    env = os.environ | {"SLUICE_RUNS": str(runs), "PYTHONUTF8": "1"} | environment
    done = subprocess.run(
        [sys.executable, "-m", "tests.demo"], cwd=ROOT, env=env, timeout=SECONDS,
        capture_output=True, encoding="utf-8", check=False,
    )  # fmt: skip
    return Told(done.returncode, done.stdout, done.stderr, runs)


def left_processes(runs: Path) -> list[str]:
    """Command lines of processes that belong to a run in ``runs``."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            environment = (process / "environ").read_bytes()
            line = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if str(runs) in line or any(
            f"{RUN_VARIABLE}={run.name}".encode() in environment for run in runs.glob("*")
        ):
            found.append(line)
    return found


@pytest.mark.e2e
def test_it_tells_every_claim_and_leaves_nothing(tmp_path: Path) -> None:
    told = demo(tmp_path)
    assert told.code == 0, told.output + told.errors
    assert told.ticks() == [
        "Slurm knows the 16 nodes, each below the switch of its rack.",
        "Both run where Slurm put them. 12 nodes, 96 GPUs, are free.",
        "kube-scheduler has bound the 4 pods, and they run.",
        "Slurm was not asked: its only jobs are the two of the other team.",
        "Its pods are gone, and the same 12 nodes are free again.",
        "All 4 pods run, on the very nodes that Slurm allocated to one job.",
        "They are on one rack.",
        "Rank i is on the i-th node of that rack.",
        "Slurm has queued it, and has planned its start.",
        "That is the reason and the start that Slurm has.",
        "An Event of the Job (kubectl describe job large) and a condition of each pod say it too.",
        "While it waits it holds nothing: no pod bound, no node allocated.",
        "small runs; large, which was there first, still waits.",
        "large loses nothing by it: to the minute, Slurm plans its start as before.",
        "It still holds nothing.",
        "The pods of small have ended, and so has its Slurm job.",
        "The pods of train have ended, and so has its Slurm job.",
        "large starts: all 12 pods run, on the 12 nodes of its Slurm job.",
        "Its ranks follow the network, rack after rack.",
        "The pods of large have ended, and so has its Slurm job.",
        "Every job is there with its account and its GPUs, none twice.",
        "Slurm itself has noted that backfill started small.",
        "Slurm's comment on each job that ended says why: all pods have ended.",
    ]
    assert "All 23 claims hold" in told.output
    assert "\x1b" not in told.output, "plain lines when nobody watches"
    assert list(tmp_path.iterdir()) == []
    assert left_processes(tmp_path) == []


@pytest.mark.e2e
def test_a_claim_that_does_not_hold_ends_it(tmp_path: Path) -> None:
    """Sluice is kept from making Slurm nodes: the first claim is wrong then."""
    told = demo(tmp_path, SLUICE_NODES__MANAGE="false")
    assert told.code == 1, told.output + told.errors
    assert "✗ Slurm knows the 16 nodes" in told.output
    assert told.ticks() == []
    assert "does not hold: Slurm does not know node-00" in told.errors
    assert "Traceback" not in told.errors
    [run] = tmp_path.iterdir()  # its logs are kept
    assert (run / "ended").exists()
    assert left_processes(tmp_path) == []


# Each claim with facts that contradict it. The good ones come first, so that a case shows only
# what is wrong in it.

PLACES = tuple(Place(f"n{i}", f"leaf-{i // 2}", "spine-0") for i in range(4))


def pod(rank: int, node: str, job: str = "train") -> Pod:
    name = f"{job}-{rank}"
    phase = "Running" if node else "Pending"
    return Pod("ml", job, rank, name, name, node, phase, gated=not node, told="(Slurm: Resources)")


def job(name: str, *nodes: str, number: int = 1) -> SlurmJob:
    state, reason = ("RUNNING", "None") if nodes else ("PENDING", "Resources")
    return SlurmJob(number, name, state, reason, nodes, submitted=100, started=700)


GOOD = Facts(
    places=PLACES,
    pods=(pod(0, "n0"), pod(1, "n1"), pod(0, "", "large"), pod(1, "", "large")),
    events=frozenset({("large", "It is next in line (Slurm: Resources).")}),
    jobs={"train": job("train", "n0", "n1"), "large": job("large", number=2)},
    switches={place.node: f"topo-tree:root:spine-0:spine-0.{place.rack}" for place in PLACES},
    allocated=frozenset({"n0", "n1"}),
)
SWAPPED = replace(GOOD, pods=(pod(0, "n1"), pod(1, "n0")))
PLANLESS = replace(job("large", number=2), started=0)
STARTED = replace(GOOD, jobs={"train": job("train", "n0"), "large": job("large", "n1")})
SMALL = replace(GOOD, jobs=dict(GOOD.jobs) | {"small": job("small", "n2", number=3)})
OVER = replace(job("train", "n0"), state="COMPLETED")
DONE = replace(
    GOOD,
    pods=(replace(pod(0, "n0"), phase="Succeeded"),),
    jobs={"train": OVER, "large": job("large", "n1")},
)


@pytest.mark.parametrize(
    ("claim", "good", "wrong", "why"),
    [
        (lambda f: claims.nodes_known(f, 4), GOOD, replace(GOOD, switches={}), "does not know n0, n1, n2, n3"),
        (lambda f: claims.nodes_known(f, 4), GOOD, replace(GOOD, places=PLACES[:3]), "Kubernetes has 3 nodes"),
        (lambda f: claims.nodes_known(f, 4), GOOD, replace(GOOD, switches=dict(GOOD.switches) | {"n0": "topo-tree:root"}), "has n0 elsewhere"),
        (lambda f: claims.free_nodes(f, 2), GOOD, replace(GOOD, pods=(pod(0, "n0"),)), "3 nodes are free"),
        (lambda f: claims.all_run(f, "ml", "train", 2), GOOD, replace(GOOD, pods=(pod(0, "n0"), pod(1, ""))), "1 of 2 pods"),
        (lambda f: claims.none_left(f, "plain", "train"), GOOD, replace(GOOD, pods=(replace(pod(0, "n0"), namespace="plain"),)), "1 pods of plain/train"),
        (lambda f: claims.where_slurm_says(f, "ml", "train"), GOOD, replace(GOOD, pods=(pod(0, "n0"), pod(1, "n2"))), "Kubernetes has it on n0, n2, Slurm on n0, n1"),
        (lambda f: claims.where_slurm_says(f, "ml", "train"), GOOD, replace(GOOD, jobs={}), "Slurm runs no job train"),
        (lambda f: claims.on_one_rack(f.places_of("ml", "train")), GOOD, replace(GOOD, pods=(pod(0, "n0"), pod(1, "n2"))), "leaf-0, leaf-1"),
        (lambda f: claims.on_one_rack(f.places_of("ml", "train")), GOOD, replace(GOOD, pods=()), "nothing"),
        (lambda f: claims.in_rank_order(f, f.places_of("ml", "train")), GOOD, SWAPPED, "rank 0 is on n1"),
        (lambda f: claims.in_rank_order(f, f.places_of("ml", "train")), GOOD, replace(GOOD, pods=(pod(0, "n0"), pod(1, "n0"))), "share a node"),
        (lambda f: claims.only_jobs(f, ["train", "large"]), GOOD, SMALL, "knows the jobs large, small, train"),
        (lambda f: claims.waits(f, "large"), GOOD, STARTED, "large as RUNNING"),
        (lambda f: claims.waits(f, "large"), GOOD, replace(GOOD, jobs={"large": PLANLESS}), "not planned"),
        (lambda f: claims.waits(f, "large"), GOOD, replace(GOOD, jobs={}), "knows no job large"),
        (lambda f: claims.holds_nothing(f, "ml", "large", 2), GOOD, replace(GOOD, pods=(pod(0, "n3", "large"), pod(1, "", "large"))), "large-0 is bound"),
        (lambda f: claims.holds_nothing(f, "ml", "large", 2), GOOD, replace(GOOD, pods=(pod(0, "", "large"),)), "1 of 2 pods"),
        (lambda f: claims.holds_nothing(f, "ml", "large", 2), GOOD, replace(GOOD, allocated=frozenset({"n0", "n1", "n3"})), "holds n3 for no job"),
        (lambda f: claims.holds_nothing(f, "ml", "large", 2), GOOD, replace(STARTED, pods=GOOD.pods), "given it n1"),
        (lambda f: claims.told_in_kubernetes(f, "ml", "large"), GOOD, replace(GOOD, events=frozenset()), "no Event of Job large says (Slurm: Resources)"),
        (lambda f: claims.told_in_kubernetes(f, "ml", "large"), GOOD, replace(GOOD, pods=(replace(pod(0, "", "large"), told=""),)), "large-0 does not say (Slurm: Resources)"),
        (lambda f: claims.passes(f, "small", "large"), SMALL, GOOD, "does not run job small"),
        (lambda f: claims.passes(f, "small", "large"), SMALL, replace(SMALL, jobs=dict(SMALL.jobs) | {"large": job("large", "n3")}), "does not wait"),
        (lambda f: claims.passes(f, "small", "large"), SMALL, replace(SMALL, jobs=dict(SMALL.jobs) | {"small": job("small", "n2", number=1)}), "was there before"),
        (lambda f: claims.not_later(job("large"), f.jobs["large"], 60), GOOD, replace(GOOD, jobs={"large": replace(job("large"), started=800)}), "by 100 s"),
        (lambda f: claims.over(f, "ml", "train"), DONE, GOOD, "2 pods of ml/train have not ended"),
        (lambda f: claims.over(f, "ml", "train"), DONE, replace(DONE, pods=(replace(pod(0, "n0"), phase="Failed"),)), "0 of 1 pods of ml/train have succeeded"),
        (lambda f: claims.over(f, "ml", "train"), DONE, replace(DONE, jobs=GOOD.jobs), "train as RUNNING"),
        (lambda f: claims.takes_over(f, "train", "large"), DONE, STARTED, "train is RUNNING"),
        (lambda f: claims.takes_over(f, "train", "large"), DONE, replace(DONE, jobs={"train": OVER, "large": job("large")}), "large is PENDING"),
    ],
)  # fmt: skip
def test_a_claim_knows_what_contradicts_it(
    claim: Callable[[Facts], str], good: Facts, wrong: Facts, why: str
) -> None:
    assert claim(good) == ""
    assert why in claim(wrong)


ROW = {
    "JobName": "small", "Account": "ml", "State": "COMPLETED", "Flags": "SchedBackfill",
    "AllocTRES": "billing=2,cpu=2,gres/gpu=8,mem=2G,node=1", "AdminComment": '{"outcome":"all pods have ended"}',
}  # fmt: skip
EXPECTED = {"small": Record("ml", 8)}


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ([], "recorded as None"),
        ([ROW, ROW], "2 records of 1 jobs"),
        ([ROW | {"Account": "vision"}], "'vision'"),
        ([ROW | {"AllocTRES": "cpu=2"}], "gpus=0"),
        ([ROW | {"State": "RUNNING"}], "runs=True"),
        ([ROW, ROW | {"JobName": "other"}], "other is recorded"),
    ],
)
def test_accounting_is_compared(rows: list[dict[str, str]], why: str) -> None:
    assert claims.recorded([ROW], EXPECTED) == ""
    assert why in claims.recorded(rows, EXPECTED)


def test_accounting_says_who_started_it_and_why_it_ended() -> None:
    assert claims.backfilled([ROW], "small") == ""
    assert "SchedMain" in claims.backfilled([ROW | {"Flags": "SchedMain"}], "small")
    assert claims.ended_well([ROW], EXPECTED) == ""
    assert "is empty" in claims.ended_well([ROW | {"AdminComment": ""}], EXPECTED)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "no_color", "coloured"),
    [(Terminal(), False, True), (Terminal(), True, False), (io.StringIO(), False, False)],
    ids=["terminal", "terminal with NO_COLOR", "pipe"],
)
def test_colours_are_for_terminals(
    stream: io.StringIO, no_color: bool, coloured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    if no_color:
        monkeypatch.setenv("NO_COLOR", "1")
    screen = Screen(stream)
    screen.heading("One")
    screen.tick("It holds.")
    screen.table(["rank", "node"], [["0", "node-00"]])
    assert ("\x1b[" in stream.getvalue()) is coloured
    assert "It holds." in stream.getvalue()
    if not coloured:
        assert "   0     node-00\n" in stream.getvalue()
