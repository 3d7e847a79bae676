"""A model of the API server: objects with UIDs, writes that are validated, watches that lag.

Objects are the domain's own values; jsonwire.py writes them as JSON for the true reflector.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from extender.domain import wellknown as names
from extender.domain.model import Namespace, Node, Pod, Workload
from extender.kube.client import KubeError, KubeUnavailable
from tests.simulation.jsonwire import object_of, pod_object
from tests.simulation.truth import GangTruth, PodTruth

if TYPE_CHECKING:
    from tests.simulation.replica import Replica
    from tests.simulation.world import World

PODS, JOBS = "/api/v1/pods", "/apis/batch/v1/jobs"
NODES, NAMESPACES = "/api/v1/nodes", "/api/v1/namespaces"
TIMEOUT_SECONDS = 10.0

_decode = msgspec.json.Decoder().decode
_POD_PATH = re.compile(r"/api/v1/namespaces/([^/]+)/pods/([^/]+)(/status|/binding)?")


class Watcher:
    """Who follows one collection: told of every change, in order, later."""

    def __init__(self, replica: Replica, tell: Callable[[str, Any], None]) -> None:
        self.replica = replica
        self.tell = tell
        self.due = 0.0  # of the last change told
        self.era = 0  # appointments of earlier eras are void

    def cut(self, error: Exception) -> None:
        """The connection breaks."""


class Collection:
    def __init__(self, path: str, key: Callable[[Any], str]) -> None:
        self.path = path
        self.key = key
        self.values: dict[str, Any] = {}
        self.watchers: list[Watcher] = []
        self.log: list[tuple[int, str, Any]] = []  # version, type, value
        self.oldest = 0  # version from which on a watch can be resumed
        self.away_until = 0.0


class ApiServer:
    def __init__(self, world: World) -> None:
        self._world = world
        self.version = 1
        self.pods: dict[tuple[str, str], PodTruth] = {}
        self.slow_until = 0.0
        self.leases: dict[str, dict[str, Any]] = {}
        self.collections = {
            PODS: Collection(PODS, lambda p: p.uid),
            JOBS: Collection(JOBS, lambda j: j.uid),
            NODES: Collection(NODES, lambda n: n.name),
            NAMESPACES: Collection(NAMESPACES, lambda n: n.name),
        }

    # -- the truth ----------------------------------------------------------------------------

    @property
    def nodes(self) -> dict[str, Node]:
        return self.collections[NODES].values

    def workload(self, uid: str) -> Workload | None:
        return self.collections[JOBS].values.get(uid)

    def put(self, path: str, value: Node | Namespace | Workload) -> None:
        collection = self.collections[path]
        key = collection.key(value)
        kind = "MODIFIED" if key in collection.values else "ADDED"
        collection.values[key] = value
        self._publish(collection, kind, value)

    def remove(self, path: str, key: str) -> None:
        collection = self.collections[path]
        value = collection.values.pop(key, None)
        if value is not None:
            self._publish(collection, "DELETED", value)

    def create_pod(self, pod: Pod, gang: GangTruth) -> PodTruth:
        truth = PodTruth(replace(pod, version=str(self.version + 1)), gang)
        gang.pods.append(truth)
        self.pods[pod.namespace, pod.name] = truth
        self._world.say("kubernetes", "pod %s is created (%s)", pod.name, pod.uid)
        self._pod_changed(truth, "ADDED")
        return truth

    def change_pod(self, truth: PodTruth, **changes: Any) -> None:
        truth.pod = replace(truth.pod, **changes, version=str(self.version + 1))
        self._pod_changed(truth, "MODIFIED")

    def delete_pod(self, truth: PodTruth, grace: float | None = None) -> None:
        """As the API server does it: at once where no kubelet has to end anything."""
        if truth.gone:
            return
        pod = truth.pod
        if not pod.node or pod.terminal or grace == 0:
            self.remove_pod(truth)
            return
        if pod.deleting:
            return
        seconds = float(pod.grace_seconds) if grace is None else grace
        gone_by = float(int(self._world.time() + seconds))
        self.change_pod(truth, deleting=True, gone_by=gone_by)
        self._world.kubelet.end_pod(truth, seconds)

    def remove_pod(self, truth: PodTruth) -> None:
        if truth.gone:
            return
        truth.gone = True
        pod = truth.pod
        if self.pods.get((pod.namespace, pod.name)) is truth:
            del self.pods[pod.namespace, pod.name]
        self._world.say("kubernetes", "pod %s is gone", pod.name)
        self._pod_changed(truth, "DELETED")

    def _pod_changed(self, truth: PodTruth, kind: str) -> None:
        collection = self.collections[PODS]
        if kind == "DELETED":
            collection.values.pop(truth.pod.uid, None)
        else:
            collection.values[truth.pod.uid] = truth.pod
        self._publish(collection, kind, truth.pod)
        self._world.pod_changed(truth)

    # -- watches ------------------------------------------------------------------------------

    def _publish(self, collection: Collection, kind: str, value: Any) -> None:
        self.version += 1
        told = value
        if self._world.in_json:
            collection.log.append((self.version, kind, value))
            told = (self.version, value)
        for watcher in collection.watchers:
            self.tell_later(watcher, kind, told)

    def tell_later(self, watcher: Watcher, kind: str, value: Any) -> None:
        world = self._world
        due = max(watcher.due, world.now + world.lag(0.03))
        watcher.due = due
        world.timeline.at(
            due, self._tell, watcher, watcher.era, kind, value, loop=watcher.replica.loop
        )

    def _tell(self, watcher: Watcher, era: int, kind: str, value: Any) -> None:
        if watcher.era == era:
            watcher.tell(kind, value)

    def follow(self, path: str, replica: Replica, tell: Callable[[str, Any], None]) -> None:
        """List, then watch."""
        watcher = Watcher(replica, tell)
        self._list_later(self.collections[path], watcher, self._world.lag(0.05))

    def _list_later(self, collection: Collection, watcher: Watcher, seconds: float) -> None:
        self._world.timeline.after(seconds, self._list, collection, watcher)

    def _list(self, collection: Collection, watcher: Watcher) -> None:
        world = self._world
        if not watcher.replica.alive:
            return
        if world.faults.api_down:
            self._list_later(collection, watcher, 1.0)
            return
        watcher.era += 1
        watcher.due = world.now + world.lag(0.05)
        values = list(collection.values.values())
        if watcher not in collection.watchers:
            collection.watchers.append(watcher)
        world.timeline.at(
            watcher.due,
            self._tell,
            watcher,
            watcher.era,
            "LISTED",
            values,
            loop=watcher.replica.loop,
        )

    def break_watches(self, replica: Replica, paths: list[str], away: float, gone: bool) -> None:
        """Nothing is told for a while; then what was missed, or (410) a new list."""
        for path in paths:
            collection = self.collections[path]
            if self._world.in_json:
                self._cut(collection, replica, away, gone)
                continue
            for watcher in collection.watchers:
                if watcher.replica is not replica:
                    continue
                watcher.due = max(watcher.due, self._world.now + away)
                if gone:
                    watcher.era += 1
                    self._list_later(collection, watcher, away)

    def _cut(self, collection: Collection, replica: Replica, away: float, gone: bool) -> None:
        collection.away_until = self._world.now + away
        if gone:
            collection.oldest = self.version + 1
        for watcher in list(collection.watchers):
            if watcher.replica is replica:
                watcher.era += 1
                collection.watchers.remove(watcher)
                error = KubeUnavailable(f"watch {collection.path}: the connection broke")
                watcher.replica.loop.enter(watcher.cut, error)

    def leave(self, replica: Replica) -> None:
        for collection in self.collections.values():
            collection.watchers = [w for w in collection.watchers if w.replica is not replica]

    # -- calls --------------------------------------------------------------------------------

    def call(
        self, replica: Replica, method: str, path: str, body: bytes | None
    ) -> asyncio.Future[bytes]:
        world = self._world
        future: asyncio.Future[bytes] = replica.loop.create_future()
        what = _what(method, path)
        fate = world.faults.fate(f"kube {what}")
        if fate is None and not world.faults.api_down:
            world.timeline.after(
                world.lag(0.01), self._arrive, future, replica, what, method, path, body
            )
            return future
        mode = fate or "lost"
        world.say("fault", "%s %s: %s", method, path, mode)
        if mode in ("unheard", "late"):
            late = TIMEOUT_SECONDS + world.lag(5.0) if mode == "late" else world.lag(0.01)
            world.timeline.after(late, self._execute, replica, what, method, path, body)
        after = world.lag(0.02) if mode in ("error", "conflict") else world.lag(TIMEOUT_SECONDS)
        if mode == "late":
            after = TIMEOUT_SECONDS
        error: Exception = KubeUnavailable(f"{method} {path}: {mode}")
        if mode == "conflict":
            error = KubeError(409, "Conflict", "the object has been modified")
        world.timeline.after(after, _fail, future, error)
        return future

    def _arrive(
        self,
        future: asyncio.Future[bytes],
        replica: Replica,
        what: str,
        method: str,
        path: str,
        body: bytes | None,
    ) -> None:
        answer = self._execute(replica, what, method, path, body)
        if isinstance(answer, bytes):
            self._world.timeline.after(self._world.lag(0.01), _answer, future, answer)
        else:
            self._world.timeline.after(self._world.lag(0.01), _fail, future, answer)

    def _execute(
        self, replica: Replica, what: str, method: str, path: str, body: bytes | None
    ) -> bytes | KubeError:
        told: dict[str, Any] = _decode(body) if body else {}
        if what == "list":
            return self._list_in_json(self.collections[path])
        if what == "event":
            return b"{}"
        if what == "node":
            return b"{}"
        if what == "lease":
            return self._lease(method, path, told)
        match = _POD_PATH.fullmatch(path)
        assert match, f"{method} {path} is not modelled"
        truth = self.pods.get((match[1], match[2]))
        if truth is None:
            return KubeError(404, "NotFound", f'pods "{match[2]}" not found')
        if what == "get":
            return msgspec.json.encode(pod_object(truth.pod))
        if what == "binding":
            return self._bind(replica, truth, told)
        if what == "delete":
            return self._delete(replica, truth, told)
        return self._patch(replica, truth, what, told)

    def _list_in_json(self, collection: Collection) -> bytes:
        items = [object_of(value, self.version) for value in collection.values.values()]
        meta = {"resourceVersion": str(self.version)}
        return msgspec.json.encode({"metadata": meta, "items": items})

    def _patch(
        self, replica: Replica, truth: PodTruth, what: str, told: dict[str, Any]
    ) -> bytes | KubeError:
        pod, meta = truth.pod, told.get("metadata", {})
        if meta.get("uid", pod.uid) != pod.uid:
            return KubeError(409, "Conflict", "the UID in the precondition does not match")
        if meta.get("resourceVersion", pod.version) not in ("", pod.version):
            return KubeError(409, "Conflict", "the object has been modified")
        if "finalizers" in meta:
            self._world.judge.broken("finalizer", f"a finalizer is put on pod {pod.name}")
        if what == "status":
            if any(c["type"] == names.DISRUPTION_TARGET for c in told["status"]["conditions"]):
                truth.disrupted = True
            self.change_pod(truth)
            return b"{}"
        changes: dict[str, Any] = {}
        if annotations := meta.get("annotations"):
            changes["annotations"] = {**pod.annotations, **annotations}
        if spec := told.get("spec"):
            if any(gate.get("$patch") != "delete" for gate in spec.get("schedulingGates", ())):
                return KubeError(422, "Invalid", "gates may only be removed")
            terms = _terms(spec)
            if terms is not None and terms != pod.node_affinity_terms:
                if not pod.gates:
                    return KubeError(422, "Invalid", "node affinity of a pod without gates")
                changes["node_affinity_terms"] = terms
            off = {gate["name"] for gate in spec.get("schedulingGates", ())}
            changes["gates"] = tuple(gate for gate in pod.gates if gate not in off)
        if annotations and names.JOB_ID in annotations:
            self._world.judge.released(replica, truth, annotations)
        self.change_pod(truth, **changes)
        return b"{}"

    def _delete(self, replica: Replica, truth: PodTruth, told: dict[str, Any]) -> bytes | KubeError:
        wanted = (told.get("preconditions") or {}).get("uid")
        if wanted is not None and wanted != truth.pod.uid:
            return KubeError(409, "Conflict", "the UID in the precondition does not match")
        self._world.judge.deleted(truth)
        self._world.say("sluice", "%s deletes pod %s", replica, truth.pod.name)
        self.delete_pod(truth)
        return b"{}"

    def _bind(self, replica: Replica, truth: PodTruth, told: dict[str, Any]) -> bytes | KubeError:
        pod, node = truth.pod, told["target"]["name"]
        if told["metadata"]["uid"] != pod.uid:
            return KubeError(409, "Conflict", "another UID")
        if pod.node or pod.deleting or pod.gates:
            return KubeError(409, "Conflict", "bound, gated or being deleted")
        self._world.judge.bound(replica, truth, node)
        self._world.say("kubernetes", "pod %s is bound to %s", pod.name, node)
        self.change_pod(truth, node=node)
        self._world.kubelet.start_pod(truth)
        return b"{}"

    def lease_holder(self) -> str:
        """Whom the Lease names; "" for nobody."""
        return next((str(one["spec"]["holderIdentity"]) for one in self.leases.values()), "")

    def _lease(self, method: str, path: str, told: dict[str, Any]) -> bytes | KubeError:
        held = self.leases.get(path)
        if method == "POST":
            path = f"{path}/{told['metadata']['name']}"
            if path in self.leases:
                return KubeError(409, "AlreadyExists", "the lease exists")
        elif held is None:
            return KubeError(404, "NotFound", "no such lease")
        elif method == "GET":
            return msgspec.json.encode(held)
        elif method in ("PUT", "PATCH"):
            wanted = told.get("metadata", {}).get("resourceVersion")
            if wanted not in (None, "", held["metadata"]["resourceVersion"]):
                return KubeError(409, "Conflict", "the lease has been modified")
            told = {
                **held,
                **told,
                "metadata": {**held["metadata"], **told.get("metadata", {})},
                "spec": {**held.get("spec", {}), **told.get("spec", {})},
            }
        self.version += 1
        told["metadata"]["resourceVersion"] = str(self.version)
        self.leases[path] = told
        return msgspec.json.encode(told)


def _what(method: str, path: str) -> str:
    if method == "GET" and path in (PODS, JOBS, NODES, NAMESPACES):
        return "list"
    if path.endswith("/events"):
        return "event"
    if path.startswith(NODES):
        return "node"
    if "/leases" in path:
        return "lease"
    if path.endswith("/binding"):
        return "binding"
    if path.endswith("/status"):
        return "status"
    return {"PATCH": "patch", "DELETE": "delete", "GET": "get"}[method]


def _terms(spec: dict[str, Any]) -> tuple[dict[str, Any], ...] | None:
    affinity = spec.get("affinity")
    if not affinity:
        return None
    required = affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return tuple(required["nodeSelectorTerms"])


def _answer(future: asyncio.Future[Any], value: Any) -> None:
    if not future.done():
        future.set_result(value)


def _fail(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
