"""Kubernetes without kubelets: etcd, API server, controller manager, two schedulers and kwok."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.harness import kwok
from tests.harness.children import Child
from tests.harness.gobuild import Binaries
from tests.harness.kube import Kube
from tests.harness.kwok import RUN_TIME_ANNOTATION
from tests.harness.pki import Authority
from tests.harness.runs import Run

__all__ = ["RUN_TIME_ANNOTATION", "ControlPlane", "Ports"]

CONFIG = Path(__file__).parents[2] / "config" / "kube-scheduler.yaml"
# Enough for 1,000 nodes; the defaults of 50 and 100 a second would measure only themselves.
CLIENT_QPS, CLIENT_BURST = 1000, 2000


@dataclass(frozen=True)
class Ports:
    """Where each part listens on the loopback."""

    etcd: int
    etcd_peer: int
    apiserver: int
    controller_manager: int
    default_scheduler: int
    sluice_scheduler: int
    kwok: int
    sluice: int
    sluice_second: int
    sluice_second_scheduler: int


class ControlPlane:
    """The processes; ``start`` returns when each of them answers."""

    def __init__(
        self,
        run: Run,
        programs: Binaries,
        ports: Ports,
        *,
        run_milliseconds: int,
        sluice_user: tuple[str, list[str]],
    ) -> None:
        self.directory = run.directory
        self.ports = ports
        self.server = f"https://127.0.0.1:{ports.apiserver}"
        self.children: dict[str, Child] = {}
        self._run = run
        self._programs = programs
        self._run_milliseconds = run_milliseconds
        self._sluice_user = sluice_user
        self._authority: Authority | None = None
        self._scheduler_user = "scheduler"

    @property
    def authority(self) -> Authority:
        if self._authority is None:
            self._authority = Authority(self.directory / "pki")
        return self._authority

    def kubeconfig(self, user: str) -> Path:
        """The kubeconfig of admin, sluice, scheduler, kcm, kwok, or any new user."""
        path = self.directory / f"{user}.kubeconfig"
        if not path.exists():
            name, groups = {
                "admin": ("admin", ["system:masters"]),
                "kwok": ("kwok", ["system:masters"]),
                "kcm": ("system:kube-controller-manager", []),
                "scheduler": ("system:kube-scheduler", []),
                "sluice": self._sluice_user,
            }.get(user, (user, []))
            self.authority.kubeconfig(path, self.server, name, groups)
        return path

    def start(self, prepare: Callable[[Kube], object] | None) -> Kube:
        """Start everything; the administrator's client. Raises HarnessError.

        ``prepare`` is called when the API server answers, before anything else connects: it
        applies what gives Sluice its rights. Without it kube-scheduler's own rights are used.
        """
        local = "://127.0.0.1"
        etcd = self._child("etcd", self._etcd(), f"http{local}:{self.ports.etcd}/health")
        apiserver = self._child("kube-apiserver", self._apiserver(), f"{self.server}/readyz")
        for name in ("admin", "kcm", "scheduler", "kwok", "sluice"):
            self.kubeconfig(name)
        etcd.await_ready()
        apiserver.await_ready()
        kube = Kube(self.kubeconfig("admin"))
        if prepare is not None:
            prepare(kube)
        self._scheduler_user = "sluice" if prepare is not None else "scheduler"
        children = [
            self._child(name, argv, f"{scheme}{local}:{port}/healthz")
            for name, argv, scheme, port in (
                ("kube-controller-manager", self._kcm(), "https", self.ports.controller_manager),
                ("default-scheduler", self._default_scheduler(), "https",
                 self.ports.default_scheduler),
                ("sluice-scheduler", self._sluice_scheduler(), "https",
                 self.ports.sluice_scheduler),
                ("kwok", self._kwok(), "http", self.ports.kwok),
            )
        ]  # fmt: skip
        for child in children:
            child.await_ready()
        return kube

    def _child(self, name: str, argv: list[str | Path], health: str) -> Child:
        child = Child(self._run, name, argv, ready=lambda: _healthy(health))
        self.children[name] = child
        return child.start()

    def _etcd(self) -> list[str | Path]:
        client, peer = (
            f"http://127.0.0.1:{port}" for port in (self.ports.etcd, self.ports.etcd_peer)
        )
        return [
            self._programs.etcd, "--name=p", f"--data-dir={self.directory}/etcd",
            f"--listen-client-urls={client}", f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=p={peer}", "--unsafe-no-fsync", "--log-level=warn",
        ]  # fmt: skip

    def _apiserver(self) -> list[str | Path]:
        certificate, key = self.authority.server(
            "apiserver", ["localhost", "kubernetes.default.svc"], ["127.0.0.1", "10.96.0.1"]
        )
        private, public = self.authority.service_account_key()
        return [
            self._programs.kube_apiserver, f"--etcd-servers=http://127.0.0.1:{self.ports.etcd}",
            "--bind-address=127.0.0.1", f"--secure-port={self.ports.apiserver}",
            "--advertise-address=127.0.0.1", "--endpoint-reconciler-type=none",
            "--service-cluster-ip-range=10.96.0.0/24", f"--client-ca-file={self.authority.ca_file}",
            f"--tls-cert-file={certificate}", f"--tls-private-key-file={key}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={public}", f"--service-account-signing-key-file={private}",
            "--authorization-mode=RBAC", "--profiling=false",
            f"--cert-dir={self.directory}/apiserver",
        ]  # fmt: skip

    def _kcm(self) -> list[str | Path]:
        return [
            self._programs.kube_controller_manager, f"--kubeconfig={self.kubeconfig('kcm')}",
            "--bind-address=127.0.0.1", f"--secure-port={self.ports.controller_manager}",
            f"--cert-dir={self.directory}/kcm", "--leader-elect=false",
            "--use-service-account-credentials=true",
            f"--service-account-private-key-file={self.authority.directory}/sa.key",
            f"--root-ca-file={self.authority.ca_file}",
            "--kube-api-qps=500", "--kube-api-burst=1000",
            # with kwok's leases of 240 s: a thousand nodes that renew them every 10 s take half a core
            "--node-monitor-grace-period=300s",
            "--controllers=*,-nodeipam,-node-route-controller,-cloud-node-lifecycle-controller,-service-lb-controller",
        ]  # fmt: skip

    def _default_scheduler(self) -> list[str | Path]:
        content: dict[str, Any] = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": False},
            "clientConnection": {"qps": CLIENT_QPS, "burst": CLIENT_BURST},
        }
        return self._scheduler("default", "scheduler", self.ports.default_scheduler, content)

    def _sluice_scheduler(self) -> list[str | Path]:
        """As it is shipped, but that it takes no part in an election: who loses one exits, and
        nobody would start it again here."""
        content = self._profile(self.ports.sluice)
        content["leaderElection"]["leaderElect"] = False
        return self._scheduler("sluice", self._scheduler_user, self.ports.sluice_scheduler, content)

    def _profile(self, sluice: int) -> dict[str, Any]:
        """The shipped configuration with the Sluice on that port as its extender."""
        content: dict[str, Any] = yaml.safe_load(CONFIG.read_text())
        content["extenders"][0]["urlPrefix"] = f"http://127.0.0.1:{sluice}/extender"
        return content

    @contextmanager
    def electing_schedulers(self) -> Iterator[tuple[Child, Child]]:
        """In place of Sluice's kube-scheduler two, not started yet, of which one acts, as in
        deploy/: the first asks the first Sluice, the second the second."""
        ports = {
            "electing-first": (self.ports.sluice_scheduler, self.ports.sluice),
            "electing-second": (self.ports.sluice_second_scheduler, self.ports.sluice_second),
        }
        pair = []
        for name, (port, sluice) in ports.items():
            argv = self._scheduler(name, self._scheduler_user, port, self._profile(sluice))
            healthy = partial(_healthy, f"https://127.0.0.1:{port}/readyz")
            pair.append(Child(self._run, f"{name}-scheduler", argv, ready=healthy))
        alone = self.children["sluice-scheduler"]
        alone.stop()
        try:
            yield pair[0], pair[1]
        finally:
            for child in pair:
                child.stop()
            alone.launch()

    def _scheduler(
        self, name: str, user: str, port: int, content: dict[str, Any]
    ) -> list[str | Path]:
        """A kube-scheduler with that configuration, and with the kubeconfig of that user."""
        content.setdefault("clientConnection", {})["kubeconfig"] = str(self.kubeconfig(user))
        path = self.directory / f"{name}-scheduler.yaml"
        path.write_text(yaml.safe_dump(content))
        return [
            self._programs.kube_scheduler, f"--config={path}", "--bind-address=127.0.0.1",
            f"--secure-port={port}", f"--cert-dir={self.directory}/{name}-scheduler", "--v=2",
        ]  # fmt: skip

    def _kwok(self) -> list[str | Path]:
        config = kwok.write_config(
            self.directory / "kwok.yaml", self._programs.kwok_stages, self._run_milliseconds
        )
        return [
            self._programs.kwok, f"--kubeconfig={self.kubeconfig('kwok')}",
            "--manage-all-nodes=true", f"--config={config}", "--node-lease-duration-seconds=240",
            f"--server-address=127.0.0.1:{self.ports.kwok}",
        ]  # fmt: skip


def _healthy(url: str) -> bool:
    # Most serving certificates are made by the program itself; health needs no secrets.
    return httpx.get(url, verify=False, timeout=2).status_code == 200
