"""All disagreements of two books.

It knows nothing of what Sluice remembers or is about to do: what a busy cluster shows for a
moment (a job that runs while its pods are being released) is found too, and who asks looks twice.
"""

from __future__ import annotations

from extender.domain.books.findings import Books, Finding, Terms, in_order
from extender.domain.books.index import Index
from extender.domain.books.jobs import (
    double_jobs,
    gang_findings,
    job_findings,
    smudged_jobs,
    waiting_gangs,
)
from extender.domain.books.nodes import namespace_findings, node_findings
from extender.domain.books.pods import beside_slurm, exceeded_shares, pod_findings, same_ranks


def disagreements(books: Books, terms: Terms) -> tuple[Finding, ...]:
    """In the order of ``Kind``; none for books that agree."""
    index = Index(books, terms)
    found: list[Finding] = []
    for job in index.live:
        found += job_findings(job, index)
        found += waiting_gangs(job, index)
        found += exceeded_shares(job, index.placed_in.get(job.id, ()), index)
    for number, pods in index.placed_in.items():
        found += same_ranks(number, pods, index)
    for gang in index.gangs.values():
        found += gang_findings(gang, index)
    for pod in index.ours:
        found += pod_findings(pod, index)
    found += double_jobs(index)
    found += smudged_jobs(index)
    found += beside_slurm(index)
    found += node_findings(books, index.ours, index.live, terms)
    found += namespace_findings(books, {pod.namespace for pod in index.ours}, terms)
    return in_order(found)
