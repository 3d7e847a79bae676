"""What every adapter of the port must do, run against the fake slurmrestd and the real one.

The two worlds have the same four nodes of 16 CPUs, 64,000 MiB and 8 GPUs (feature "contract"),
users alice (ml, vision), bob (ml) and carol (vision), QOS normal and high, partition gpu.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Protocol

import httpx
import msgspec
import pytest

from extender.domain.grace import Limits
from extender.domain.model import GangKind, Job, JobRequest, JobState, NodeSpec, Stamp
from extender.slurm.port import SlurmDenied, SlurmRefused, SlurmUnavailable
from extender.slurm.rest import RestSlurm
from extender.slurm.tokens import TokenFile

CLUSTER = "contract-tests"
FEATURE = "contract"
NODES = ("contract0", "contract1", "contract2", "contract3")
HOSTILE = 'a"b\'c\\ \n\t{"x": 1} #; $(id) ü 😀 \u2028 %s'
STAMP = Stamp(sluice=CLUSTER, namespace="ml", gang="train", kind=GangKind.JOB, id="uid-1")


class World(Protocol):
    """A slurmrestd with a slurmctld behind it."""

    url: str
    transport: httpx.AsyncBaseTransport | None

    def token(self, user: str, lifespan_seconds: float) -> str: ...

    def stop_slurmctld(self) -> None: ...

    def start_slurmctld(self) -> None: ...


class TokenHolder:
    """The file that Sluice reads its token from, and the one who replaces it."""

    def __init__(self, path: Path, token: str) -> None:
        self.path = path
        self.put(token)

    def put(self, text: str) -> None:
        self.path.write_text(text)


def specs(*names: str, **more: Any) -> list[NodeSpec]:
    """Nodes of the contract; their addresses follow their names."""
    fields = {
        "sockets": 2,
        "cores_per_socket": 8,
        "memory_mib": 64000,
        "gres": "gpu:8",
        "features": ("k8s", FEATURE),
        "topology": "topo-tree:root:contract-spine:contract-leaf",
        **more,
    }
    return [NodeSpec(name=name, address=f"10.99.0.{i}", **fields) for i, name in enumerate(names)]


def request(tasks: int = 1, gpus: int = 1, **more: Any) -> JobRequest:
    fields: dict[str, Any] = {
        "name": "train",
        "user": "alice",
        "account": "ml",
        "partition": "gpu",
        "stamp": STAMP,
        "cpus_per_task": 1,
        "memory_mib_per_task": 1000,
        "time_limit_minutes": 5,
        "constraint": FEATURE,
        **more,
    }
    return JobRequest(tasks=tasks, gpus_per_task=gpus, **fields)


class Contract:
    """Subclasses give the fixture ``world``, with the nodes already made."""

    @pytest.fixture
    def holder(self, world: World, tmp_path: Path) -> TokenHolder:
        return TokenHolder(tmp_path / "token", world.token("slurm", 3600))

    @pytest.fixture
    async def slurm(self, world: World, holder: TokenHolder) -> AsyncIterator[RestSlurm]:
        slurm = self.connect(world, holder)
        yield slurm
        for job in await slurm.jobs():
            await slurm.end(job.id)
        await slurm.close()

    @staticmethod
    def connect(world: World, holder: TokenHolder, **more: Any) -> RestSlurm:
        more = {"cluster": CLUSTER, "timeout_seconds": 20.0, **more}
        return RestSlurm(world.url, TokenFile(holder.path), transport=world.transport, **more)

    @staticmethod
    async def until(slurm: RestSlurm, job_id: int, state: JobState, seconds: float = 20.0) -> Job:
        deadline = time.monotonic() + seconds
        seen: JobState | None = None
        while time.monotonic() < deadline:
            seen = (await slurm.states([job_id])).get(job_id)
            if seen is state:
                job = await slurm.job(job_id)
                assert job is not None
                return job
            await asyncio.sleep(0.05)
        raise AssertionError(f"job {job_id} is {seen}, not {state}, after {seconds} s")

    async def run(self, slurm: RestSlurm, wanted: JobRequest) -> Job:
        return await self.until(slurm, await slurm.submit(wanted), JobState.RUNNING)

    # -- meeting ----------------------------------------------------------------------------

    async def test_the_newest_version_is_agreed_on(self, slurm: RestSlurm) -> None:
        assert await slurm.start() == "v0.0.45"
        assert await slurm.start() == "v0.0.45"

    async def test_it_is_told_since_when_slurmctld_runs(self, slurm: RestSlurm) -> None:
        assert 1_000_000_000 < await slurm.booted() <= time.time() + 1

    # -- what a job is ----------------------------------------------------------------------

    async def test_a_job_is_what_was_asked_for(self, slurm: RestSlurm) -> None:
        before = time.time() - 2
        job = await self.run(slurm, request(2, 4, comment="fine", qos="high", account="vision"))
        assert (job.user, job.account, job.partition, job.qos) == ("alice", "vision", "gpu", "high")
        assert (job.stamp, job.comment, job.time_limit_minutes) == (STAMP, "fine", 5)
        assert before <= job.submitted <= job.started <= time.time() + 1
        assert (job.reason, job.ended, job.exit_code) == ("", 0.0, 0)

    async def test_hostile_text_arrives_as_data(self, slurm: RestSlurm) -> None:
        stamp = msgspec.structs.replace(STAMP, namespace=HOSTILE, gang=HOSTILE, id=HOSTILE)
        wanted = request(name=HOSTILE, comment=HOSTILE, stamp=stamp, hold=True)
        job = await slurm.job(await slurm.submit(wanted))
        assert job is not None
        assert (job.stamp, job.comment, job.user) == (stamp, HOSTILE, "alice")

    async def test_an_unlimited_job_has_no_limit(self, slurm: RestSlurm) -> None:
        job = await slurm.job(await slurm.submit(request(hold=True, time_limit_minutes=0xFFFFFFFF)))
        assert job is not None
        assert job.time_limit_minutes is None

    async def test_a_held_job_says_so_and_holds_nothing(self, slurm: RestSlurm) -> None:
        job_id = await slurm.submit(request(hold=True))
        job = await slurm.job(job_id)
        assert job is not None
        assert (job.state, job.reason) == (JobState.PENDING, "JobHeldUser")
        assert (job.shares, job.started) == ((), 0.0)

    async def test_a_job_that_must_wait_holds_nothing(self, slurm: RestSlurm) -> None:
        await self.run(slurm, request(4, 8))
        job_id = await slurm.submit(request(1, 8))
        deadline = time.monotonic() + 10
        while (job := await slurm.job(job_id)) and job.reason != "Resources":
            assert time.monotonic() < deadline, job
            await asyncio.sleep(0.1)
        assert job is not None
        assert (job.state, job.shares) == (JobState.PENDING, ())

    # -- where ranks go ---------------------------------------------------------------------

    @pytest.mark.parametrize(
        ("tasks", "cpus", "memory", "gpus", "ranks"),
        [
            (1, 1, 1000, 1, [1]),
            (2, 2, 2000, 4, [2]),  # two halves of one node
            (8, 1, 1000, 1, [8]),
            (3, 2, 2001, 4, [2, 1]),  # never half a rank
            (4, 8, 20000, 8, [1, 1, 1, 1]),
            (5, 3, 7001, 3, [2, 2, 1]),
            (4, 4, 20000, 1, [3, 1]),  # memory is what runs out
            (2, 12, 1000, 1, [1, 1]),  # cores are what runs out
            (1, 1, 512, 0, [1]),
            (6, 4, 9001, 0, [4, 2]),  # without GPUs nodes are filled too
            (40, 1, 500, 0, [16, 16, 8]),
            (3, 16, 1000, 0, [1, 1, 1]),
        ],
    )
    async def test_ranks_stay_whole_and_fill_nodes(
        self, slurm: RestSlurm, tasks: int, cpus: int, memory: int, gpus: int, ranks: list[int]
    ) -> None:
        wanted = request(tasks, gpus, cpus_per_task=cpus, memory_mib_per_task=memory)
        job = await self.run(slurm, wanted)
        assert {share.name for share in job.shares} <= set(NODES)
        assert sorted((s.cpus // cpus for s in job.shares), reverse=True) == ranks
        for share in job.shares:
            rank_count = share.cpus // cpus
            assert share.gpus == rank_count * gpus
            # whole MiB a GPU or a core: up to that much more than was asked for, never less
            more = share.memory_mib - rank_count * memory
            assert 0 <= more < rank_count * max(gpus, cpus)

    async def test_jobs_share_a_node(self, slurm: RestSlurm) -> None:
        first, second = [await self.run(slurm, request(4, 4)) for _ in range(2)]
        assert {s.name for s in first.shares}.isdisjoint({s.name for s in second.shares})
        assert sum(s.gpus for s in first.shares + second.shares) == 32
        await slurm.end(first.id)
        third = await self.run(slurm, request(2, 4))
        fourth = await self.run(slurm, request(2, 2))
        assert {s.name for s in third.shares + fourth.shares} <= {s.name for s in first.shares}

    async def test_an_exclusive_job_has_the_whole_node(self, slurm: RestSlurm) -> None:
        job = await self.run(slurm, request(1, 1, exclusive=True))
        assert [(s.cpus, s.gpus) for s in job.shares] == [(16, 8)]
        assert job.shares[0].memory_mib >= 1000

    async def test_excluded_nodes_are_not_used(self, slurm: RestSlurm) -> None:
        job = await self.run(slurm, request(2, 8, excluded_nodes=NODES[:2]))
        assert {s.name for s in job.shares} == set(NODES[2:])

    # -- following --------------------------------------------------------------------------

    async def test_states_leave_out_what_slurm_does_not_know(self, slurm: RestSlurm) -> None:
        job_id = await slurm.submit(request(hold=True))
        assert await slurm.states([job_id, 4_000_000]) == {job_id: JobState.PENDING}
        assert await slurm.states([4_000_000]) == {}
        assert await slurm.states([]) == {}

    async def test_states_of_very_many_jobs(self, slurm: RestSlurm) -> None:
        job_id = await slurm.submit(request(hold=True))
        ids = [*range(4_000_000, 4_003_000), job_id]
        assert await slurm.states(ids) == {job_id: JobState.PENDING}

    async def test_an_unknown_job_is_none(self, slurm: RestSlurm) -> None:
        assert await slurm.job(4_000_000) is None
        assert not await slurm.history(4_000_000)

    async def test_jobs_are_ours_alone(self, slurm: RestSlurm) -> None:
        other = msgspec.structs.replace(STAMP, sluice="another")
        theirs = await slurm.submit(request(hold=True, stamp=other))
        held = await slurm.submit(request(hold=True))
        running = await self.run(slurm, request(2, 8))
        listed = {job.id: job for job in await slurm.jobs() if not job.state.ended}
        assert set(listed) == {held, running.id}
        assert listed[running.id] == await slurm.job(running.id)
        await slurm.end(theirs)

    async def test_a_job_that_was_refused_is_not_listed(self, slurm: RestSlurm) -> None:
        stamp = msgspec.structs.replace(STAMP, id="refused")
        with pytest.raises(SlurmRefused):
            await slurm.submit(request(1, 9, stamp=stamp))
        assert stamp not in [job.stamp for job in await slurm.jobs()]

    async def test_a_stamp_is_rewritten(self, slurm: RestSlurm) -> None:
        running = await self.run(slurm, request(comment="kept"))
        stamp = msgspec.structs.replace(STAMP, started=True, outcome=HOSTILE)
        await slurm.mark(running.id, stamp)
        job = await slurm.job(running.id)
        assert job == msgspec.structs.replace(running, stamp=stamp)

    async def test_what_has_ended_cannot_be_marked(self, slurm: RestSlurm) -> None:
        job_id = await slurm.submit(request(hold=True))
        await slurm.end(job_id)
        with pytest.raises(SlurmRefused, match="already finished") as ended:
            await slurm.mark(job_id, STAMP)
        with pytest.raises(SlurmRefused, match="Invalid job id") as unknown:
            await slurm.mark(4_000_000, STAMP)
        assert (ended.value.code, unknown.value.code) == (2084, 2017)

    # -- ending -----------------------------------------------------------------------------

    async def test_an_ended_job_is_cancelled_and_frees_its_nodes(self, slurm: RestSlurm) -> None:
        job = await self.run(slurm, request(4, 8))
        await slurm.end(job.id)
        ended = await slurm.job(job.id)
        assert ended is not None
        assert (ended.state, ended.shares) == (JobState.CANCELLED, ())
        assert ended.started <= ended.ended <= time.time() + 1
        await slurm.end(job.id)
        assert len((await self.run(slurm, request(4, 8))).shares) == 4

    async def test_ending_what_is_not_there_is_no_error(self, slurm: RestSlurm) -> None:
        await slurm.end(4_000_000)

    async def test_accounting_remembers(self, slurm: RestSlurm) -> None:
        job = await self.run(slurm, request())
        stamp = msgspec.structs.replace(STAMP, outcome="pods succeeded")
        await slurm.mark(job.id, stamp)
        await slurm.end(job.id)
        deadline = time.monotonic() + 15
        while not (records := await slurm.history(job.id)) or not records[0].state.ended:
            assert time.monotonic() < deadline, records
            await asyncio.sleep(0.1)
        record = records[0]
        assert (record.state, record.stamp) == (JobState.CANCELLED, stamp)
        assert (record.user, record.account, record.partition) == ("alice", "ml", "gpu")
        assert 0 < record.submitted <= record.started <= record.ended

    # -- saying no --------------------------------------------------------------------------

    @pytest.mark.parametrize(
        ("wrong", "code", "words"),
        [
            ({"account": "visoin"}, 2045, "account 'visoin' does not exist .* user 'alice'"),
            ({"user": "bob", "account": "vision"}, 2045, "user 'bob' may not use it"),
            ({"user": "nosuchuser"}, 2164, "knows no user 'nosuchuser'"),
            ({"partition": "nowhere"}, 2000, "partition 'nowhere' does not exist"),
            ({"qos": "nosuchqos"}, 2066, "QOS 'nosuchqos' does not exist"),
            ({"reservation": "monday"}, 2053, "reservation 'monday' does not exist"),
            ({"gpus": 9}, 2014, "a rank of 1 CPUs, 1000 MiB, 9 GPUs"),
            ({"cpus_per_task": 17}, 2014, "a rank of 17 CPUs"),
            ({"memory_mib_per_task": 64009}, 2014, "64009 MiB"),
            ({"excluded_nodes": NODES}, 2014, "outside the excluded nodes"),
            ({"excluded_nodes": ("nosuchnode",)}, 2018, "a node that was excluded"),
            ({"licenses": "matlab:1"}, 2048, "licenses 'matlab:1'"),
            ({"dependency": "afterok:4000000"}, 2038, "dependency 'afterok:4000000'"),
            ({"constraint": "nosuchfeature"}, 2029, "constraint 'nosuchfeature'"),
            ({"begin": "rubbish"}, 9202, "begin 'rubbish' is no time"),
            ({"comment": "ü" * 1000}, 2012, "too long for Slurm"),
        ],
    )
    async def test_a_refusal_names_what_is_wrong(
        self, slurm: RestSlurm, wrong: dict[str, Any], code: int, words: str
    ) -> None:
        with pytest.raises(SlurmRefused, match=words) as refused:
            await slurm.submit(request(**wrong))
        assert refused.value.code == code

    async def test_the_group_of_jobs_may_be_named(
        self, world: World, holder: TokenHolder, slurm: RestSlurm
    ) -> None:
        grouped = self.connect(world, holder, group="users")
        assert await slurm.job(await grouped.submit(request(hold=True))) is not None
        await grouped.close()

    # -- tokens -----------------------------------------------------------------------------

    async def test_an_expired_token_is_denied_until_the_file_has_a_better_one(
        self, world: World, holder: TokenHolder, slurm: RestSlurm
    ) -> None:
        job_id = await slurm.submit(request(hold=True))
        holder.put(world.token("slurm", -60))
        calls = (slurm.booted(), slurm.submit(request()), slurm.end(job_id), slurm.jobs())
        for answer in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(answer, SlurmDenied)
            assert "did not accept the token" in str(answer)
        holder.put("rubbish")
        with pytest.raises(SlurmDenied) as denied:
            await slurm.states([job_id])
        assert "rubbish" not in str(denied.value)
        holder.put(f"SLURM_JWT={world.token('slurm', 3600)}\n")
        assert await slurm.states([job_id]) == {job_id: JobState.PENDING}

    async def test_an_ordinary_users_token_will_not_do(
        self, world: World, holder: TokenHolder, slurm: RestSlurm
    ) -> None:
        job_id = await slurm.submit(request(hold=True))
        holder.put(world.token("bob", 600))
        calls = (
            slurm.submit(request()),
            slurm.end(job_id),
            slurm.mark(job_id, STAMP),
            slurm.create_nodes(specs("contract9")),
        )
        for answer in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(answer, SlurmDenied)
            assert "token of SlurmUser" in str(answer)
        holder.put(world.token("slurm", 3600))

    # -- nodes ------------------------------------------------------------------------------

    async def test_names_and_addresses_belong_together(self, slurm: RestSlurm) -> None:
        nodes = {node.name: node for node in await slurm.nodes()}
        for spec in specs(*NODES):
            node = nodes[spec.name]
            assert (node.address, node.topology, node.gres) == (
                spec.address,
                spec.topology,
                spec.gres,
            )
            assert (node.cpus, node.memory_mib, node.features) == (16, 64000, spec.features)
            assert {"IDLE", "EXTERNAL"} <= set(node.states) or "MIXED" in node.states

    async def test_a_kind_of_gpu_that_gres_conf_lacks_is_refused(self, slurm: RestSlurm) -> None:
        with pytest.raises(SlurmRefused, match="Invalid argument"):
            await slurm.create_nodes(specs("contract9", gres="gpu:h200:8"))
        assert "contract9" not in [node.name for node in await slurm.nodes()]

    async def test_a_name_may_not_stand_twice(self, slurm: RestSlurm) -> None:
        with pytest.raises(SlurmRefused, match="contract9"):
            await slurm.create_nodes(specs("contract9", "contract9"))

    # -- limits -----------------------------------------------------------------------------

    async def test_slurm_tells_how_long_jobs_may_take_to_end(self, slurm: RestSlurm) -> None:
        assert await slurm.limits(7) == Limits(kill_wait=30)

    # -- slurmctld is away ------------------------------------------------------------------

    async def test_without_slurmctld_nothing_is_proven(
        self, world: World, holder: TokenHolder, slurm: RestSlurm
    ) -> None:
        job = await self.run(slurm, request())
        patient = self.connect(world, holder, timeout_seconds=30.0)
        world.stop_slurmctld()
        try:
            calls = (
                slurm.booted(),
                slurm.states([job.id]),
                slurm.job(job.id),
                slurm.jobs(),
                slurm.submit(request()),
                slurm.mark(job.id, STAMP),
                patient.end(job.id),
                slurm.nodes(),
                slurm.create_nodes(specs("contract9")),
            )
            answers = await asyncio.gather(*calls, return_exceptions=True)
        finally:
            world.start_slurmctld()
            await patient.close()
        assert [answer for answer in answers if not isinstance(answer, SlurmUnavailable)] == []
        assert (await slurm.states([job.id]))[job.id] is JobState.RUNNING
