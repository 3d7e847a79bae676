"""Where the two books disagree on nodes, and on whom a namespace is in Slurm."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator

from extender.domain import wellknown as names
from extender.domain.books.findings import Books, Finding, Kind, Terms
from extender.domain.model import Job, Namespace, Node, Pod, SlurmNode
from extender.domain.policy import Refusal, grant
from extender.domain.quantity import MIB
from extender.domain.ranks import node_of

_DOWN = frozenset({"DOWN", "ERROR", "FAIL", "FAILING", "INVAL", "NOT_RESPONDING"})
_DRAINED = frozenset({"DRAIN", "DRAINED", "DRAINING"})


def node_findings(
    books: Books, pods: Iterable[Pod], jobs: Iterable[Job], terms: Terms
) -> Iterator[Finding]:
    """``pods`` are the living ones that are Slurm's to place, ``jobs`` this cluster's live ones."""
    managed = {n.name: n for n in books.nodes if n.labels.get(names.MANAGED) == "true"}
    known = {n.name: n for n in books.slurm_nodes}
    holders: dict[str, list[int]] = defaultdict(list)
    for job in jobs:
        for share in job.shares:
            holders[share.name].append(job.id)
    there: dict[str, list[Pod]] = defaultdict(list)
    for pod in pods:
        there[node_of(pod)].append(pod)
    for node in managed.values():
        if terms.taint and all(t.get("key") != names.TAINT for t in node.taints):
            yield _untainted(node)
        slurm_node = known.get(node.name)
        if slurm_node is None:
            yield _not_in_slurm(node, terms)
        else:
            yield from _differences(node, slurm_node, terms)
    unmanaged = {n.name for n in books.nodes} - managed.keys()
    for slurm_node in known.values():
        held = holders[slurm_node.name]
        if slurm_node.name not in managed and (held or _offered(slurm_node, terms)):
            yield _not_in_kubernetes(slurm_node.name, slurm_node.name in unmanaged, held)
        if there[slurm_node.name] and (words := set(slurm_node.states) & (_DOWN | _DRAINED)):
            yield _out_of_service(slurm_node, words, there[slurm_node.name])


def _offered(node: SlurmNode, terms: Terms) -> bool:
    """Slurm may place gangs there: an external node of ours that is in service."""
    return (
        terms.feature in node.features
        and "EXTERNAL" in node.states
        and not set(node.states) & (_DRAINED | {"DOWN", "FAIL"})
    )


def _untainted(node: Node) -> Finding:
    return Finding(
        kind=Kind.NODE_UNTAINTED,
        node=node.name,
        message=f"it is managed and lacks the taint {names.TAINT}: pods that Slurm does not know "
        "may come there",
        advice="Sluice taints it when it runs (see /readyz); without it: kubectl taint node "
        f"{node.name} {names.TAINT}=slurm:NoSchedule",
    )


def _not_in_slurm(node: Node, terms: Terms) -> Finding:
    by = (
        "Sluice creates it when it runs: see /readyz and its log for what Slurm says against it."
        if terms.manage
        else "nodes.manage is false: create it with scontrol or slurm.conf."
    )
    return Finding(
        kind=Kind.NODE_NOT_IN_SLURM,
        node=node.name,
        message="it is managed in Kubernetes, and Slurm does not have it",
        advice=f"{by} Or take its label {names.MANAGED} off",
    )


def _differences(node: Node, slurm_node: SlurmNode, terms: Terms) -> Iterator[Finding]:
    larger = [
        f"{theirs} {unit} in Slurm, {ours} allocatable in Kubernetes"
        for unit, theirs, ours in (
            ("CPUs", slurm_node.cpus, max(1, node.cpu_milli // 1000)),
            ("MiB", slurm_node.memory_mib, max(1, node.memory_bytes // MIB)),
            ("GPUs", slurm_node.gpus, node.gpus),
        )
        if theirs > ours
    ]
    if larger:
        yield Finding(
            kind=Kind.NODE_LARGER_IN_SLURM,
            node=node.name,
            message=f"it has {'; '.join(larger)}: pods that Slurm places there cannot all start",
            advice="Drain it in Slurm, let its jobs end, delete it there (scontrol delete "
            f"nodename={node.name}) and let Sluice create it anew",
        )
    external = "EXTERNAL" in slurm_node.states
    if terms.manage and external and node.address and slurm_node.address != node.address:
        yield Finding(
            kind=Kind.NODE_ADDRESS,
            node=node.name,
            message=f"its address is {slurm_node.address or 'none'} in Slurm, {node.address} in "
            "Kubernetes",
            advice=f"scontrol update nodename={node.name} nodeaddr={node.address}",
        )


def _not_in_kubernetes(name: str, unmanaged: bool, held: list[int]) -> Finding:
    jobs = f"; jobs {', '.join(map(str, held))} hold it" if held else ""
    how = f"is there without the label {names.MANAGED}=true" if unmanaged else "does not have it"
    back = "label it again" if unmanaged else "bring it back"
    return Finding(
        kind=Kind.NODE_NOT_IN_KUBERNETES,
        node=name,
        message=f"Slurm may place gangs on it, and Kubernetes {how}{jobs}",
        advice=f"To {back} is one way. To retire it: scontrol update nodename={name} state=drain "
        f"reason=retired, and when no job holds it: scontrol delete nodename={name}",
    )


def _out_of_service(node: SlurmNode, words: set[str], pods: list[Pod]) -> Finding:
    first = min(pods, key=lambda p: (p.namespace, p.name))
    why = f" ({node.reason})" if node.reason else ""
    drained = not words & _DOWN
    return Finding(
        kind=Kind.NODE_OUT_OF_SERVICE,
        node=node.name,
        message=f"it is {'+'.join(sorted(words))} in Slurm{why}, with {len(pods)} living pods on "
        f"it, such as {first.namespace}/{first.name}",
        advice=(
            "The pods may end there and no job follows; for maintenance wait until they have "
            "ended. "
            if drained
            else "If the node is well: "
        )
        + f"Back into service: scontrol update nodename={node.name} state=resume",
    )


def namespace_findings(books: Books, used: Collection[str], terms: Terms) -> Iterator[Finding]:
    """Namespaces whose gangs can never be submitted: ``used`` are those with pods for Slurm."""
    for namespace in books.namespaces:
        managed = namespace.labels.get(names.MANAGED) == "true"
        if (managed or namespace.name in used) and (why := _nobody(namespace, terms)):
            yield Finding(
                kind=Kind.NAMESPACE_USER,
                namespace=namespace.name,
                message=why[0],
                advice=why[1],
            )


def _nobody(namespace: Namespace, terms: Terms) -> tuple[str, str] | None:
    try:
        grant(namespace, {}, terms.defaults)
    except Refusal as refusal:
        what, _, then = str(refusal).partition(": ")
        return what, f"{then[:1].upper()}{then[1:]}"
    return None
