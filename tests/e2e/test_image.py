"""The image: built from the Dockerfile on a Debian base, run as nobody on a read-only root."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.harness import cache, engine, system
from tests.harness.command import run
from tests.harness.engine import Engine
from tests.harness.progress import Step, step
from tests.harness.reaper import Reaper
from tests.harness.runs import LABEL, Run

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[2]
PUBLIC_BASE = "python:3.11-slim-bookworm"
SUITE = "trixie"  # Debian with Python 3.13, where no registry answers
BASE_PACKAGES = "python3,python3-venv"
CONFINED = (
    "--read-only",
    "--user=65532:65532",
    "--cap-drop=ALL",
    "--security-opt=no-new-privileges",
    "--network=none",
    "--pull=never",
)


@pytest.fixture(scope="module")
def docker() -> Iterator[Engine]:
    found = engine.ensure()
    yield found
    found.release()


@pytest.fixture(scope="module")
def image(
    docker: Engine, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> str:
    """The image of this checkout."""
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():  # progress must be seen while it happens
        return build_image(docker, tmp_path_factory.mktemp("context"))


def build_image(docker: Engine, context: Path) -> str:
    """Build in ``context``; the tag. An image of an earlier checkout goes."""
    base = base_image(docker)
    for name in ("Dockerfile", ".dockerignore", "requirements.txt"):
        shutil.copy(ROOT / name, context)
    shutil.copytree(ROOT / "extender", context / "extender")
    shutil.copytree(ROOT / "config", context / "config")
    shutil.copytree(wheels(python_version(docker, base)), context / "wheels")
    tag = "sluice:test"
    before = image_id(docker, tag)
    with step("building Sluice's image"):
        built = docker.docker(
            "build", "--tag", tag, "--build-arg", f"BASE={base}", str(context), timeout=900
        )
    assert built.returncode == 0, built.stdout[-3000:] + built.stderr[-3000:]
    if before and before != image_id(docker, tag):
        docker.docker("rmi", before)
    return tag


@pytest.fixture
def container(docker: Engine) -> Iterator[Run]:
    """A run that owns the containers of one test, and removes them however the test ends."""
    owner = Run.create()
    owner.record_engine(docker.host)
    reaper = Reaper(owner, docker.user)
    yield owner
    owner.remove_containers()
    owner.finish(keep=False)
    reaper.close()


def image_id(docker: Engine, tag: str) -> str:
    return docker.docker("image", "inspect", "--format={{.Id}}", tag).stdout.strip()


def base_image(docker: Engine) -> str:
    """The public Python image where a registry gives it, else Debian with its own Python."""
    if docker.docker("image", "inspect", PUBLIC_BASE).returncode == 0:
        return PUBLIC_BASE
    digest = cache.key(SUITE, BASE_PACKAGES)
    tag = f"sluice-python:{digest}"
    if docker.docker("image", "inspect", tag).returncode == 0:
        return tag
    if not docker.private:
        with step(f"asking a registry for {PUBLIC_BASE}"):
            if docker.docker("pull", "--quiet", PUBLIC_BASE, timeout=60).returncode == 0:
                return PUBLIC_BASE
    rootfs = cache.artefact("image", "python-image", digest, debian_with_python) / "rootfs.tar"
    with step("giving the Python image to Docker"):
        made = docker.docker("import", str(rootfs), tag, timeout=600)
    assert made.returncode == 0, made.stderr
    return tag


def debian_with_python(directory: Path, running: Step) -> None:
    if not shutil.which("mmdebstrap"):
        system.install("mmdebstrap", why="the base of Sluice's image")

    def note(line: str) -> None:
        running.note = line.removeprefix("I: ")[:60]

    scratch = directory / "tmp"
    scratch.mkdir(mode=0o755)
    run(
        [
            "mmdebstrap", "--variant=minbase", f"--include={BASE_PACKAGES}",
            "--dpkgopt=path-exclude=/usr/share/man/*", "--dpkgopt=path-exclude=/usr/share/doc/*",
            SUITE, str(directory / "rootfs.tar"),
        ],
        what="building a Debian with Python", on_line=note,
        log=cache.root() / "logs" / "build-python-image.log",
        env=os.environ | {"TMPDIR": str(scratch)},
        hint="Check that the Debian mirror answers.",
    )  # fmt: skip
    scratch.rmdir()


def python_version(docker: Engine, base: str) -> str:
    """ "3.13", of the base's python3."""
    script = "import sys; print('%d.%d' % sys.version_info[:2])"
    told = docker.docker("run", "--rm", *CONFINED, base, "python3", "-c", script)
    assert told.returncode == 0, told.stderr
    return told.stdout.strip()


def wheels(python: str) -> Path:
    """Everything in requirements.txt for that Python, as the Dockerfile says it may be given."""
    requirements = ROOT / "requirements.txt"
    machine = platform.machine()

    def build(directory: Path, running: Step) -> None:
        def note(line: str) -> None:
            running.note = line[:60]

        platforms = [f"manylinux_2_{minor}_{machine}" for minor in (17, 24, 27, 28, 31, 34)]
        run(
            [
                sys.executable, "-m", "pip", "download", "--only-binary=:all:", "--no-input",
                "--dest", str(directory), f"--python-version={python}",
                *(f"--platform={name}" for name in (*platforms, f"manylinux2014_{machine}")),
                "--requirement", str(requirements),
            ],
            what="downloading the wheels for the image", on_line=note,
            log=cache.root() / "logs" / "build-wheels.log",
            hint="Check that the package index answers (pip config list).",
        )  # fmt: skip

    digest = cache.key(requirements, python, machine)
    return cache.artefact("image", "wheels", digest, build)


def confined(
    docker: Engine,
    owner: Run,
    image: str,
    *command: str,
    options: Sequence[str] = (),
    mount: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """The image as nobody, on a read-only root, without a network; ``mount`` is /etc/sluice."""
    volume = [f"--volume={mount}:/etc/sluice:ro"] if mount else []
    label = f"--label={LABEL}={owner.id}"
    return docker.docker("run", label, *CONFINED, *volume, *options, image, *command)


def test_it_is_small_and_runs_as_a_number(docker: Engine, image: str) -> None:
    told = docker.docker("image", "inspect", image)
    (facts,) = json.loads(told.stdout)
    assert facts["Config"]["User"] == "65532:65532"
    (base,) = json.loads(docker.docker("image", "inspect", base_image(docker)).stdout)
    assert facts["Size"] - base["Size"] < 180 * 1024 * 1024


def test_it_carries_no_more_than_it_needs(docker: Engine, container: Run, image: str) -> None:
    """No tests, no history, no package installer, no secret."""
    script = (
        "ls -d /src /opt/sluice/bin/pip /var/run/secrets 2>/dev/null; "
        "find /opt/sluice -path '*/extender/*' -name '*.py' | wc -l"
    )
    found = confined(docker, container, image, "-c", script, options=["--entrypoint=sh"])
    assert int(found.stdout) > 20


def test_a_wrong_setting_ends_it_with_2_and_a_sentence(
    docker: Engine, container: Run, image: str
) -> None:
    ended = confined(docker, container, image, options=["--env=SLUICE_HTTP__PORT=http"])
    assert ended.returncode == 2
    assert (
        'http.port (from SLUICE_HTTP__PORT): "http" is not allowed; '
        "it may be a whole number from 1 to 65535, default 8077"
    ) in ended.stderr
    assert "Traceback" not in ended.stderr


def test_the_default_command_reads_the_mounted_file(
    docker: Engine, container: Run, image: str, tmp_path: Path
) -> None:
    (tmp_path / "sluice.yaml").write_text("htpp: {port: 1}\n")
    tmp_path.chmod(0o755)
    ended = confined(docker, container, image, mount=tmp_path)
    assert ended.returncode == 2
    assert "htpp: unknown; did you mean http.port?" in ended.stderr


def test_it_lives_before_the_cluster_answers(
    docker: Engine, container: Run, image: str, tmp_path: Path
) -> None:
    """Alive, not ready, and saying why: nothing of Kubernetes or Slurm is in reach."""
    tmp_path.chmod(0o755)
    kubeconfig = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "x",
        "clusters": [{"name": "x", "cluster": {"server": "http://127.0.0.1:1"}}],
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
        "users": [{"name": "x", "user": {"token": "t"}}],
    }
    (tmp_path / "kubeconfig").write_text(json.dumps(kubeconfig))
    (tmp_path / "sluice.yaml").write_text("kubernetes: {kubeconfig: /etc/sluice/kubeconfig}\n")
    name = f"sluice-image-{container.id}"
    options = ["--detach", f"--name={name}"]
    started = confined(docker, container, image, options=options, mount=tmp_path)
    assert started.returncode == 0, started.stderr

    def get(path: str) -> str:
        script = (
            "import http.client as h; c = h.HTTPConnection('127.0.0.1', 8077, timeout=5); "
            f"c.request('GET', '{path}'); r = c.getresponse(); print(r.status, r.read().decode())"
        )
        return docker.docker("exec", name, "/opt/sluice/bin/python", "-c", script).stdout

    deadline = time.monotonic() + 30
    while not (answer := get("/livez")) and time.monotonic() < deadline:
        time.sleep(0.2)
    logs = docker.docker("logs", name)
    assert answer.startswith("200 ok"), logs.stderr
    ready = get("/readyz")
    assert ready.startswith("503 ")
    assert '"ready": false' in ready
    stopped = docker.docker("stop", "--time=20", name)
    assert stopped.returncode == 0
    (facts,) = json.loads(docker.docker("inspect", name).stdout)
    assert facts["State"]["ExitCode"] == 0, docker.docker("logs", name).stderr
