"""What can be decided about a gang: states for people, actions for the hands."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from extender.domain.model import Job, JobState, Pod, Stamp


class GangState(StrEnum):
    CHECKING = "Checking"  # Slurm has not been looked at yet
    FORMING = "Forming"  # pods are missing
    INVALID = "Invalid"  # can never start as it stands
    SUBMITTING = "Submitting"
    QUEUED = "Queued"  # in Slurm's queue
    STARTING = "Starting"  # allocated; pods are being placed
    RUNNING = "Running"
    RESTARTING = "Restarting"  # its pods have ended; its nodes are kept for the next ones
    ENDING = "Ending"
    DONE = "Done"
    LOST = "Lost"  # its pods run on nodes of a job that Slurm does not know


class Submit(Struct, frozen=True):
    """Queue one Slurm job for these pods, on none of the nodes to ``avoid``.

    With ``nodes`` it takes the place of a job that slurmctld has lost (at ``fell``): the pods run
    on these nodes already.
    """

    attempt: int
    pods: tuple[Pod, ...]
    ranks: int  # of the job: there may be fewer pods in place of a job that was lost
    avoid: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    fell: float = 0.0


class Look(Struct, frozen=True):
    """Read one job whole: its allocation is needed."""

    job_id: int


class Trace(Struct, frozen=True):
    """Find out what became of a job that pods name and that Slurm's list lacks."""

    job_id: int


class Confirm(Struct, frozen=True):
    """Make slurmctld save that the job has started."""

    job: Job


class Mark(Struct, frozen=True):
    """Write this stamp into the job; with ``nodes``, let it start on exactly these."""

    job: Job
    stamp: Stamp
    nodes: tuple[str, ...] = ()


class Nodes(Struct, frozen=True):
    """The nodes of an allocation."""

    names: tuple[str, ...]  # in fabric order
    folded: str  # as Slurm writes them, "k[0-3,7]"; the order of ranks is in the ranks


class Release(Struct, frozen=True):
    """Give a pod its node, rank and job, and take the gate off, in one write."""

    pod: Pod
    job_id: int
    node: str
    rank: int
    ranks: int
    nodes: Nodes  # of the gang, one value for all of its pods


class End(Struct, frozen=True):
    """End the Slurm job, for a reason of ours, which is written into its stamp first.

    The stamp tells the next decision that nobody took the nodes from the gang: pods that are
    there by then are not to be deleted.
    """

    job: Job
    exit_code: int
    why: str
    finished: bool = False  # all pods came to their end: the exit code is theirs


class Evict(Struct, frozen=True):
    """Delete a pod with its own grace. ``state`` is what Slurm made of its job, if it did."""

    pod: Pod
    why: str
    state: JobState | None = None


Action = Submit | Look | Trace | Confirm | Mark | Release | End | Evict


class Decision(Struct, frozen=True):
    state: GangState
    reason: str  # a sentence for the person who waits
    actions: tuple[Action, ...] = ()
    job: Job | None = None
    again_in: float = 0.0  # seconds after which time alone changes the decision; 0: never
