"""From the settings to the two sides: what ``serve`` and ``doctor`` both begin with."""

from __future__ import annotations

from collections.abc import Callable

from extender.domain.policy import Defaults
from extender.kube.client import KubeClient, load_configuration
from extender.settings import Settings
from extender.slurm.rest import RestSlurm
from extender.slurm.restd import Counted
from extender.slurm.tokens import TokenFile


async def kube_of(settings: Settings) -> KubeClient:
    """The client of the API server; ``KubeUnavailable`` when its configuration is of no use."""
    return KubeClient(
        await load_configuration(settings.kubernetes.kubeconfig),
        timeout_seconds=settings.kubernetes.request_timeout_seconds,
    )


def slurm_of(
    settings: Settings,
    counted: Counted = lambda _call, _outcome: None,
    may_write: Callable[[], bool] = lambda: True,
) -> RestSlurm:
    return RestSlurm(
        url=settings.slurm.url,
        tokens=TokenFile(settings.slurm.token_file),
        user_name=settings.slurm.user_name,
        cluster=settings.cluster,
        group=settings.slurm.group,
        timeout_seconds=settings.slurm.request_timeout_seconds,
        concurrency=settings.slurm.concurrency,
        complete_command=settings.slurm.complete_command,
        counted=counted,
        may_write=may_write,
    )


def defaults(settings: Settings) -> Defaults:
    """What a gang gets when neither its pods nor its namespace say."""
    return Defaults(
        user=settings.slurm.default_user,
        account=settings.slurm.default_account,
        partition=settings.slurm.default_partition,
        time_limit=settings.slurm.default_time_limit,
    )
