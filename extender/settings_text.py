"""Settings in words: the commented file, and what is wrong with a file or with the environment.

Owns no setting; ``settings.py`` does.
"""

from __future__ import annotations

import difflib
import json
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

Model = type[BaseModel]


class Says(NamedTuple):
    """Metadata of a field: what it may be, where the type does not say it in plain words."""

    words: str


WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}


class _WrongKey(ValueError):
    """A key that YAML allows and settings do not."""


class _Loader(yaml.SafeLoader):
    """YAML that refuses a key given twice; PyYAML would drop the first."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                raise _WrongKey(f"line {line}: a key is a word, not a list or a mapping")
            if key.value in seen:
                raise _WrongKey(f"{key.value}: given twice, the second time in line {line}")
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def read_yaml(path: Path) -> dict[str, Any]:
    """The file as a dict, a group without content as ``{}``. ``ValueError`` says what is wrong."""
    try:
        loaded = yaml.load(path.read_text("utf-8"), _Loader)
    except OSError as error:
        raise ValueError(f"the file cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"the file is not UTF-8: {error.reason} at byte {error.start}") from None
    except _WrongKey:
        raise
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ValueError(f"the file is not YAML: {' '.join(str(error).split())}") from None
    if loaded is None:
        return {}
    if not isinstance(loaded, dict):
        raise ValueError("the file holds no groups of settings (like http: {port: 8077})")
    named = {str(key): {} if value is None else value for key, value in loaded.items()}
    return {
        key: {str(name): inner for name, inner in value.items()}
        if isinstance(value, dict)
        else value
        for key, value in named.items()
    }


def keys(model: Model, above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], FieldInfo]]:
    """Every setting with its path, ``(("http", "port"), …)``, in the order of the models."""
    for name, field in model.model_fields.items():
        if group := _group(field):
            yield from keys(group, (*above, name))
        else:
            yield (*above, name), field


def allowed(field: FieldInfo) -> str:
    """What a setting may be: "a whole number from 1 to 65535"."""
    for entry in field.metadata:
        if isinstance(entry, Says):
            return entry.words
    kind = field.annotation
    if get_origin(kind) is Literal:
        *others, last = (str(choice) for choice in get_args(kind))
        return f"{', '.join(others)} or {last}"
    limits = {k: getattr(m, k) for m in field.metadata for k in ("ge", "le") if hasattr(m, k)}
    if limits:
        return f"{WORDS[kind]} from {limits['ge']} to {limits['le']}"  # type: ignore[index]
    return WORDS[kind]  # type: ignore[index]


def default(field: FieldInfo) -> str:
    """The default as YAML (and JSON) writes it."""
    value = field.get_default(call_default_factory=True)
    number = isinstance(value, float) and value.is_integer()
    return json.dumps(int(value) if number else value, ensure_ascii=False)


def reference(model: Model) -> str:
    """The complete file: every setting with its default, explained by the comment above it."""
    return _HEAD + "".join(_entries(model, ""))


_HEAD = """\
# Sluice's settings, each with its default. Leave out what you do not change.
# An environment variable goes over the file: SLUICE_HTTP__PORT=8088 is http.port.
"""


def _entries(model: Model, indent: str) -> Iterator[str]:
    for name, field in model.model_fields.items():
        if group := _group(field):
            yield f"\n{_comment(group.__doc__ or '', indent)}{indent}{name}:\n"
            yield from _entries(group, indent + "  ")
        else:
            text = f"{field.description} Allowed: {allowed(field)}. Default: {default(field)}."
            yield f"\n{_comment(text, indent)}{indent}{name}: {default(field)}\n"


def _comment(text: str, indent: str) -> str:
    lead = f"{indent}# "
    lines = textwrap.wrap(text, 96, break_long_words=False, break_on_hyphens=False)
    return "".join(f"{lead}{line}\n" for line in lines)


def stray_variables(model: Model, prefix: str, environ: Mapping[str, str]) -> list[str]:
    """Variables of ours whose group does not exist; pydantic-settings ignores them.

    Only names with ``__`` count: Kubernetes itself sets SLUICE_PORT and SLUICE_SERVICE_HOST in
    the pods beside a Service named sluice.
    """
    problems = []
    for variable in sorted(environ):
        group, nested, rest = variable.upper().removeprefix(prefix).partition("__")
        if not variable.upper().startswith(prefix) or not nested:
            continue
        if group.lower() not in model.model_fields:
            key = f"{group}.{rest}".lower().replace("__", ".")
            known = [".".join(path) for path, _ in keys(model)]
            problems.append(f"{variable}: unknown{_nearest(key, known)}")
    return problems


def explain(
    model: Model, prefix: str, environ: Mapping[str, str], error: ValidationError
) -> list[str]:
    """One sentence for each problem, with the key, the value and what is allowed."""
    fields = {".".join(path): field for path, field in keys(model)}
    problems = []
    for found in error.errors(include_url=False):
        key = ".".join(str(part) for part in found["loc"])
        while key not in fields and found["type"] != "extra_forbidden" and "." in key:
            key = key.rpartition(".")[0]  # complete_command.0 -> complete_command
        source = _source(prefix + key.replace(".", "__"), environ)
        if found["type"] == "extra_forbidden":
            problems.append(f"{key}{source}: unknown{_nearest(key, fields)}")
        elif field := fields.get(key):
            may = f"{allowed(field)}, default {default(field)}"
            problems.append(
                f"{key}{source}: {_shown(found['input'])} is not allowed; it may be {may}"
            )
        elif found["type"] == "value_error":
            problems.append(str(found["ctx"]["error"]))
        else:
            inner = ", ".join(name for name in fields if name.startswith(f"{key}."))
            problems.append(f"{key}{source}: a group of settings is wanted here: {inner}")
    return problems


def _shown(value: object) -> str:
    """A value as JSON writes it, cut where it gets long."""
    try:
        text = json.dumps(value, default=str, ensure_ascii=False)
    except (ValueError, TypeError, RecursionError):  # a mapping with odd keys, a list of itself
        text = f"a {type(value).__name__}"
    return text if len(text) <= 80 else f"{text[:77]}…"


def _source(variable: str, environ: Mapping[str, str]) -> str:
    """ " (from SLUICE_HTTP__PORT)" when the environment gives a setting, or a part of it."""
    for name in environ:
        if f"{name}__".upper().startswith(f"{variable}__".upper()):
            return f" (from {name})"
    return ""


def _nearest(key: str, names: Iterable[str]) -> str:
    """The existing keys nearest to a wrong one, as the end of a sentence."""
    known = list(names)
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.6)
    if near:
        return f"; did you mean {near[0]}?"
    inside = [name for name in known if name.startswith(key.split(".")[0] + ".")]
    groups = dict.fromkeys(name.split(".")[0] for name in known)
    return f"; there are {', '.join(inside or groups)}"


def _group(field: FieldInfo) -> Model | None:
    kind = field.annotation
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None
