"""Fleet: what the adapters of configured engines are made of, and how the engines are on this machine."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from vibey.domain.circuit import OpenReason
from vibey.domain.effort import Effort
from vibey.domain.errors import InvalidInput, Problem, UnknownName, VibeyError
from vibey.domain.outcome import one_line
from vibey.engines.contract import Check, EngineConfig, Health
from vibey.engines.keys import confided
from vibey.engines.registry import build, equipped
from vibey.engines.stream import masked_line
from vibey.services.asking import answers
from vibey.services.owner import owner
from vibey.settings.values import nearest_name
from vibey.store import engines, ledger
from vibey.store.ledger import Event

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from vibey.services.asking import Waiting
    from vibey.services.installation import Installation
    from vibey.settings import EngineSettings, Settings
    from vibey.store.database import Connection

# Above what any doctor of ours takes with every one of its own limits used up.
LOOK_SECONDS = 30.0
CLIENTS = "clients"
"""Below data_dir: what runs found out about the coding clients of this machine."""
LATE_FIX = "see why its doctor hangs; jobs still go to it"


def config_of(engine: EngineSettings, settings: Settings | None = None) -> EngineConfig:
    """An engine's settings as its adapter takes them; with all settings, also its jobs' checks and its state folder."""
    verify = {} if settings is None else settings.verify
    return EngineConfig(
        name=engine.name,
        kind=engine.kind,
        argv=engine.argv,
        callable=engine.callable,
        app=engine.app,
        env=tuple(engine.env),
        efforts={Effort.named(name): tuple(arguments) for name, arguments in engine.efforts.items()},
        capabilities=frozenset(engine.capabilities),
        model=engine.model,
        base_url=engine.base_url,
        api_key_env=engine.api_key_env,
        api_key_file=engine.api_key_file,
        price_in=engine.price_in,
        price_out=engine.price_out,
        run_cost_limit_usd=engine.run_cost_limit_usd,
        stall_seconds=engine.stall_seconds,
        workspace_roots=tuple(engine.workspace_roots),
        workspace_author=engine.workspace_author,
        checks={name: Check(each.argv, each.timeout_seconds) for name, each in verify.items()},
        state_dir=None if settings is None else settings.data_dir / CLIENTS,
    )


def examine(installation: Installation, names: Iterable[str]) -> dict[str, Health]:
    """Ask each engine's doctor on this machine and record what they found."""
    found = dict(looks(config_of(installation.settings.engine[name], installation.settings) for name in names))
    record(installation, found)
    return found


def looks(engines: Iterable[EngineConfig], waiting: Waiting | None = None) -> Iterator[tuple[str, Health]]:
    """What each engine's doctor says on this machine: all are asked at once, and the quickest is first.

    One that has not answered after LOOK_SECONDS is late. `waiting` is told who keeps us waiting.
    """
    questions = {engine.name: partial(look, engine) for engine in engines}
    silence = Health(installed=True, late=True, detail=f"no answer within {LOOK_SECONDS:g} s", fix=LATE_FIX)
    for name, health in answers(questions, LOOK_SECONDS, waiting):
        yield name, health or silence


def look(engine: EngineConfig) -> Health:
    """What an engine's doctor says on this machine; one that cannot even be built here is not installed."""
    try:
        health = equipped(engine).doctor()
    except VibeyError as error:
        fix = f"correct [engine.{engine.name}], then run: vibey config check"
        return Health(installed=False, detail=str(problem_of(engine, error)), fix=fix)
    except Exception as error:  # noqa: BLE001  (a stranger's kind may fail in any way, and the others are still asked)
        detail = one_line(f"its doctor broke: {type(error).__name__}: {error}")
        health = Health(installed=False, detail=detail, fix=f"mend the package that provides kind {engine.kind}")
    # A program that is asked for its version may show anything of what it was given.
    return replace(health, detail=masked_line(health.detail, confided(engine)))


def record(installation: Installation, found: Mapping[str, Health]) -> None:
    """Have the router know what the doctors found; of an engine that did not answer in time nothing is known."""
    answered = {name: health for name, health in found.items() if not health.late}
    installation.database.run(lambda connection: _record(connection, answered))


def unusable(settings: Settings) -> list[Problem]:
    """What is wrong with engines that cannot be built here as they are configured, in the words of the settings."""
    problems = []
    for engine in settings.engine.values():
        config = config_of(engine)
        try:
            build(config)
        except VibeyError as error:
            problems.append(problem_of(config, error))
    return problems


def problem_of(engine: EngineConfig, error: VibeyError) -> Problem:
    """An error of building an engine as the problem of one key of its table."""
    match error:
        case InvalidInput():
            return Problem(error.field, error.value, f"expected {error.expected}")
        case UnknownName():
            known = f"unknown kind; known: {', '.join(error.known)}"
            return Problem(f"engine.{engine.name}.kind", error.name, known, nearest_name(str(error.name), error.known))
        case _:
            return Problem(f"engine.{engine.name}.kind", engine.kind, str(error))


def _record(connection: Connection, found: Mapping[str, Health]) -> None:
    logins: dict[str, tuple[str, bool]] = {}
    for name, health in sorted(found.items()):
        row = engines.SET_HEALTH.first(
            connection,
            engine=name,
            installed=health.installed,
            conformant=health.installed,
            detail=_kept(health),
        )
        if row is None:
            continue
        if health.logged_in is not None:
            _, others = logins.get(row.account, (name, True))
            logins[row.account] = name, health.logged_in and others
        before = {"installed": row.installed, "conformant": row.conformant, "detail": row.detail}
        now = {"installed": health.installed, "conformant": health.installed, "detail": _kept(health)}
        if now != before:
            data = {**now, "was": before, "by": owner()}
            ledger.append(connection, Event.ENGINE_CHANGED, engine=name, data=data)
    for account, (name, logged_in) in sorted(logins.items()):
        _hear_login(connection, account, name, logged_in=logged_in)


def _kept(health: Health) -> str:
    """What is stored of a doctor's words: those of an engine that can be used are of no use later."""
    return "" if health.good else health.detail


def _hear_login(connection: Connection, account: str, engine: str, *, logged_in: bool) -> None:
    """Write what was found of an account's login; a good one closes the circuit that a refused one had opened."""
    circuit, _, _ = engines.locked_circuit(connection, account)
    before = engines.SET_LOGIN.scalar(connection, account=account, ok=logged_in)
    if before != logged_in:
        data = {"account": account, "login_ok": logged_in, "was": {"login_ok": before}, "by": owner()}
        ledger.append(connection, Event.ENGINE_CHANGED, engine=engine, data=data)
    if logged_in and circuit.open_reason is OpenReason.LOGIN_FAILED:
        engines.RESET_ACCOUNT.run(connection, account=account)
        data = {"account": account, "open": None, "was": {"open": circuit.open_reason}, "by": owner()}
        ledger.append(connection, Event.CIRCUIT_CHANGED, engine=engine, data=data)


def folders_of(roots: Iterable[Path | str]) -> list[str]:
    """Workspace roots by name, and where they lead on this machine if they are links."""
    named = list(map(str, roots))
    return sorted({*named, *map(os.path.realpath, named)})
