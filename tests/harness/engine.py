"""A Docker engine: the one that is there, else a private one that ends with its last user.

The private engine keeps its data in the cache. Its guard (``engine_guard``) is a process of its
own that stops it when no process holds a user lock any more, so an engine never outlives the runs
that need it, also when they are killed.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from tests.harness import cache, system
from tests.harness.errors import HarnessError, tail
from tests.harness.progress import say, step

START_SECONDS = 60.0
STOP_SECONDS = 40.0


@dataclass
class Engine:
    """An engine that answers at ``host`` (a DOCKER_HOST value) while the ``user`` lock is held."""

    host: str
    private: bool
    user: IO[str] | None = field(default=None, repr=False)

    def env(self) -> dict[str, str]:
        """Our environment with this engine as Docker's."""
        return os.environ | {"DOCKER_HOST": self.host}

    def docker(self, *args: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        """Run the docker command; the caller looks at the result."""
        try:
            return subprocess.run(
                ["docker", *args], env=self.env(), capture_output=True, text=True,
                timeout=timeout, check=False, stdin=subprocess.DEVNULL,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return subprocess.CompletedProcess(args, 124, "", f"no answer in {timeout:.0f} s")

    def release(self) -> None:
        """We need it no more; returns when it has stopped, if nobody else uses it."""
        if self.user is not None:
            self.user.close()
            self.user = None
            settle()


def directory() -> Path:
    """Where the private engine of this cache has its socket: short, because sockets must be."""
    digest = cache.key(str(cache.root().resolve()))[:8]
    return Path(tempfile.gettempdir()) / f"sluice-{os.getuid()}" / f"engine-{digest}"


def ensure() -> Engine:
    """An engine that answers. Raises HarnessError, with the command to run, when there is none."""
    if shutil.which("docker"):
        host = _answering(os.environ)
        if host:
            return Engine(host, private=False)
    if not system.is_root():
        raise HarnessError(
            "Slurm runs in a container and no Docker engine answers `docker info`: start Docker "
            "(`sudo systemctl start docker`, then `sudo usermod -aG docker $USER` and log in "
            "again), or run this command as root on Debian."
        )
    if not all(shutil.which(program) for program in ("docker", "dockerd", "ip")):
        system.install("docker.io", "iproute2", "iptables", why="the Slurm container")
        if not shutil.which("docker"):  # a package of its own since Debian 13
            system.install("docker-cli", why="the Slurm container")
        host = _answering(os.environ)  # the package may have started a service
        if host:
            return Engine(host, private=False)
    return _private()


def users() -> int:
    """How many processes use the private engine of this cache now."""
    return sum(cache.is_locked(path) for path in (directory() / "users").glob("*"))


def settle() -> None:
    """Wait until the private engine has stopped, unless somebody uses it or there is none."""
    guard = directory() / "guard.lock"
    deadline = time.monotonic() + STOP_SECONDS
    with step("stopping the Docker engine"):
        while cache.is_locked(guard) and not users() and time.monotonic() < deadline:
            time.sleep(0.1)


def _answering(env: Mapping[str, str]) -> str:
    """The address of the engine that `docker info` reaches, or "" when it does not answer."""
    probe = subprocess.run(
        ["docker", "info", "--format", "{{.ServerVersion}}"],
        env=dict(env), capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    if probe.returncode != 0 or not probe.stdout.strip():
        return ""
    if env.get("DOCKER_HOST"):
        return env["DOCKER_HOST"]
    context = subprocess.run(
        ["docker", "context", "inspect", "--format", "{{.Endpoints.docker.Host}}"],
        env=dict(env), capture_output=True, text=True, check=False,
    )  # fmt: skip
    return context.stdout.strip() or "unix:///var/run/docker.sock"


def _private() -> Engine:
    """Join the private engine of this cache, and start it when it does not run."""
    home = directory()
    (home / "users").mkdir(parents=True, exist_ok=True)
    host = f"unix://{home}/docker.sock"
    with cache.lock("engine", "it starts or stops the Docker engine"):
        user = open(home / "users" / f"{os.getpid()}-{secrets.token_hex(3)}", "w")  # noqa: SIM115
        fcntl.flock(user, fcntl.LOCK_EX)
        if not _answering(os.environ | {"DOCKER_HOST": host}):
            with step("starting a Docker engine"):
                _start_guard(home, host)
    return Engine(host, private=True, user=user)


def _start_guard(home: Path, host: str) -> None:
    log = home / "dockerd.log"
    with open(log, "w") as output:
        guard = subprocess.Popen(
            [sys.executable, "-m", "tests.harness.engine_guard", str(home), str(cache.root())],
            cwd=Path(__file__).parents[2],
            stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
        )  # fmt: skip
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and guard.poll() is None:
        if _answering(os.environ | {"DOCKER_HOST": host}):
            return
        time.sleep(0.1)
    guard.terminate()
    raise HarnessError(
        "the private Docker engine did not start: see why in its log, or start Docker yourself "
        f"and run this again. Log: {log}{tail(log)}"
    )


def hold() -> None:
    """Keep the engine up until this process ends: `python -m tests.harness.engine`."""
    engine = ensure()
    say(f"DOCKER_HOST={engine.host} (pid {os.getpid()} keeps it)")
    while True:
        time.sleep(3600)


if __name__ == "__main__":
    hold()
