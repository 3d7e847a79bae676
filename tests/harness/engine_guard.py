"""Run dockerd for as long as somebody uses it.

`python -m tests.harness.engine_guard <engine directory> <cache directory>`. A user is a locked
file in ``users/``; the kernel frees the lock when the user dies.
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.harness import cache
from tests.harness.command import dies_with_us

LOOK_EVERY_SECONDS = 0.5
STOP_SECONDS = 30.0


def guard(home: Path) -> int:
    """Start dockerd, and stop it when it has had no user for a look or two. Its exit code."""
    for sig in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(sig, lambda *_: None)  # not SIG_IGN: containers would inherit it
    with open(home / "guard.lock", "w") as alive:
        fcntl.flock(alive, fcntl.LOCK_EX)  # after an earlier guard has tidied up
        network = Bridge(home.name)
        dockerd = subprocess.Popen(
            dies_with_us([*_argv(home), f"--bridge={network.name}"], "TERM"), process_group=0
        )
        try:
            return _serve(home, dockerd)
        finally:
            network.remove()


def _serve(home: Path, dockerd: subprocess.Popen[bytes]) -> int:
    time.sleep(2 * LOOK_EVERY_SECONDS)
    while dockerd.poll() is None:
        time.sleep(LOOK_EVERY_SECONDS)
        if in_use(home):
            continue
        with cache.lock("engine", "the Docker engine"):
            if in_use(home, tidy=True):  # a newcomer waits for the lock, then starts its own
                continue
            dockerd.send_signal(signal.SIGTERM)
            try:
                dockerd.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(dockerd.pid, signal.SIGKILL)
    return dockerd.wait()


def in_use(home: Path, tidy: bool = False) -> bool:
    """Whether any user lives. ``tidy`` removes the files of dead ones: only under the lock."""
    living = False
    for path in (home / "users").iterdir():
        if cache.is_locked(path):
            living = True
        elif tidy:
            path.unlink(missing_ok=True)
    return living


class Bridge:
    """A network bridge of our own: two engines on docker0 would give out the same addresses."""

    def __init__(self, engine: str) -> None:
        digest = cache.key(engine)
        self.name = f"sluice{digest[:8]}"  # 15 characters at the most
        self.remove()  # one that a killed guard left
        self._ip("link", "add", self.name, "type", "bridge")
        self._ip("addr", "add", f"172.30.{int(digest[:2], 16)}.1/24", "dev", self.name)
        self._ip("link", "set", self.name, "up")

    def remove(self) -> None:
        """Remove it; nothing happens when there is none."""
        subprocess.run(["ip", "link", "delete", self.name], capture_output=True, check=False)

    @staticmethod
    def _ip(*arguments: str) -> None:
        subprocess.run(["ip", *arguments], check=True)


def _argv(home: Path) -> list[str]:
    return [
        "dockerd",
        f"--host=unix://{home}/docker.sock",
        f"--data-root={cache.root()}/docker",
        f"--exec-root={home}/exec",
        f"--pidfile={home}/docker.pid",
        "--log-level=warn",
        # Ports are published by docker-proxy; the host's firewall stays as it is.
        "--iptables=false", "--ip-masq=false",
    ]  # fmt: skip


if __name__ == "__main__":
    os.environ["SLUICE_CACHE"] = sys.argv[2]
    sys.exit(guard(Path(sys.argv[1])))
