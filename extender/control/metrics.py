"""What is counted, for Prometheus. One registry, made here, shown by the API."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

registry = CollectorRegistry()

gangs = Gauge("sluice_gangs", "Gangs by state.", ["state"], registry=registry)
pods = Gauge("sluice_pods", "Opted-in pods in the watch cache.", registry=registry)
nodes = Gauge("sluice_nodes", "Managed nodes in the watch cache.", registry=registry)
slurm_calls = Counter(
    "sluice_slurm_calls", "Calls to slurmrestd.", ["call", "outcome"], registry=registry
)
slurm_poll_seconds = Histogram(
    "sluice_slurm_poll_seconds", "Time of one call for the states of jobs.", registry=registry
)
kube_writes = Counter(
    "sluice_kube_writes", "Writes to the API server.", ["what", "outcome"], registry=registry
)
delay_seconds = Histogram(
    "sluice_gang_delay_seconds",
    "From a gang touched to a decision about it.",
    buckets=(0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
    registry=registry,
)
leader = Gauge("sluice_leader", "1 on the replica that acts.", registry=registry)
submits = Counter("sluice_submits", "Slurm jobs submitted.", registry=registry)
wait_seconds = Histogram(
    "sluice_gang_wait_seconds",
    "From the last pod of a gang created to its allocation seen.",
    buckets=(0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 3600, 21600, 86400),
    registry=registry,
)
place_seconds = Histogram(
    "sluice_gang_place_seconds",
    "From a gang's allocation seen to its last pod released.",
    registry=registry,
)
