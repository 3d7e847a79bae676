"""The cache directory: artefacts that are expensive to make, each made once.

An artefact is a directory named by a hash of its inputs. It is built in a private directory under
a file lock and then published by renaming a symbolic link, so that nobody ever sees half of one,
and it never moves (virtual environments remember their place). A builder that died leaves a
private directory behind, which the next builder of the same artefact removes.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.harness.progress import Step, step


def root() -> Path:
    """``SLUICE_CACHE``, else ``$XDG_CACHE_HOME/sluice``, else ``~/.cache/sluice``.

    It is made when it is missing.
    """
    chosen = os.environ.get("SLUICE_CACHE")
    if chosen:
        path = Path(chosen).expanduser().absolute()
    else:
        base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
        path = Path(base).expanduser().absolute() / "sluice"
    path.mkdir(parents=True, exist_ok=True)
    return path


def key(*parts: str | bytes | Path) -> str:
    """16 hex digits over the parts; a ``Path`` stands for the content of that file."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.read_bytes() if isinstance(part, Path) else part
        data = data.encode() if isinstance(data, str) else data
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.hexdigest()[:16]


@contextmanager
def lock(name: str, waiting_for: str) -> Iterator[None]:
    """Hold the named lock; while another process has it, show that we wait for ``waiting_for``.

    The kernel frees it when its holder dies, however it dies.
    """
    directory = root() / "locks"
    directory.mkdir(exist_ok=True)
    with open(directory / f"{name}.lock", "w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with step(f"waiting for another process: {waiting_for}"):
                fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def is_locked(path: Path) -> bool:
    """Whether a living process holds the lock of this file; False when there is no such file."""
    try:
        with open(path) as handle:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return False
    return False


def artefact(kind: str, name: str, digest: str, build: Callable[[Path, Step], None]) -> Path:
    """The directory ``<cache>/<kind>/<name>-<digest>``, built when it is missing.

    ``build(directory, step)`` gets an empty directory that keeps its place. What it
    raises is raised here, and nothing is published.
    """
    shelf = root() / kind
    final = shelf / f"{name}-{digest}"
    if final.exists():
        return final
    shelf.mkdir(exist_ok=True)
    with lock(f"{kind}-{name}-{digest}", f"it builds {name}"):
        if final.exists():
            return final
        for leftover in shelf.glob(f".{final.name}.*"):
            remove_tree(leftover)
        final.unlink(missing_ok=True)  # a link to nowhere
        private = shelf / f".{final.name}.{secrets.token_hex(4)}"
        private.mkdir()
        try:
            with step(f"building {name}") as running:
                build(private, running)
            link = shelf / f".{final.name}.link"
            link.symlink_to(private.name)
            link.rename(final)
        except BaseException:
            remove_tree(private)
            raise
    return final


def remove_tree(path: Path) -> None:
    """Remove a file, link or directory, also one with read-only parts (Go's module cache)."""
    if path.is_symlink() or path.is_file():
        path.unlink(missing_ok=True)
        return

    def writable(function: Callable[[str], object], name: str, _error: object) -> None:
        os.chmod(os.path.dirname(name), 0o700)
        os.chmod(name, 0o700, follow_symlinks=True) if os.path.exists(name) else None
        function(name)

    if path.exists():
        shutil.rmtree(path, onerror=writable)
