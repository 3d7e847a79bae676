"""The one error that reaches a person."""

from __future__ import annotations

from pathlib import Path


class HarnessError(Exception):
    """One sentence that names the thing, the cause and the next step."""


def tail(path: Path, lines: int = 15) -> str:
    """The last ``lines`` lines of a log, indented, for the end of an error; "" without a log."""
    try:
        text = path.read_text(errors="replace")
    except OSError:
        return ""
    return "".join(f"\n    {line}" for line in text.splitlines()[-lines:])
