"""One kind of object kept up to date: list, then watch from there, relist when told to.

list (in pages) -> watch with bookmarks -> resume where it broke -> 410 Gone: list again.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec
import structlog
from msgspec import Raw, Struct

from extender.kube.client import KubeClient, KubeError, KubeUnavailable
from extender.kube.listing import Version, pages

_WATCH_SECONDS = 290
_LASTED_SECONDS = 30.0
_log = structlog.get_logger(__name__)

T = TypeVar("T")


class _Event(Struct):
    type: str
    object: Raw


class _Bare(Struct):
    metadata: Version = msgspec.field(default_factory=Version)
    code: int = 0
    message: str = ""


_decode_event = msgspec.json.Decoder(_Event).decode
_decode_bare = msgspec.json.Decoder(_Bare).decode


class Reflector(Generic[T]):
    """Follows one collection and tells of every object that appears, changes or goes.

    ``seen(value)`` and ``gone(value)`` are called in order, on the event loop, and must not block.
    ``key(value)`` is the identity within the collection. An object that cannot be decoded is
    logged and treated as absent.
    """

    def __init__(
        self,
        client: KubeClient,
        path: str,
        object_type: type[Any],
        convert: Callable[[Any], T],
        key: Callable[[T], str],
        seen: Callable[[T], None],
        gone: Callable[[T], None],
        params: dict[str, str] | None = None,
    ) -> None:
        self._client = client
        self.path = path
        self._decode = msgspec.json.Decoder(object_type).decode
        self._convert = convert
        self._key = key
        self._seen = seen
        self._gone = gone
        self._params = params or {}
        self._known: dict[str, T] = {}
        self._version = ""  # of the last event; "" means: list first
        self.synced = asyncio.Event()
        self.problem = "not listed yet"

    async def run(self) -> None:
        """Follow until cancelled."""
        failures = 0
        while True:
            started = time.monotonic()
            try:
                if not self._version:
                    self._version = await self._list()
                    self.synced.set()
                self.problem = ""
                await self._watch()
                failures = 0
            except (KubeError, msgspec.MsgspecError, ValueError) as error:
                self._version = ""  # 410 Gone, or an answer that makes no sense: list again
                failures = await self._pause(failures, started, str(error))
            except KubeUnavailable as error:
                failures = await self._pause(failures, started, str(error))

    async def _pause(self, failures: int, started: float, why: str) -> int:
        """Longer after each failure in a row; one that lasted well before it starts a new row."""
        if time.monotonic() - started > _LASTED_SECONDS:
            failures = 0
        self.problem = why
        _log.warning("watch interrupted", path=self.path, why=why)
        await asyncio.sleep(min(5.0, 0.1 * 2**failures) * (0.5 + random.random()))
        return min(failures + 1, 10)

    async def _list(self) -> str:
        fresh: dict[str, T] = {}
        version = ""
        async for page in pages(self._client, self.path, self._params):
            version = page.metadata.resourceVersion
            for raw in page.items or ():
                value = self._value(raw)
                if value is not None:
                    fresh[self._key(value)] = value
        for key in self._known.keys() - fresh.keys():
            self._gone(self._known.pop(key))
        for key, value in fresh.items():
            self._known[key] = value
            self._seen(value)
        return version

    async def _watch(self) -> None:
        params = {**self._params, "resourceVersion": self._version, "allowWatchBookmarks": "true"}
        async for line in self._client.watch(self.path, params, _WATCH_SECONDS):
            if line:
                self._version = self._event(line) or self._version

    def _event(self, line: bytes) -> str:
        event = _decode_event(line)
        bare = _decode_bare(event.object)
        if event.type == "ERROR":
            raise KubeError(bare.code, "", bare.message)
        if event.type != "BOOKMARK":
            value = self._value(event.object)
            if value is not None:
                self._tell(event.type, value)
        return bare.metadata.resourceVersion

    def _tell(self, kind: str, value: T) -> None:
        if kind == "DELETED":
            self._known.pop(self._key(value), None)
            self._gone(value)
        else:
            self._known[self._key(value)] = value
            self._seen(value)

    def _value(self, raw: Raw) -> T | None:
        try:
            return self._convert(self._decode(raw))
        except (msgspec.MsgspecError, ValueError) as error:
            _log.error("object not understood", path=self.path, why=str(error))
            return None
