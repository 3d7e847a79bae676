"""Kubernetes quantities and Slurm times, exactly, and always rounded towards asking for more."""

import math
import re
from fractions import Fraction
from functools import lru_cache

_SUFFIXES = {
    "": Fraction(1),
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    **{letter: Fraction(1000 ** (i + 1)) for i, letter in enumerate("kMGTPE")},
    **{f"{letter}i": Fraction(1024 ** (i + 1)) for i, letter in enumerate("KMGTPE")},
}
_QUANTITY = re.compile(
    r"([+-]?(?:\d+\.?\d*|\.\d+))(?:([eE][+-]?\d{1,3})|([numkMGTPE]|[KMGTPE]i)?)\Z", re.ASCII
)
_TIME = re.compile(r"(?:(\d+)-(\d+)(?::(\d+))?(?::(\d+))?|(\d+)(?::(\d+))?(?::(\d+))?)\Z", re.ASCII)
_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?\Z", re.ASCII)
MIB = 1024 * 1024


@lru_cache(maxsize=4096)
def quantity(text: str) -> Fraction:
    """The value of a Kubernetes quantity ("500m", "1.5Gi", "2e3"); ``ValueError`` if it is none.

    Source: k8s.io/apimachinery/pkg/api/resource/quantity.go.
    """
    match = _QUANTITY.match(text)
    if match is None:
        raise ValueError(f"{text!r} is not a Kubernetes quantity")
    number, exponent, suffix = match.groups()
    if exponent:
        return Fraction(number) * Fraction(10) ** int(exponent[1:])
    return Fraction(number) * _SUFFIXES[suffix or ""]


@lru_cache(maxsize=4096)
def milli(text: str) -> int:
    """A CPU quantity in thousandths of a core, rounded up."""
    return math.ceil(quantity(text) * 1000)


@lru_cache(maxsize=4096)
def whole(text: str) -> int:
    """A quantity in its own unit (bytes, devices), rounded up."""
    return math.ceil(quantity(text))


def mib_up(size_bytes: int) -> int:
    """Bytes in MiB, rounded up, at least 1: 0 means "all memory of the node" to Slurm."""
    return max(1, -(-size_bytes // MIB))


def time_limit_minutes(text: str) -> int | None:
    """Slurm's time formats in minutes, rounded up; ``None`` for UNLIMITED.

    "90", "90:30", "1:30:00", "2-12", "2-12:30", "2-12:30:00" (sbatch(1), --time). ``ValueError``
    with a sentence otherwise, also for zero, which Slurm would take for "no limit".
    """
    if text.strip().upper() in ("UNLIMITED", "INFINITE"):
        return None
    match = _TIME.match(text.strip())
    if match is None:
        raise ValueError(
            f"{text!r} is not a time limit: write minutes (90), hours:minutes:seconds (1:30:00), "
            "days-hours (2-12), days-hours:minutes:seconds (2-12:30:00) or UNLIMITED"
        )
    days, hours, minutes, seconds, a, b, c = (int(g) if g else 0 for g in match.groups())
    if match.group(5) is not None:
        # minutes | minutes:seconds | hours:minutes:seconds
        hours, minutes, seconds = (a, b, c) if match.group(7) is not None else (0, a, b)
    total = math.ceil((((days * 24 + hours) * 60 + minutes) * 60 + seconds) / 60)
    if total == 0:
        raise ValueError(f"a time limit of {text!r} is zero: write at least 1 (one minute)")
    return total


def duration_seconds(text: str) -> int:
    """A duration as Kubernetes writes it ("90s", "10m", "1h30m"); ``ValueError`` otherwise."""
    match = _DURATION.match(text.strip())
    hours, minutes, seconds = (int(g) if g else 0 for g in match.groups()) if match else (0, 0, 0)
    total = (hours * 60 + minutes) * 60 + seconds
    if not 1 <= total <= MOST_SECONDS:
        raise ValueError(f"{text!r} is not a duration: write 90s, 10m or 1h30m, at most 168h")
    return total


MOST_SECONDS = 7 * 24 * 3600
