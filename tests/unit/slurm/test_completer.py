"""Ending a job with its exit code through a child process."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from extender.domain.model import JobState
from extender.slurm import nodeconf
from extender.slurm.complete import answer
from extender.slurm.completer import Completer, wait_status
from extender.slurm.rest import RestSlurm
from extender.slurm.tokens import FixedToken
from tests.fakes.slurmrestd import FakeSlurmrestd
from tests.unit.slurm.contract import CLUSTER, NODES, request, specs

OBEYS = "import sys\nfor line in sys.stdin: print(line.split()[0], 'ok', flush=True)"
REFUSES = "import sys\nfor line in sys.stdin: print(line.split()[0], 'Invalid job id', flush=True)"
MUTE = "import sys, time\nfor line in sys.stdin: time.sleep(60)"
SLOW = OBEYS.replace("print", "import time; time.sleep(0.5); print").replace("stdin: ", "stdin:\n ")
ONCE = "import sys\nprint(sys.stdin.readline().split()[0], 'ok', flush=True)"
CONFUSED = "import sys\nfor line in sys.stdin: print('4711 ok', flush=True)"


def python(program: str) -> tuple[str, ...]:
    return (sys.executable, "-c", program)


@pytest.mark.parametrize(
    ("exit_code", "status"), [(0, 0), (1, 256), (3, 768), (137, 35072), (255, 65280), (999, 65280)]
)
def test_wait_statuses(exit_code: int, status: int) -> None:
    assert wait_status(exit_code) == status


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (python(OBEYS), ""),
        (python(REFUSES), "Invalid job id"),
        (python(CONFUSED), "4711 ok"),
        (python(""), "it ended without an answer"),
        (("/does/not/exist",), "No such file"),
    ],
)
async def test_what_the_child_says(command: tuple[str, ...], says: str) -> None:
    completer = Completer(command)
    for job_id in (7, 8):
        said = await completer.complete(job_id, 0)
        assert said == says if not says.startswith("No") else says in said
    await completer.close()


async def test_a_child_that_ended_is_started_again() -> None:
    completer = Completer(python(ONCE))
    said = [await completer.complete(job_id, 0) for job_id in (1, 2, 3, 4)]
    assert said.count("") >= 2
    assert said[0] == ""
    await completer.close()


async def test_many_at_once_are_answered_in_turn() -> None:
    completer = Completer(python(OBEYS))
    said = await asyncio.gather(*(completer.complete(job_id, 0) for job_id in range(20)))
    assert said == [""] * 20
    await completer.close()


async def test_a_child_that_hangs_is_waited_for_once() -> None:
    """Fifty gangs that end would hold up all others for minutes."""
    completer = Completer(python(MUTE), timeout_seconds=0.5)
    said = await asyncio.gather(*(completer.complete(job_id, 0) for job_id in range(50)))
    assert said == ["no answer in 0.5 s", *["it did not answer lately"] * 49]
    await completer.close()


async def test_a_child_is_told_nothing_by_who_does_not_lead_any_more() -> None:
    leads = True
    completer = Completer(python(SLOW), may_write=lambda: leads)
    first = asyncio.create_task(completer.complete(1, 0))
    second = asyncio.create_task(completer.complete(2, 0))
    await asyncio.sleep(0.1)
    leads = False
    assert await first == ""
    assert await second == "another replica leads"
    await completer.close()


async def test_a_cancelled_wait_leaves_no_answer_for_the_next_one() -> None:
    completer = Completer(python(SLOW))
    task = asyncio.create_task(completer.complete(1, 0))
    await asyncio.sleep(0.1)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert await completer.complete(2, 0) == ""
    await completer.close()


@pytest.mark.parametrize("line", ["", "x 0", "7", "7 8 9", "7 -1", "7; rm 0"])
def test_a_line_that_is_no_order_is_not_carried_out(line: str) -> None:
    assert "not a job id and a wait status" in answer(None, line)  # type: ignore[arg-type]


# -- complete.py, with a library that knows one good token -----------------------------------

LIBRARY = """
import ctypes, os, sys, time
from extender.slurm import complete
class Library:
    token = ""
    def slurm_api_version(self): return complete.STRUCT_SINCE - 1
    def slurm_strerror(self, code): return b"error %d" % code
    def slurm_init(self, _):
        assert not self.token, "it reads the token only once"
        self.token = os.environ.get("SLURM_JWT", "")
        if self.token == "fatal": os._exit(0)
        if self.token == "hangs": time.sleep(60)
    def slurm_complete_job(self, job, status):
        if self.token == "good" and status.value == 768: return 0
        ctypes.set_errno(complete.AUTHENTICATION if self.token != "good" else 2021)
        return -1
complete.load, complete.SECONDS = Library, 1.0
sys.exit(complete.main())
"""


def run(*arguments: object, orders: str = "", token: str = "") -> tuple[int, str]:
    """Exit code and answers of complete.py, with SLURM_JWT=token."""
    ended = subprocess.run(
        [sys.executable, "-c", LIBRARY, *map(str, arguments)], input=orders, capture_output=True,
        text=True, check=False, timeout=30, env=os.environ | {"SLURM_JWT": token},
    )  # fmt: skip
    assert "Traceback" not in ended.stderr
    return ended.returncode, ended.stdout


REFUSED = "error 1007: the token has expired, or another key than slurmctld's signed it"


@pytest.mark.parametrize(
    ("token", "answered"),
    [
        ("good", (0, "17 ok\n")),
        ("old", (1, f"17 {REFUSED}\n")),
        ("hangs", (1, "17 libslurm did not come back in 1 s: is slurmctld in reach?\n")),
        ("fatal", (1, "17 libslurm gave up; what it says of slurm.conf is on standard error\n")),
    ],
)
def test_one_job(token: str, answered: tuple[int, str]) -> None:
    assert run(17, 768, token=token) == answered


def test_the_exit_code_says_that_the_order_was_none() -> None:
    assert run(17, token="good") == (1, "17 not a job id and a wait status\n")


@pytest.mark.parametrize("text", ["good", "SLURM_JWT=good\n"])
def test_the_token_file_goes_over_the_environment(tmp_path: Path, text: str) -> None:
    (tmp_path / "token").write_text(text)
    orders = "17 768\n18 1\n19 768\n"
    said = run("--token-file", tmp_path / "token", orders=orders, token="old")
    assert said == (0, "17 ok\n18 error 2021\n19 ok\n")


async def test_the_token_file_is_read_for_every_job(tmp_path: Path) -> None:
    file = tmp_path / "token"
    completer = Completer((*python(LIBRARY), "--token-file", str(file)))
    missing = f"the token file {file} cannot be read: No such file or directory"
    assert await completer.complete(17, 768) == missing
    empty = f"the token file {file} is empty"
    for token, says in (("old", REFUSED), ("", empty), ("good", ""), ("old", REFUSED)):
        (tmp_path / "new").write_text(token)
        (tmp_path / "new").rename(file)
        assert await completer.complete(17, 768) == says
    await completer.close()


# -- the adapter --------------------------------------------------------------------------------


@pytest.fixture
def restd() -> FakeSlurmrestd:
    restd = FakeSlurmrestd()
    for line in nodeconf.lines(specs(*NODES)):
        restd.slurmctld.create(line)
    return restd


def connect(restd: FakeSlurmrestd, program: str) -> RestSlurm:
    return RestSlurm(
        "http://slurmrestd",
        FixedToken(restd.token()),
        cluster=CLUSTER,
        complete_command=python(program) if program else (),
        transport=restd.transport,
    )


@pytest.mark.parametrize("program", ["", OBEYS, REFUSES])
async def test_a_job_that_the_child_leaves_running_is_cancelled(
    restd: FakeSlurmrestd, program: str
) -> None:
    slurm = connect(restd, program)
    job_id = await slurm.submit(request(comment="mine"))
    await slurm.finish(job_id, 3, "mine")
    assert await slurm.states([job_id]) == {job_id: JobState.CANCELLED}
    ended = await slurm.job(job_id)
    assert ended is not None
    assert ended.comment == "mine; its pods ended with exit code 3"
    assert [call for call in restd.calls if call.startswith("DELETE")]
    await slurm.close()


async def test_a_job_that_the_child_ended_is_left_alone(restd: FakeSlurmrestd) -> None:
    slurm = connect(restd, OBEYS)
    job_id = await slurm.submit(request())
    await slurm.states([job_id])
    restd.slurmctld.end(job_id, "COMPLETED")  # as the child would have
    await slurm.finish(job_id, 0)
    await slurm.finish(4_000_000, 0)  # purged
    assert (await slurm.states([job_id]))[job_id] is JobState.COMPLETED
    assert not [call for call in restd.calls if call.startswith("DELETE")]
    await slurm.close()
