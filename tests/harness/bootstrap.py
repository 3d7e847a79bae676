"""Make what is missing, then run a command in the virtual environment.

    python3 -m tests.harness.bootstrap [--stack] [command…]

Without a command it prints the environment's directory. ``--stack`` also builds the control plane
and the Slurm image. Needs Python 3.11 and nothing else.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from pathlib import Path

from tests.harness import cache, command, engine, gobuild, image, system
from tests.harness.command import run
from tests.harness.errors import HarnessError
from tests.harness.progress import Step, step

ROOT = Path(__file__).parents[2]


def environment() -> Path:
    """The virtual environment with everything in requirements-dev.txt."""
    files = [ROOT / "requirements.txt", ROOT / "requirements-dev.txt"]
    digest = cache.key(*files, sys.version, sys.prefix)

    def build(directory: Path, running: Step) -> None:
        log = cache.root() / "logs" / "build-venv.log"
        _ensure_venv_module()
        run(
            [sys.executable, "-m", "venv", str(directory)],
            what="making a virtual environment",
            log=log,
        )

        python = str(directory / "bin" / "python")

        def note(line: str) -> None:
            if line.startswith(("Collecting ", "Installing ")):
                running.note = line[:60]

        run(
            [python, "-m", "pip", "install", "--no-input", "-r", str(files[1])],
            what="installing the Python packages", log=log, on_line=note,
            hint="Check that the package index answers (pip config list).",
        )  # fmt: skip

    return cache.artefact("venv", "python-packages", digest, build)


def _ensure_venv_module() -> None:
    probe = subprocess.run(
        [sys.executable, "-c", "import venv, ensurepip"], capture_output=True, check=False
    )
    if probe.returncode != 0:
        system.install("python3-venv", why="the virtual environment")


def stack_parts() -> None:
    """The control plane's programs, the Docker engine and the Slurm image, made in parallel."""

    def slurm() -> None:
        docker = engine.ensure()
        try:
            image.ensure(docker)
        finally:
            docker.release()

    with ThreadPoolExecutor(2) as pool:
        parts: list[Future[object]] = [pool.submit(gobuild.binaries), pool.submit(slurm)]
        try:
            for part in as_completed(parts):
                part.result()
        except BaseException:
            for part in parts:
                part.cancel()
            command.cancel()
            raise


def main(argv: list[str]) -> int:
    """Run as the module's text says; the command replaces this process."""
    if sys.version_info < (3, 11):  # noqa: UP036 - whoever runs make may have an older one
        raise HarnessError(
            f"Python 3.11 or newer is needed, this is {sys.version.split()[0]}: set PYTHON."
        )
    if argv == ["clean-cache"]:
        clean_cache()
        return 0
    with_stack = argv[:1] == ["--stack"]
    argv = argv[1:] if with_stack else argv
    venv = environment()
    if with_stack:
        stack_parts()
    if not argv:
        print(venv)
        return 0
    os.environ["VIRTUAL_ENV"] = str(venv)
    os.environ["PATH"] = f"{venv / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"
    program = shutil.which(argv[0])
    if program is None:
        raise HarnessError(f"there is no command {argv[0]} in {venv / 'bin'} or in PATH.")
    os.execv(program, argv)
    return 1  # not reached


def clean_cache() -> None:
    """Remove the cache directory. Raises HarnessError while something uses it."""
    users = engine.users()
    if users:
        raise HarnessError(
            f"the cache is in use: {users} processes use its Docker engine: end them first "
            "(`make down`)."
        )
    with step(f"removing {cache.root()}"):
        cache.remove_tree(cache.root())


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except HarnessError as problem:
        sys.exit(f"error: {problem}")
    except KeyboardInterrupt:
        sys.exit(130)
