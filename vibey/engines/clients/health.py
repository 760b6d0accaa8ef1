"""Health: whether a client is there and logged in, found without asking its model. Kept for a minute."""

from __future__ import annotations

import re
import subprocess
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from vibey.domain.outcome import one_line
from vibey.engines.clients.descriptor import Login
from vibey.engines.contract import EngineConfig, Health
from vibey.engines.process import find_program

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from vibey.engines.clients.descriptor import Client

KEPT_SECONDS = 60.0
PATIENCE_SECONDS = 20.0
_VERSION = re.compile(r"\d+\.\d+\.\d+[\w.+-]*")

_found: dict[tuple[object, ...], tuple[float, Health]] = {}
_lock = threading.Lock()


def look(client: Client, config: EngineConfig, key: str, environment: Mapping[str, str]) -> Health:
    """The client's health on this machine; what was found less than a minute ago is not looked for again."""
    # Engines of one client share what is found: a worker may serve many, and a look takes a second or two.
    at = (client.kind, bool(key), config.model, tuple(sorted(environment.items())))
    now = time.monotonic()
    with _lock:
        kept = _found.get(at)
    if kept is not None and now - kept[0] < KEPT_SECONDS:
        return kept[1]
    health = _look(client, config, key, environment)
    with _lock:
        _found[at] = (now, health)
    return health


def _look(client: Client, config: EngineConfig, key: str, environment: Mapping[str, str]) -> Health:
    program = find_program(client.binary, environment)
    install = f"install it, as with: npm install -g {client.package}; it must be on the PATH that jobs get"
    if program is None:
        return Health(installed=False, detail=f"{client.binary} is not an executable on that PATH", fix=install)
    code, said = output_of((program, "--version"), environment)
    version = _VERSION.search(said)
    if code != 0 or version is None:
        detail = one_line(f"{program} --version: {said or f'exit {code}'}", 200)
        return Health(installed=False, detail=detail, fix=install)
    if key:
        return Health(installed=True, version=version[0], logged_in=True, detail=f"{program}, with a key")
    login = client.login(program, environment, config)
    detail = f"{program}{', ' if login.detail else ''}{login.detail}"
    fix = client.login_fix if login.found is False else ""
    return Health(installed=True, version=version[0], logged_in=login.found, detail=detail, fix=fix)


def output_of(argv: tuple[str, ...], environment: Mapping[str, str]) -> tuple[int | None, str]:
    """Exit code and output of a short look; no code if it could not be had in time."""
    try:
        done = subprocess.run(
            argv,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=PATIENCE_SECONDS,
            check=False,
            cwd="/",
        )
    except subprocess.TimeoutExpired:
        return None, f"no answer within {PATIENCE_SECONDS:g} s"
    except OSError as error:
        return None, error.strerror or str(error)
    return done.returncode, done.stdout.decode("utf-8", "replace")


def by_status(*arguments: str) -> Callable[[str, Mapping[str, str], EngineConfig], Login]:
    """A look for a login by the client's own command, whose exit code tells."""

    def ask(program: str, environment: Mapping[str, str], _: EngineConfig) -> Login:
        code, said = output_of((program, *arguments), environment)
        lines = [line for line in said.splitlines() if line.strip() and not line.startswith("WARNING")]
        if code is None:
            return Login(None, one_line(said, 100))
        return Login(code == 0, "logged in" if code == 0 else one_line(lines[-1] if lines else "not logged in", 100))

    return ask


def by_files(*names: str) -> Callable[[str, Mapping[str, str], EngineConfig], Login]:
    """A look for a login by the files below the home folder that the client keeps it in."""

    def ask(_: str, environment: Mapping[str, str], __: EngineConfig) -> Login:
        home = Path(environment.get("HOME", "/"))
        found = next((name for name in names if (home / name).is_file()), None)
        return Login(found is not None, f"login in ~/{found}" if found else "no login found")

    return ask
