"""The four collections that are followed, and where what they tell goes."""

from __future__ import annotations

import asyncio

from extender.control import metrics
from extender.control.cluster import Cluster
from extender.control.nodes import NodeLoop
from extender.control.reports import Reports
from extender.control.scheduling import Scheduling
from extender.domain.model import Node, Pod
from extender.domain.wellknown import MANAGED
from extender.kube import objects
from extender.kube.client import KubeClient
from extender.kube.watch import Reflector


class Watches:
    """Pods that name our scheduler, Jobs, namespaces, and managed nodes."""

    def __init__(
        self,
        kube: KubeClient,
        cluster: Cluster,
        nodes: NodeLoop,
        scheduling: Scheduling,
        reports: Reports,
        scheduler_name: str = "sluice",
    ) -> None:
        def node_seen(node: Node) -> None:
            if cluster.nodes.get(node.name) != node:
                cluster.node_seen(node)
                nodes.touch()
                metrics.nodes.set(len(cluster.nodes))

        def node_gone(node: Node) -> None:
            cluster.node_gone(node)
            metrics.nodes.set(len(cluster.nodes))

        def pod_seen(pod: Pod) -> None:
            cluster.pod_seen(pod)
            metrics.pods.set(len(cluster.pods))

        def pod_gone(pod: Pod) -> None:
            cluster.pod_gone(pod)
            scheduling.forget(pod.uid)
            reports.pod_gone(pod)
            metrics.pods.set(len(cluster.pods))

        self._namespaces = Reflector(
            kube,
            "/api/v1/namespaces",
            objects.NamespaceObject,
            objects.namespace,
            lambda n: n.name,
            cluster.namespace_seen,
            cluster.namespace_gone,
        )
        self._nodes = Reflector(
            kube,
            "/api/v1/nodes",
            objects.NodeObject,
            objects.node,
            lambda n: n.name,
            node_seen,
            node_gone,
            {"labelSelector": f"{MANAGED}=true"},
        )
        self._jobs = Reflector(
            kube,
            "/apis/batch/v1/jobs",
            objects.JobObject,
            objects.workload,
            lambda j: j.uid,
            cluster.workload_seen,
            cluster.workload_gone,
        )
        self._pods = Reflector(
            kube,
            "/api/v1/pods",
            objects.PodObject,
            objects.pod,
            lambda p: p.uid,
            pod_seen,
            pod_gone,
            {"fieldSelector": f"spec.schedulerName={scheduler_name}"},
        )

    def start(self, group: asyncio.TaskGroup) -> None:
        for reflector in (self._namespaces, self._nodes, self._jobs):
            group.create_task(reflector.run())
        group.create_task(self._follow_pods())

    async def _follow_pods(self) -> None:
        """After the Jobs: they tell whose gang it is when a pod of another namespace claims it."""
        await self._jobs.synced.wait()
        await self._pods.run()

    async def synced(self) -> None:
        """Return when every collection has been listed once."""
        for reflector in self._all():
            await reflector.synced.wait()

    @property
    def all_synced(self) -> bool:
        return all(reflector.synced.is_set() for reflector in self._all())

    def problems(self) -> dict[str, str]:
        """Collection -> what is wrong with following it, "" when nothing is."""
        return {
            "namespaces": self._namespaces.problem,
            "nodes": self._nodes.problem,
            "jobs": self._jobs.problem,
            "pods": self._pods.problem,
        }

    def _all(self) -> tuple[Reflector[object], ...]:
        return (self._namespaces, self._nodes, self._jobs, self._pods)  # type: ignore[return-value]
