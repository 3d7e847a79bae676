"""Every setting: its meaning, unit, default and limits, and how they are read.

The file (config/sluice.yaml) comes first, environment variables go over it:
``SLUICE_HTTP__PORT=8088`` is ``http.port``. Secrets are never settings, only the paths of files
that hold them. The file is written from the models below, and a test keeps it so:

    python -m extender.settings > config/sluice.yaml
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from extender.settings_text import explain, read_yaml, reference, stray_variables
from extender.settings_types import (
    Command,
    Name,
    Number,
    Seconds,
    SlurmName,
    Text,
    TimeLimit,
    Url,
)

PREFIX = "SLUICE_"


class SettingsError(Exception):
    """The settings cannot be used. The text names every problem and is ready to print."""


class Group(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Log(Group):
    """What is written to standard error."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="The least urgent lines that are written."
    )
    format: Literal["json", "console"] = Field(
        "json", description="json: one object a line, for collectors. console: for people."
    )


class Http(Group):
    """Where kube-scheduler, probes and people reach Sluice, in plain HTTP: a matter for a
    NetworkPolicy."""

    host: Text = Field("127.0.0.1", description="The address to listen on.")
    port: Number = Field(8077, ge=1, le=65535, description="The TCP port to listen on.")
    body_limit_mib: Number = Field(
        64,
        ge=1,
        le=1024,
        description="The largest request body that is read, in MiB. An extender that is not "
        "nodeCacheCapable is sent whole nodes: about 8 KiB each.",
    )


class Kubernetes(Group):
    """The API server."""

    kubeconfig: str = Field(
        "",
        description="Path of a kubeconfig file. Empty: the service account of the pod that "
        "Sluice runs in.",
    )
    scheduler_name: Name = Field(
        "sluice",
        description="Pods whose spec.schedulerName is this are Sluice's; it is also the name of "
        "the profile in kube-scheduler's configuration.",
    )
    patch_concurrency: Number = Field(
        32, ge=1, le=512, description="How many pods are patched at the same time."
    )
    bind_concurrency: Number = Field(
        32, ge=1, le=512, description="How many pods are bound at the same time."
    )
    request_timeout_seconds: Seconds = Field(
        10.0, description="How long one call to the API server may take, in seconds."
    )


class Slurm(Group):
    """slurmrestd, and what a gang gets that does not say."""

    url: Url = Field(
        "http://127.0.0.1:6820",
        description="The address of slurmrestd, without /slurm/….",
    )
    token_file: Text = Field(
        "/var/run/secrets/sluice/slurm-token",
        description="Path of a file with a JWT that may act for other users (SlurmUser or root). "
        "It is read again whenever it changes.",
    )
    user_name: Text = Field("slurm", description="The Slurm user that owns the token.")
    default_user: str = Field(
        "",
        description="The Slurm user of a namespace without the annotation sluice.dev/user. Empty: "
        "such a namespace is refused. Neither root, nor slurm, nor slurm.user_name.",
    )
    group: str = Field(
        "",
        description="The group that jobs run under, by name or number. Empty: the group that is "
        "named like the job's user.",
    )
    default_account: str = Field(
        "",
        description="The account of a gang when neither its pods nor its namespace name one. "
        "Empty: Slurm's default account of the user.",
    )
    default_partition: str = Field(
        "",
        description="The partition of a gang that names none. Empty: Slurm's default partition.",
    )
    default_time_limit: TimeLimit = Field(
        "",
        description="The time limit of a gang that names none, in a form that sbatch --time "
        'takes: "90" minutes, "12:00:00", "1-12". Empty: the partition\'s default.',
    )
    request_timeout_seconds: Seconds = Field(
        30.0,
        description="How long one call to slurmrestd may take, in seconds. slurmrestd itself "
        "blocks for 10 to 20 seconds while slurmctld is away.",
    )
    concurrency: Number = Field(
        8, ge=1, le=128, description="How many calls to slurmrestd run at the same time."
    )
    poll_min_milliseconds: Number = Field(
        50,
        ge=10,
        le=60_000,
        description="How soon jobs are looked at again while something changes, in milliseconds.",
    )
    poll_max_milliseconds: Number = Field(
        1000,
        ge=10,
        le=60_000,
        description="How soon jobs are looked at again while nothing changes, in milliseconds. "
        "Not below slurm.poll_min_milliseconds.",
    )
    resync_seconds: Seconds = Field(
        300.0,
        description="How often all jobs are listed and compared, in seconds. An expensive call.",
    )
    complete_command: Command = Field(
        [],
        description="Program and arguments that end a job as COMPLETED or FAILED with its exit "
        "code, where libslurm and slurm.conf are: extender/slurm/complete.py, perhaps behind ssh. "
        'It reads lines "<job id> <wait status>" and answers each. Empty: jobs are ended through '
        "slurmrestd, which shows them as CANCELLED.",
    )
    kill_wait_seconds: Number = Field(
        30,
        ge=0,
        le=65533,
        description="KillWait of slurm.conf, in seconds: pods whose grace is longer are warned of. "
        "slurmrestd 26.05 and newer tell it themselves, and are believed.",
    )

    @model_validator(mode="after")
    def _users_and_polls(self) -> Self:
        if self.default_user in ("root", "slurm", self.user_name):
            raise ValueError(
                f"slurm.default_user: {self.default_user!r} would run every gang as an operator "
                "of Slurm; name an ordinary user, or leave it empty"
            )
        if self.poll_max_milliseconds < self.poll_min_milliseconds:
            raise ValueError(
                f"slurm.poll_max_milliseconds: {self.poll_max_milliseconds} is below "
                f"slurm.poll_min_milliseconds, which is {self.poll_min_milliseconds}"
            )
        return self


class Nodes(Group):
    """Kubernetes nodes as Slurm's external nodes. Only nodes labelled sluice.dev/managed=true."""

    manage: bool = Field(
        True,
        description="Create the Slurm nodes that are missing. false: somebody else does, and "
        "Sluice only reads them.",
    )
    taint: bool = Field(
        True,
        description="Put the taint sluice.dev/slurm:NoSchedule on managed nodes, so that only "
        "pods placed by Slurm come there.",
    )
    feature: SlurmName = Field(
        "k8s",
        description="The Slurm feature of the nodes that Sluice creates; slurm.conf makes a "
        "partition of it: Nodeset=k8s Feature=k8s.",
    )
    topology_root: SlurmName = Field(
        "root",
        description="The name of the topmost switch in Slurm's tree; spines hang below it.",
    )
    sockets_per_node: Number = Field(
        1,
        ge=1,
        le=64,
        description="Sockets of a created node; fewer where its CPUs do not divide by them.",
    )
    resync_seconds: Seconds = Field(
        300.0,
        description="How often all Slurm nodes are listed and compared, in seconds.",
    )


class Gangs(Group):
    """How gangs are followed."""

    settle_milliseconds: Number = Field(
        20,
        ge=0,
        le=10_000,
        description="How long changes to the pods of a gang are gathered before it is looked at, "
        "in milliseconds.",
    )
    event_interval_seconds: Seconds = Field(
        60.0,
        description="The least time between two equal Events about one gang, in seconds.",
    )


class LeaseSettings(Group):
    """Of several replicas one acts, by a Lease of Kubernetes; all answer kube-scheduler."""

    enabled: bool = Field(
        True,
        description="Take part in the election. false: this is the only replica, for sure.",
    )
    namespace: Name = Field("sluice-system", description="The namespace of the Lease.")
    name: Name = Field("sluice", description="The name of the Lease.")
    identity: str = Field(
        "",
        description="This replica's name in the Lease, different on each. Empty: host and port, so "
        "that a restarted replica leads again at once.",
    )
    duration_seconds: Number = Field(
        6,
        ge=3,
        le=600,
        description="A leader that has not renewed for so long is replaced, in seconds; it stops "
        "acting by itself before that.",
    )


class Settings(BaseSettings):
    """The whole of them; immutable."""

    model_config = SettingsConfigDict(
        frozen=True,
        extra="forbid",
        env_prefix=PREFIX,
        env_nested_delimiter="__",
        enable_decoding=False,  # no JSON in variables
    )

    cluster: Name = Field(
        "kubernetes",
        description="The name of this Kubernetes cluster in Slurm's jobs. Clusters that share a "
        "Slurm need different ones; changing it orphans the jobs that run.",
    )
    log: Log = Log()
    http: Http = Http()
    kubernetes: Kubernetes = Kubernetes()
    slurm: Slurm = Slurm()
    nodes: Nodes = Nodes()
    gangs: Gangs = Gangs()
    lease: LeaseSettings = LeaseSettings()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 (the signature is pydantic-settings')
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return env_settings, init_settings


def load(path: str | os.PathLike[str]) -> Settings:
    """The settings of one file with the environment over it.

    Raises ``SettingsError`` with every problem of file and environment in one text.
    """
    problems = stray_variables(Settings, PREFIX, os.environ)
    values: dict[str, Any] = {}
    try:
        values = read_yaml(Path(path))
        settings = Settings(**values)
    except ValidationError as error:
        problems += explain(Settings, PREFIX, os.environ, error)
    except ValueError as error:
        problems.append(str(error))
    if not problems:
        return settings
    count = "one problem" if len(problems) == 1 else f"{len(problems)} problems"
    raise SettingsError(f"{path}: {count}\n" + "\n".join(f"  {line}" for line in problems))


if __name__ == "__main__":
    print(reference(Settings), end="")
