"""What a namespace's pods may ask of Slurm, and as whom.

Only a cluster administrator can write a namespace's annotations; a pod's annotations are a
tenant's words and are checked against them, at admission and again here.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from msgspec import Struct

from extender.domain import wellknown as names
from extender.domain.model import Namespace

FORBIDDEN_USERS = frozenset({"root", "slurm", "0"})


class Defaults(Struct, frozen=True):
    """What the settings say for namespaces that say nothing. "": left to Slurm."""

    user: str = ""
    account: str = ""
    partition: str = ""
    qos: str = ""
    time_limit: str = ""


class Grant(Struct, frozen=True):
    """The identity and queue of one gang, decided."""

    user: str
    account: str = ""
    partition: str = ""
    qos: str = ""
    reservation: str = ""


class Refusal(Exception):
    """The request cannot stand. The message names the thing, the cause and the next step."""


def grant(namespace: Namespace, asked: Mapping[str, str], defaults: Defaults) -> Grant:
    """Decide user, account, partition, QOS and reservation. ``Refusal`` when not allowed."""
    told = namespace.annotations
    user = told.get(names.USER, defaults.user).strip()
    if not user:
        raise Refusal(
            f"namespace {namespace.name!r} has no Slurm user: a cluster administrator sets the "
            f"namespace annotation {names.USER}, or slurm.default_user in Sluice's settings"
        )
    if user in FORBIDDEN_USERS:
        raise Refusal(
            f"namespace {namespace.name!r} maps to Slurm user {user!r}, which must never run "
            f"jobs: a cluster administrator sets {names.USER} to an ordinary user"
        )

    def choose(what: str, annotation: str, list_annotation: str, default: str) -> str:
        allowed = _listed(told.get(list_annotation, ""))
        if annotation != list_annotation and (own := told.get(annotation, "").strip()):
            allowed = [own, *(a for a in allowed if a != own)]
        wish = asked.get(annotation, "").strip()
        if not wish:
            return allowed[0] if allowed else default
        if allowed and wish not in allowed:
            raise Refusal(
                f"annotation {annotation}: {what} {wish!r} is not open to namespace "
                f"{namespace.name!r}, which may use: {', '.join(allowed)}"
            )
        return wish

    reservations = _listed(told.get(names.ALLOWED_RESERVATIONS, ""))
    reservation = asked.get(names.RESERVATION, "").strip()
    if reservation and reservations and reservation not in reservations:
        raise Refusal(
            f"annotation {names.RESERVATION}: reservation {reservation!r} is not open to "
            f"namespace {namespace.name!r}, which may use: {', '.join(reservations)}"
        )
    return Grant(
        user=user,
        account=choose("account", names.ACCOUNT, names.ALLOWED_ACCOUNTS, defaults.account),
        partition=choose(
            "partition", names.PARTITION, names.ALLOWED_PARTITIONS, defaults.partition
        ),
        qos=choose("QOS", names.QOS, names.ALLOWED_QOS, defaults.qos),
        reservation=reservation,
    )


def unknown_annotation(annotations: Mapping[str, str]) -> str:
    """A sentence about the first annotation of our prefix that does not exist, or ""."""
    known = names.REQUESTS | names.ANSWERS | {names.MANAGED, names.OPTED_OUT}
    for key in sorted(annotations):
        if key.startswith(names.PREFIX) and key not in known:
            near = difflib.get_close_matches(key, sorted(names.REQUESTS), n=1)
            hint = f"did you mean {near[0]}?" if near else "see the table of annotations"
            return f"annotation {key} is not one that Sluice knows: {hint}"
    return ""


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
