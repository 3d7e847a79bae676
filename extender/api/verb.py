"""One verb as an ASGI application: JSON in, JSON out, HTTP 200 whatever happens."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from time import perf_counter

import structlog
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from extender.api.metrics import failures, seconds
from extender.api.wire import MALFORMED, why_malformed

INTERNAL = "Sluice failed to answer; its log has the cause"

log = structlog.get_logger(__name__)


class Verb:
    """``answer`` makes the response body; ``failed`` makes the one that says why there is none."""

    def __init__(
        self,
        name: str,
        answer: Callable[[bytes], Awaitable[bytes]],
        failed: Callable[[str], bytes],
        body_limit_bytes: int,
    ) -> None:
        self.name = name
        self._answer = answer
        self._failed = failed
        self._observe = seconds.labels(name).observe
        self._count_failure = failures.labels(name).inc
        self._limit = body_limit_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        try:
            body = await read_body(receive, self._limit)
        except ClientDisconnect:
            return
        started = perf_counter()
        content = await self._content(body)
        self._observe(perf_counter() - started)
        await send_json(send, content)

    async def _content(self, body: bytes | None) -> bytes:
        if body is None:
            why = f"the request body is larger than http.body_limit_mib ({self._limit >> 20} MiB)"
        else:
            try:
                return await self._answer(body)
            except MALFORMED as error:
                why = why_malformed(error)
            except Exception:
                log.exception("verb failed", verb=self.name)
                why = INTERNAL
        self._count_failure()
        log.warning("request refused", verb=self.name, why=why)
        return self._failed(why)


async def read_body(receive: Receive, limit: int) -> bytes | None:
    """The whole body; ``None`` when it is larger than ``limit`` bytes.

    A body that is too large is read to its end and thrown away: a connection closed on a sender
    who still writes loses the answer. ``ClientDisconnect`` when the sender is gone before that.
    """
    chunks: list[bytes] = []
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        chunk = message.get("body", b"")
        more = message.get("more_body", False)
        size += len(chunk)
        if size <= limit:
            chunks.append(chunk)
        else:
            chunks.clear()
    if size > limit:
        return None
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


async def send_json(send: Send, content: bytes) -> None:
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(content)).encode()),
    ]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": content})
