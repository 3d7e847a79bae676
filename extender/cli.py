"""The ``sluice`` command."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer
import uvloop

import extender
from extender.app import serve as serve_forever
from extender.doctor import Unreadable, as_json, as_text, examine
from extender.kube.client import KubeUnavailable
from extender.log import configure
from extender.settings import Settings, SettingsError, load

_DEFAULT = Path("/etc/sluice/sluice.yaml")
_cli = typer.Typer(
    help="Sluice: Slurm decides where gangs of pods run.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
Config = Annotated[Path, typer.Option(help="The settings file.")]


@_cli.command()
def serve(config: Config = _DEFAULT) -> None:
    """Run the service."""
    settings = _settings(config)
    configure(settings.log.level, settings.log.format)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            code = runner.run(serve_forever(settings))
    except KubeUnavailable as error:
        _stop(str(error), 1)
    except KeyboardInterrupt:
        code = 130
    raise typer.Exit(code)


@_cli.command()
def check_config(config: Config = _DEFAULT) -> None:
    """Say whether the settings can be used, and exit 2 when they cannot."""
    _settings(config)
    typer.echo(f"{config}: all settings are valid")


@_cli.command()
def doctor(
    config: Config = _DEFAULT,
    json: Annotated[bool, typer.Option("--json", help="A list for programs.")] = False,
    settle: Annotated[
        float,
        typer.Option(
            min=0,
            max=600,
            help="What disagrees counts if it does so again after this many seconds.",
        ),
    ] = 5.0,
) -> None:
    """Compare Kubernetes' and Slurm's books, and say what to do where they disagree.

    Only reads; Sluice itself need not run. Exits 0 when the books agree, 1 when they do not, 2 when
    one cannot be read.
    """
    settings = _settings(config)
    configure("warning", settings.log.format)
    try:
        report = asyncio.run(examine(settings, settle))
    except Unreadable as error:
        _stop(str(error), 2)
    typer.echo(as_json(report) if json else as_text(report))
    raise typer.Exit(1 if report.findings else 0)


@_cli.command()
def version() -> None:
    """Print the version."""
    typer.echo(extender.__version__)


def _settings(config: Path) -> Settings:
    try:
        return load(config)
    except SettingsError as error:
        _stop(str(error), 2)


def _stop(message: str, code: int) -> NoReturn:
    print(f"sluice: {message}", file=sys.stderr)
    raise typer.Exit(code)


def main() -> None:
    _cli()
