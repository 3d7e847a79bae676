"""The machine we run on: its distribution, our rights, and packages that may be installed."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tests.harness import cache
from tests.harness.command import run
from tests.harness.errors import HarnessError
from tests.harness.progress import step


def is_root() -> bool:
    return os.geteuid() == 0


def has_apt() -> bool:
    """Debian or a distribution made from it."""
    return shutil.which("apt-get") is not None and Path("/etc/debian_version").exists()


def install(*packages: str, why: str) -> None:
    """Install Debian packages; as anyone but root on Debian, say which command does it.

    Raises HarnessError when they cannot be installed.
    """
    wanted = " ".join(packages)
    if not has_apt():
        raise HarnessError(
            f"{why} needs {wanted}, and this is not a Debian system: install {wanted}."
        )
    if not is_root():
        raise HarnessError(f"{why} needs {wanted}: run `sudo apt-get install {wanted}`.")
    env = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    log = cache.root() / "logs" / "apt.log"
    options = ["-o", "DPkg::Lock::Timeout=300"]
    hint = f"Run `apt-get install {wanted}` to see why."
    with cache.lock("apt", "it installs packages"), step(f"installing {wanted}") as running:

        def note(line: str) -> None:
            running.note = line[:60]

        run(
            ["apt-get", *options, "update"],
            what="apt-get update",
            log=log,
            env=env,
            on_line=note,
            hint=hint,
        )
        run(
            ["apt-get", *options, "install", "-y", "--no-install-recommends", *packages],
            what=f"installing {wanted}", log=log, env=env, on_line=note, hint=hint,
        )  # fmt: skip
