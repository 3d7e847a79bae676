"""What is counted about kube-scheduler's calls, for Prometheus."""

from __future__ import annotations

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Histogram

prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]

verdicts = Counter(
    "sluice_filter_verdicts",
    "Answers to filter: pass (not Sluice's pod), node, wait.",
    ["verdict"],
    registry=None,
)
failures = Counter(
    "sluice_extender_failures",
    "Calls that kube-scheduler got no useful answer to.",
    ["verb"],
    registry=None,
)
seconds = Histogram(
    "sluice_extender_seconds",
    "Time to answer kube-scheduler, from the last byte of the request on.",
    ["verb"],
    buckets=(0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.1, 0.5, 2.0),
    registry=None,
)


def register(registry: CollectorRegistry) -> None:
    """Show them in ``registry``; a second time (two applications, one registry) does nothing."""
    for collector in (verdicts, failures, seconds):
        try:
            registry.register(collector)
        except ValueError:  # "Duplicated timeseries": the only reason that it gives
            continue
