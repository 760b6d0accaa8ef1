"""From a file and an environment to `Settings`, or to one error that holds every problem there is.

Each table is validated on its own, so a mistake in one hides none in another; then the rules between keys and
between tables read the file as it is. The file is judged even where the environment overrides it: a value
that is wrong today and hidden would be wrong and in force the day the variable goes.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

from pydantic import ValidationError

from vibey.domain.errors import Problem, SettingsError
from vibey.settings.engine_rules import engine_contradictions
from vibey.settings.model import (
    NAME_PATTERN,
    NAME_RULE,
    EngineDefaults,
    EngineSettings,
    HostEngineSettings,
    MemberSettings,
    PoolSettings,
    ScheduleSettings,
    ServiceSettings,
    Table,
    VerifySettings,
)
from vibey.settings.problems import Part, dotted, known_keys, presentable, problems_of, unknown_key
from vibey.settings.references import pool_problems, schedule_problems, slot_problems
from vibey.settings.settings import Settings
from vibey.settings.source import SERVICE_VARIABLES, Source, host_name, overlay, policy_variables, read
from vibey.settings.values import Text, Unusable

if TYPE_CHECKING:
    from pathlib import Path

_TABLES = ("services", "engines", "engine", "pool", "schedule", "verify", "host")
_TableModel = TypeVar("_TableModel", bound=Table)


def load(path: Path | None = None, environ: Mapping[str, str] | None = None) -> Settings:
    """The settings in `path` (else `$VIBEY_CONFIG`, else ./vibey.toml if it exists) under `environ`.

    `environ` is the process's own by default. A relative path, from either, starts at the file's folder, so
    that every process means the same place. Without a file everything has its default and there are no
    engines. Raises `SettingsError` with every problem of file and environment at once.
    """
    variables = os.environ if environ is None else environ
    return settings_of(read(path, variables), variables)


def settings_of(source: Source, environ: Mapping[str, str]) -> Settings:
    """The settings `source` and `environ` amount to; raises `SettingsError` with every problem at once."""
    reading = _Reading(source, host_name(environ))
    settings = reading.settings(environ)
    if reading.problems or settings is None:
        name = str(source.path) if source.path else "settings without a file"
        raise SettingsError(name, tuple(reading.problems))
    return dataclasses.replace(settings, sources=_sources(settings, source.tables, environ))


class _Reading:
    """One reading of one source; it gathers problems as it goes."""

    def __init__(self, source: Source, host: str) -> None:
        self.problems: list[Problem] = []
        self._source = source
        self._host = host
        self._roots: dict[str, tuple[Path, ...]] = {}

    def settings(self, environ: Mapping[str, str]) -> Settings | None:
        """The settings without their sources; None, with `problems`, when any table is unusable."""
        self._unknown_tables()
        services, _ = self._layered(ServiceSettings, "services", SERVICE_VARIABLES, environ)
        engines, declared = self._layered(EngineDefaults, "engines", policy_variables(EngineDefaults), environ)
        hosts = self._hosts()
        engine = self._named("engine", lambda name, table: self._engine(name, table, hosts.get(self._host, {})))
        pool = self._named("pool", lambda name, table: self._model(PoolSettings, table, ("pool", name)))
        schedule = self._named("schedule", lambda name, table: self._model(ScheduleSettings, table, ("schedule", name)))
        verify = self._named("verify", lambda name, table: self._model(VerifySettings, table, ("verify", name)))
        self._references()
        if services is None or engines is None or declared is None:
            return None
        path, nothing = self._source.path, MappingProxyType[str, str]({})
        written = MappingProxyType(dict(self._tables("engine")))
        for name, paths in ((name, paths) for table in hosts.values() for name, paths in table.items()):
            self._roots[name] = tuple(dict.fromkeys((*self._roots.get(name, ()), *(paths.workspace_roots or ()))))
        roots = MappingProxyType(self._roots)
        return Settings(
            path,
            services,
            engines,
            declared,
            engine,
            pool,
            schedule,
            verify,
            nothing,
            written,
            self._host,
            hosts,
            roots,
        )

    def _unknown_tables(self) -> None:
        for name, value in self._source.tables.items():
            if name not in _TABLES:
                self.problems.append(unknown_key(dotted((name,)), name, value, _TABLES))

    def _table(self, name: str) -> Mapping[str, object]:
        table = self._source.tables.get(name, {})
        return table if isinstance(table, dict) else {}

    def _tables(self, name: str) -> Mapping[str, Mapping[str, object]]:
        return {key: table for key, table in self._table(name).items() if isinstance(table, dict)}

    def _layered(
        self, model: type[_TableModel], name: str, variables: Mapping[str, str], environ: Mapping[str, str]
    ) -> tuple[_TableModel | None, _TableModel | None]:
        """The table with the environment over it, and the table alone."""
        written, over = self._source.tables.get(name, {}), overlay(model, variables, environ)
        declared = self._model(model, written, (name,))
        if not over:
            return declared, declared
        alone = self._model(model, over, (), lambda place: variables[str(place[-1])])
        if declared is None or alone is None:
            return None, None
        return self._model(model, {**self._table(name), **over}, (name,)), declared

    def _named(
        self, kind: str, reader: Callable[[str, Mapping[str, object]], _TableModel | None]
    ) -> Mapping[str, _TableModel]:
        """Every `[kind.<name>]` table that could be read."""
        tables, found = self._source.tables.get(kind, {}), dict[str, _TableModel]()
        if not isinstance(tables, dict):
            self.problems.append(Problem(kind, presentable(tables, kind), f"expected tables named [{kind}.<name>]"))
            return MappingProxyType(found)
        for name, table in tables.items():
            self._name(kind, name)
            if not isinstance(table, dict):
                # `[engine] mode = …` is meant for `[engines]`.
                near = f"engines.{name}" if kind == "engine" and name in EngineDefaults.model_fields else None
                shown, sentence = presentable(table, name), f"expected a table [{kind}.<name>]"
                self.problems.append(Problem(dotted((kind, name)), shown, sentence, near))
            elif (read_table := reader(name, table)) is not None:
                found[name] = read_table
        return MappingProxyType(found)

    def _name(self, kind: str, name: str) -> None:
        try:
            Text(NAME_RULE, NAME_PATTERN)(name)
        except Unusable as error:
            self.problems.append(Problem(dotted((kind, name)), name, f"expected {error.expected}"))

    def _hosts(self) -> Mapping[str, Mapping[str, HostEngineSettings]]:
        """Every `[host.<name>]` table, by engine; all are checked, whichever machine this is."""
        found: dict[str, dict[str, HostEngineSettings]] = {}
        engines = self._tables("engine")
        for host, table in self._table("host").items():
            if not isinstance(table, dict):
                shown = presentable(table, host)
                self.problems.append(Problem(dotted(("host", host)), shown, f"expected a table [host.{host}]"))
                continue
            found[host] = {}
            for name, paths in table.items():
                at = ("host", host, name)
                if name not in engines:
                    self.problems += [unknown_key(dotted(at), name, presentable(paths, name), list(engines))]
                elif "argv" in (paths if isinstance(paths, dict) else {}) and "argv" not in engines[name]:
                    sentence = f"only an engine with an argv has this key, and [engine.{name}] has none"
                    self.problems.append(Problem(dotted((*at, "argv")), presentable(paths["argv"]), sentence))
                elif (read_paths := self._model(HostEngineSettings, paths, at)) is not None:
                    found[host][name] = read_paths
        return MappingProxyType(found)

    def _engine(
        self, name: str, table: Mapping[str, object], here: Mapping[str, HostEngineSettings]
    ) -> EngineSettings | None:
        self.problems += engine_contradictions(name, table)
        at = ("engine", name)
        if "name" in table:
            known = [key for key in known_keys(EngineSettings) if key != "name"]
            self.problems.append(unknown_key(dotted((*at, "name")), "name", table["name"], known))
        engine = self._model(EngineSettings, {"account": name, **table, "name": name}, at)
        self._roots[name] = engine.workspace_roots if engine is not None else ()
        return _at_home(engine, here.get(name))

    def _model(
        self,
        model: type[_TableModel],
        table: object,
        at: Sequence[Part],
        naming: Callable[[Sequence[Part]], str] | None = None,
    ) -> _TableModel | None:
        try:
            return model.model_validate(table, context={"folder": self._source.folder})
        except ValidationError as error:
            named = naming or (lambda place: dotted((*at, *place)))
            known = partial(_known_at, model)
            self.problems += problems_of(error, known, named, lambda key: _elsewhere(key, at))
            return None

    def _references(self) -> None:
        engines = list(self._table("engine"))
        slots = self._table("engines").get("slots")
        if isinstance(slots, dict):
            self.problems += slot_problems(slots, engines)
        pools = self._tables("pool")
        self.problems += pool_problems(pools, engines)
        self.problems += schedule_problems(self._tables("schedule"), [*engines, *pools])


def _at_home(engine: EngineSettings | None, paths: HostEngineSettings | None) -> EngineSettings | None:
    """An engine with the paths of this machine in the place of its own."""
    if engine is None or paths is None:
        return engine
    own: dict[str, object] = {}
    if paths.argv is not None:
        own["argv"] = (*paths.argv, *engine.argv[1:])
    if paths.workspace_roots is not None:
        own["workspace_roots"] = paths.workspace_roots
    return engine.model_copy(update=own)


def _elsewhere(key: str, at: Sequence[Part]) -> str:
    """The table of the whole installation that has this key, where it was written in another table; else empty."""
    if key == "slots":
        engine = at[-1] if at and at[0] in {"engine", "host"} else "NAME"
        return f"[engines.slots], as {dotted((engine,))} = N"
    for name, model in (("engines", EngineDefaults), ("services", ServiceSettings)):
        if key in known_keys(model):
            return f"[{name}]"
    return ""


def _known_at(model: type[Table], place: Sequence[Part]) -> Iterable[str]:
    if model is PoolSettings and place:
        return known_keys(MemberSettings)
    return [key for key in known_keys(model) if key != "name"]


def _sources(settings: Settings, tables: Mapping[str, object], environ: Mapping[str, str]) -> Mapping[str, str]:
    variables: dict[tuple[str, ...], str] = {("services", key): name for key, name in SERVICE_VARIABLES.items()}
    variables |= {("engines", key): name for key, name in policy_variables(EngineDefaults).items()}
    found = {dotted(parts): _source_of(parts, tables, environ, variables) for parts, _ in settings.rows()}
    for name, paths in settings.hosts.get(settings.host, {}).items():
        found |= {dotted(("engine", name, key)): f"host {settings.host}" for key in paths.model_fields_set}
    return MappingProxyType(found)


def _source_of(
    parts: tuple[str, ...],
    tables: Mapping[str, object],
    environ: Mapping[str, str],
    variables: Mapping[tuple[str, ...], str],
) -> str:
    variable = variables.get(parts)
    if variable is not None and variable in environ:
        return f"environment {variable}"
    at: object = tables
    for part in parts:
        if not isinstance(at, Mapping) or part not in at:
            return "default"
        at = at[part]
    return "file"
