"""Both books, indexed: whose pods, which gang, which job."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from extender.domain import wellknown as names
from extender.domain.books.findings import Books, Terms
from extender.domain.gangs import Membership, form, lone, membership, opted_in
from extender.domain.model import Gang, GangKind, Job, JobState, Pod, Stamp, Workload
from extender.domain.ranks import job_of


class Index:
    """Both books, indexed."""

    def __init__(self, books: Books, terms: Terms) -> None:
        self.terms, self.at = terms, books.at
        self.namespaces = {n.name: n for n in books.namespaces}
        self.nodes = {n.name: n for n in books.nodes}
        self.jobs = {job.id: job for job in books.jobs}
        self.live = [j for j in books.jobs if j.state.live and self.stamp(j)]
        self.live_ids = {job.id for job in self.live}
        self.living = [p for p in books.pods if not p.terminal]
        self.ours = [p for p in self.living if self._opted_in(p)]
        self.gangs, self.gang_of = self._gangs({w.uid: w for w in books.workloads})
        self.placed_in: dict[int, list[Pod]] = {}
        for pod in self.ours:
            if number := job_of(pod):
                self.placed_in.setdefault(number, []).append(pod)
        self.spare = self._spare()

    def _spare(self) -> dict[int, int]:
        """Live jobs of a gang that has another -> that other: the one that pods are in, else one
        that runs, else the oldest."""
        jobs_of: dict[tuple[str, str], list[Job]] = defaultdict(list)
        for job in self.live:
            if job.stamp:
                jobs_of[job.stamp.namespace, job.stamp.id].append(job)
        spare: dict[int, int] = {}
        for jobs in jobs_of.values():
            kept, *others = sorted(
                jobs,
                key=lambda j: (j.id not in self.placed_in, j.state is not JobState.RUNNING, j.id),
            )
            spare |= {job.id: kept.id for job in others}
        return spare

    def stamp(self, job: Job) -> Stamp | None:
        """The job's stamp, where it is this cluster's."""
        return job.stamp if job.stamp and job.stamp.sluice == self.terms.cluster else None

    def _opted_in(self, pod: Pod) -> bool:
        return opted_in(pod, self.namespaces.get(pod.namespace), self.terms.scheduler)

    def _gangs(
        self, workloads: dict[str, Workload]
    ) -> tuple[dict[tuple[str, str], Gang], dict[str, Gang]]:
        """By namespace and id, and by pod."""
        members: dict[tuple[str, str], tuple[Membership, list[Pod]]] = {}
        for pod in self.ours:
            member = _member(pod, workloads)
            members.setdefault((pod.namespace, member.id), (member, []))[1].append(pod)
        gangs = {
            key: form(member, pods, workloads.get(member.id))
            for key, (member, pods) in members.items()
        }
        return gangs, {pod.uid: gang for gang in gangs.values() for pod in gang.pods}

    def _pods_of(self, stamp: Stamp) -> Sequence[Pod]:
        gang = self.gangs.get((stamp.namespace, stamp.id))
        if stamp.kind is GangKind.POD and not gang:  # its Job may have become a gang since
            return [p for p in self.ours if p.uid == stamp.id]
        return gang.pods if gang else ()

    def waiting(self, job: Job) -> list[Pod]:
        """The pods of the job's gang that are not placed in any job."""
        stamp = job.stamp
        if stamp is None:
            return []
        pods = self._pods_of(stamp)
        return [p for p in pods if names.JOB_ID not in p.annotations and not _later(p, stamp)]

    def lonely(self, job: Job) -> bool:
        """No living pod is in the job, or waits for it, or was in one that Slurm has lost, in whose
        place the job is."""
        if self.placed_in.get(job.id) or self.waiting(job):
            return False
        pods = self._pods_of(job.stamp) if job.stamp else ()
        return not any(self.stranded(pod) for pod in pods)

    def stranded(self, pod: Pod) -> bool:
        """It was placed in a job that slurmctld does not know."""
        job = self.jobs.get(job_of(pod))
        return job_of(pod) > 0 and (job is None or job.state is JobState.LOST)

    def kept(self, job: Job) -> bool:
        """Its gang restarts as a whole and asked for the nodes to be kept meanwhile."""
        stamp = job.stamp
        return stamp is not None and stamp.held > 0 and self.at <= stamp.held + stamp.hold


def _member(pod: Pod, workloads: dict[str, Workload]) -> Membership:
    owner = pod.owner
    member = membership(pod, workloads.get(owner.uid) if owner else None)
    if member is None and owner:
        return Membership(owner.uid, GangKind.JOB, owner.name)  # its Job is gone
    return member or lone(pod)


def _later(pod: Pod, stamp: Stamp) -> bool:
    """Pods that name a gang: it was made after the job was submitted for others of the name."""
    return stamp.kind is GangKind.PODS and pod.created > stamp.newest
