"""Make what is missing, then run a command in the virtual environment.

    python3 -m tests.harness.bootstrap [--stack] [command…]

Without a command it prints the environment's directory. ``--stack`` also builds the control plane
and the Slurm image, and keeps the Docker engine up for the command. Needs Python 3.11 and nothing
else.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager, nullcontext
from pathlib import Path

from tests.harness import cache, command, engine, gobuild, image, system
from tests.harness.command import dies_with_us, run
from tests.harness.engine import Engine
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


@contextmanager
def stack_parts() -> Iterator[None]:
    """Make the control plane's programs and the Slurm image; the engine is up in the body."""
    docker: Engine | None = None

    def slurm() -> None:
        nonlocal docker
        docker = engine.ensure()
        image.ensure(docker)

    try:
        _together([gobuild.binaries, slurm])
        yield
    finally:
        if docker is not None:
            docker.release()


def _together(works: list[Callable[[], object]]) -> None:
    """Do all of it at the same time; when one fails or Ctrl-C comes, the others are ended."""
    with ThreadPoolExecutor(len(works)) as pool:
        parts: list[Future[object]] = [pool.submit(work) for work in works]
        try:
            for part in as_completed(parts):
                part.result()
        except BaseException:
            for part in parts:
                part.cancel()
            command.cancel()
            raise


def main(argv: list[str]) -> int:
    """Run as the module's text says. The exit code is the command's."""
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
    with stack_parts() if with_stack else nullcontext():
        if argv:
            return in_environment(venv, argv)
    print(venv)
    return 0


def in_environment(venv: Path, argv: list[str]) -> int:
    """Run a command with the environment's programs first in PATH. Raises HarnessError."""
    os.environ["VIRTUAL_ENV"] = str(venv)
    os.environ["PATH"] = f"{venv / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"
    program = shutil.which(argv[0])
    if program is None:
        raise HarnessError(f"there is no command {argv[0]} in {venv / 'bin'} or in PATH.")
    # Ctrl-C reaches the command too, and it needs time to clean up; SIGTERM comes to us alone.
    signal.signal(signal.SIGINT, lambda *_: None)
    with subprocess.Popen(dies_with_us([program, *argv[1:]], "TERM")) as running:
        signal.signal(signal.SIGTERM, lambda *_: running.terminate())
        code = running.wait()
    return code if code >= 0 else 128 - code


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
