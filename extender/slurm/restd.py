"""One slurmrestd over HTTP: the version spoken, the token, time limits, and what an answer means.

Knows no Slurm calls; those are in rest.py. Nothing raised from here carries a request, for its
headers hold the token.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from typing import TypeVar

import httpx
import msgspec

from extender.slurm import errors
from extender.slurm.port import SlurmError, SlurmRefused, SlurmUnavailable, SlurmUnsent
from extender.slurm.streams import StreamTransport
from extender.slurm.tokens import TokenSource
from extender.slurm.wire import Problem, Reply

# Newest first. The flag EXTERNAL_JOB came with v0.0.43 (Slurm 25.05).
VERSIONS = ("v0.0.45", "v0.0.44", "v0.0.43")

R = TypeVar("R", bound=Reply)
Failure = Callable[[Sequence[Problem], int], SlurmError]
Counted = Callable[[str, str], None]
"""Told of every exchange: the call ("GET jobs/state") and the HTTP status, or "none"."""


class Slurmrestd:
    """``url`` without a path; ``user_name`` is the user to act as, "" the token's own.

    ``may_write`` is asked right before everything that is not a GET is sent.

    At most ``concurrency`` calls are under way at once (slurmrestd has 20 threads by default and
    slurmctld serves all of its clients one after another).
    """

    def __init__(
        self,
        url: str,
        tokens: TokenSource,
        *,
        user_name: str = "",
        timeout_seconds: float = 10.0,
        list_timeout_seconds: float = 60.0,
        connect_timeout_seconds: float = 10.0,
        concurrency: int = 8,
        ca_file: str = "",
        transport: httpx.AsyncBaseTransport | None = None,
        counted: Counted = lambda _call, _outcome: None,
        may_write: Callable[[], bool] = lambda: True,
    ) -> None:
        self._tokens = tokens
        self._may_write = may_write
        self._counted = counted
        self._timeout = httpx.Timeout(timeout_seconds, connect=connect_timeout_seconds)
        self._list_timeout = httpx.Timeout(list_timeout_seconds, connect=connect_timeout_seconds)
        self._slots = asyncio.Semaphore(concurrency)
        self._negotiating = asyncio.Lock()
        self._version = ""
        self._client = httpx.AsyncClient(
            base_url=url,
            headers={"X-SLURM-USER-NAME": user_name} if user_name else {},
            timeout=self._timeout,
            trust_env=False,  # the token goes to slurmrestd, never to a proxy from the environment
            transport=transport or StreamTransport(ca_file),
        )
        self._where = f"slurmrestd at {self._client.base_url.netloc.decode().rpartition('@')[2]}"

    async def close(self) -> None:
        await self._client.aclose()

    async def version(self) -> str:
        """The newest version that both sides speak, found by asking once.

        Raises ``SlurmRefused`` naming both sides when there is none.
        """
        async with self._negotiating:
            if not self._version:
                self._version = await self._negotiate()
            return self._version

    async def call(
        self,
        method: str,
        path: str,
        reply: type[R],
        what: str,
        *,
        service: str = "slurm",
        params: Sequence[tuple[str, str]] = (),
        body: msgspec.Struct | None = None,
        long: bool = False,
        failure: Failure | None = None,
        done: Callable[[R], bool] = lambda _: False,
    ) -> R:
        """Ask ``/{service}/{version}/{path}`` and return the body, or raise what it says.

        ``what`` completes "Slurm refused to …". ``failure`` makes the error out of ``errors[]``;
        ``done`` tells that what was asked happened in spite of them.
        """
        version = await self.version()
        response = await self._authorized(
            method,
            f"/{service}/{version}/{path}",
            what,
            params=params,
            content=None if body is None else msgspec.json.encode(body),
            timeout=self._list_timeout if long else self._timeout,
        )
        if _unknown_url(response):
            self._version = ""
            raise SlurmUnavailable(
                f"{self._where} no longer knows {path} in {version}: was it up- or downgraded?"
            )
        decoded = self._decode(response, reply, what)
        if decoded.errors and not done(decoded):
            if failure is not None:
                raise failure(decoded.errors, response.status_code)
            raise errors.failure(decoded.errors, response.status_code, what)
        if response.is_error and not decoded.errors:
            raise SlurmUnavailable(f"{self._where} answered {response.status_code} to: {what}")
        return decoded

    async def _negotiate(self) -> str:
        for version in VERSIONS:
            what = f"ask for {version}"
            response = await self._authorized("GET", f"/slurm/{version}/ping/", what)
            if response.is_success:
                return version
            if response.status_code != 404:
                raise SlurmUnavailable(f"{self._where} answered {response.status_code} to: {what}")
        response = await self._authorized("GET", "/openapi/v3", "list its versions")
        spoken = sorted(set(re.findall(r"/slurm/(v[0-9.]+)/", response.text.replace("\\/", "/"))))
        raise SlurmRefused(
            f"{self._where} speaks {', '.join(spoken) or 'no version that it names'}; Sluice speaks"
            f" {VERSIONS[-1]} to {VERSIONS[0]} (external jobs need Slurm 25.05 or newer)"
        )

    async def _authorized(
        self,
        method: str,
        url: str,
        what: str,
        *,
        params: Sequence[tuple[str, str]] = (),
        content: bytes | None = None,
        timeout: httpx.Timeout | None = None,
    ) -> httpx.Response:
        """Send with the token; when it is refused and the source has another, once more."""
        request = self._client.build_request(
            method,
            url,
            params=list(params) or None,
            content=content,
            headers={} if content is None else {"Content-Type": "application/json"},
            timeout=timeout or self._timeout,
        )
        token = self._tokens.token()
        response = await self._send(request, token, what)
        if _denied(response):
            self._tokens.renew()
            newer = self._tokens.token()
            if newer != token:
                response = await self._send(request, newer, what)
        if response.status_code == 401:
            raise errors.denied(what)
        return response

    async def _send(self, request: httpx.Request, token: str, what: str) -> httpx.Response:
        """One exchange. A read whose connection broke is sent once more: it may have been idle."""
        request.headers["X-SLURM-USER-TOKEN"] = token
        tries = 2 if request.method == "GET" else 1
        problem, sent = "", True
        async with self._slots:
            if request.method != "GET" and not self._may_write():
                raise SlurmUnsent(f"another replica leads; not sent: {what}")
            for _ in range(tries):
                try:
                    response = await self._client.send(request)
                    self._counted(_call(request), str(response.status_code))
                    return response
                except httpx.ConnectError as error:
                    problem, sent = f"cannot be reached ({error})", False
                    break
                except httpx.TimeoutException as error:
                    problem = f"did not answer in time ({type(error).__name__})"
                    break
                except httpx.HTTPError as error:
                    problem = f"broke the connection ({type(error).__name__}: {error})"
        self._counted(_call(request), "none")
        # Raised out here so that no httpx exception, whose request has the token, hangs on to it.
        failure = SlurmUnavailable if sent else SlurmUnsent
        raise failure(f"{self._where} {problem}, tried to {what}")

    def _decode(self, response: httpx.Response, reply: type[R], what: str) -> R:
        try:
            return _decoded(response.content, reply)
        except msgspec.MsgspecError as error:
            said = f"{type(error).__name__}: {error}"
        if not response.is_success:
            said = " ".join(response.text[:100].split())
        raise SlurmUnavailable(
            f"{self._where} answered {response.status_code} to: {what}; unreadable ({said})"
        )


def _decoded(content: bytes, reply: type[R]) -> R:
    """slurmrestd passes on what users wrote byte by byte: one job's name that is not UTF-8 must not
    hide all jobs."""
    try:
        return msgspec.json.decode(content, type=reply)
    except msgspec.DecodeError:
        return msgspec.json.decode(content.decode("utf-8", "replace"), type=reply)


def _denied(response: httpx.Response) -> bool:
    return response.status_code in (401, 511)


def _unknown_url(response: httpx.Response) -> bool:
    """404 in plain words: no such endpoint. A job that is not there is a 404 in JSON."""
    kind = response.headers.get("content-type", "")
    return response.status_code == 404 and "json" not in kind


def _call(request: httpx.Request) -> str:
    """ "GET jobs/state" of "GET /slurm/v0.0.45/jobs/state/?job_id=7"."""
    parts = [part for part in request.url.path.split("/")[3:] if part and not part.isdigit()]
    return f"{request.method} {'/'.join(parts)}"
