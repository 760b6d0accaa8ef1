"""The command lines that people read say what the product's one table of programs says."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from vibey.services.programs import BUILD, CONTROL, WORKERS, flower_program, inherited
from vibey.settings import load
from vibey.worker import application

ROOT = Path(__file__).parents[2]
# Options that are another place's own, and the only ones that may differ.
COMPOSE_OWN = {
    "beat": {"--schedule": "/tmp/beat-schedule", "--pidfile": "/tmp/beat.pid"},  # noqa: S108  inside its container
    "flower": {"--conf": "config/flowerconfig.py", "--address": "0.0.0.0", "--port": "5555"},  # noqa: S104  published on loopback
}


def parsed(words: list[str] | tuple[str, ...]) -> tuple[list[str], dict[str, str]]:
    """A command's words, and its options with their values, given as one word or two."""
    plain: list[str] = []
    options: dict[str, str] = {}
    waiting: str | None = None
    for word in words[3:]:
        if word.startswith("--"):
            name, _, value = word.partition("=")
            options[name] = value
            waiting = None if value else name
        elif waiting:
            options[waiting], waiting = word, None
        else:
            plain.append(word)
    return [*words[:3], *plain], options


def procfile() -> dict[str, tuple[set[str], list[str]]]:
    """Each program of the Procfile: the variables it is started without, and its command line."""
    found = {}
    for line in (ROOT / "Procfile").read_text(encoding="utf-8").splitlines():
        name, _, command = line.partition(": ")
        words = shlex.split(command)
        assert words.pop(0) == "env"
        without = set()
        while words[0] == "-u":
            without.add(words[1])
            del words[:2]
        found[name] = (without, words)
    return found


def compose() -> dict[str, Any]:
    """The services of docker-compose.yml."""
    services: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))["services"]
    return services


def test_procfile_is_the_table() -> None:
    """Workers and beat are started exactly as by `vibey up`, Flower with the configuration that people change."""
    lines = procfile()
    assert list(lines) == ["control", "build", "beat", "flower"]
    for program in WORKERS:
        assert lines[program.name][1] == list(program.command)
    words, options = parsed(lines["flower"][1])
    assert words == parsed(flower_program(load(None, {})).command)[0]
    assert options == {"--conf": "config/flowerconfig.py"}


@pytest.mark.parametrize("name", ["control", "build", "beat", "flower"])
def test_compose_is_the_table(name: str) -> None:
    """Each container runs what the table says; only beat's files and Flower's address are its own."""
    table = {program.name: program for program in (*WORKERS, flower_program(load(None, {})))}
    words, options = parsed(compose()[name]["command"])
    plain, usual = parsed(table[name].command)
    assert words == plain
    assert options == usual | COMPOSE_OWN.get(name, {})


def test_compose_asks_workers_of_the_same_application() -> None:
    """A health check asks the worker that its container runs, by the name the table gives it."""
    for program in (CONTROL, BUILD):
        host = parsed(program.command)[1]["--hostname"].replace("%h", "$$HOSTNAME")
        words = shlex.split(compose()[program.name]["healthcheck"]["test"][1])
        assert words[:4] == [*program.command[:3], "inspect"]
        assert words[-2:] == ["--destination", host]


def test_the_unit_file_of_the_page_is_the_table() -> None:
    """The build worker of the systemd unit is the table's, its per cent sign doubled as systemd wants it."""
    page = (ROOT / "docs/how-to/several-machines.md").read_text(encoding="utf-8")
    command = re.search(r"^ExecStart=\S+/(celery .*)$", page, re.MULTILINE)
    assert command
    assert shlex.split(command[1].replace("%%", "%")) == list(BUILD.command)


def test_the_procfile_starts_without_what_stops_celery_before_it_knows_our_application() -> None:
    """Of the options before a command's name, all that our application cannot take back are kept from the shell."""
    from celery.bin.celery import celery

    taken_back = {"app", "broker", "result_backend", "loader", "config"}
    early = {"REMAP_SIGTERM"}
    for option in celery.params:
        if isinstance(option, click.Option) and option.name and option.name not in taken_back:
            early |= {f"CELERY_{option.name.upper()}"} | ({str(option.envvar)} if option.envvar else set())
    assert {frozenset(without) for without, _ in procfile().values()} == {frozenset(early)}


def test_programs_inherit_all_but_what_steers_celery() -> None:
    """Celery's options are left out, its switches say yes or no, and everything else passes as it is."""
    kept = {"PATH": "/bin", "BROKER_URL": "redis://theirs/0", "FLOWER_PORT": "1", "DJANGO_SETTINGS_MODULE": "shop"}
    steering = {"CELERY_WORKER_POOL": "solo", "CELERY_BROKER_URL": "redis://theirs/0", "REMAP_SIGTERM": "SIGQUIT"}
    assert inherited({**kept, **steering, "NO_COLOR": "please"}) == kept | {"NO_COLOR": "1"}
    assert inherited({"NO_COLOR": ""}) == {"NO_COLOR": ""}


def test_options_of_a_command_are_not_taken_from_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under the `celery` command no variable stands for an option, nor for one of Flower's but its login's."""
    monkeypatch.setenv("CELERY_WORKER_POOL", "solo")
    monkeypatch.setenv("FLOWER_PORT", "1")
    monkeypatch.setenv("FLOWER_BASIC_AUTH", "alice:secret")
    monkeypatch.setenv("FLOWER_CONF", "theirs.py")
    seen: dict[str, object] = {}

    @click.group()
    def group() -> None:
        application.ignore_inherited_options()

    @group.command()
    @click.option("--pool", default="prefork")
    def worker(pool: str) -> None:
        seen["pool"] = pool

    @group.command()
    def flower() -> None:
        seen.update({name: value for name, value in os.environ.items() if name.startswith("FLOWER_")})

    group(["worker"], standalone_mode=False, auto_envvar_prefix="CELERY")
    assert seen == {"pool": "prefork"}
    assert "FLOWER_PORT" in os.environ
    seen.clear()
    group(["flower"], standalone_mode=False, auto_envvar_prefix="CELERY")
    assert seen == {
        "FLOWER_BASIC_AUTH": "alice:secret",
        "FLOWER_CONF": str(ROOT / "vibey/flower/flowerconfig.py"),
    }
