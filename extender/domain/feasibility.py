"""Which nodes Kubernetes could never use for a pod, so that Slurm need not try them.

kube-scheduler has the last word with all of its filters; here stand only those that do not depend
on other pods: cordons, readiness, taints, node selector and required node affinity.
Source: k8s.io/component-helpers/scheduling/corev1 and the v1 API reference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec import Struct

from extender.domain import wellknown as names
from extender.domain.model import Node, Pod


class Fit(Struct, frozen=True):
    """What of the nodes matters to a gang. Clusters have many nodes of few sizes."""

    unfit: frozenset[str]  # names of nodes that no pod of the gang could use
    sizes: tuple[Node, ...]  # one node of each size
    usable: tuple[Node, ...]  # one node of each size among those that are not unfit


def fit(pods: Iterable[Pod], nodes: Iterable[Node]) -> Fit:
    """The nodes as gangs with the ``constraints`` of these pods see them."""
    nodes = list(nodes)
    unfit = frozenset(infeasible(pods, nodes))
    return Fit(unfit, _of_each_size(nodes), _of_each_size(n for n in nodes if n.name not in unfit))


def constraints(pods: Iterable[Pod]) -> frozenset[str]:
    """What ``fit`` depends on besides the nodes: equal for pods that may go to the same nodes."""
    return frozenset(_constraints(pod) for pod in pods)


def _of_each_size(nodes: Iterable[Node]) -> tuple[Node, ...]:
    return tuple({(n.cpu_milli, n.memory_bytes, n.gpus): n for n in nodes}.values())


def infeasible(pods: Iterable[Pod], nodes: Iterable[Node]) -> dict[str, str]:
    """Node name -> why it cannot hold the pods. A node must suit every pod of the gang."""
    shapes = {_constraints(pod): pod for pod in pods}
    refused: dict[str, str] = {}
    for node in nodes:
        for pod in shapes.values():
            if why := _why_not(pod, node):
                refused[node.name] = why
                break
    return refused


def _constraints(pod: Pod) -> str:
    return repr((pod.node_selector, pod.node_affinity_terms, pod.tolerations))


def _why_not(pod: Pod, node: Node) -> str:
    if node.unschedulable:
        return "it is cordoned"
    if not node.ready:
        return "it is not ready"
    for taint in node.taints:
        if taint.get("effect") in ("NoSchedule", "NoExecute") and not _tolerated(taint, pod):
            return f"taint {taint.get('key')} is not tolerated"
    for key, value in pod.node_selector.items():
        if node.labels.get(key) != value:
            return f"node selector {key}={value} does not match"
    terms = pod.node_affinity_terms
    if terms and not any(_term_matches(term, node) for term in terms):
        return "required node affinity does not match"
    return ""


def _tolerated(taint: Mapping[str, Any], pod: Pod) -> bool:
    if taint.get("key") == names.TAINT:
        return True  # ours: kube-scheduler checks the toleration, admission adds it
    for t in pod.tolerations:
        if t.get("effect") and t["effect"] != taint.get("effect"):
            continue
        exists = t.get("operator", "Equal") == "Exists"
        if t.get("key") and t["key"] != taint.get("key"):
            continue
        if not t.get("key") and not exists:
            continue
        if exists or (t.get("value") or "") == (taint.get("value") or ""):
            return True
    return False


def _term_matches(term: Mapping[str, Any], node: Node) -> bool:
    expressions = term.get("matchExpressions") or []
    fields = term.get("matchFields") or []
    if not expressions and not fields:
        return False
    return all(_matches(e, node.labels) for e in expressions) and all(
        _matches(f, {"metadata.name": node.name}) for f in fields
    )


def _numeric(compare: Callable[[int, int], bool]) -> Callable[[str | None, list[str]], bool]:
    def check(have: str | None, values: list[str]) -> bool:
        try:
            return have is not None and compare(int(have), int(values[0]))
        except (ValueError, IndexError):
            return False

    return check


_OPERATORS: dict[str, Callable[[str | None, list[str]], bool]] = {
    "In": lambda have, values: have is not None and have in values,
    "NotIn": lambda have, values: have is None or have not in values,
    "Exists": lambda have, _: have is not None,
    "DoesNotExist": lambda have, _: have is None,
    "Gt": _numeric(lambda a, b: a > b),
    "Lt": _numeric(lambda a, b: a < b),
}


def _matches(requirement: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    operator = _OPERATORS.get(str(requirement.get("operator")))
    return operator is not None and operator(
        labels.get(str(requirement.get("key"))), list(requirement.get("values") or [])
    )
