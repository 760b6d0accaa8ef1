"""The Celery application of an installation. With `vibey.celery`, the one module whose import leaves something behind.

Settings are read, and the embedded servers started if none are configured, when Celery first asks for its
configuration, not before.

What a worker, beat and Flower do is said by the installation's settings and by their command lines. No variable that
they inherit changes it: `vibey.publisher.application` has the application's own configuration, this module the options
of the command line.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

import vibey
from vibey.domain.errors import VibeyError
from vibey.publisher.application import Application
from vibey.services.following import Follower
from vibey.services.installation import Installation, celery_configuration, ensure_services
from vibey.services.programs import FLOWER_CONFIGURATION, steers_flower
from vibey.settings import Settings, load
from vibey.worker.flow import GatheredEvents, SweptTimers

BEAT_SCHEDULER = "vibey.worker.beat:SteadyScheduler"


@functools.cache
def settings() -> Settings:
    """This process's settings as it started."""
    return load()


@functools.cache
def follower() -> Follower:
    """What keeps this process in step with the generation in force; children of a worker inherit it."""
    return Follower(Installation.open(settings(), app=app), load)


def installation() -> Installation:
    """This process's installation; children of a worker open connections of their own."""
    return follower().installation


def _configuration() -> dict[str, Any]:
    try:
        found = celery_configuration(settings(), ensure_services(settings()))
    except VibeyError as error:
        if click.get_current_context(silent=True) is None:
            raise
        # Under `celery -A vibey …` a person reads this, and needs no traceback.
        raise click.ClickException(f"vibey: {error}") from error
    return {**found, "beat_scheduler": BEAT_SCHEDULER}


def ignore_inherited_options() -> None:
    """Have the `celery` command that imports this module take its options from its command line alone.

    Celery lets a variable stand for any option of any of its commands: `CELERY_WORKER_POOL` is `worker --pool`. By now
    only the options before the command's name have been read. Those that `vibey.publisher.application` makes
    meaningless are refused where a person typed them.
    """
    context = click.get_current_context(silent=True)
    if context is None or context.auto_envvar_prefix != "CELERY":
        return
    for option in ("broker", "result_backend", "loader", "config"):
        if context.get_parameter_source(option) is ParameterSource.COMMANDLINE:
            name = option.replace("_", "-")
            raise SystemExit(f"vibey: --{name} is not for this application: vibey.toml says where its services are")
    context.auto_envvar_prefix = None
    if context.invoked_subcommand == "flower":
        _configure_flower()


def _configure_flower() -> None:
    """Let `celery -A vibey flower` find the router's pages, unless its command line or its folder names other ones.

    It is a file of Flower's own kind, named as Flower lets one be named (see `vibey.flower.seam`). Flower reads each of
    its options from a variable, too: only those of its login stay.
    """
    for name in [name for name in os.environ if steers_flower(name)]:
        del os.environ[name]
    if not Path(FLOWER_CONFIGURATION).exists():
        os.environ["FLOWER_CONF"] = str(Path(vibey.__file__).parent / "flower" / FLOWER_CONFIGURATION)


app = Application("vibey")
app.steps["consumer"].update((GatheredEvents, SweptTimers))
app.add_defaults(_configuration)
ignore_inherited_options()
