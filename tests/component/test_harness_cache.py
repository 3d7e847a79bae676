"""The cache: one builder at a time, nothing half made, and waiting is shown."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.harness import cache
from tests.harness.progress import Board, Step

ROOT = Path(__file__).parents[2]
# Builds the artefact "thing": appends to the file `builds`, then takes its time.
BUILDER = """
import sys, time
from pathlib import Path
from tests.harness import cache
def build(directory, step):
    with open(sys.argv[1], "a") as file:
        file.write("x")
    (directory / "first").write_text("1")
    time.sleep(float(sys.argv[2]))
    (directory / "second").write_text("2")
print(cache.artefact("kind", "thing", "abc", build))
"""


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SLUICE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def builder(builds: Path, seconds: float) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", BUILDER, str(builds), str(seconds)],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def wait_until(path: Path) -> None:
    deadline = time.monotonic() + 10
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} does not appear"
        time.sleep(0.01)


def test_it_is_where_the_environment_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache.root() == tmp_path / "cache"
    monkeypatch.delenv("SLUICE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache.root() == tmp_path / "xdg" / "sluice"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache.root() == tmp_path / "home" / ".cache" / "sluice"


def test_the_key_is_of_all_inputs(tmp_path: Path) -> None:
    file = tmp_path / "go.mod"
    file.write_text("one")
    first = cache.key("v1", file)
    assert first == cache.key("v1", file)
    assert first != cache.key("v2", file)
    assert cache.key("ab", "c") != cache.key("a", "bc")
    file.write_text("two")
    assert first != cache.key("v1", file)


def test_builders_at_the_same_time_build_once(tmp_path: Path) -> None:
    builds = tmp_path / "builds"
    running = [builder(builds, 0.5) for _ in range(3)]
    paths = {process.communicate(timeout=20)[0].strip() for process in running}
    assert builds.read_text() == "x"
    assert len(paths) == 1
    assert (Path(paths.pop()) / "second").read_text() == "2"


def test_a_killed_builder_leaves_nothing_to_be_seen(tmp_path: Path, own_cache: Path) -> None:
    builds = tmp_path / "builds"
    victim = builder(builds, 60)
    wait_until(builds)
    victim.kill()
    victim.communicate()
    shelf = own_cache / "kind"
    assert [p.name for p in shelf.iterdir() if not p.name.startswith(".")] == []
    output, _ = builder(builds, 0).communicate(timeout=20)
    assert (Path(output.strip()) / "second").exists()
    # the artefact and where it is kept; what the victim had made is gone
    assert len(list(shelf.iterdir())) == 2


def test_ctrl_c_and_errors_leave_nothing(tmp_path: Path, own_cache: Path) -> None:
    builds = tmp_path / "builds"
    victim = builder(builds, 60)
    wait_until(builds)
    victim.send_signal(signal.SIGINT)
    victim.communicate(timeout=10)

    def broken(directory: Path, _step: Step) -> None:
        (directory / "half").touch()
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        cache.artefact("kind", "thing", "abc", broken)
    assert list((own_cache / "kind").iterdir()) == []


def test_waiting_for_another_builder_is_shown(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tests.harness.progress.QUIET_SECONDS", 0.1)
    holder = subprocess.Popen(
        [sys.executable, "-c", "import time\nfrom tests.harness import cache\n"
         "with cache.lock('it', ''): print('held', flush=True); time.sleep(2.5)"],
        cwd=ROOT, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with cache.lock("it", "it builds kube-apiserver"):
        holder.wait(10)
    assert "waiting for another process: it builds kube-apiserver" in capfd.readouterr().err


def test_a_lock_is_free_when_its_holder_was_killed() -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", "import time\nfrom tests.harness import cache\n"
         "with cache.lock('it', ''): print('held', flush=True); time.sleep(60)"],
        cwd=ROOT, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    os.kill(holder.pid, signal.SIGKILL)
    holder.communicate()
    with cache.lock("it", "a dead process"):
        pass


def test_short_steps_are_silent_and_long_ones_are_not(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with open(tmp_path / "lines", "w") as stream:
        board = Board(stream)
        with board.step("quick"):
            pass
        monkeypatch.setattr("tests.harness.progress.QUIET_SECONDS", 0.1)
        with board.step("building kwok") as step:
            step.note = "12 packages compiled"
            time.sleep(1.3)
    text = (tmp_path / "lines").read_text()
    assert "quick" not in text
    assert "building kwok (12 packages compiled)" in text
    assert text.rstrip().endswith("building kwok: done")
