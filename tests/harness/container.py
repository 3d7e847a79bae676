"""One container of a run: started with files in it, commands run in it, removed at the end."""

from __future__ import annotations

import os
from collections.abc import Mapping
from urllib.parse import urlsplit

from tests.harness import process
from tests.harness.engine import Engine
from tests.harness.errors import HarnessError
from tests.harness.runs import LABEL, Run

# Runs the command and then writes a mark, by which we know that all of the output has arrived:
# Docker loses the output of a command now and then when the machine is very busy.
_MARK = "<end of output>"
_SCRIPT = '"$@"; code=$?; printf %s "$0"; exit $code'
_TRIES = 3


class Container:
    """A container of ``image`` that publishes one port; labelled with the run."""

    def __init__(
        self, run: Run, engine: Engine, image: str, *, name: str, hostname: str,
        command: list[str], port: int, files: Mapping[str, tuple[bytes, int]],
    ) -> None:  # fmt: skip
        """``files``: content and mode by path; they are there when ``command`` starts."""
        # Read by testcontainers when it is imported: our own reaper removes containers.
        os.environ["TESTCONTAINERS_RYUK_DISABLED"] = "true"
        from docker.client import DockerClient
        from testcontainers.core.container import DockerContainer

        self._docker = DockerClient(base_url=engine.host, timeout=120)
        self._port = port
        self._host = urlsplit(engine.host).hostname or "127.0.0.1"
        self._container = DockerContainer(
            image,
            docker_client_kw={"environment": engine.env()},
            command=command,
            name=f"{name}-{run.id}",
            hostname=hostname,
            labels={LABEL: run.id},
        )
        # a port that Docker chooses, on the loopback unless the engine is elsewhere
        here = self._host == "127.0.0.1"
        self._container.ports[f"{port}/tcp"] = ("127.0.0.1",) if here else None
        for path, (content, mode) in files.items():
            self._container.with_copy_into_container(content, path, mode)

    def start(self) -> None:
        self._container.start()

    def close(self) -> None:
        """Remove it."""
        self._container.stop()
        self._docker.close()

    @property
    def id(self) -> str:
        return str(self._container.get_container_id())

    @property
    def address(self) -> str:
        """Host and port where the published port is reached from here."""
        return f"{self._host}:{self._container.get_exposed_port(self._port)}"

    def status(self) -> str:
        """Docker's word for its state: running, exited, …"""
        return str(self._docker.api.inspect_container(self.id)["State"]["Status"])

    def log(self) -> str:
        """What its first process has said."""
        return str(self._docker.api.logs(self.id).decode(errors="replace"))

    def exec(
        self, *command: str, user: str = "root", check: bool = True, reads: bool = False
    ) -> str:
        """Run a command in it; its standard output.

        ``reads``: it changes nothing, so it is run again when Docker loses its output. Raises
        HarnessError, with both outputs when the command failed (unless ``check`` is false), and
        when output was lost.
        """
        argv = ["bash", "-c", _SCRIPT, _MARK, *command]
        line = " ".join(command)
        for _ in range(_TRIES if reads else 1):
            made = self._docker.api.exec_create(self.id, argv, user=user)["Id"]
            parts = self._docker.api.exec_start(made, demux=True)
            output, error = ((part or b"").decode(errors="replace") for part in parts)
            code = self._docker.api.exec_inspect(made)["ExitCode"]
            if not output.endswith(_MARK):
                continue
            output = output.removesuffix(_MARK)
            if check and code != 0:
                raise HarnessError(
                    f"`{line}` ended with exit code {code} in the container: "
                    f"{error.strip() or output.strip()}"
                )
            return str(output)
        raise HarnessError(f"Docker lost the output of `{line}` (exit code {code}): try again.")

    def detach(self, *command: str) -> None:
        """Start a command in it and leave it running."""
        made = self._docker.api.exec_create(self.id, list(command))["Id"]
        self._docker.api.exec_start(made, detach=True)

    def stats(self) -> dict[str, process.Stat]:
        """CPU and memory of its processes, by program name (equal names added)."""
        script = "cat /proc/[0-9]*/stat 2>/dev/null || true"
        total: dict[str, process.Stat] = {}
        for line in self.exec("bash", "-c", script, reads=True).splitlines():
            stat = process.parse_stat(line)
            other = total.get(stat.name)
            total[stat.name] = stat if other is None else process.added(other, stat)
        return total
