"""kube-scheduler's extender messages, with exactly its Go field names.

Source: k8s.io/kube-scheduler/extender/v1/types.go. The Go types have no JSON tags, so all keys are
there, and nil is null. Of a pod or node only what is read is decoded: the rest is skipped.
"""

from __future__ import annotations

import msgspec
from msgspec import Raw, Struct, field

NULL = Raw(b"null")


class PodMetadata(Struct, frozen=True):
    name: str
    namespace: str
    uid: str


class PodSpec(Struct, frozen=True):
    # what the API server writes when it is missing (core/v1 defaults)
    scheduler: str = field(name="schedulerName", default="default-scheduler")


class Pod(Struct, frozen=True):
    metadata: PodMetadata
    spec: PodSpec = PodSpec()


class ExtenderArgs(Struct, frozen=True, rename="pascal"):
    """Arguments of filter and prioritize; ``node_names`` when the extender is nodeCacheCapable."""

    pod: Pod
    nodes: Raw = NULL  # a NodeList
    node_names: list[str] | None = None


class NodeMetadata(Struct, frozen=True):
    name: str


class NodeHead(Struct, frozen=True):
    metadata: NodeMetadata


class NodeList(Struct, frozen=True):
    """Nodes as bytes, so that they go back as they came."""

    items: list[Raw] | None = None


class FilterResult(Struct, rename="pascal"):
    nodes: NodeList | None = None
    node_names: list[str] | None = None
    failed_nodes: dict[str, str] = {}
    failed_and_unresolvable_nodes: dict[str, str] = {}
    error: str = ""


class HostPriority(Struct, frozen=True, rename="pascal"):
    """``score`` is 0 to 10 (MinExtenderPriority, MaxExtenderPriority)."""

    host: str
    score: int


class BindingArgs(Struct, frozen=True, rename="pascal"):
    pod_name: str
    pod_namespace: str
    pod_uid: str = field(name="PodUID")
    node: str


class BindingResult(Struct, frozen=True, rename="pascal"):
    error: str = ""


class VictimMetadata(Struct, frozen=True):
    uid: str


class VictimPod(Struct, frozen=True):
    metadata: VictimMetadata


class Victims(Struct, frozen=True, rename="pascal"):
    pods: list[VictimPod] | None = None
    num_pdb_violations: int = field(name="NumPDBViolations", default=0)


class MetaPod(Struct, frozen=True):
    uid: str = field(name="UID")


class MetaVictims(Struct, frozen=True, rename="pascal"):
    pods: list[MetaPod] | None = None
    num_pdb_violations: int = field(name="NumPDBViolations", default=0)


class PreemptionArgs(Struct, frozen=True, rename="pascal"):
    pod: Pod
    node_name_to_victims: dict[str, Victims | None] | None = None
    node_name_to_meta_victims: dict[str, MetaVictims | None] | None = None


class PreemptionResult(Struct, rename="pascal", omit_defaults=True):
    """``error`` is not in the Go type, which skips it: it is for people only."""

    node_name_to_meta_victims: dict[str, MetaVictims]
    error: str = ""


encode = msgspec.json.Encoder().encode
decode_args = msgspec.json.Decoder(ExtenderArgs).decode
decode_nodes = msgspec.json.Decoder(NodeList | None).decode
decode_node = msgspec.json.Decoder(NodeHead).decode
decode_binding = msgspec.json.Decoder(BindingArgs).decode
decode_preemption = msgspec.json.Decoder(PreemptionArgs).decode


def named_nodes(nodes: Raw) -> dict[str, Raw]:
    """The bytes of each node of a NodeList (or of ``null``) by its name."""
    found = decode_nodes(nodes)
    items = found.items if found and found.items else []
    return {decode_node(item).metadata.name: item for item in items}


def meta_victims(args: PreemptionArgs) -> dict[str, MetaVictims]:
    """The victims that kube-scheduler proposed, as an extender gives them back: by UID."""
    if args.node_name_to_meta_victims is not None:
        return {
            node: MetaVictims(victims.pods or [], victims.num_pdb_violations)
            for node, victims in args.node_name_to_meta_victims.items()
            if victims is not None
        }
    return {
        node: MetaVictims(
            [MetaPod(pod.metadata.uid) for pod in victims.pods or []], victims.num_pdb_violations
        )
        for node, victims in (args.node_name_to_victims or {}).items()
        if victims is not None
    }


MALFORMED: tuple[type[Exception], ...] = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def why_malformed(error: Exception) -> str:
    """One sentence for a body that could not be read."""
    if isinstance(error, RecursionError):
        return "the request body is nested too deeply"
    return f"the request body is not what kube-scheduler sends: {error}"
