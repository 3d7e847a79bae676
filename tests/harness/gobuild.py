"""The control plane's programs, from ``KUBEBUILDER_ASSETS`` or built from the Go module proxy.

Each go.mod under ``go/`` names its programs as tools; ``go build`` makes them. Only the build
takes minutes, and it happens once for each set of versions.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.harness import cache
from tests.harness.command import run
from tests.harness.errors import HarnessError
from tests.harness.progress import Step, say

GO_DIR = Path(__file__).parent / "go"
OLDEST_GO = (1, 21)  # the first that can fetch a newer toolchain by itself
OLDEST_KUBERNETES = (1, 36)  # MutatingAdmissionPolicy is GA and on by default from here

# kwok's own behaviours, relative to kustomize/stage in its module
STAGES = (
    "node/fast/node-initialize.yaml",
    "node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
    "pod/fast/pod-ready.yaml",
    "pod/fast/pod-complete.yaml",
    "pod/fast/pod-delete.yaml",
)


@dataclass(frozen=True)
class Binaries:
    """Paths of the programs, and of the directory with kwok's stage files."""

    etcd: Path
    kube_apiserver: Path
    kube_controller_manager: Path
    kube_scheduler: Path
    kwok: Path
    kwok_stages: Path


def binaries() -> Binaries:
    """All programs, built where needed. Raises HarnessError when Go is missing or a build fails."""
    kwok = _kwok()
    return Binaries(
        kube_scheduler=_kubernetes("kube-scheduler"),
        kube_apiserver=_kubernetes("kube-apiserver"),
        kube_controller_manager=_kubernetes("kube-controller-manager"),
        etcd=_etcd(),
        kwok=kwok / "kwok",
        kwok_stages=kwok / "stages",
    )


def required_version(module: str, directory: Path) -> str:
    """The version that the go.mod in ``directory`` requires of ``module``, such as v1.36.3."""
    text = (directory / "go.mod").read_text()
    found = re.search(rf"^(?:require)?\s*{re.escape(module)} (v\S+)", text, re.MULTILINE)
    if found is None:
        raise HarnessError(f"{directory}/go.mod does not require {module}: restore the file.")
    return found[1]


def _kubernetes(program: str) -> Path:
    asset = _asset(program)
    if asset is not None:
        return asset
    module = GO_DIR / "k8s"
    version = required_version("k8s.io/kubernetes", module)
    major, minor = version.lstrip("v").split(".")[:2]
    stamp = "k8s.io/component-base/version"
    flags = (
        f"-s -w -X {stamp}.gitVersion={version} -X {stamp}.gitMajor={major}"
        f" -X {stamp}.gitMinor={minor}"
    )
    return _build(program, module, f"k8s.io/kubernetes/cmd/{program}", flags) / program


def _etcd() -> Path:
    asset = _asset("etcd")
    return asset or _build("etcd", GO_DIR / "k8s", "go.etcd.io/etcd/server/v3", "-s -w") / "etcd"


def _kwok() -> Path:
    return _build("kwok", GO_DIR / "kwok", "sigs.k8s.io/kwok/cmd/kwok", "-s -w")


def _asset(program: str) -> Path | None:
    """The program in ``KUBEBUILDER_ASSETS`` when it is there and new enough."""
    directory = os.environ.get("KUBEBUILDER_ASSETS")
    path = Path(directory or "/nonexistent") / program
    if not path.is_file():
        return None
    if program == "etcd":
        return path
    answer = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
    found = re.search(r"v(\d+)\.(\d+)\.", answer.stdout)
    if found and (int(found[1]), int(found[2])) >= OLDEST_KUBERNETES:
        return path
    wanted = ".".join(map(str, OLDEST_KUBERNETES))
    say(f"KUBEBUILDER_ASSETS: {path} is older than {wanted} and not used")
    return None


def _build(program: str, module: Path, package: str, ldflags: str) -> Path:
    """The artefact directory that holds ``program`` (and kwok's stages)."""
    digest = cache.key(module / "go.mod", module / "go.sum", package, ldflags, *STAGES)

    def build(directory: Path, step: Step) -> None:
        go, env = _go()
        count = 0

        def on_line(line: str) -> None:
            nonlocal count
            if line.startswith("go: downloading "):
                step.note = line.removeprefix("go: ")
            elif line == package:  # the last one
                step.note = "linking"
            else:
                count += 1
                step.note = f"{count} packages compiled"

        run(
            [go, "build", "-v", "-ldflags", ldflags, "-o", str(directory / program), package],
            what=f"building {program}",
            log=cache.root() / "logs" / f"build-{program}.log",
            env=env,
            cwd=module,
            on_line=on_line,
            hint="Check that the Go module proxy answers (go env GOPROXY).",
        )
        if program == "kwok":
            _copy_stages(go, env, module, directory / "stages")

    return cache.artefact("bin", program, digest, build)


def _copy_stages(go: str, env: dict[str, str], module: Path, target: Path) -> None:
    answer = subprocess.run(
        [go, "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kwok"],
        cwd=module, env=env, capture_output=True, text=True, check=True,
    )  # fmt: skip
    source = Path(answer.stdout.strip()) / "kustomize" / "stage"
    target.mkdir()
    for name in STAGES:
        shutil.copyfile(source / name, target / Path(name).name)


def _go() -> tuple[str, dict[str, str]]:
    """The go command and the environment to run it in."""
    go = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin:/usr/lib/go/bin")
    install = f"install Go {'.'.join(map(str, OLDEST_GO))} or newer (https://go.dev/dl)"
    if go is None:
        raise HarnessError(
            f"the Kubernetes programs cannot be built: there is no go command: {install}."
        )
    env = os.environ | {
        "GOMODCACHE": str(cache.root() / "go" / "mod"),
        "GOCACHE": str(cache.root() / "go" / "build"),
        "GOFLAGS": "-modcacherw -mod=readonly -trimpath -buildvcs=false",
        "GOWORK": "off",
        "CGO_ENABLED": "0",
    }
    probe = {**env, "GOTOOLCHAIN": "local"}
    answer = subprocess.run(
        [go, "env", "GOVERSION"], env=probe, capture_output=True, text=True, check=False
    )
    found = re.search(r"go(\d+)\.(\d+)", answer.stdout)
    version = (int(found[1]), int(found[2])) if found else (0, 0)
    if version < OLDEST_GO:
        raise HarnessError(
            f"the Kubernetes programs cannot be built: {go} is "
            f"{answer.stdout.strip() or 'unusable'}: {install}."
        )
    wanted = re.search(r"^go (\d+)\.(\d+)", (GO_DIR / "k8s" / "go.mod").read_text(), re.MULTILINE)
    if wanted and version < (int(wanted[1]), int(wanted[2])):
        env["GOTOOLCHAIN"] = "auto"
    return go, env
