"""Calls to the API server: bytes out, bytes in, and three kinds of failure.

The configuration (kubeconfig, service account, token refresh) is the official client's; the calls
are plain aiohttp, since the generated model classes cost a millisecond a pod.
"""

from __future__ import annotations

import copy
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final

import aiohttp
import msgspec
from kubernetes.aio import config as kube_config
from kubernetes.aio.client import Configuration

STRATEGIC: Final = "application/strategic-merge-patch+json"
JSON: Final = "application/json"
_MAX_CONNECTIONS: Final = 128
_WATCH_LINE_LIMIT: Final = 16 * 1024 * 1024


class KubeError(Exception):
    """The API server said no: ``status`` is the HTTP status, ``reason`` Kubernetes' word for it."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason

    @property
    def not_found(self) -> bool:
        return self.status == 404

    @property
    def conflict(self) -> bool:
        return self.status == 409


class KubeUnavailable(Exception):
    """No answer, or one that proves nothing (time-out, broken connection, 5xx, 429)."""


class KubeStandby(KubeUnavailable):
    """Not sent: this replica does not lead."""


class _Status(msgspec.Struct):
    reason: str | None = None
    message: str | None = None


async def load_configuration(kubeconfig: str) -> Configuration:
    """The official client's configuration from a kubeconfig file, or the pod's service account."""
    configuration = Configuration()
    try:
        if kubeconfig:
            await kube_config.load_kube_config(
                config_file=kubeconfig, client_configuration=configuration
            )
        else:
            kube_config.load_incluster_config(client_configuration=configuration)
    except (kube_config.ConfigException, OSError) as error:
        where = f"kubeconfig {kubeconfig!r}" if kubeconfig else "the service account of this pod"
        raise KubeUnavailable(
            f"{where} cannot be used: {error}; set kubernetes.kubeconfig to a readable kubeconfig"
        ) from error
    return configuration


class KubeClient:
    """One API server. Everything raises ``KubeError`` or ``KubeUnavailable`` and nothing else."""

    def __init__(self, configuration: Configuration, *, timeout_seconds: float) -> None:
        self._configuration = configuration
        self._may_write: Callable[[], bool] = lambda: True
        self._base = str(configuration.host).rstrip("/")
        self._timeout = aiohttp.ClientTimeout(total=timeout_seconds)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=_MAX_CONNECTIONS, ssl=_ssl_context(configuration), keepalive_timeout=60
            ),
            read_bufsize=1024 * 1024,
            auto_decompress=True,
        )

    def fenced(self, may_write: Callable[[], bool]) -> KubeClient:
        """The same connections for who may write only while that holds, asked before each write."""
        fenced = copy.copy(self)
        fenced._may_write = may_write
        return fenced

    async def close(self) -> None:
        await self._session.close()

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        content_type: str = JSON,
        params: Mapping[str, str] | None = None,
    ) -> bytes:
        """One call; the answer's body when its status is 2xx."""
        headers = await self._headers(content_type if body is not None else None)
        if method != "GET" and not self._may_write():
            raise KubeStandby(f"{method} {path} was not sent: another replica leads")
        try:
            async with self._session.request(
                method,
                self._base + path,
                data=body,
                params=params,
                headers=headers,
                timeout=self._timeout,
            ) as answer:
                content = await answer.read()
                if answer.status < 300:
                    return content
                raise _error(answer.status, content)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise KubeUnavailable(f"{method} {path}: {_named(error)}") from error

    async def watch(
        self, path: str, params: Mapping[str, str], seconds: int
    ) -> AsyncIterator[bytes]:
        """The lines of a watch, which the server ends after ``seconds``."""
        headers = await self._headers(None)
        query = {**params, "watch": "1", "timeoutSeconds": str(seconds)}
        timeout = aiohttp.ClientTimeout(total=seconds + 30, sock_connect=10)
        try:
            async with self._session.get(
                self._base + path, params=query, headers=headers, timeout=timeout
            ) as answer:
                if answer.status >= 300:
                    raise _error(answer.status, await answer.read())
                pending = b""
                async for chunk in answer.content.iter_any():
                    *lines, pending = (pending + chunk).split(b"\n")
                    if len(pending) > _WATCH_LINE_LIMIT:
                        raise KubeUnavailable(f"watch {path}: an event is larger than 16 MiB")
                    for line in lines:
                        yield line
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise KubeUnavailable(f"watch {path}: {_named(error)}") from error

    async def _headers(self, content_type: str | None) -> dict[str, str]:
        headers = {"Accept": JSON, "User-Agent": "sluice"}
        if content_type:
            headers["Content-Type"] = content_type
        if self._configuration.api_key:
            try:
                token = await self._configuration.get_api_key_with_prefix("BearerToken")
            except (kube_config.ConfigException, OSError) as error:
                raise KubeUnavailable(f"no token for the API server: {_named(error)}") from error
            if token:
                headers["Authorization"] = token
        return headers


def _ssl_context(configuration: Configuration) -> ssl.SSLContext | bool:
    if not str(configuration.host).startswith("https"):
        return False
    context = ssl.create_default_context(
        cafile=configuration.ssl_ca_cert, cadata=getattr(configuration, "ca_cert_data", None)
    )
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, keyfile=configuration.key_file)
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _named(error: Exception) -> str:
    """What went wrong; a time-out has no text of its own."""
    return str(error) or type(error).__name__


def _error(status: int, content: bytes) -> KubeError | KubeUnavailable:
    try:
        told = msgspec.json.decode(content, type=_Status)
    except msgspec.MsgspecError:
        told = _Status(message=content[:200].decode(errors="replace"))
    message = told.message or f"HTTP {status}"
    if status >= 500 or status == 429:
        return KubeUnavailable(f"the API server answered {status}: {message}")
    return KubeError(status, told.reason or "", message)


def encode(value: Any) -> bytes:
    """JSON for a request body."""
    return msgspec.json.encode(value)
