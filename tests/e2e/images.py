"""Sluice's image, built from the Dockerfile, and how it is run: as nobody on a read-only root."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.harness import cache, system
from tests.harness.command import run
from tests.harness.engine import Engine
from tests.harness.progress import Step, step
from tests.harness.runs import LABEL, Run

ROOT = Path(__file__).parents[2]
PUBLIC_BASE = "python:3.13-slim-trixie"
SUITE = "trixie"  # Debian with Python 3.13, where no registry answers
BASE_PACKAGES = "python3,python3-venv"
CONFINED = (
    "--read-only",
    "--user=65532:65532",
    "--cap-drop=ALL",
    "--security-opt=no-new-privileges",
    "--pull=never",
)


def build(docker: Engine, context: Path, base: str, tag: str, *options: str) -> str:
    """Sluice's image of this checkout on ``base``, built in the empty directory ``context``; its
    tag. An image of an earlier checkout goes."""
    for name in ("Dockerfile", ".dockerignore", "requirements.txt"):
        shutil.copy(ROOT / name, context)
    shutil.copytree(ROOT / "extender", context / "extender")
    shutil.copytree(ROOT / "config", context / "config")
    shutil.copytree(wheels(python_version(docker, base)), context / "wheels")
    before = image_id(docker, tag)
    arguments = ("--tag", tag, "--build-arg", f"BASE={base}", *options)
    with step(f"building {tag}"):
        built = docker.docker("build", *arguments, str(context), timeout=900)
    assert built.returncode == 0, built.stdout[-3000:] + built.stderr[-3000:]
    if before and before != image_id(docker, tag):
        docker.docker("rmi", before)
    return tag


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
    told = docker.docker("run", "--rm", "--network=none", *CONFINED, base, "python3", "-c", script)
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


def run_arguments(
    owner: Run,
    image: str,
    *command: str,
    options: Sequence[str] = (),
    mount: Path | None = None,
    network: str = "none",
) -> list[str]:
    """docker's arguments: as nobody, on a read-only root; ``mount`` is /etc/sluice."""
    volume = [f"--volume={mount}:/etc/sluice:ro"] if mount else []
    owned = (f"--label={LABEL}={owner.id}", f"--network={network}")
    return ["run", *owned, *CONFINED, *volume, *options, image, *command]
