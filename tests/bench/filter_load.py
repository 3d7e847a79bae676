"""/filter of the real service while its watch cache is large.

The API server is a stand-in (standin.py), since thousands of nodes and pods take a real one longer
than the rest of the benchmark. It serves copies of real objects. Slurm is the real one: it gets all
the nodes, and the gangs as jobs that are held, so that the service goes on asking for their states.
"""

from __future__ import annotations

import json
import time
from typing import Any

import httpx
import yaml

from tests.bench import filter_http
from tests.bench.arena import FABRIC, NAMESPACES, SLUICE, Arena, Nodes, counter, load
from tests.bench.standin import Collections, StandIn
from tests.bench.workloads import job
from tests.harness.fabric import LEAF_LABEL, SPINE_LABEL
from tests.harness.kube import Object
from tests.harness.ports import free_ports
from tests.harness.progress import Step, step
from tests.harness.sluice import Sluice

GANG = 16
PATIENCE_SECONDS = 180.0
SETTLE_SECONDS = 5.0
UNKNOWN_UID = "00000000-0000-0000-0000-000000000000"


def measure(arena: Arena, nodes: int, pods: int) -> dict[str, Any]:
    """Milliseconds of /filter with one and with all node names, and the service's memory."""
    arena.stack.sluice.stop()
    arena.empty()
    collections, asked = copies(arena, fabric(nodes), pods)
    arena.empty()
    standin_port, port = free_ports(2)
    standin = StandIn(standin_port, collections)
    service = Sluice(arena.stack.run, port, settings(arena, standin, port))
    try:
        with step(f"starting the service with {nodes} nodes and {pods} pods") as running:
            service.start(ready_seconds=PATIENCE_SECONDS)
            node = placed(service, asked, pods // GANG, running)
            time.sleep(SETTLE_SECONDS)
        names = [node, *(n.name for n in fabric(nodes).nodes() if n.name != node)]
        with step("measuring filter"):
            times = measured(service, asked, names)
        stat = service.child.stat()
        return times | {
            "nodes": nodes,
            "pods": pods,
            "rss_mib": round(stat.rss_mib) if stat else 0,
            "load": load(),
        }
    finally:
        service.stop()
        standin.close()
        arena.stack.slurm.cancel_all()


def measured(service: Sluice, asked: Object, names: list[str]) -> dict[str, Any]:
    """For a pod that has a node, and for one that has to wait."""
    url = f"{service.base_url}/extender"
    waits = asked | {"metadata": asked["metadata"] | {"uid": UNKNOWN_UID}}
    return {
        "placed": filter_http.measure(url, asked, names),
        "waiting": filter_http.measure(url, waits, names),
    }


def placed(service: Sluice, asked: Object, gangs: int, running: Step) -> str:
    """The node of the asked pod, once Slurm has given it one and has all the gangs as jobs."""
    meta = asked["metadata"]
    url = f"{service.base_url}/v1/pods/{meta['namespace']}/{meta['name']}"
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        submitted = sum(counter(service.base_url, "sluice_submits_total", "").values())
        running.note = f"{submitted} of {gangs + 1} gangs submitted"
        pod = httpx.get(url, timeout=10).json()
        if pod.get("node") and submitted > gangs:
            return str(pod["node"])
        time.sleep(0.5)
    raise RuntimeError(f"after {PATIENCE_SECONDS:.0f} s: {running.note}; the asked pod: {pod}")


def settings(arena: Arena, standin: StandIn, port: int) -> dict[str, Any]:
    """Another Kubernetes cluster on the same Slurm."""
    kubeconfig = arena.stack.directory / "standin.kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(standin.kubeconfig()))
    slurm = {"url": arena.stack.slurm.rest_url, "token_file": str(arena.stack.slurm.token_file)}
    return {
        "cluster": "standin",
        "http": {"port": port},
        "kubernetes": {"kubeconfig": str(kubeconfig)},
        "slurm": slurm,
    }


def fabric(nodes: int) -> Nodes:
    """The stack's fabric, grown: its nodes keep their names."""
    spines = -(-nodes // (FABRIC.leaves_per_spine * FABRIC.nodes_per_leaf))
    return Nodes(
        spines=spines,
        leaves_per_spine=FABRIC.leaves_per_spine,
        nodes_per_leaf=FABRIC.nodes_per_leaf,
        gpus_per_node=FABRIC.gpus_per_node,
        count=nodes,
    )


def copies(arena: Arena, grown: Nodes, pods: int) -> tuple[Collections, Object]:
    """Copies of real objects by path, and the pod that will get a node."""
    admin, namespace = arena.stack.admin, NAMESPACES[SLUICE]
    path = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    hold = {"sluice.dev/hold": "true"}
    admin.create(path, job("held", SLUICE, GANG, FABRIC.gpus_per_node, hold))
    admin.create(path, job("asked", SLUICE, 1, FABRIC.gpus_per_node))
    admin.wait_for(lambda: len(admin.pods(namespace)) == GANG + 1, 20, "pods to copy")
    held = admin.pods(namespace, "batch.kubernetes.io/job-name=held")
    asked = admin.pods(namespace, "batch.kubernetes.io/job-name=asked")[0]
    jobs = {name: admin.get(f"{path}/{name}") for name in ("held", "asked")}
    gangs = range(pods // GANG)
    return {
        "/api/v1/nodes": node_copies(admin.items("/api/v1/nodes")[0], grown),
        "/api/v1/namespaces": [json.dumps(admin.get(f"/api/v1/namespaces/{namespace}"))],
        "/apis/batch/v1/jobs": [json.dumps(jobs["asked"])]
        + [copy(jobs["held"], jobs["held"], gang) for gang in gangs],
        "/api/v1/pods": [json.dumps(asked)]
        + [copy(pod, jobs["held"], gang) for gang in gangs for pod in held],
    }, asked


def copy(thing: Object, owner: Object, number: int) -> str:
    """A Job, or a pod of it, as that of another Job with the number in names and UIDs."""
    text = json.dumps(thing)
    for uid in {thing["metadata"]["uid"], owner["metadata"]["uid"]}:
        text = text.replace(uid, f"{uid[:-6]}{number:06d}")
    name = owner["metadata"]["name"]
    return text.replace(f'"{name}', f'"{name}-{number}')


def node_copies(real: Object, grown: Nodes) -> list[str]:
    """The nodes of the fabric, each like the real one but for its name, place and address."""
    meta = real["metadata"]
    return [
        json.dumps(
            real
            | {
                "metadata": meta
                | {
                    "name": node.name,
                    "uid": f"{meta['uid'][:-6]}{number:06d}",
                    "labels": meta["labels"]
                    | {
                        "kubernetes.io/hostname": node.name,
                        LEAF_LABEL: node.leaf,
                        SPINE_LABEL: node.spine,
                    },
                },
                "status": real["status"]
                | {"addresses": [{"type": "InternalIP", "address": node.address}]},
            }
        )
        for number, node in enumerate(grown.nodes())
    ]
