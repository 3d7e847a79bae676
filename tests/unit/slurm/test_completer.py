"""Ending a job with its exit code through a child process."""

from __future__ import annotations

import asyncio
import sys

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
        (python(MUTE), "no answer in 0.5 s"),
        (python(CONFUSED), "4711 ok"),
        (python(""), "it ended without an answer"),
        (("/does/not/exist",), "No such file"),
    ],
)
async def test_what_the_child_says(command: tuple[str, ...], says: str) -> None:
    completer = Completer(command, timeout_seconds=0.5 if MUTE in command else 10.0)
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
