"""The image with Slurm, slurmdbd on MariaDB and slurmrestd, in the Docker engine at hand.

In this order: the image that ``SLUICE_SLURM_IMAGE`` names; the one made before; Debian's own image
with the packages added, when a registry gives it; a root file system made by mmdebstrap.
"""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

from tests.harness import cache, system
from tests.harness.command import run
from tests.harness.engine import Engine
from tests.harness.errors import HarnessError
from tests.harness.progress import Step, say, step

SUITE = "forky"  # the Debian release with Slurm 26.05
BASE = f"debian:{SUITE}-slim"
DIRECTORY = Path(__file__).parent / "slurm"
PULL_SECONDS = 60.0
# forky's Release file may be past its date: it is a snapshot for us
APT_OPTION = 'Acquire::Check-Valid-Until "false"'


def packages() -> list[str]:
    """The Debian packages of the image."""
    lines = (DIRECTORY / "packages.txt").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def ensure(engine: Engine) -> str:
    """The name of the image in ``engine``. Raises HarnessError when it cannot be had."""
    named = os.environ.get("SLUICE_SLURM_IMAGE")
    if named:
        return _named(engine, named)
    digest = cache.key(SUITE, *packages(), DIRECTORY / "rootfs.sh")
    tag = f"sluice-slurm:{digest}"
    if _present(engine, tag):
        return tag
    with cache.lock(f"image-{digest}", "it makes the Slurm image"):
        if not _present(engine, tag) and not _from_registry(engine, tag):
            _from_mmdebstrap(engine, tag, digest)
    return tag


def _present(engine: Engine, tag: str) -> bool:
    return engine.docker("image", "inspect", tag).returncode == 0


def _named(engine: Engine, name: str) -> str:
    if _present(engine, name):
        return name
    with step(f"pulling {name}"):
        pulled = engine.docker("pull", "--quiet", name, timeout=900)
    if pulled.returncode != 0:
        raise HarnessError(
            f"SLUICE_SLURM_IMAGE={name} cannot be pulled: {pulled.stderr.strip()}: correct the "
            "name, or unset it so that the image is built."
        )
    return name


def _from_registry(engine: Engine, tag: str) -> bool:
    """Add the packages to Debian's image; False when no registry or no mirror answers."""
    if engine.private and system.has_apt():
        return False  # our own engine has no way out for its containers
    if not _present(engine, BASE):
        with step(f"asking a registry for {BASE}"):
            if engine.docker("pull", "--quiet", BASE, timeout=PULL_SECONDS).returncode != 0:
                return False
    script = (
        f"echo '{APT_OPTION};' > /etc/apt/apt.conf.d/90sluice && apt-get update && "
        "DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "
        f"{' '.join(packages())} && rm -rf /var/lib/apt/lists && "
        + (DIRECTORY / "rootfs.sh").read_text()
    )
    name = f"sluice-build-{os.getpid()}-{int(time.time())}"
    try:
        with step(f"adding Slurm to {BASE}"):
            made = engine.docker("run", "--name", name, BASE, "bash", "-c", script, timeout=900)
            if made.returncode == 0:
                made = engine.docker("commit", name, tag)
    finally:
        engine.docker("rm", "--force", name)
    if made.returncode != 0:
        say(f"{BASE} could not be completed ({made.stderr.strip()[-200:]}): building from scratch")
    return made.returncode == 0


def _from_mmdebstrap(engine: Engine, tag: str, digest: str) -> None:
    if not shutil.which("mmdebstrap"):
        system.install("mmdebstrap", why="the Slurm image (or set SLUICE_SLURM_IMAGE)")

    def build(directory: Path, running: Step) -> None:
        def note(line: str) -> None:
            running.note = line.removeprefix("I: ")[:60]

        scratch = directory / "tmp"
        scratch.mkdir(mode=0o755)
        run(
            [
                "mmdebstrap", "--variant=minbase", f"--aptopt={APT_OPTION}",
                f"--include={','.join(packages())}",
                "--dpkgopt=path-exclude=/usr/share/man/*",
                "--dpkgopt=path-exclude=/usr/share/doc/*",
                f"--customize-hook=upload {DIRECTORY}/rootfs.sh /root/rootfs.sh",
                '--customize-hook=chroot "$1" bash /root/rootfs.sh',
                SUITE, str(directory / "rootfs.tar"),
            ],
            what="building the Slurm image",
            log=cache.root() / "logs" / "build-slurm-image.log",
            env=os.environ | {"TMPDIR": str(scratch)},
            on_line=note,
            hint="Check that the Debian mirror answers.",
        )  # fmt: skip
        scratch.rmdir()

    rootfs = cache.artefact("image", "slurm-image", digest, build) / "rootfs.tar"
    with step("giving the Slurm image to Docker"):
        made = engine.docker("import", str(rootfs), tag, timeout=600)
    if made.returncode != 0:
        raise HarnessError(
            f"Docker refused the Slurm image: {made.stderr.strip()}: free some disk space."
        )
