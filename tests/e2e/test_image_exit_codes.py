"""Slurm jobs ended with an exit code by Sluice's own image: on a base with slurmctld's own libslurm,
and with Debian stable's packages, which are older than slurmctld."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from extender.slurm.completer import Completer, wait_status
from tests.e2e import images
from tests.e2e.ends import outcome
from tests.e2e.site import Site
from tests.harness import engine, image
from tests.harness.engine import Engine

pytestmark = pytest.mark.e2e

MANUAL = (images.ROOT / "docs" / "install.md").read_text()
PACKAGES = "slurm-wlm-jwt-plugin systemd-standalone-sysusers"
TOKENS = "/var/run/secrets/sluice"
COMMAND = (
    "/opt/sluice/bin/python",
    "/opt/sluice/app/extender/slurm/complete.py",
    f"--token-file={TOKENS}/slurm-token",
)
SLURM_CONF = "ClusterName=cluster\nSlurmctldHost=slurmctl\nAuthType=auth/jwt\n"
EXPIRED = "Protocol authentication error: the token has expired, or another key than slurmctld's signed it"


@pytest.fixture(scope="module")
def docker() -> Iterator[Engine]:
    found = engine.ensure()
    yield found
    found.release()


@pytest.fixture(scope="module", params=["slurmctld's own", "older"])
def with_libslurm(
    docker: Engine, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> str:
    """The image of this checkout with libslurm in it."""
    context = tmp_path_factory.mktemp("context")
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():  # progress must be seen while it happens
        if request.param == "older":
            packages = ("--network=host", "--build-arg", f"PACKAGES={PACKAGES}")
            base = images.base_image(docker)
            return images.build(docker, context, base, "sluice:test-packages", *packages)
        return images.build(docker, context, image.ensure(docker), "sluice:test-slurm")


class Inside:
    """complete.py in the image, in the network of slurmctld; its files are in ``directory``."""

    def __init__(self, docker: Engine, site: Site, image: str, directory: Path) -> None:
        self._site, self._tokens = site, directory / "tokens"
        directory.chmod(0o755)
        self._tokens.mkdir(mode=0o755)
        self.renew(86400)
        conf = directory / "etc"
        conf.mkdir(mode=0o755)
        (conf / "slurm.conf").write_text(SLURM_CONF)
        program, *rest = COMMAND
        arguments = images.run_arguments(
            site.stack.run, image, *rest, mount=conf,
            network=f"container:{site.slurm.container.id}",
            options=["--rm", "--interactive", f"--volume={self._tokens}:{TOKENS}:ro",
                     f"--entrypoint={program}"],
        )  # fmt: skip
        self.command = ["docker", "-H", docker.host, *arguments]

    def renew(self, lifespan_seconds: float) -> None:
        """Another token, put in the place of the one before as the kubelet does it."""
        new = self._tokens / "new"
        new.write_text(self._site.slurm.token("slurm", lifespan_seconds))
        new.chmod(0o644)
        new.rename(self._tokens / "slurm-token")

    def once(self, job_id: int, status: int) -> subprocess.CompletedProcess[str]:
        command = [*self.command, str(job_id), str(status)]
        return subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=30, input=""
        )


@pytest.fixture
def inside(docker: Engine, site: Site, with_libslurm: str, tmp_path: Path) -> Inside:
    return Inside(docker, site, with_libslurm, tmp_path)


@pytest.mark.parametrize("said", [PACKAGES, *COMMAND, *SLURM_CONF.split()])
def test_the_manual_says_what_is_used_here(said: str) -> None:
    assert said in MANUAL


async def test_the_image_ends_jobs_with_their_exit_code(site: Site, inside: Inside) -> None:
    badly, well = site.fill(1, "badly"), site.fill(1, "well")
    completer = Completer(inside.command, timeout_seconds=30)
    said = [
        await completer.complete(job_id, wait_status(c)) for job_id, c in ((badly, 3), (well, 0))
    ]
    await completer.close()
    assert said == ["", ""]
    assert outcome(site, badly) == ("FAILED", "3:0")
    assert outcome(site, well) == ("COMPLETED", "0:0")


async def test_a_renewed_token_is_used_by_the_process_that_runs(site: Site, inside: Inside) -> None:
    job_id = site.fill(1, "beside")
    completer = Completer(inside.command, timeout_seconds=30)
    inside.renew(-60)
    assert await completer.complete(job_id, wait_status(3)) == EXPIRED
    assert site.states("beside") == ["RUNNING"]
    child = completer._child
    inside.renew(86400)
    assert await completer.complete(job_id, wait_status(3)) == ""
    assert completer._child is child
    await completer.close()
    assert outcome(site, job_id) == ("FAILED", "3:0")


def test_with_an_expired_token_it_says_so_and_the_job_runs_on(site: Site, inside: Inside) -> None:
    job_id = site.fill(1, "beside")
    inside.renew(-60)
    refused = inside.once(job_id, wait_status(3))
    assert (refused.returncode, refused.stdout) == (1, f"{job_id} {EXPIRED}\n")
    assert site.states("beside") == ["RUNNING"]
