"""The Celery application of an installation: the one module whose import leaves something behind."""

from __future__ import annotations

import functools
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec

import click
from celery import Celery

import vibey
from tasks.flow import GatheredEvents, SweptTimers
from vibey.domain.errors import Contended, ServiceUnavailable, VibeyError
from vibey.services.installation import Installation, celery_configuration, ensure_services
from vibey.services.programs import FLOWER_CONFIGURATION
from vibey.settings import Settings, load

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
BEAT_SCHEDULER = "tasks.beat:SteadyScheduler"
log = logging.getLogger("vibey.tasks")


@functools.cache
def settings() -> Settings:
    """This process's settings, read once."""
    return load()


@functools.cache
def installation() -> Installation:
    """This process's installation; children of a worker inherit it and open connections of their own."""
    return Installation.open(settings(), app=app)


def _configuration() -> dict[str, Any]:
    try:
        found = celery_configuration(settings(), ensure_services(settings()))
    except VibeyError as error:
        if click.get_current_context(silent=True) is None:
            raise
        # Under `celery -A tasks …` a person reads this, and needs no traceback.
        raise click.ClickException(f"vibey: {error}") from error
    return {**found, "beat_scheduler": BEAT_SCHEDULER}


def guarded(body: Callable[P, object]) -> Callable[P, None]:
    """The outermost guard of a task: nothing a task raises may reach the worker.

    A `MemoryError` raised by a task ends the whole worker, siblings included. Whatever was lost here the
    tick finds.
    """

    @functools.wraps(body)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            body(*args, **kwargs)
        except (ServiceUnavailable, Contended) as error:
            log.warning("task %s: %s", body.__name__, error)
        except Exception:
            log.exception("task %s%r failed", body.__name__, args)
        except BaseException as error:
            log.critical("task %s%r was ended by %s", body.__name__, args, type(error).__name__)
            if isinstance(error, SystemExit | KeyboardInterrupt):
                raise

    return run


def _name_flower_configuration() -> None:
    """Let `celery -A tasks flower` find the router's pages, unless it is told of another configuration.

    It is a file of Flower's own kind, named as Flower lets one be named (see `vibey.flower.seam`).
    """
    own = Path(vibey.__file__).parent / "flower" / FLOWER_CONFIGURATION
    if not Path(FLOWER_CONFIGURATION).exists():
        os.environ.setdefault("FLOWER_CONF", str(own))


app = Celery("vibey")
app.steps["consumer"].update((GatheredEvents, SweptTimers))
app.add_defaults(_configuration)
_name_flower_configuration()
