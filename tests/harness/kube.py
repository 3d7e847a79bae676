"""A small synchronous client of the API server, for tests, the demo and the benchmarks."""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import httpx
import yaml

from tests.harness.errors import HarnessError
from tests.harness.progress import step

Object = dict[str, Any]
T = TypeVar("T")

STRATEGIC = "application/strategic-merge-patch+json"
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"


class KubeError(Exception):
    """The API server refused: ``status`` is the HTTP code, ``reason`` Kubernetes' word for it."""

    def __init__(self, method: str, path: str, status: int, body: str) -> None:
        try:
            answer = json.loads(body)
        except ValueError:
            answer = {}
        self.status = status
        self.reason = str(answer.get("reason", ""))
        super().__init__(f"{method} {path}: {status} {answer.get('message', body)}")


class Kube:
    """Calls by path, as kubectl --raw does. May be used from several threads."""

    def __init__(self, kubeconfig: Path) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        cluster = config["clusters"][0]["cluster"]
        user = config["users"][0]["user"]
        context = ssl.create_default_context(cafile=cluster["certificate-authority"])
        context.load_cert_chain(user["client-certificate"], user["client-key"])
        self.server = str(cluster["server"])
        self._client = httpx.Client(
            base_url=self.server,
            verify=context,
            timeout=30,
            limits=httpx.Limits(max_connections=32, max_keepalive_connections=32),
        )
        self._plurals: dict[str, dict[str, tuple[str, bool]]] = {}
        self._lock = threading.Lock()

    def close(self) -> None:
        self._client.close()

    def request(
        self, method: str, path: str, *, body: object = None,
        content_type: str = "application/json", params: dict[str, str] | None = None,
    ) -> Any:  # fmt: skip
        """One call; the decoded answer. Raises KubeError for any status above 299."""
        content = None if body is None else json.dumps(body)
        answer = self._client.request(
            method, path, content=content, params=params, headers={"Content-Type": content_type}
        )
        if answer.status_code > 299:
            raise KubeError(method, path, answer.status_code, answer.text)
        kind = answer.headers.get("content-type", "")
        return answer.json() if kind.startswith("application/json") else answer.text

    def get(self, path: str, **params: str) -> Any:
        return self.request("GET", path, params=params)

    def find(self, path: str) -> Object | None:
        """The object, or None when there is none."""
        try:
            found: Object = self.get(path)
        except KubeError as error:
            if error.status == 404:
                return None
            raise
        return found

    def items(self, path: str, **params: str) -> list[Object]:
        """The items of a collection (``labelSelector=…``, ``fieldSelector=…``)."""
        found: list[Object] = self.get(path, **params)["items"]
        return found

    def pods(self, namespace: str = "", selector: str = "") -> list[Object]:
        """Pods of a namespace, or of all."""
        where = f"/namespaces/{namespace}" if namespace else ""
        params = {"labelSelector": selector} if selector else {}
        return self.items(f"/api/v1{where}/pods", **params)

    def create(self, path: str, body: Object) -> Object:
        """POST to a collection's path; the object as stored."""
        made: Object = self.request("POST", path, body=body)
        return made

    def create_all(self, path: str, bodies: Iterable[Object], parallel: int = 16) -> list[Object]:
        """POST many objects at the same time; in the order given."""
        with ThreadPoolExecutor(parallel) as pool:
            return list(pool.map(lambda body: self.create(path, body), bodies))

    def patch(self, path: str, body: object, content_type: str = STRATEGIC) -> Object:
        """PATCH; strategic merge unless ``content_type`` is MERGE, JSON_PATCH or APPLY."""
        made: Object = self.request("PATCH", path, body=body, content_type=content_type)
        return made

    def delete(
        self, path: str, *, grace_seconds: int | None = None, propagation: str = "Background"
    ) -> None:
        """DELETE an object or a whole collection; one that is gone already is fine."""
        body: Object = {
            "kind": "DeleteOptions",
            "apiVersion": "v1",
            "propagationPolicy": propagation,
        }
        if grace_seconds is not None:
            body["gracePeriodSeconds"] = grace_seconds
        try:
            self.request("DELETE", path, body=body)
        except KubeError as error:
            if error.status != 404:
                raise

    def apply(self, manifest: Object, namespace: str = "default") -> Object:
        """Server-side apply of one object, as kubectl apply --server-side does."""
        name = manifest["metadata"]["name"]
        path = self._collection(manifest, namespace)
        made: Object = self.request(
            "PATCH", f"{path}/{name}", body=manifest, content_type=APPLY,
            params={"fieldManager": "sluice-harness", "force": "true"},
        )  # fmt: skip
        return made

    def apply_file(self, path: Path, namespace: str = "default") -> list[Object]:
        """Apply every document of a YAML file."""
        documents = [d for d in yaml.safe_load_all(path.read_text()) if d]
        return [self.apply(document, namespace) for document in documents]

    def namespace(
        self,
        name: str,
        labels: dict[str, str] | None = None,
        annotations: dict[str, str] | None = None,
    ) -> str:
        """Make or update a namespace and wait until pods can be made in it; its name."""
        metadata = {"name": name, "labels": labels or {}, "annotations": annotations or {}}
        self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
        self.wait_for(lambda: self.find(account), 20, f"the service account of namespace {name}")
        return name

    def wait_for(
        self, predicate: Callable[[], T | None], timeout: float, what: str, every: float = 0.05
    ) -> T:
        """Call ``predicate`` every 50 ms until it returns something true, and return that.

        Raises TimeoutError naming ``what`` and the last false answer after ``timeout`` seconds.
        """
        return wait_for(predicate, timeout, what, every)

    def _collection(self, manifest: Object, namespace: str) -> str:
        """The path of the collection that the manifest belongs to, from the API's discovery."""
        version, kind = manifest["apiVersion"], manifest["kind"]
        base = f"/apis/{version}" if "/" in version else f"/api/{version}"
        with self._lock:
            if version not in self._plurals:
                found = self.get(base)["resources"]
                self._plurals[version] = {
                    r["kind"]: (r["name"], r["namespaced"]) for r in found if "/" not in r["name"]
                }
        if kind not in self._plurals[version]:
            raise HarnessError(f"the API server has no {kind} in {version}: correct the manifest.")
        plural, namespaced = self._plurals[version][kind]
        if not namespaced:
            return f"{base}/{plural}"
        return f"{base}/namespaces/{manifest['metadata'].get('namespace', namespace)}/{plural}"


def wait_for(
    predicate: Callable[[], T | None], timeout: float, what: str, every: float = 0.05
) -> T:
    """See ``Kube.wait_for``."""
    deadline = time.monotonic() + timeout
    with step(f"waiting for {what}"):
        while True:
            answer = predicate()
            if answer:
                return answer
            if time.monotonic() > deadline:
                raise TimeoutError(f"{what}: not within {timeout:.0f} s (last answer: {answer!r})")
            time.sleep(every)
