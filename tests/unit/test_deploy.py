"""What deploy/ and config/ say agrees with the code, and with itself.

Whether a real API server takes it and does what it promises is tests/e2e/admission.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from extender.api.app import PREFIX as EXTENDER_PATH
from extender.domain import wellknown as names
from extender.domain.endings import disruption_of
from extender.domain.model import JobState
from extender.settings import Settings, load

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
CONFIG = ROOT / "config"
MANIFESTS = [
    path
    for path in sorted(DEPLOY.rglob("*.yaml"))
    if path.parent.name not in ("slurm", "examples") and path.name != "kustomization.yaml"
]
PROSE = [ROOT / "docs" / "install.md", *sorted((DEPLOY / "slurm").iterdir())]
SCRIPTS = sorted(DEPLOY.rglob("*.sh"))

SERVICE_ACCOUNT = {"kind": "ServiceAccount", "name": "sluice", "namespace": "sluice-system"}
USER = "system:serviceaccount:sluice-system:sluice"

MUTATING = "MutatingAdmissionPolicy"
VALIDATING = "ValidatingAdmissionPolicy"
VALIDATING_BINDING = "ValidatingAdmissionPolicyBinding"


def documents(path: Path) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


def find(kind: str, name: str) -> dict[str, Any]:
    """The one object of this kind and name in deploy/."""
    (found,) = (
        document
        for path in MANIFESTS
        for document in documents(path)
        if (document["kind"], document["metadata"]["name"]) == (kind, name)
    )
    return found


def variable(policy: dict[str, Any], name: str) -> str:
    (expression,) = (v["expression"] for v in policy["spec"]["variables"] if v["name"] == name)
    return str(expression)


def scheduler_configuration() -> dict[str, Any]:
    (configuration,) = documents(CONFIG / "kube-scheduler.yaml")
    return configuration


def pod() -> dict[str, Any]:
    spec: dict[str, Any] = find("Deployment", "sluice")["spec"]["template"]["spec"]
    return spec


def container(name: str) -> dict[str, Any]:
    (found,) = (c for c in pod()["containers"] if c["name"] == name)
    assert isinstance(found, dict)
    return found


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


# Names


@pytest.mark.parametrize("path", [*MANIFESTS, *CONFIG.glob("*.yaml"), *PROSE], ids=relative)
def test_every_name_is_one_of_wellknown(path: Path) -> None:
    known = {value for value in vars(names).values() if isinstance(value, str)}
    used = set(re.findall(rf"{re.escape(names.PREFIX)}[\w-]*\w", path.read_text()))
    assert used <= known


def test_the_guard_protects_exactly_the_answers() -> None:
    listed = re.findall(r"'([^']+)'", variable(find(VALIDATING, "sluice-guard"), "answers"))
    assert sorted(listed) == sorted(names.ANSWERS)
    conditions = find(VALIDATING, "sluice-guard")["spec"]["matchConditions"]
    (concerns,) = (c["expression"] for c in conditions if c["name"] == "concerns-sluice")
    at_creation = concerns[concerns.index("[") : concerns.index("]")]
    assert sorted(re.findall(r"'([^']+)'", at_creation)) == sorted(names.ANSWERS)


def test_the_environment_comes_from_answers() -> None:
    expression = variable(find(MUTATING, "sluice-gate"), "environment")
    found = r"""dyn\("(\w+)"\).*?metadata\.annotations\['([^']+)'\]"""
    pairs = re.findall(found, expression, re.DOTALL)
    assert {annotation for _, annotation in pairs} <= names.ANSWERS
    assert dict(pairs) == {
        "RANK": names.RANK,
        "WORLD_SIZE": names.RANKS,
        "SLURM_PROCID": names.RANK,
        "SLURM_JOB_ID": names.JOB_ID,
        "SLURM_JOB_NODELIST": names.NODELIST,
        "SLURM_NNODES": names.NODES,
    }


def test_the_gate_sets_what_the_service_looks_for() -> None:
    (mutation,) = find(MUTATING, "sluice-gate")["spec"]["mutations"]
    expression = mutation["jsonPatch"]["expression"]
    assert f'path: "/spec/schedulerName", value: "{names.SCHEDULER}"' in expression
    assert f'{{"name": "{names.GATE}"}}' in expression
    assert f'{{"key": "{names.TAINT}", "operator": "Exists", "effect": "NoSchedule"}}' in expression


def test_a_template_is_prepared_as_a_pod_is() -> None:
    """jobs.yaml says the same as gate.yaml, one level deeper, and marks what it has done."""
    of_pods, of_jobs = (find(MUTATING, f"sluice-gate{kind}") for kind in ("", "-jobs"))

    def same(text: str) -> str:
        text = text.replace("variables.pod.", "object.spec.").replace(
            "/spec/template/spec/", "/spec/"
        )
        return " ".join(text.split())

    for name in ("environment", "names", "gated"):
        assert same(variable(of_jobs, name)) == same(variable(of_pods, name))
    for_pods, for_jobs = (
        same(policy["spec"]["mutations"][0]["jsonPatch"]["expression"])
        for policy in (of_pods, of_jobs)
    )
    start = '[JSONPatch{op: "add", path: "/spec/schedulerName", value: "sluice"}] + '
    gate, tolerations, rest = re.split(r" \+ (?=\(variables\.toler|object\.spec\.con)", for_pods)
    assert gate.startswith(start)
    assert for_jobs.startswith(start)
    assert gate.removeprefix(start) in for_jobs
    assert for_jobs.endswith(rest)
    # a template that has tolerations of its own is not prepared at all
    assert tolerations.rpartition(" : ")[2] in for_jobs
    assert names.GATED.replace("/", "~1") in for_jobs
    assert find(f"{MUTATING}Binding", "sluice-gate-jobs")["spec"]["matchResources"] == {
        "namespaceSelector": find(f"{MUTATING}Binding", "sluice-gate-namespaces")["spec"][
            "matchResources"
        ]["namespaceSelector"]
    }


def test_a_job_is_told_what_every_end_means() -> None:
    """Final, or a disruption that is not counted: by the conditions that Sluice writes."""
    listed = variable(find(MUTATING, "sluice-endings"), "final")
    final = {f"{names.PREFIX}{word}" for word in re.findall(r"'(\w+)'", listed)}
    ends = {state: disruption_of(state).condition for state in JobState if state.ended}
    again = {JobState.PREEMPTED, JobState.NODE_FAIL, JobState.BOOT_FAIL}
    assert final == {condition for state, condition in ends.items() if state not in again}
    (mutation,) = find(MUTATING, "sluice-endings")["spec"]["mutations"]
    assert f'"type": "{names.DISRUPTION_TARGET}"' in mutation["jsonPatch"]["expression"]


def test_who_is_told_is_who_is_taken() -> None:
    """endings.yaml and jobs.yaml leave the same Jobs alone, but for their tolerations."""

    def conditions(policy: str) -> dict[str, str]:
        listed = find(MUTATING, policy)["spec"]["matchConditions"]
        return {c["name"]: " ".join(c["expression"].split()) for c in listed}

    ours, theirs = conditions("sluice-endings"), conditions("sluice-gate-jobs")
    same = {"not-opted-out", "not-on-a-node", "not-of-another-scheduler"}
    assert {name: ours[name] for name in same} == {name: theirs[name] for name in same}
    assert theirs.keys() - same == {"no-tolerations-of-its-own"}
    assert ours.keys() - same == {"says-nothing-itself", "replacement-not-chosen"}


def test_opting_in_is_by_the_managed_label_alone() -> None:
    selectors = [
        find(f"{MUTATING}Binding", f"sluice-gate-{by}")["spec"]["matchResources"]
        for by in ("namespaces", "pods")
    ]
    label = {"matchLabels": {names.MANAGED: "true"}}
    elsewhere = {"key": names.MANAGED, "operator": "NotIn", "values": ["true"]}
    system = {
        "key": "kubernetes.io/metadata.name",
        "operator": "NotIn",
        "values": ["kube-system", SERVICE_ACCOUNT["namespace"]],
    }
    assert selectors == [
        {
            "namespaceSelector": label | {"matchExpressions": [system]},
            "objectSelector": {
                "matchExpressions": [{"key": names.GATED, "operator": "NotIn", "values": ["true"]}]
            },
        },
        {"namespaceSelector": {"matchExpressions": [system, elsewhere]}, "objectSelector": label},
    ]


# Who Sluice is


def test_sluice_is_one_user_everywhere() -> None:
    policies = "".join(path.read_text() for path in MANIFESTS if path.parent.name == "admission")
    assert policies.count(USER) == 1
    conditions = find(VALIDATING, "sluice-guard")["spec"]["matchConditions"]
    assert f"request.userInfo.username != '{USER}'" in [c["expression"] for c in conditions]
    assert pod()["serviceAccountName"] == SERVICE_ACCOUNT["name"]
    bindings = [
        document
        for path in MANIFESTS
        for document in documents(path)
        if document["kind"] in ("ClusterRoleBinding", "RoleBinding")
    ]
    assert [binding["subjects"] for binding in bindings] == [[SERVICE_ACCOUNT]] * len(bindings)


def test_sluice_may_do_this_and_no_more() -> None:
    granted = {
        (group, resource): set(rule["verbs"])
        for rule in find("ClusterRole", "sluice")["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    assert granted == {
        ("", "pods"): {"get", "list", "watch", "patch", "delete"},
        ("", "pods/status"): {"patch"},
        ("", "pods/binding"): {"create"},
        ("", "nodes"): {"list", "watch", "patch"},
        ("", "namespaces"): {"list", "watch"},
        ("batch", "jobs"): {"list", "watch"},
        ("", "events"): {"create"},
    }


def test_every_policy_fails_closed_and_is_bound() -> None:
    everything = [document for path in MANIFESTS for document in documents(path)]
    policies = [d for d in everything if d["kind"] in (MUTATING, VALIDATING)]
    assert {policy["spec"]["failurePolicy"] for policy in policies} == {"Fail"}
    bound = {d["spec"]["policyName"] for d in everything if d["kind"].endswith("PolicyBinding")}
    assert bound == {policy["metadata"]["name"] for policy in policies}
    guards = [d for d in everything if d["kind"] == VALIDATING_BINDING]
    assert all(guard["spec"]["validationActions"] == ["Deny"] for guard in guards)


# kube-scheduler


def test_kube_scheduler_reaches_the_extender_where_it_listens() -> None:
    (extender,) = scheduler_configuration()["extenders"]
    http = Settings().http
    assert extender["urlPrefix"] == f"http://{http.host}:{http.port}{EXTENDER_PATH}"
    verbs = {extender[f"{verb}Verb"] for verb in ("filter", "prioritize", "preempt", "bind")}
    assert verbs == {"filter", "prioritize", "preempt", "bind"}


def test_kube_scheduler_waits_for_slurm_and_evicts_nobody() -> None:
    configuration = scheduler_configuration()
    (profile,) = configuration["profiles"]
    (extender,) = configuration["extenders"]
    assert profile["schedulerName"] == names.SCHEDULER == Settings().kubernetes.scheduler_name
    assert profile["plugins"] == {"postFilter": {"disabled": [{"name": "DefaultPreemption"}]}}
    assert configuration["percentageOfNodesToScore"] == 100
    assert extender["ignorable"] is False
    assert extender["nodeCacheCapable"] is True
    assert "managedResources" not in extender


# The pod


def test_its_files_are_where_the_settings_look(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable_ in container("sluice")["env"]:
        monkeypatch.setenv(variable_["name"], variable_.get("value", "sluice-0"))
    settings = load(CONFIG / "sluice.yaml")
    assert settings.http.host == "0.0.0.0"
    assert settings.lease.identity == "sluice-0"
    token = Path(settings.slurm.token_file)
    mounts = {m["name"]: m["mountPath"] for m in container("sluice")["volumeMounts"]}
    assert mounts["slurm-token"] == str(token.parent)
    (secret,) = (v["secret"] for v in pod()["volumes"] if v["name"] == "slurm-token")
    script = (DEPLOY / "slurm" / "token.sh").read_text()
    assert f"generic {secret['secretName']} " in script
    assert f"--from-file={token.name}=/dev/stdin" in script
    assert f"--config={mounts['config']}/sluice.yaml" in container("sluice")["args"]


def test_kubernetes_adds_no_variables_that_look_like_settings() -> None:
    assert pod()["enableServiceLinks"] is False


def test_both_configurations_become_config_maps() -> None:
    (kustomization,) = documents(CONFIG / "kustomization.yaml")
    generated = {g["name"]: g["files"] for g in kustomization["configMapGenerator"]}
    mounted = {v["configMap"]["name"] for v in pod()["volumes"] if "configMap" in v}
    assert mounted == set(generated)
    assert sorted(generated.values()) == [["kube-scheduler.yaml"], ["sluice.yaml"]]


@pytest.mark.parametrize("name", ["sluice", "kube-scheduler"])
def test_containers_have_no_privileges(name: str) -> None:
    assert container(name)["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert pod()["securityContext"]["runAsNonRoot"] is True
    assert {"livenessProbe", "readinessProbe", "startupProbe"} <= set(container(name))


# Two of it


def test_one_is_there_whatever_happens_to_the_other() -> None:
    spec = find("Deployment", "sluice")["spec"]
    assert spec["replicas"] == 2
    assert spec["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
    budget = find("PodDisruptionBudget", "sluice")["spec"]
    assert (budget["minAvailable"], budget["selector"]) == (1, spec["selector"])
    (spread,) = pod()["topologySpreadConstraints"]
    assert spread["labelSelector"] == spec["selector"]
    assert spread["topologyKey"] == "kubernetes.io/hostname"


def test_each_is_a_name_in_the_lease_that_outlives_a_restart() -> None:
    (identity,) = (e for e in container("sluice")["env"] if e["name"] == "SLUICE_LEASE__IDENTITY")
    assert identity["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.name"}}
    assert Settings().lease.enabled is True


def test_each_election_has_a_lease_of_its_own_that_it_may_write() -> None:
    election = scheduler_configuration()["leaderElection"]
    assert election["leaderElect"] is True
    ours, theirs = Settings().lease, (election["resourceNamespace"], election["resourceName"])
    assert theirs not in {(ours.namespace, ours.name), ("kube-system", "kube-scheduler")}
    role = find("Role", "sluice-lease")
    assert {ours.namespace, theirs[0]} == {role["metadata"]["namespace"]}
    create, use = role["rules"]
    assert create == {
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
        "verbs": ["create"],
    }
    assert (use["resourceNames"], use["verbs"]) == ([ours.name, theirs[1]], ["get", "update"])


# Kustomize


def test_the_base_holds_every_file() -> None:
    (kustomization,) = documents(DEPLOY / "kustomization.yaml")
    files = {str(path.relative_to(DEPLOY)) for path in MANIFESTS}
    assert set(kustomization["resources"]) == files | {"../config"}


def test_image_fields_name_the_images_in_use() -> None:
    (kustomization,) = documents(DEPLOY / "kustomization.yaml")
    used = {c["image"].rpartition(":")[0] for c in pod()["containers"]}
    assert {image["name"] for image in kustomization["images"]} == used


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_kustomize_builds_the_base() -> None:
    command = ["kubectl", "kustomize", str(DEPLOY)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    built = [document["kind"] for document in yaml.safe_load_all(done.stdout)]
    assert len(built) == sum(len(documents(path)) for path in MANIFESTS) + 2  # the ConfigMaps


# Slurm's side


def test_slurm_conf_makes_a_partition_of_the_nodes_that_sluice_creates() -> None:
    text = (DEPLOY / "slurm" / "slurm.conf").read_text()
    assert f"Nodeset=k8s Feature={Settings().nodes.feature}" in text
    assert "Nodes=k8s" in text


def slurm_conf(path: Path) -> dict[str, set[str]]:
    """Each setting, its value cut at the commas; a partition or node set by its name."""
    lines = (line for line in path.read_text().splitlines() if line and not line.startswith("#"))
    found = {}
    for line in lines:
        key, _, value = line.partition("=")
        if key in ("PartitionName", "Nodeset"):
            name, _, value = value.partition(" ")
            key = f"{key}={name}"
        found[key] = set(value.split(","))
    return found


def test_the_tests_run_with_the_slurm_that_is_recommended() -> None:
    """slurmctld of the test stack is started with tests/harness/slurm/, so that is true."""
    told = slurm_conf(DEPLOY / "slurm" / "slurm.conf")
    used = slurm_conf(ROOT / "tests" / "harness" / "slurm" / "slurm.conf")
    assert {key: value for key, value in told.items() if not value <= used.get(key, set())} == {}


def test_slurm_topology_starts_at_the_root_that_sluice_names() -> None:
    (tree,) = yaml.safe_load((DEPLOY / "slurm" / "topology.yaml").read_text())
    assert tree["tree"] == {"switches": [{"switch": Settings().nodes.topology_root}]}


@pytest.mark.parametrize("script", SCRIPTS, ids=relative)
def test_scripts_parse(script: Path) -> None:
    subprocess.run(["bash", "-n", str(script)], check=True)
    assert script.stat().st_mode & 0o111


def run_token_script(directory: Path, token: str) -> tuple[int, str, str]:
    """Run token.sh with commands that only take notes: exit code, arguments, standard input."""
    scripts = {
        "scontrol": f"echo '{token}'",
        "kubectl": f'echo "$@" >>{directory}/arguments; cat - /dev/null >>{directory}/input',
    }
    for name, text in scripts.items():
        (directory / name).write_text(f"#!/bin/bash\n{text}\n")
        (directory / name).chmod(0o755)
    done = subprocess.run(
        [str(DEPLOY / "slurm" / "token.sh")],
        env=os.environ | {"PATH": f"{directory}:{os.environ['PATH']}"},
        capture_output=True,
        check=False,
    )
    noted = [directory / "arguments", directory / "input"]
    arguments, given = (file.read_text() if file.exists() else "" for file in noted)
    return done.returncode, arguments, given


def test_the_token_reaches_the_cluster_through_a_pipe_only(tmp_path: Path) -> None:
    code, arguments, given = run_token_script(tmp_path, "SLURM_JWT=abc.def.ghi")
    assert (code, given) == (0, "abc.def.ghi")
    assert "abc" not in arguments


def test_no_token_no_secret(tmp_path: Path) -> None:
    code, arguments, _ = run_token_script(tmp_path, "")
    assert (code, arguments) == (1, "")


# The manual


def test_the_manual_names_files_that_exist() -> None:
    text = (ROOT / "docs" / "install.md").read_text()
    paths = set(re.findall(r"(?:deploy|config|docs)/[\w./-]*\w", text))
    assert paths
    assert [path for path in sorted(paths) if not (ROOT / path).exists()] == []
