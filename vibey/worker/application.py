"""The Celery application of an installation. With `vibey.celery`, the one module whose import leaves something behind.

Settings are read, and the embedded servers started if none are configured, when Celery first asks for its
configuration, not before.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Any

import click
from celery import Celery

import vibey
from vibey.domain.errors import VibeyError
from vibey.services.following import Follower
from vibey.services.installation import Installation, celery_configuration, ensure_services
from vibey.services.programs import FLOWER_CONFIGURATION
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


def _name_flower_configuration() -> None:
    """Let `celery -A vibey flower` find the router's pages, unless it is told of another configuration.

    It is a file of Flower's own kind, named as Flower lets one be named (see `vibey.flower.seam`).
    """
    own = Path(vibey.__file__).parent / "flower" / FLOWER_CONFIGURATION
    if not Path(FLOWER_CONFIGURATION).exists():
        os.environ.setdefault("FLOWER_CONF", str(own))


app = Celery("vibey")
app.steps["consumer"].update((GatheredEvents, SweptTimers))
app.add_defaults(_configuration)
_name_flower_configuration()
