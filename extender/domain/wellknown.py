"""Every name that Sluice and its users share. Nothing else spells a label, annotation or gate."""

from typing import Final

PREFIX: Final = "sluice.dev/"

# Opt-in: a label of the namespace, or of a pod in any namespace. On a node: "Slurm hands this
# node out".
MANAGED: Final = "sluice.dev/managed"
GATED: Final = "sluice.dev/gated"  # on pods whose template admission has prepared
OPTED_OUT: Final = "sluice.dev/ignore"

SCHEDULER: Final = "sluice"
GATE: Final = "sluice.dev/slurm"
TAINT: Final = "sluice.dev/slurm"
CONDITION: Final = "sluice.dev/Placed"

# Requests, on the pod template. The words are Slurm's own.
GANG: Final = "sluice.dev/gang"
GANG_SIZE: Final = "sluice.dev/gang-size"
ACCOUNT: Final = "sluice.dev/account"
PARTITION: Final = "sluice.dev/partition"
QOS: Final = "sluice.dev/qos"
RESERVATION: Final = "sluice.dev/reservation"
TIME_LIMIT: Final = "sluice.dev/time-limit"
CONSTRAINT: Final = "sluice.dev/constraint"
LICENSES: Final = "sluice.dev/licenses"
NICE: Final = "sluice.dev/nice"
WCKEY: Final = "sluice.dev/wckey"
SWITCHES: Final = "sluice.dev/switches"
EXCLUSIVE: Final = "sluice.dev/exclusive"
BEGIN: Final = "sluice.dev/begin"
DEPENDENCY: Final = "sluice.dev/dependency"
COMMENT: Final = "sluice.dev/comment"
HOLD: Final = "sluice.dev/hold"
HOLD_ON_RESTART: Final = "sluice.dev/hold-on-restart"

REQUESTS: Final = frozenset(
    {
        GANG,
        GANG_SIZE,
        ACCOUNT,
        PARTITION,
        QOS,
        RESERVATION,
        TIME_LIMIT,
        CONSTRAINT,
        LICENSES,
        NICE,
        WCKEY,
        SWITCHES,
        EXCLUSIVE,
        BEGIN,
        DEPENDENCY,
        COMMENT,
        HOLD,
        HOLD_ON_RESTART,
    }
)

# Answers, on the pod, written by Sluice only (an admission policy forbids anyone else).
JOB_ID: Final = "sluice.dev/job-id"
NODE: Final = "sluice.dev/node"
RANK: Final = "sluice.dev/rank"
RANKS: Final = "sluice.dev/ranks"  # how many ranks the gang has
NODELIST: Final = "sluice.dev/nodelist"
NODES: Final = "sluice.dev/nodes"

GANG_ID: Final = "sluice.dev/gang-id"  # Gang.id: outlives the pod's owner
ANSWERS: Final = frozenset({JOB_ID, NODE, RANK, RANKS, NODELIST, NODES, GANG_ID})

# Namespace annotations, set by a cluster administrator. USER is the Slurm user that jobs run as;
# ACCOUNT above gives the default account; each list says what the namespace's pods may name.
USER: Final = "sluice.dev/user"
ALLOWED_ACCOUNTS: Final = "sluice.dev/accounts"
ALLOWED_PARTITIONS: Final = "sluice.dev/partitions"
ALLOWED_QOS: Final = QOS  # on a namespace the same word holds the list
ALLOWED_RESERVATIONS: Final = "sluice.dev/reservations"

# Node labels and annotations.
SWITCH_PATH: Final = "sluice.dev/switch-path"  # "spine0/leaf3", over all other labels
LEAF_LABEL: Final = "network.topology.nvidia.com/leaf"
SPINE_LABEL: Final = "network.topology.nvidia.com/spine"
CORE_LABEL: Final = "network.topology.nvidia.com/core"

# Conditions of a pod whose Slurm job ended before it did: which state it ended in, for a Job's
# podFailurePolicy to match.
PREEMPTED: Final = "sluice.dev/Preempted"
NODE_FAIL: Final = "sluice.dev/NodeFail"
BOOT_FAIL: Final = "sluice.dev/BootFail"
TIMEOUT: Final = "sluice.dev/Timeout"
DEADLINE: Final = "sluice.dev/Deadline"
OUT_OF_MEMORY: Final = "sluice.dev/OutOfMemory"
CANCELLED: Final = "sluice.dev/Cancelled"
COMPLETED: Final = "sluice.dev/Completed"
FAILED: Final = "sluice.dev/Failed"

# Kubernetes' own.
COMPLETION_INDEX: Final = "batch.kubernetes.io/job-completion-index"
JOB_NAME_LABEL: Final = "batch.kubernetes.io/job-name"
GPU_RESOURCE: Final = "nvidia.com/gpu"
DISRUPTION_TARGET: Final = "DisruptionTarget"
