"""What Sluice needs of Slurm, and the three ways in which Slurm can fail to give it.

Every adapter passes the same contract tests. Nothing above this package knows how Slurm is reached.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from extender.domain.grace import Limits
from extender.domain.model import Job, JobRequest, JobState, NodeSpec, SlurmNode, Stamp

UNKNOWN_NODE = 2018  # ESLURM_INVALID_NODE_NAME: a node was named that Slurm does not have


class SlurmError(Exception):
    """Slurm did not do what was asked. The message is a sentence for a person."""


class SlurmUnavailable(SlurmError):
    """No answer, or one that proves nothing: time-out, broken connection, 5xx, slurmctld down.

    The call may have been carried out all the same. Look before you repeat it.
    """


class SlurmUnsent(SlurmUnavailable):
    """It was not even sent: no connection, or this replica does not lead. Nothing was done."""


class SlurmDenied(SlurmError):
    """The token was refused: expired, malformed, or its user may not do this."""


class SlurmRefused(SlurmError):
    """Slurm understood and said no. ``code`` is Slurm's error number (0 where it gave none)."""

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code


class Slurm(Protocol):
    """All calls are safe to repeat but ``submit``; all raise ``SlurmError`` and nothing else."""

    async def start(self) -> str:
        """Connect and agree on a version of the API; returns it ("v0.0.45"). Safe to call again."""

    async def close(self) -> None: ...

    async def booted(self) -> float:
        """When slurmctld was started, in seconds since the epoch. Changes when it starts anew, and
        sometimes without that. Needs slurmctld and a good token, and nothing else."""

    async def submit(self, request: JobRequest) -> int:
        """Queue one external job and return its id. After ``SlurmUnavailable`` it may exist."""

    async def states(self, ids: Iterable[int]) -> Mapping[int, JobState]:
        """One light call. Ids that slurmctld does not know are left out."""

    async def job(self, job_id: int) -> Job | None:
        """One job with its allocation; ``None`` when slurmctld says that it has no such job, or
        when it is stamped by the Sluice of another cluster."""

    async def jobs(self) -> Sequence[Job]:
        """Every job with a stamp of ours, and those whose stamp is ``smudged``. Expensive: at start
        and on doubt only."""

    async def history(self, job_id: int) -> Sequence[Job]:
        """What accounting says of the jobs that had this number, the newest first: slurmctld gives
        numbers again when it has lost its state. Without those of other clusters' Sluices."""

    async def mark(self, job_id: int, stamp: Stamp, nodes: Sequence[str] = ()) -> None:
        """Rewrite the job's stamp. Being an update, it also makes slurmctld save its state. With
        ``nodes``, a pending job is to start on these: all that it held before, for slurmctld takes
        them from a job that runs by now, and loses those that are not named."""

    async def end(self, job_id: int) -> None:
        """Cancel with SIGKILL (any other signal poisons the nodes); no error when it has ended."""

    async def finish(self, job_id: int, exit_code: int, comment: str = "") -> None:
        """End a job whose pods have ended: COMPLETED, or FAILED with the exit code, where Slurm can
        be told so; else like ``end``, with how it ended written behind its ``comment``. A job that
        is pending becomes CANCELLED."""

    async def nodes(self) -> Sequence[SlurmNode]:
        """All nodes. Expensive: at start and on doubt only."""

    async def limits(self, kill_wait_seconds: int) -> Limits:
        """How long Slurm lets jobs take to end. Of KillWait old slurmrestds say nothing: it is
        ``kill_wait_seconds`` then."""

    async def create_nodes(self, specs: Sequence[NodeSpec]) -> None:
        """Create external nodes. The caller has made sure that none of the names exists."""
