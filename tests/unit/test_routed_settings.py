"""Settings of a caller's Celery app that its calls carry: only those that say how results and messages are written."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from celery import Celery

from vibey.domain.call import TaskCall
from vibey.routed.request import CARRIED_SETTINGS, apply_settings, carried_settings


def app(**settings: Any) -> Celery:
    """A Celery app with these settings and no broker."""
    made = Celery("shop", set_as_current=False, broker="memory://")
    made.conf.update(settings)
    return made


def call(**settings: Any) -> TaskCall:
    """A call that carries these settings."""
    return TaskCall("1", "t", {}, {}, "[]", "application/json", "utf-8", settings=settings)


def test_only_what_differs_from_the_defaults_is_carried() -> None:
    """An app as Celery makes it carries nothing; addresses and what is accepted are never carried."""
    assert carried_settings(app()) == {}
    secret = app(
        result_backend="redis://:secret@127.0.0.1/0",
        accept_content=["json", "pickle"],
        result_accept_content=["pickle"],
        result_serializer="yaml",
        result_expires=timedelta(minutes=2),
        timezone="Europe/Berlin",
    )
    assert carried_settings(secret) == {
        "result_serializer": "yaml",
        "result_expires": 120.0,
        "timezone": "Europe/Berlin",
    }
    assert not {name for name in CARRIED_SETTINGS if "accept" in name or "backend" in name or "url" in name}


def test_what_a_call_carries_is_applied() -> None:
    """The app then has the caller's values, and accepts results in the serializer it writes them with."""
    here = app(accept_content=["json"])
    apply_settings(here, call(result_serializer="yaml", result_expires=120, accept_content=["pickle"], broker_url="x"))
    assert (here.conf.result_serializer, here.conf.result_expires) == ("yaml", 120)
    assert here.conf.result_accept_content == ["json", "yaml"]
    assert (here.conf.accept_content, here.conf.broker_url) == (["json"], "memory://")


@pytest.mark.parametrize("accepted", [True, False])
def test_a_serializer_that_executes_code_is_applied_only_where_the_app_accepts_it(
    caplog: pytest.LogCaptureFixture, *, accepted: bool
) -> None:
    """A payload cannot make an app read pickles; the log says why the result is written otherwise."""
    here = app(accept_content=["json", "pickle"] if accepted else ["json"])
    apply_settings(here, call(result_serializer="pickle"))
    assert here.conf.result_serializer == ("pickle" if accepted else "json")
    assert ("which shop does not accept here" in caplog.text) == (not accepted)
    assert not here.conf.result_accept_content
