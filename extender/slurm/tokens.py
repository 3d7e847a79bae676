"""Where the Slurm token comes from. Nothing here, and nothing that holds one of these, shows it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

from extender.slurm.port import SlurmDenied

# `scontrol token` prints NAME=value; a file holding that line works as it is.
_SCONTROL_PREFIX = "SLURM_JWT="


class TokenSource(Protocol):
    """Gives the token to send now."""

    def token(self) -> str:
        """The newest token. Raises ``SlurmDenied`` when there is none to give."""

    def renew(self) -> None:
        """Slurm refused the token: look again before the next ``token()``."""


class FixedToken:
    """A token that never changes."""

    def __init__(self, token: str) -> None:
        self._token = token.strip()

    def token(self) -> str:
        return self._token

    def renew(self) -> None:
        """There is no other."""


class TokenFile:
    """A token in a file that somebody else replaces: a mounted Secret, a cron job.

    The file is looked at (one ``stat``) for every call and read when its modification time, size
    or inode changed, so a Secret that the kubelet swaps by symlink is seen at once.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._seen: tuple[int, int, int] | None = None
        self._token = ""

    def __repr__(self) -> str:
        return f"TokenFile({str(self._path)!r})"

    def token(self) -> str:
        try:
            stat = self._path.stat()
            seen = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
            if seen != self._seen:
                self._token = _parse(self._path.read_text("utf-8"))
                self._seen = seen
        except OSError as error:
            raise SlurmDenied(
                f"the Slurm token file {self._path} cannot be read: {error.strerror}"
            ) from error
        except UnicodeDecodeError:
            # The exception holds the file's bytes: not passed on.
            raise SlurmDenied(f"the Slurm token file {self._path} holds no text") from None
        if not self._token:
            raise SlurmDenied(
                f"the Slurm token file {self._path} is empty: write a token into it"
                " (scontrol token username=<SlurmUser> lifespan=<seconds>)"
            )
        return self._token

    def renew(self) -> None:
        self._seen = None


def _parse(text: str) -> str:
    """The token in a file's text: its first line that is not blank, without ``SLURM_JWT=``."""
    for line in text.splitlines():
        if word := line.strip():
            return word.removeprefix(_SCONTROL_PREFIX).strip()
    return ""
