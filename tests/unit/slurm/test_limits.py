"""KillWait and GraceTime, from slurmrestds that tell them and such that do not."""

from __future__ import annotations

import pytest

from extender.domain.grace import Limits
from extender.slurm.rest import RestSlurm
from extender.slurm.tokens import FixedToken
from tests.fakes.slurmrestd import FakeSlurmrestd


@pytest.mark.parametrize(
    ("newest", "kill_wait"), [("v0.0.43", 45), ("v0.0.44", 45), ("v0.0.45", 60)]
)
async def test_kill_wait_is_slurm_s_where_it_tells_and_else_the_setting(
    newest: str, kill_wait: int
) -> None:
    restd = FakeSlurmrestd([newest])
    restd.kill_wait, restd.qos["low"], restd.partitions["night"] = 60, 20, 10
    slurm = RestSlurm(
        "http://slurmrestd", FixedToken(restd.token()), cluster="c", transport=restd.transport
    )
    assert await slurm.limits(45) == Limits(
        kill_wait=kill_wait, qos_grace={"low": 20}, partition_grace={"night": 10}
    )
    await slurm.close()
