"""The contract of the port, on the real slurmrestd: what keeps the fake true."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest

from extender.domain.model import JobState
from extender.slurm import complete, nodeconf
from extender.slurm.rest import RestSlurm
from tests.harness.slurm import REST_VERSION
from tests.harness.stack import Stack
from tests.unit.slurm.contract import (
    FEATURE,
    NODES,
    Contract,
    TokenHolder,
    World,
    request,
    specs,
)

pytestmark = pytest.mark.e2e


class RealWorld:
    transport: httpx.AsyncBaseTransport | None = None

    def __init__(self, stack: Stack) -> None:
        self._slurm = stack.slurm
        self.url = stack.slurm.rest_url

    def token(self, user: str, lifespan_seconds: float) -> str:
        return self._slurm.token(user, lifespan_seconds)

    def stop_slurmctld(self) -> None:
        self._slurm.stop("slurmctld")

    def start_slurmctld(self) -> None:
        self._slurm.launch("slurmctld")


@pytest.fixture(scope="module")
def nodes(stack: Stack) -> Iterator[None]:
    """The contract's nodes, for as long as its tests run: Kubernetes does not know them."""
    stack.sluice.stop()
    stack.wipe()
    for line in nodeconf.lines(specs(*NODES)):
        path = f"/slurm/{REST_VERSION}/new/node/"
        stack.slurm.rest("POST", path, body={"node_conf": line}).raise_for_status()
    yield
    stack.slurm.cancel_all()
    for name in NODES:
        path = f"/slurm/{REST_VERSION}/node/{name}"
        stack.slurm.rest("DELETE", path).raise_for_status()


class TestReal(Contract):
    @pytest.fixture
    def world(self, stack: Stack, nodes: None) -> World:  # noqa: ARG002
        return RealWorld(stack)

    async def test_a_job_whose_text_is_not_utf8_hides_no_jobs(
        self, stack: Stack, slurm: RestSlurm
    ) -> None:
        ours = await slurm.submit(request(hold=True))
        theirs = (
            f"cd / && sbatch --parsable --external -A ml -H -C {FEATURE} -n1 --mem=10 -t5"
            " -J $'n\\xc3' --comment=$'\\xff\\xfe'"
        )
        job_id = int(stack.slurm.shell(theirs, user="alice"))
        assert ours in [job.id for job in await slurm.jobs()]
        assert (await slurm.job(job_id)) is not None
        await slurm.end(job_id)


class TestFinish:
    """Jobs end with their exit code, read back from accounting."""

    @pytest.fixture
    async def slurm(
        self,
        stack: Stack,
        nodes: None,  # noqa: ARG002
        tmp_path: Path,
    ) -> AsyncIterator[RestSlurm]:
        slurm = self.connect(stack, tmp_path)
        yield slurm
        for job in await slurm.jobs():
            await slurm.end(job.id)
        await slurm.close()

    @staticmethod
    def connect(stack: Stack, tmp_path: Path, *become: str) -> RestSlurm:
        """With complete.py in Slurm's container as the program that ends jobs."""
        program = base64.b64encode(Path(complete.__file__).read_bytes()).decode()
        stack.slurm.shell(
            f"base64 -d <<< {program} > /tmp/complete.py && chmod 644 /tmp/complete.py"
        )
        docker = ("docker", "-H", stack.engine_host, "exec", "-i", stack.slurm.container.id)
        command = (*docker, *become, "python3", "/tmp/complete.py")
        holder = TokenHolder(tmp_path / "token", stack.slurm.token("slurm"))
        return Contract.connect(RealWorld(stack), holder, complete_command=command)

    @staticmethod
    def accounted(stack: Stack, job_id: int) -> tuple[str, str]:
        """Slurm's state and exit code, once accounting has heard of the end."""
        deadline = time.monotonic() + 15
        while True:
            (record,) = stack.slurm.sacct(f"--jobs={job_id}")
            state = record["State"].split()[0]
            if state not in ("PENDING", "RUNNING") or time.monotonic() > deadline:
                return state, record["ExitCode"]
            time.sleep(0.1)

    @pytest.mark.parametrize(
        ("exit_code", "state", "accounted"),
        [
            (0, JobState.COMPLETED, ("COMPLETED", "0:0")),
            (3, JobState.FAILED, ("FAILED", "3:0")),
            (137, JobState.FAILED, ("FAILED", "137:0")),
        ],
    )
    async def test_a_running_job_ends_as_its_pods_did(
        self,
        stack: Stack,
        slurm: RestSlurm,
        exit_code: int,
        state: JobState,
        accounted: tuple[str, str],
    ) -> None:
        job_id = await slurm.submit(request(2, 8))
        await Contract.until(slurm, job_id, JobState.RUNNING)
        await slurm.finish(job_id, exit_code)
        job = await slurm.job(job_id)
        assert job is not None
        assert (job.state, job.exit_code, job.shares) == (state, exit_code, ())
        assert await asyncio.to_thread(self.accounted, stack, job_id) == accounted
        await slurm.finish(job_id, exit_code)

    async def test_a_pending_job_is_cancelled(self, slurm: RestSlurm) -> None:
        job_id = await slurm.submit(request(hold=True))
        await slurm.finish(job_id, 0)
        assert await slurm.states([job_id]) == {job_id: JobState.CANCELLED}

    async def test_a_program_that_may_not_do_it_leaves_no_job_running(
        self, stack: Stack, slurm: RestSlurm, tmp_path: Path
    ) -> None:
        become = ("setpriv", "--reuid=carol", "--regid=carol", "--clear-groups")
        powerless = self.connect(stack, tmp_path, *become)
        job_id = await slurm.submit(request())
        await Contract.until(slurm, job_id, JobState.RUNNING)
        await powerless.finish(job_id, 0)
        assert await slurm.states([job_id]) == {job_id: JobState.CANCELLED}
        await powerless.close()
