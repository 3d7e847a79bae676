"""Failures of the client itself."""

from __future__ import annotations

import pytest
from kubernetes.aio.client import Configuration
from kubernetes.aio.config import ConfigException

from extender.kube.client import KubeClient, KubeUnavailable


@pytest.mark.parametrize("error", [ConfigException("Token file exists but empty."), OSError(2)])
async def test_a_token_that_cannot_be_read_is_no_answer(error: Exception) -> None:
    """The service account's token is read again every minute: while it cannot be, loops go on."""

    def refresh(_: Configuration) -> None:
        raise error

    configuration = Configuration(host="http://127.0.0.1:1", api_key={"BearerToken": "bearer t"})
    configuration.refresh_api_key_hook = refresh
    client = KubeClient(configuration, timeout_seconds=1)
    with pytest.raises(KubeUnavailable, match="no token for the API server"):
        await client.request("GET", "/api/v1/pods")
    with pytest.raises(KubeUnavailable, match="no token for the API server"):
        async for _ in client.watch("/api/v1/pods", {}, 1):
            pass
    await client.close()
