"""Whatever happens to a run's owner, nothing that it started stays."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harness import process
from tests.harness.command import run
from tests.harness.errors import HarnessError
from tests.harness.process import Identity
from tests.harness.runs import Run, clean_dead_runs, runs_directory

ROOT = Path(__file__).parents[2]
# A run with one child that does not mind SIGTERM and has a child itself.
OWNER = """
import sys, time
from tests.harness.children import Child
from tests.harness.reaper import Reaper
from tests.harness.runs import Run
run = Run.create()
reaper = Reaper(run, None)
child = Child(run, "stubborn", ["sh", "-c", "trap '' TERM; sleep 600 & sleep 600"], patience_seconds=0.5)
child.start()
print(run.directory, child.pid, flush=True)
try:
    time.sleep(600)
finally:
    child.stop()
    run.finish(keep=False)
    reaper.close()
"""


@pytest.fixture(autouse=True)
def own_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLUICE_RUNS", str(tmp_path / "runs"))


def signals_as_usual() -> None:
    """nohup, or a shell that put us into the background, has us ignore what the tests send."""
    for sig in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(sig, signal.SIG_DFL)


def start_owner() -> tuple[subprocess.Popen[str], Path, Identity]:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, preexec_fn=signals_as_usual,
    )  # fmt: skip
    assert owner.stdout is not None
    directory, pid = owner.stdout.readline().split()
    time.sleep(0.1)  # the shell sets its trap
    return owner, Path(directory), process.identity(int(pid))


def group_is_gone(group: Identity) -> bool:
    """Nobody is left in the child's process group: not the child, not its children."""
    for path in Path("/proc").glob("[0-9]*"):
        try:
            fields = (path / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == group.pid and fields[0] != "Z":
            return False
    return True


def within(seconds: float, predicate: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + seconds
    while not predicate():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def test_ctrl_c_ends_all_of_it() -> None:
    owner, directory, child = start_owner()
    owner.send_signal(signal.SIGINT)
    owner.communicate(timeout=20)
    assert within(1, lambda: group_is_gone(child))
    assert not directory.exists()


@pytest.mark.parametrize("sig", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_so_does_the_death_of_the_owner(sig: signal.Signals) -> None:
    owner, directory, child = start_owner()
    owner.send_signal(sig)
    owner.communicate(timeout=20)
    assert within(15, lambda: group_is_gone(child))
    assert within(5, (directory / "ended").exists), "the reaper has not finished"


def test_the_janitor_ends_what_a_dead_run_left() -> None:
    left = subprocess.Popen(["sleep", "600"], process_group=0)
    try:
        dead = Run.create()
        dead.record_child(process.identity(left.pid))
        (dead.directory / "owner").write_text(json.dumps([os.getpid(), 1]) + "\n")
        assert clean_dead_runs() == [dead.id]
        assert left.wait(5) == -signal.SIGTERM
        assert clean_dead_runs() == []
    finally:
        left.kill()
        left.wait()


def test_the_janitor_leaves_living_runs_and_other_processes_alone() -> None:
    other = subprocess.Popen(["sleep", "600"], process_group=0)
    try:
        mine = Run.create()
        mine.record_child(process.identity(other.pid))
        dead = Run.create()
        (dead.directory / "owner").write_text(json.dumps([os.getpid(), 1]) + "\n")
        # the pid of its child belongs to another process by now
        dead.record_child(Identity(other.pid, process.identity(other.pid).started_ticks - 5))
        assert clean_dead_runs() == [dead.id]
        assert other.poll() is None
        assert mine.directory in runs_directory().iterdir()
    finally:
        other.kill()
        other.wait()


def test_ctrl_c_ends_a_build_with_its_children(tmp_path: Path) -> None:
    script = (
        "from pathlib import Path\nfrom tests.harness.command import run\n"
        f"run(['sh', '-c', 'echo $$; sleep 600 & sleep 600'], what='it', log=Path('{tmp_path}/log'),"
        " on_line=lambda line: print(line, flush=True))"
    )
    builder = subprocess.Popen(
        [sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, preexec_fn=signals_as_usual,
    )  # fmt: skip
    assert builder.stdout is not None
    group = process.identity(int(builder.stdout.readline()))
    builder.send_signal(signal.SIGINT)
    builder.communicate(timeout=20)
    assert within(2, lambda: group_is_gone(group))


def test_a_failed_build_says_what_and_why(tmp_path: Path) -> None:
    with pytest.raises(HarnessError) as failed:
        run(
            ["sh", "-c", "echo no space left on device; exit 3"],
            what="building kwok", log=tmp_path / "log", hint="Free some disk space.",
        )  # fmt: skip
    text = str(failed.value)
    assert text.startswith("building kwok failed: sh ended with exit code 3. Free some disk space.")
    assert "no space left on device" in text
    with pytest.raises(HarnessError, match="cannot start /nonexistent/go"):
        run(["/nonexistent/go"], what="building kwok", log=tmp_path / "log")
