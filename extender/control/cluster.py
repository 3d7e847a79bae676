"""What the watches have told of Kubernetes, indexed by gang. Memory only."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator

import msgspec

from extender.domain.feasibility import Fit, constraints, fit
from extender.domain.gangs import Membership, form, lone, membership, opted_in
from extender.domain.model import Gang, GangKind, Namespace, Node, Pod, Workload
from extender.domain.wellknown import GATE, JOB_ID

_FITS = 256  # kept at the most
_GONE_SECONDS = 3600.0
"""How long it is kept when a node went."""


class Cluster:
    """Pods, Jobs, namespaces and managed nodes as last seen.

    ``touched(gang_id)`` is called whenever something about a gang may have changed.
    """

    def __init__(self, scheduler_name: str, touched: Callable[[str], None]) -> None:
        self._scheduler = scheduler_name
        self._touched = touched
        self.pods: dict[str, Pod] = {}  # by uid
        self.workloads: dict[str, Workload] = {}  # by uid
        self.namespaces: dict[str, Namespace] = {}
        self.nodes: dict[str, Node] = {}
        self._gone: dict[str, float] = {}  # node -> since when
        self._began = time.time()
        self._uids: dict[tuple[str, str], str] = {}  # (namespace, name) -> pod uid
        self._member: dict[str, Membership] = {}  # pod uid -> its gang
        self._gangs: dict[str, dict[str, Pod]] = {}  # gang id -> pod uid -> pod
        self._unowned: dict[str, set[str]] = {}  # unseen Job uid -> pod uids
        self._bags: set[str] = set()  # Jobs whose pods are no gang
        self._fits: dict[frozenset[str], Fit] = {}  # by what the pods ask of a node
        self._answers: dict[str, dict[str, str]] = {}  # written, not yet seen by the watch

    # -- what the watches tell --------------------------------------------------------------

    def pod_seen(self, pod: Pod) -> None:
        answers = self._answers.get(pod.uid)
        if answers:
            if JOB_ID in pod.annotations:
                del self._answers[pod.uid]
            else:
                pod = _with(pod, answers)
        known = self.pods.get(pod.uid)
        if known is not None and msgspec.structs.replace(pod, version=known.version) == known:
            self._renew(pod)  # something changed that nothing here depends on
            return
        self.pods[pod.uid] = pod
        self._uids[pod.namespace, pod.name] = pod.uid
        self._place(pod)

    def _renew(self, pod: Pod) -> None:
        self.pods[pod.uid] = pod
        if member := self._member.get(pod.uid):
            self._gangs[member.id][pod.uid] = pod

    def pod_gone(self, pod: Pod) -> None:
        self.pods.pop(pod.uid, None)
        self._answers.pop(pod.uid, None)
        if self._uids.get((pod.namespace, pod.name)) == pod.uid:
            del self._uids[pod.namespace, pod.name]
        self._leave(pod.uid)
        if pod.owner:
            waiting = self._unowned.get(pod.owner.uid)
            if waiting:
                waiting.discard(pod.uid)
                if not waiting:
                    del self._unowned[pod.owner.uid]

    def workload_seen(self, job: Workload) -> None:
        before = self.workloads.get(job.uid)
        self.workloads[job.uid] = job
        for uid in self._unowned.pop(job.uid, ()):
            if uid in self.pods:
                self._place(self.pods[uid])
        if before != job and job.uid in self._gangs:
            self._touched(job.uid)

    def workload_gone(self, job: Workload) -> None:
        self.workloads.pop(job.uid, None)
        self._bags.discard(job.uid)
        self._touched(job.uid)  # also without pods: what is kept of its gang can go now

    def namespace_seen(self, namespace: Namespace) -> None:
        before = self.namespaces.get(namespace.name)
        self.namespaces[namespace.name] = namespace
        if before != namespace:
            for pod in [p for p in self.pods.values() if p.namespace == namespace.name]:
                self._place(pod)

    def namespace_gone(self, namespace: Namespace) -> None:
        self.namespaces.pop(namespace.name, None)

    def node_seen(self, node: Node) -> None:
        self._fits.clear()
        self._gone.pop(node.name, None)
        self.nodes[node.name] = node

    def node_gone(self, node: Node) -> None:
        self._fits.clear()
        now = time.time()
        self._gone = {n: at for n, at in self._gone.items() if now - at < _GONE_SECONDS}
        if self.nodes.pop(node.name, None):
            self._gone[node.name] = now

    # -- what Sluice itself did -------------------------------------------------------------

    def answered(self, pod: Pod, answers: dict[str, str]) -> None:
        """The answers are written; the watch may tell of it later, or of an older state first."""
        current = self.pods.get(pod.uid)
        if current is None:
            return
        self._answers[pod.uid] = answers
        self.pods[pod.uid] = current = _with(current, answers)
        member = self._member.get(pod.uid)
        if member:
            self._gangs[member.id][pod.uid] = current

    def fit(self, pods: Iterable[Pod]) -> Fit:
        """The managed nodes as these pods see them; worked out once until a node changes."""
        pods = list(pods)
        key = constraints(pods)
        found = self._fits.get(key)
        if found is None:
            if len(self._fits) >= _FITS:
                self._fits.clear()
            found = self._fits[key] = fit(pods, self.nodes.values())
        return found

    # -- readings ---------------------------------------------------------------------------

    def opted_in(self, pod: Pod) -> bool:
        return opted_in(pod, self.namespaces.get(pod.namespace), self._scheduler)

    def gang(self, gang_id: str) -> Gang | None:
        """The gang with its pods in rank order, or ``None`` when none of its pods is left."""
        pods = self._gangs.get(gang_id)
        if not pods:
            return None
        member = self._member[next(iter(pods))]
        return form(member, pods.values(), self.workloads.get(gang_id))

    def gone_since(self, node: str) -> float:
        """When a managed node was there last, at the earliest when this replica was started."""
        return self._gone.get(node, self._began)

    def gang_ids(self) -> list[str]:
        return list(self._gangs)

    def gang_of(self, pod_uid: str) -> str:
        """The id of the pod's gang; "" for a pod that is in none."""
        member = self._member.get(pod_uid)
        return member.id if member else ""

    def find_gangs(self, namespace: str, name: str) -> Iterator[str]:
        for gang_id, pods in self._gangs.items():
            uid, pod = next(iter(pods.items()))
            if pod.namespace == namespace and self._member[uid].name == name:
                yield gang_id

    def find_pod(self, namespace: str, name: str) -> Pod | None:
        return self.pods.get(self._uids.get((namespace, name), ""))

    # -- indexing ---------------------------------------------------------------------------

    def _place(self, pod: Pod) -> None:
        if not self.opted_in(pod):
            self._leave(pod.uid)
            return
        member = self._member.get(pod.uid)
        if member is None:
            owner = pod.owner.uid if pod.owner else ""
            member = membership(pod, self.workloads.get(owner))
            if member and self._foreign(member, pod):
                member = lone(pod)
            elif member and pod.owner and pod.owner.kind == "Job":
                member = self._as_its_siblings(member, pod)
            if member is None:
                self._unowned.setdefault(owner, set()).add(pod.uid)
                return
            self._member[pod.uid] = member
        self._gangs.setdefault(member.id, {})[pod.uid] = pod
        self._touched(member.id)

    def _as_its_siblings(self, member: Membership, pod: Pod) -> Membership:
        """A Job whose pods run one by one does so to its end, also when its parallelism is raised
        to its completions: a gang of the later pods would wait for the earlier ones."""
        job = self.workloads.get(pod.owner.uid) if pod.owner else None
        if job is None or job.namespace != pod.namespace:
            return member
        if member.kind is GangKind.POD:
            self._bags.add(job.uid)
        elif member.kind is GangKind.JOB and job.uid in self._bags:
            return lone(pod)
        return member

    def _foreign(self, member: Membership, pod: Pod) -> bool:
        """The gang is another namespace's: owner references are the words of whoever made the pod,
        and Kubernetes deletes such a pod only after a while. So are answers where no admission
        policy guards them."""
        namespace, named, _ = member.id.partition("/")
        if named:
            return namespace != pod.namespace
        job = self.workloads.get(member.id)
        others = self._gangs.get(member.id)
        there = job.namespace if job else next(iter(others.values())).namespace if others else ""
        return there not in ("", pod.namespace)

    def _leave(self, uid: str) -> None:
        member = self._member.pop(uid, None)
        if member is None:
            return
        pods = self._gangs.get(member.id, {})
        pods.pop(uid, None)
        if not pods:
            self._gangs.pop(member.id, None)
        self._touched(member.id)


def _with(pod: Pod, answers: dict[str, str]) -> Pod:
    gates = tuple(gate for gate in pod.gates if gate != GATE)
    return msgspec.structs.replace(pod, annotations={**pod.annotations, **answers}, gates=gates)
