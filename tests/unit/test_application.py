"""The Celery application: found under our name, and configured by nothing that a process inherits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.hostile import hostile_variables
from tests.support.warm import Started
from vibey.publisher import make_app

ROOT = Path(__file__).parents[2]
THEIRS = "redis://theirs.invalid:1/0"
OURS = "redis://ours.invalid:2/0"
# Servers that the settings name: none are started in the checkout.
NAMED = {"VIBEY_DATABASE_URL": "postgresql://ours.invalid/vibey", "VIBEY_REDIS_URL": OURS}
FIND = """
import json, sys
from celery.app.utils import find_app
ours, short = find_app("vibey"), find_app("tasks")
tasks = sorted(name for name in ours.tasks if name.startswith("vibey."))
print(json.dumps([type(ours).__name__, ours.main, ours is short, tasks]))
"""


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Python in a checkout, in the shell of somebody who works on another Celery project."""
    environ = {**os.environ, **hostile_variables(THEIRS), **NAMED, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=environ, capture_output=True, text=True, timeout=300, check=False
    )


def test_no_variable_configures_an_application(monkeypatch: pytest.MonkeyPatch) -> None:
    """Addresses, loader, configuration module and Django's settings are the application's own, or none."""
    for name, value in hostile_variables(THEIRS).items():
        monkeypatch.setenv(name, value)
    with make_app("test", {"broker_url": OURS, "result_backend": None}) as app:
        assert (app.conf.broker_url, app.conf.broker_read_url, app.conf.broker_write_url) == (OURS,) * 3
        assert app.conf.result_backend is None
        for connection in (app.connection(), app.connection_for_read(), app.connection_for_write()):
            assert (connection.hostname, connection.port) == ("ours.invalid", 2)
        assert type(app.backend).__name__ == "DisabledBackend"
        assert app.loader.read_configuration() == {}
        assert list(app.fixups) == []


def test_it_is_found_under_our_name_and_by_the_checkout_s_short_one() -> None:
    """`celery -A vibey` and, in a checkout, `celery -A tasks` are the same application with all its tasks."""
    done = python("-c", FIND)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [
        "Application",
        "vibey",
        True,
        [f"vibey.{name}" for name in ("audit", "build", "canary", "enqueue", "measure", "prune", "route", "tick")],
    ]


@pytest.mark.parametrize("option", ["--broker", "--result-backend", "--loader", "--config"])
def test_what_the_settings_say_cannot_be_said_on_the_command_line(option: str, tmp_path: Path) -> None:
    """An option that would be without effect is refused, where a person typed it."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("CELERY_")}
    command, log = ["celery", option, "theirs", "-A", "vibey", "report"], tmp_path / "log"
    assert Started(command, folder=ROOT, environment={**plain, **NAMED}, log=log).wait() == 1
    refusal = f"vibey: {option} is not for this application: vibey.toml says where its services are"
    assert log.read_text(encoding="utf-8").strip() == refusal
