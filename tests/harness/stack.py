"""The whole stack on free ports of the loopback, in a private directory, for one run.

with Stack.start(Fabric(spines=2)) as stack:
    stack.sluice.start()
    stack.admin.create("/apis/batch/v1/namespaces/ml/jobs", job)
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from tests.harness import engine, gobuild, image, manifests, process
from tests.harness.controlplane import ControlPlane, Ports
from tests.harness.engine import Engine
from tests.harness.errors import HarnessError
from tests.harness.fabric import Fabric, FabricNode
from tests.harness.kube import Kube, wait_for
from tests.harness.ports import free_ports
from tests.harness.progress import say, step
from tests.harness.reaper import Reaper
from tests.harness.runs import Run, clean_dead_runs
from tests.harness.sluice import Sluice, merge
from tests.harness.slurm import Slurm

T = TypeVar("T")

# The cluster is thrown away: kube-apiserver's wait for its watchers would gain nothing.
STOP_SECONDS = 0.5

# Emptied between tests, owners before what they own.
WORKLOADS = (
    "/apis/batch/v1/cronjobs",
    "/apis/batch/v1/jobs",
    "/apis/apps/v1/deployments",
    "/apis/apps/v1/statefulsets",
    "/apis/apps/v1/replicasets",
    "/apis/apps/v1/daemonsets",
    "/api/v1/pods",
)


class Stack:
    """A running stack. ``close`` ends every process and container that belongs to it."""

    def __init__(self, fabric: Fabric, keep_logs: bool) -> None:
        self.fabric = fabric
        self.keep_logs = keep_logs
        self.run = Run.create()
        self.directory = self.run.directory
        self._engine: Engine | None = None
        self._reaper: Reaper | None = None
        self._control: ControlPlane | None = None
        self._slurm: Slurm | None = None
        self._sluice: Sluice | None = None
        self._second: Sluice | None = None
        self._admin: Kube | None = None
        self._starting = ThreadPoolExecutor(2, thread_name_prefix="stack")
        self._closed = False

    @classmethod
    def start(
        cls,
        fabric: Fabric | None = None,
        *,
        run_milliseconds: int = 3000,
        slurm_conf_extra: str = "",
        settings: dict[str, Any] | None = None,
        deploy: bool = True,
        keep_logs: bool = False,
    ) -> Stack:
        """Bring everything up but Sluice itself; returns when every part answers.

        ``run_milliseconds``: how long a Job's pods run unless RUN_TIME_ANNOTATION says otherwise.
        ``slurm_conf_extra``: lines after slurm.conf. ``settings``: over config/sluice.yaml.
        ``deploy``: apply deploy/ (RBAC and admission). Raises HarnessError; nothing is left then.
        """
        for dead in clean_dead_runs():
            say(f"removed what the dead run {dead} had left")
        stack = cls(fabric or Fabric(), keep_logs)
        try:
            stack._start(run_milliseconds, slurm_conf_extra, settings or {}, deploy)
        except BaseException:
            stack.keep_logs = True
            stack.close()
            raise
        return stack

    def __enter__(self) -> Stack:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        failed = kind is not None and issubclass(kind, Exception)  # not told to stop
        self.keep_logs = self.keep_logs or failed
        self.close()

    # Its parts

    @property
    def admin(self) -> Kube:
        """The API server as an administrator."""
        return _there(self._admin)

    @property
    def slurm(self) -> Slurm:
        return _there(self._slurm)

    @property
    def sluice(self) -> Sluice:
        """The service, which the stack's kube-scheduler asks; not started yet."""
        return _there(self._sluice)

    @property
    def second(self) -> Sluice:
        """Another replica of it; not started yet."""
        return _there(self._second)

    @property
    def control(self) -> ControlPlane:
        """The Kubernetes processes, to kill and start them: ``control.children["kwok"]``."""
        return _there(self._control)

    @property
    def nodes(self) -> list[FabricNode]:
        """The nodes in the order of the fabric."""
        return self.fabric.nodes()

    @property
    def engine_host(self) -> str:
        """The DOCKER_HOST of the engine with Slurm's container."""
        return _there(self._engine).host

    def kubeconfig(self, user: str = "admin") -> Path:
        """The path of a kubeconfig: admin, sluice, or any other name for a user without rights."""
        return self.control.kubeconfig(user)

    def apply_deploy(self) -> None:
        """Apply deploy/ again, and wait until its admission policies act."""
        made = manifests.apply_deploy(self.admin)
        if any(manifest["kind"] == "MutatingAdmissionPolicy" for manifest in made):
            wait_for(lambda: manifests.gate_works(self.admin), 20, "the admission policies")

    def add_nodes(self, fabric: Fabric) -> None:
        """Create a fabric's nodes and wait until kwok has made them ready."""
        names = {node.name for node in fabric.nodes()}
        every = 0.05 if len(names) < 100 else 1.0  # a list of 1,000 nodes is 3 MB
        with step(f"creating {len(names)} nodes") as running:
            self.admin.create_all(
                "/api/v1/nodes", (fabric.manifest(node) for node in fabric.nodes())
            )

            def ready() -> bool:
                count = sum(
                    _ready(node)
                    for node in self.admin.items("/api/v1/nodes")
                    if node["metadata"]["name"] in names
                )
                running.note = f"{count} ready"
                return count == len(names)

            wait_for(ready, 60 + len(names) / 10, f"{len(names)} nodes to be ready", every)

    # Between tests

    def wipe(self, timeout: float = 60.0) -> None:
        """Delete all workloads and pods and cancel all Slurm jobs; returns when both are empty."""
        with step("wiping"):
            for namespace in self.admin.items("/api/v1/namespaces"):
                name = namespace["metadata"]["name"]
                if name.startswith("kube-"):
                    continue
                for collection in WORKLOADS:
                    base, _, plural = collection.rpartition("/")
                    self.admin.delete(f"{base}/namespaces/{name}/{plural}", grace_seconds=0)
            self.slurm.cancel_all()
            wait_for(self._empty, timeout, "Kubernetes and Slurm to be empty")

    def _empty(self) -> bool:
        pods = self.admin.pods()
        for pod in pods:  # made by a controller that had not seen its owner go
            where = pod["metadata"]
            self.admin.delete(
                f"/api/v1/namespaces/{where['namespace']}/pods/{where['name']}", grace_seconds=0
            )
        if pods or self.admin.items("/apis/batch/v1/jobs"):
            return False
        if self.slurm.queued():
            self.slurm.cancel_all()
            return False
        return True

    # Measuring

    def cpu_seconds(self) -> dict[str, float]:
        """CPU time used so far, by process: etcd, kube-apiserver …, sluice, slurmctld …."""
        return {name: stat.cpu_seconds for name, stat in self._stats().items()}

    def rss_mib(self) -> dict[str, float]:
        """Resident memory in MiB, by process."""
        return {name: stat.rss_mib for name, stat in self._stats().items()}

    def _stats(self) -> dict[str, process.Stat]:
        children = dict(self.control.children)
        replicas = {"sluice": self.sluice, "sluice-second": self.second}
        children |= {name: sluice.child for name, sluice in replicas.items() if sluice.alive}
        ours = {name: stat for name, child in children.items() if (stat := child.stat())}
        inside = self.slurm.container.stats()
        names = ("slurmctld", "slurmdbd", "slurmrestd", "mariadbd")
        return ours | {name: inside[name] for name in names if name in inside}

    # Start and end

    def _start(
        self, run_milliseconds: int, conf_extra: str, settings: dict[str, Any], deploy: bool
    ) -> None:
        programs = gobuild.binaries()
        self._engine = engine.ensure()
        self.run.record_engine(self._engine.host)
        self._reaper = Reaper(self.run, self._engine.user)
        slurm_image = image.ensure(self._engine)
        ports = Ports(*free_ports(len(Ports.__dataclass_fields__)))
        user = (manifests.SLUICE_USER, manifests.SLUICE_GROUPS)
        self._control = ControlPlane(
            self.run, programs, ports, run_milliseconds=run_milliseconds, sluice_user=user
        )
        self._slurm = Slurm(
            self.run,
            self._engine,
            slurm_image,
            gpus_per_node=self.fabric.gpus_per_node,
            conf_extra=conf_extra,
        )
        parts = [
            self._starting.submit(self._slurm.start),
            self._starting.submit(self._start_kubernetes, self._control, deploy),
        ]
        wait(parts, return_when="FIRST_EXCEPTION")
        for part in parts:
            if part.done():
                part.result()
        self._sluice, self._second = (
            Sluice(self.run, port, self._settings(port, self._slurm, settings), name)
            for name, port in (("sluice", ports.sluice), ("sluice-second", ports.sluice_second))
        )

    def _start_kubernetes(self, control: ControlPlane, deploy: bool) -> None:
        self._admin = control.start(manifests.apply_deploy if deploy else None)
        self.add_nodes(self.fabric)
        if deploy:
            wait_for(lambda: manifests.gate_works(self.admin), 20, "the admission policies")

    def _settings(self, port: int, slurm: Slurm, settings: dict[str, Any]) -> dict[str, Any]:
        ours = {
            "http": {"host": "127.0.0.1", "port": port},
            "kubernetes": {"kubeconfig": str(self.kubeconfig("sluice"))},
            "slurm": {
                "url": slurm.rest_url,
                "token_file": str(slurm.token_file),
                "complete_command": slurm.complete_command(),
            },
        }
        return merge(ours, settings)

    def close(self) -> None:
        """End everything; repeatable. Logs are kept in ``directory`` after an error."""
        if self._closed:
            return
        with step("stopping the stack"):
            self.run.closing = True
            if self._slurm is not None and self.keep_logs:
                with suppress(Exception):
                    self._slurm.save_logs(self.directory / "logs")
            for sluice in filter(None, (self._sluice, self._second)):
                sluice.stop()
            self.run.end_processes(STOP_SECONDS)
            self._starting.shutdown(wait=True, cancel_futures=True)
            self.run.end_processes(STOP_SECONDS)  # what was being started meanwhile
            with suppress(Exception):
                if self._slurm is not None:
                    self._slurm.close()
            if self._engine is not None:
                self.run.remove_containers()
            if self._admin is not None:
                self._admin.close()
            self.run.finish(keep=self.keep_logs)
            if self._reaper is not None:
                self._reaper.close()
            if self._engine is not None:
                self._engine.release()
        self._closed = True
        if self.keep_logs:
            say(f"logs: {self.directory}")


def _ready(node: dict[str, Any]) -> bool:
    conditions = node.get("status", {}).get("conditions", [])
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def _there(part: T | None) -> T:
    if part is None:
        raise HarnessError("the stack is not up: use Stack.start().")
    return part
