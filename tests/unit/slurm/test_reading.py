"""Bodies that slurmrestd 26.05.5 gave, in each of its versions, as values."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec
import pytest

from extender.domain.model import GangKind, JobState, NodeShare, Stamp
from extender.slurm import reading, wire
from extender.slurm.requests import stamp_text
from extender.slurm.restd import VERSIONS

RECORDED = Path(__file__).parent / "recorded"
STAMP = Stamp(sluice="prod", namespace="ml", gang="train", kind=GangKind.JOB, id="uid-1")

R = TypeVar("R", bound=wire.Reply)
every_version = pytest.mark.parametrize("version", VERSIONS)


def job_info(version: str, name: str) -> wire.JobInfo:
    jobs = recorded(version, name, wire.Jobs).jobs
    assert jobs
    return jobs[0]


def recorded(version: str, name: str, body: type[R]) -> R:
    return msgspec.json.decode((RECORDED / f"{version}-{name}.json").read_bytes(), type=body)


def changed(info: wire.JobInfo, **fields: object) -> wire.JobInfo:
    """The body with other fields, through JSON as it would come."""
    body = {**msgspec.to_builtins(info), **fields}
    return msgspec.convert(body, wire.JobInfo)


@every_version
def test_a_running_job_holds_whole_ranks(version: str) -> None:
    job = reading.job(job_info(version, "running"))
    assert (job.state, job.reason, job.stamp, job.comment) == (
        JobState.RUNNING,
        "",
        STAMP,
        "a note",
    )
    assert (job.user, job.account, job.partition, job.qos) == ("alice", "vision", "gpu", "normal")
    assert (job.time_limit_minutes, job.exit_code, job.ended) == (60, 0, 0.0)
    assert job.submitted <= job.started
    assert job.shares == (
        NodeShare("contract0", cpus=4, memory_mib=4008, gpus=8),
        NodeShare("contract1", cpus=2, memory_mib=2004, gpus=4),
    )


@every_version
def test_a_waiting_job_holds_nothing_and_has_no_limit(version: str) -> None:
    job = reading.job(job_info(version, "waiting"))
    assert (job.state, job.shares, job.time_limit_minutes) == (JobState.PENDING, (), None)


@every_version
def test_an_ended_job_holds_nothing_though_slurm_still_names_its_nodes(version: str) -> None:
    info = job_info(version, "ended")
    assert info.job_resources is not None
    job = reading.job(info)
    assert (job.state, job.shares) == (JobState.CANCELLED, ())
    assert job.ended >= job.started > 0


@every_version
def test_a_list_without_details_has_no_shares(version: str) -> None:
    job = reading.job(job_info(version, "listed"))
    assert (job.state, job.stamp, job.shares) == (JobState.RUNNING, STAMP, ())


@every_version
def test_accounting_says_what_became_of_a_job(version: str) -> None:
    records = recorded(version, "accounted", wire.DbJobs).jobs
    assert records
    job = reading.recorded(records[0])
    assert (job.state, job.stamp, job.user) == (JobState.CANCELLED, STAMP, "alice")
    assert (job.time_limit_minutes, job.shares) == (60, ())
    assert 0 < job.submitted <= job.started <= job.ended


@every_version
def test_accounting_without_a_record_is_empty(version: str) -> None:
    answer = recorded(version, "unaccounted", wire.DbJobs)
    assert not answer.jobs
    assert not answer.errors


@every_version
def test_a_node(version: str) -> None:
    nodes = recorded(version, "node", wire.Nodes).nodes
    assert nodes
    node = reading.node(nodes[0])
    assert (node.name, node.address, node.cpus, node.memory_mib) == (
        "contract1",
        "10.99.0.1",
        16,
        64000,
    )
    assert (node.gres, node.features) == ("gpu:8", ("k8s", "contract"))
    assert node.topology == "topo-tree:root:contract-spine:contract-leaf"
    # v0.0.43 has no word for it yet
    assert ("EXTERNAL" in node.states) is (version != "v0.0.43")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("RUNNING", JobState.RUNNING),
        (["RUNNING"], JobState.RUNNING),
        ("RUNNING COMPLETING", JobState.RUNNING),
        (["CANCELLED", "COMPLETING"], JobState.CANCELLED),
        (["COMPLETING", "TIMEOUT"], JobState.TIMEOUT),
        (["PENDING", "REQUEUED"], JobState.PENDING),
        (["RUNNING", "CONFIGURING"], JobState.PENDING),
        (["OUT_OF_MEMORY"], JobState.OUT_OF_MEMORY),
        (["SOMETHING_NEW"], JobState.UNKNOWN),
        ([], JobState.UNKNOWN),
    ],
)
def test_states(words: list[str] | str, expected: JobState) -> None:
    assert reading.state(words) is expected


@pytest.mark.parametrize("words", [["CANCELLED", "COMPLETING"], ["RUNNING", "CONFIGURING"]])
def test_a_job_that_completes_or_is_prepared_has_no_nodes(words: list[str]) -> None:
    job = reading.job(changed(job_info("v0.0.45", "running"), job_state=words))
    assert job.shares == ()


@pytest.mark.parametrize(
    ("detail", "gpus"),
    [
        ("gpu:8(IDX:0-7)", 8),
        ("gpu:h200:2(IDX:0,3)", 2),
        ("gpu:h200:2(IDX:0,3),gpu:a100:1(IDX:5)", 3),
        ("shard:4(0/4,1/4),gpu:1(IDX:2)", 1),
        ("nic:2(IDX:0-1)", 0),
        ("gpu:4(CNT:4)", 4),
        ("gpu:4", 4),
        ("", 0),
    ],
)
def test_gpus_of_a_node(detail: str, gpus: int) -> None:
    info = changed(job_info("v0.0.45", "running"), gres_detail=[detail])
    assert reading.job(info).shares[0].gpus == gpus


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ({"return_code": {"set": True, "number": 3}, "signal": {"id": {"set": False}}}, 3),
        (
            {
                "return_code": {"set": False, "number": 0},
                "signal": {"id": {"set": True, "number": 9}},
            },
            137,
        ),
        ({"return_code": 5, "signal": None}, 5),
        (None, 0),
    ],
)
def test_exit_codes(code: object, expected: int) -> None:
    assert reading.job(changed(job_info("v0.0.45", "ended"), exit_code=code)).exit_code == expected


@pytest.mark.parametrize(
    ("limit", "minutes"),
    [
        ({"set": True, "infinite": False, "number": 90}, 90),
        ({"set": False, "infinite": True, "number": 0}, None),
        ({"set": True, "infinite": True, "number": 0}, None),
        (90, 90),
        ("90", 90),
        (None, None),
    ],
)
def test_time_limits(limit: object, minutes: int | None) -> None:
    info = changed(job_info("v0.0.45", "waiting"), time_limit=limit)
    assert reading.job(info).time_limit_minutes == minutes


@pytest.mark.parametrize(
    "comment",
    [
        "",
        "hello",
        "{",
        "{}",
        '{"sluice": 3}',
        '{"sluice":"x","ns":"n"}',
        "[1]",
        None,
        '{"a":\ud800}',
    ],
)
def test_a_foreign_comment_is_no_stamp(comment: str | None) -> None:
    assert reading.stamp(comment) is None


@pytest.mark.parametrize(
    ("comment", "smudged"),
    [
        ('{"sluice": "kubernetes", "ns": "ml", "ga', True),
        ('{"sluice": "kubernetes"}', True),
        ('was: {"sluice": "kubernetes"}', True),
        (stamp_text(STAMP), False),
        ("sluice gate", False),
        ("", False),
        (None, False),
    ],
)
def test_a_stamp_that_was_damaged(comment: str | None, smudged: bool) -> None:
    assert reading.smudged(comment) is smudged


def test_a_stamp_with_more_in_it_is_still_ours() -> None:
    text = msgspec.json.encode(STAMP).decode().replace("{", '{"later":[1],', 1)
    assert reading.stamp(text) == STAMP


def test_what_was_refused_at_submit_is_no_job() -> None:
    info = job_info("v0.0.45", "ended")
    assert reading.accepted(info)
    assert not reading.accepted(changed(info, job_state=["FAILED"], state_reason="BadConstraints"))
    assert reading.accepted(changed(info, job_state=["FAILED"], state_reason="NonZeroExitCode"))
