"""The kinds of values that settings have, and what is said of one that is none."""

from __future__ import annotations

import shlex
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field

from extender.domain.quantity import time_limit_minutes
from extender.settings_text import Says


def _no_bool(value: object) -> object:
    """YAML's ``yes`` is a bool, and Python's bool is an int: ``port: yes`` must not mean 1."""
    if isinstance(value, bool):
        raise ValueError("a number is wanted")
    return value


Number = Annotated[int, BeforeValidator(_no_bool)]
Seconds = Annotated[float, BeforeValidator(_no_bool), Field(ge=0.1, le=600)]

Text = Annotated[str, Field(min_length=1), Says("text, not empty")]
Name = Annotated[
    str,
    Field(pattern=r"^[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?$"),
    Says("up to 63 small letters, digits, '-' and '.', a letter or digit first and last"),
]
SlurmName = Annotated[
    str, Field(pattern=r"^[A-Za-z0-9_.-]+$"), Says("letters, digits, '_', '.' and '-'")
]
Url = Annotated[
    str,
    Field(pattern=r"^https?://[^\s/?#]+(/[^\s?#]*)?$"),
    Says("http:// or https:// with host, port and maybe a path"),
]


def _time_limit(text: str) -> str:
    if text:
        time_limit_minutes(text)
    return text


TimeLimit = Annotated[
    str,
    AfterValidator(_time_limit),
    Says("minutes, m:s, h:m:s, d-h, d-h:m, d-h:m:s, UNLIMITED or empty; not zero"),
]


def _split(value: object) -> object:
    """A command in one line, as an environment variable gives it."""
    return shlex.split(value) if isinstance(value, str) else value


Command = Annotated[
    list[Text], BeforeValidator(_split), Says("a list of texts, or one line as a shell splits it")
]
