"""From slurmrestd's structs to the domain's values."""

from __future__ import annotations

import re
from functools import cache

import msgspec

from extender.domain.model import Job, JobState, NodeShare, SlurmNode, Stamp
from extender.slurm.wire import DbJob, ExitCode, JobInfo, NodeInfo, Number, number

# One string a node: "gpu:8(IDX:0-7)", "gpu:h200:2(IDX:0,3),gpu:a100:1(IDX:5)", "gpu:4(CNT:4)"
_GPUS = re.compile(r"(?:^|,)gpu(?::[^:(),]+)?:(\d+)(?=\(|,|$)")
_UNKNOWN_TIMES = frozenset({0xFFFFFFFE, 0xFFFFFFFF})  # NO_VAL, INFINITE: slurmdb writes them bare


def job(info: JobInfo) -> Job:
    """A job as slurmctld tells it. Only one that runs has shares: an external job in COMPLETING
    (while EpilogSlurmctld runs) has given its nodes back, though Slurm still names them."""
    base = state(info.job_state)
    holding = base in (JobState.RUNNING, JobState.SUSPENDED)
    return Job(
        id=info.job_id,
        state=base,
        reason=_reason(info.state_reason),
        stamp=stamp(info.admin_comment),
        smudged=smudged(info.admin_comment),
        user=info.user_name or "",
        account=info.account or "",
        partition=info.partition or "",
        qos=info.qos or "",
        submitted=_time(info.submit_time),
        started=_time(info.start_time),
        ended=_time(info.end_time) if base.ended else 0.0,
        time_limit_minutes=_minutes(info.time_limit),
        comment=info.comment or "",
        exit_code=_exit_code(info.exit_code),
        restarts=info.restart_cnt or 0,
        shares=_shares(info) if holding else (),
    )


def accepted(info: JobInfo) -> bool:
    """Not one that slurmctld refused at submit: of those that no node can hold (error 2014) it
    keeps a record, FAILED for BadConstraints, until MinJobAge."""
    return state(info.job_state) is not JobState.FAILED or info.state_reason != "BadConstraints"


def recorded(record: DbJob) -> Job:
    """A job as accounting tells it: without shares, for it holds nothing any more."""
    base = state(record.state.current)
    return Job(
        id=record.job_id,
        state=base,
        reason=_reason(record.state.reason),
        stamp=stamp(record.comment.administrator),
        user=record.user or "",
        account=record.account or "",
        partition=record.partition or "",
        qos=record.qos or "",
        submitted=_time(record.time.submission),
        started=_time(record.time.start),
        ended=_time(record.time.end) if base.ended else 0.0,
        time_limit_minutes=_minutes(record.time.limit),
        comment=record.comment.job or "",
        exit_code=_exit_code(record.exit_code),
    )


def node(info: NodeInfo) -> SlurmNode:
    features = info.features or []
    if isinstance(features, str):
        features = [word for word in features.split(",") if word]
    return SlurmNode(
        name=info.name,
        states=_words(info.state),
        address=info.address or "",
        cpus=info.cpus,
        memory_mib=info.real_memory,
        gres=info.gres or "",
        gpus=_gpus(info.gres or ""),
        features=tuple(features),
        topology=info.topology or "",
        reason=info.reason or "",
    )


def state(value: list[str] | str) -> JobState:
    """The base state among a job's state and its flags ("RUNNING", "COMPLETING").

    CONFIGURING (the nodes boot, or PrologSlurmctld runs) counts as pending: the nodes are not the
    job's to use yet.
    """
    return _base_state(_words(value))


@cache
def _base_state(words: tuple[str, ...]) -> JobState:
    if "CONFIGURING" in words:
        return JobState.PENDING
    known = [word for word in words if word in JobState.__members__]
    return JobState(known[0]) if known else JobState.UNKNOWN


def stamp(comment: str | None) -> Stamp | None:
    """The stamp in an admin comment; ``None`` where the comment is somebody else's."""
    if not comment or not comment.startswith("{"):
        return None
    try:
        return msgspec.json.decode(comment, type=Stamp)
    except (msgspec.MsgspecError, UnicodeError):
        return None


def smudged(comment: str | None) -> bool:
    """A stamp was there, and somebody has cut or changed it."""
    return '"sluice"' in (comment or "") and stamp(comment) is None


def _words(value: list[str] | str) -> tuple[str, ...]:
    return tuple(value.split()) if isinstance(value, str) else tuple(value)


def _reason(word: str | None) -> str:
    return "" if word in (None, "None") else word


def _shares(info: JobInfo) -> tuple[NodeShare, ...]:
    nodes = info.job_resources.nodes if info.job_resources else None
    allocation = (nodes.allocation if nodes else None) or []
    gres = info.gres_detail or []
    return tuple(
        NodeShare(
            name=part.name,
            cpus=part.cpus.count,
            memory_mib=part.memory.allocated,
            gpus=_gpus(gres[index]) if index < len(gres) else 0,
        )
        for index, part in enumerate(allocation)
    )


def _gpus(detail: str) -> int:
    return sum(map(int, _GPUS.findall(re.sub(r"(?<=\()[^)]*", "", detail))))


def _time(value: Number) -> float:
    seconds = number(value) or 0
    return 0.0 if seconds in _UNKNOWN_TIMES else float(seconds)


def _minutes(value: Number) -> int | None:
    minutes = number(value)
    return None if minutes is None else int(minutes)


def _exit_code(code: ExitCode | None) -> int:
    """As a shell would say it: 128 + the signal for a job that a signal ended."""
    if code is None:
        return 0
    signal = number(code.signal.id) if code.signal else None
    return 128 + int(signal) if signal else int(number(code.return_code) or 0)
