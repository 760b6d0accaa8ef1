"""Health: whether a client is there and logged in, found without asking its model. Kept for a minute."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from vibey.domain.outcome import one_line
from vibey.engines.clients.descriptor import Login
from vibey.engines.contract import EngineConfig, Health
from vibey.engines.kept import Kept
from vibey.engines.looking import NoAnswer, late, output_of
from vibey.engines.process import find_program

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from vibey.engines.clients.descriptor import Client

_VERSION = re.compile(r"\d+\.\d+\.\d+[\w.+-]*")

_NONE = "not logged in"
_kept = Kept()


def look(client: Client, config: EngineConfig, key: str, environment: Mapping[str, str]) -> Health:
    """The client's health on this machine; what was found less than a minute ago is not looked for again."""
    # Engines of one client share what is found: a worker may serve many, and a look takes a second or two.
    at = (client.kind, bool(key), config.model, tuple(sorted(environment.items())))
    return _kept.health(at, lambda: _look(client, config, key, environment))


def _look(client: Client, config: EngineConfig, key: str, environment: Mapping[str, str]) -> Health:
    program = find_program(client.binary, environment)
    install = f"run: npm install -g {client.package}; or put it on the workers' PATH"
    if program is None:
        return Health(installed=False, detail=f"{client.binary} is not an executable on the PATH jobs get", fix=install)
    try:
        code, said = output_of((program, "--version"), environment)
        version = _VERSION.search(said)
        if code != 0 or version is None:
            detail = one_line(f"{program} --version: {said or f'exit {code}'}", 200)
            return Health(installed=False, detail=detail, fix=install)
        login = Login(found=True, detail="with a key") if key else client.login(program, environment, config)
    except NoAnswer as silence:
        return late(silence)
    fix = client.login_fix if login.found is False else ""
    return Health(installed=True, version=version[0], logged_in=login.found, detail=login.detail, fix=fix)


def by_status(*arguments: str) -> Callable[[str, Mapping[str, str], EngineConfig], Login]:
    """A look for a login by the client's own command, whose exit code tells."""

    def ask(program: str, environment: Mapping[str, str], _: EngineConfig) -> Login:
        code, said = output_of((program, *arguments), environment)
        lines = [line for line in said.splitlines() if line.strip() and not line.startswith("WARNING")]
        if code == 0:
            return Login(found=True, detail="logged in")
        # Some answer with a whole JSON object, of which no line says anything by itself.
        is_sentence = bool(lines) and not said.rstrip().endswith("}")
        sentence = one_line(lines[-1], 100) if is_sentence else _NONE
        return Login(found=False, detail=sentence[0].lower() + sentence[1:])

    return ask


def by_files(*names: str) -> Callable[[str, Mapping[str, str], EngineConfig], Login]:
    """A look for a login by the files below the home folder that the client keeps it in."""

    def ask(_: str, environment: Mapping[str, str], __: EngineConfig) -> Login:
        home = Path(environment.get("HOME", "/"))
        found = next((name for name in names if (home / name).is_file()), None)
        return Login(found is not None, f"login in ~/{found}" if found else _NONE)

    return ask
