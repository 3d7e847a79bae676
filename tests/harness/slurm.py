"""Slurm in a container: slurmctld, slurmdbd on MariaDB, slurmrestd; and Slurm's own answers.

What the tests assert about Slurm comes from here, not from Sluice.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import time
from pathlib import Path
from typing import Any

import httpx

from tests.harness.container import Container
from tests.harness.engine import Engine
from tests.harness.errors import HarnessError
from tests.harness.image import DIRECTORY
from tests.harness.kube import wait_for
from tests.harness.progress import step
from tests.harness.runs import Run

REST_VERSION = "v0.0.44"
REST_PORT = 6820
COMPLETE = Path(__file__).parents[2] / "extender" / "slurm" / "complete.py"
DAEMONS = ("mariadb", "slurmdbd", "slurmctld", "slurmrestd")
# Users of the container, with a group of the same number each. alice: accounts ml (default) and
# vision; bob: ml; carol: vision. QOS normal and high, which preempts normal.
USERS = {"alice": 2001, "bob": 2002, "carol": 2003}
START_SECONDS = 90.0
_PROGRAMS = {"mariadb": "mariadbd"}  # where it differs from the daemon's name


class Slurm:
    """One Slurm cluster, named ``sluice``, without nodes."""

    def __init__(
        self, run: Run, engine: Engine, image: str, *, gpus_per_node: int, conf_extra: str = ""
    ) -> None:
        self._run = run
        self._engine_host = engine.host
        self._jwt_key = secrets.token_bytes(32)
        self._http = httpx.Client(timeout=60)
        self.token_file = run.directory / "slurm.token"
        self.rest_url = ""
        self.container = Container(
            run, engine, image, name="sluice-slurm", hostname="slurmctl",
            command=["/opt/sluice/boot.sh"], port=REST_PORT,
            files=_files(self._jwt_key, gpus_per_node, conf_extra),
        )  # fmt: skip

    def start(self) -> None:
        """Start the container; returns when slurmrestd answers with slurmctld behind it."""
        with step("starting Slurm"):
            self.container.start()
            self.token_file.touch(mode=0o600)
            self.token_file.write_text(self.token("slurm"))
            deadline = time.monotonic() + START_SECONDS
            while "ready" not in self.container.log().split():
                if self._run.closing:
                    raise HarnessError("Slurm was not started: the run is ending.")
                if self.container.status() != "running" or time.monotonic() > deadline:
                    raise HarnessError(
                        f"Slurm did not come up (container {self.container.status()}): its last "
                        "words say why:\n" + self.container.log()[-3000:]
                    )
                time.sleep(0.1)
            self.rest_url = f"http://{self.container.address}"
            wait_for(lambda: self.get("ping").get("pings"), 20, "slurmrestd")

    def complete_command(self) -> list[str]:
        """What ends a job with an exit code: Sluice's program, in the container with libslurm."""
        inside = ("exec", "-i", self.container.id, "python3", "/opt/sluice/complete.py")
        return ["docker", "-H", self._engine_host, *inside]

    def close(self) -> None:
        """Remove the container."""
        self._http.close()
        self.container.close()

    def exec(
        self, *command: str, user: str = "root", check: bool = True, reads: bool = False
    ) -> str:
        """Run a command in the container; see ``Container.exec``."""
        return self.container.exec(*command, user=user, check=check, reads=reads)

    def shell(
        self, script: str, user: str = "root", check: bool = True, reads: bool = False
    ) -> str:
        """Run a bash script in the container; see ``Container.exec``."""
        return self.exec("bash", "-c", script, user=user, check=check, reads=reads)

    # Slurm's answers

    def token(self, user: str = "slurm", lifespan_seconds: float = 86400) -> str:
        """A JWT for ``user``, as `scontrol token` makes it; a negative lifespan has expired."""
        return sign_token(self._jwt_key, user, int(time.time()), int(lifespan_seconds))

    def rest(
        self,
        method: str,
        path: str,
        *,
        user: str = "slurm",
        body: object = None,
        timeout: float = 60,
    ) -> httpx.Response:
        """A call to slurmrestd; ``path`` starts with /slurm/ or /slurmdb/."""
        headers = {"X-SLURM-USER-NAME": user, "X-SLURM-USER-TOKEN": self.token(user)}
        return self._http.request(
            method, self.rest_url + path, headers=headers, json=body, timeout=timeout
        )

    def get(self, what: str, database: bool = False) -> dict[str, Any]:
        """GET /slurm/<version>/<what> (or /slurmdb/…), decoded. Raises httpx.HTTPStatusError."""
        answer = self.rest("GET", f"/slurm{'db' if database else ''}/{REST_VERSION}/{what}")
        answer.raise_for_status()
        decoded: dict[str, Any] = answer.json()
        return decoded

    def jobs(self) -> list[dict[str, Any]]:
        """All jobs that slurmctld knows, as slurmrestd shows them."""
        found: list[dict[str, Any]] = self.get("jobs/")["jobs"]
        return found

    def job(self, job_id: int) -> dict[str, Any] | None:
        """One job, or None when slurmctld does not know it (any more)."""
        answer = self.rest("GET", f"/slurm/{REST_VERSION}/job/{job_id}")
        jobs = answer.json().get("jobs") or [None]
        found: dict[str, Any] | None = jobs[0]
        return found

    def nodes(self) -> list[dict[str, Any]]:
        """All nodes, as slurmrestd shows them."""
        found: list[dict[str, Any]] = self.get("nodes/")["nodes"]
        return found

    def squeue_json(self) -> list[dict[str, Any]]:
        """The jobs that are pending, running or completing, from squeue itself."""
        found: list[dict[str, Any]] = json.loads(self.exec("squeue", "--json", reads=True))["jobs"]
        return found

    def sacct(
        self,
        *arguments: str,
        fields: str = "JobID,JobName,User,Account,State,ExitCode,Elapsed,NNodes,NodeList,AllocTRES",
    ) -> list[dict[str, str]]:
        """Accounting records from the database, one per job, as text by field name."""
        names = fields.split(",")
        options = [
            "--allocations",
            "--noheader",
            "--parsable2",
            f"--format={fields}",
            "--starttime=now-1day",
            "--allusers",
        ]
        lines = self.exec("sacct", *options, *arguments, reads=True).splitlines()
        return [dict(zip(names, line.split("|"), strict=True)) for line in lines]

    def queued(self) -> list[str]:
        """squeue's lines: the jobs that are not over."""
        return self.exec("squeue", "--noheader", reads=True).splitlines()

    def cancel_all(self) -> None:
        """Cancel every job, and wait until slurmctld shows none alive."""
        self.shell("squeue --noheader --format=%A | sort -u | xargs --no-run-if-empty scancel")
        wait_for(lambda: not self.queued(), 30, "Slurm's jobs to end")

    # The daemons

    def pid(self, daemon: str) -> int | None:
        """The daemon's pid inside the container, None while it does not run."""
        program = _PROGRAMS.get(daemon, daemon)
        found = self.exec("pgrep", "--oldest", "--exact", program, check=False, reads=True).split()
        return int(found[0]) if found else None

    def kill(self, daemon: str, signal: str = "KILL") -> None:
        """Signal one daemon of DAEMONS and wait until it is gone."""
        pid = self.pid(daemon)
        if pid is not None:
            self.exec("kill", f"-{signal}", str(pid))
            wait_for(lambda: self.pid(daemon) != pid, 30, f"{daemon} to end")

    def stop(self, daemon: str) -> None:
        """End one daemon in good order (SIGTERM)."""
        self.kill(daemon, "TERM")

    def launch(self, daemon: str) -> None:
        """Start one daemon again, and wait until it answers."""
        if self.pid(daemon) is None:
            self.container.detach("/opt/sluice/daemon.sh", daemon)
        ready = {
            "mariadb": "mariadb-admin ping",
            "slurmdbd": "sacctmgr --noheader show cluster",
            "slurmctld": "scontrol ping | grep -q UP",
            "slurmrestd": f"exec 3<>/dev/tcp/127.0.0.1/{REST_PORT}",
        }[daemon]
        wait_for(
            lambda: self.shell(f"({ready}) >/dev/null 2>&1 && echo up", check=False), 30, daemon
        )

    def save_logs(self, directory: Path) -> None:
        """Copy the daemons' logs to ``directory``."""
        for daemon in DAEMONS:
            text = self.exec("cat", f"/var/log/slurm/{daemon}.out", check=False, reads=True)
            (directory / f"{daemon}.log").write_text(text)


def _files(jwt_key: bytes, gpus_per_node: int, conf_extra: str) -> dict[str, tuple[bytes, int]]:
    """What the container gets: content and mode by path."""
    conf = (DIRECTORY / "slurm.conf").read_text() + conf_extra + "\n"
    last = str(max(0, gpus_per_node - 1))
    gres = (DIRECTORY / "gres.conf").read_text().replace("@LAST_GPU@", last)
    files = {
        "/etc/slurm/slurm.conf": (conf.encode(), 0o644),
        "/etc/slurm/gres.conf": (gres.encode(), 0o644),
        "/etc/slurm/slurm.key": (secrets.token_bytes(1024), 0o600),
        "/etc/slurm/jwt_hs256.key": (jwt_key, 0o600),
    }
    for name in ("slurmdbd.conf", "topology.yaml"):
        files[f"/etc/slurm/{name}"] = ((DIRECTORY / name).read_bytes(), 0o644)
    for name in ("boot.sh", "daemon.sh", "accounts.sh"):
        files[f"/opt/sluice/{name}"] = ((DIRECTORY / name).read_bytes(), 0o755)
    files["/opt/sluice/complete.py"] = (COMPLETE.read_bytes(), 0o644)
    return files


def sign_token(key: bytes, user: str, now: int, lifespan: int) -> str:
    """A JWT (HS256) for Slurm's auth/jwt: ``user`` until ``now + lifespan`` (seconds)."""
    claims = {"exp": now + lifespan, "iat": min(now, now + lifespan), "sun": user}
    parts = [{"alg": "HS256", "typ": "JWT"}, claims]
    signed = b".".join(_base64url(json.dumps(part).encode()) for part in parts)
    signature = hmac.new(key, signed, hashlib.sha256).digest()
    return (signed + b"." + _base64url(signature)).decode()


def _base64url(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")
