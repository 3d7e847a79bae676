"""A watch of pods beside the test: every state that the API server showed, and when."""

from __future__ import annotations

import json
import ssl
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import httpx
import yaml

from tests.harness.kube import Object


@dataclass(frozen=True)
class Seen:
    """One event of the watch: ADDED, MODIFIED or DELETED, and the pod as it was then."""

    at: float
    kind: str
    pod: Object

    @property
    def gates(self) -> list[str]:
        return [gate["name"] for gate in self.pod["spec"].get("schedulingGates", [])]

    @property
    def annotations(self) -> dict[str, str]:
        found: dict[str, str] = self.pod["metadata"].get("annotations", {})
        return found

    @property
    def node(self) -> str:
        """The node that the pod is bound to."""
        return str(self.pod["spec"].get("nodeName", ""))


class Watch:
    """Follows the pods of a namespace from now on, in a thread, until the ``with`` block ends."""

    def __init__(self, kubeconfig: Path, namespace: str) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        context = ssl.create_default_context(cafile=cluster["certificate-authority"])
        context.load_cert_chain(user["client-certificate"], user["client-key"])
        self._client = httpx.Client(base_url=cluster["server"], verify=context, timeout=30)
        self._path = f"/api/v1/namespaces/{namespace}/pods"
        self._events: list[Seen] = []
        self._closing = False
        self._thread = threading.Thread(target=self._follow, name="watch", daemon=True)

    def __enter__(self) -> Watch:
        self._version = self._client.get(self._path).json()["metadata"]["resourceVersion"]
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self._closing = True
        self._thread.join(10)
        self._client.close()

    def events(self) -> list[Seen]:
        return list(self._events)

    def by_pod(self) -> dict[str, list[Seen]]:
        """The events of each pod by its UID, in their order."""
        found: dict[str, list[Seen]] = {}
        for event in self.events():
            found.setdefault(event.pod["metadata"]["uid"], []).append(event)
        return found

    def _follow(self) -> None:
        params = {"watch": "1", "resourceVersion": self._version, "allowWatchBookmarks": "true"}
        timeout = httpx.Timeout(30, read=1.0)
        while not self._closing:
            try:
                with self._client.stream(
                    "GET", self._path, params=params, timeout=timeout
                ) as answer:
                    for line in answer.iter_lines():
                        event = json.loads(line)
                        params["resourceVersion"] = event["object"]["metadata"]["resourceVersion"]
                        if event["type"] != "BOOKMARK":
                            self._events.append(Seen(time.time(), event["type"], event["object"]))
            except httpx.ReadTimeout:
                continue  # quiet for a second: look whether the test is over
