"""One collection read whole, in pages: what a watch starts from, and what a single look needs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping

import msgspec
from msgspec import Raw, Struct

from extender.kube.client import KubeClient

_PAGE = 500


class Version(Struct):
    resourceVersion: str = ""
    # "continue" of a list page
    continue_: str = msgspec.field(name="continue", default="")


class Page(Struct):
    """Some of the objects, undecoded, and the version of the whole list."""

    metadata: Version
    items: list[Raw] | None = None


_decode = msgspec.json.Decoder(Page).decode


async def pages(
    client: KubeClient, path: str, params: Mapping[str, str] | None = None
) -> AsyncIterator[Page]:
    """The pages of a list, one call each; the loop may turn between them.

    Raises ``KubeError`` (410 when it took longer than the API server remembers),
    ``KubeUnavailable`` and, for an answer that is no list, ``MsgspecError`` or ``ValueError``.
    """
    asked = {**(params or {}), "limit": str(_PAGE)}
    while True:
        page = _decode(await client.request("GET", path, params=asked))
        yield page
        if not page.metadata.continue_:
            return
        asked["continue"] = page.metadata.continue_
        await asyncio.sleep(0)
