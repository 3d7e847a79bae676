"""The image: built from the Dockerfile on a Debian base, run as nobody on a read-only root."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.e2e.images import base_image, build, run_arguments
from tests.harness import engine
from tests.harness.engine import Engine
from tests.harness.reaper import Reaper
from tests.harness.runs import Run

pytestmark = pytest.mark.e2e


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
        return build(docker, tmp_path_factory.mktemp("context"), base_image(docker), "sluice:test")


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


def confined(
    docker: Engine,
    owner: Run,
    image: str,
    *command: str,
    options: Sequence[str] = (),
    mount: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """The image as nobody, on a read-only root, without a network; ``mount`` is /etc/sluice."""
    return docker.docker(*run_arguments(owner, image, *command, options=options, mount=mount))


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
