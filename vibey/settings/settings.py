"""The whole of an installation's settings, validated, frozen, and able to say where each value came from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from pathlib import Path

from pydantic import BaseModel

from vibey.domain.errors import UnknownName
from vibey.domain.layer import DAYS, Window
from vibey.settings.model import (
    DEFAULT_LOCAL_SLOTS,
    DEFAULT_PAID_SLOTS,
    EngineDefaults,
    EngineSettings,
    HostEngineSettings,
    PoolSettings,
    ScheduleSettings,
    ServiceSettings,
    VerifySettings,
)
from vibey.settings.problems import dotted, presentable
from vibey.settings.values import MILLIONTHS

_NOT_KEYS = {"name", "slots"}
"""Fields that are no keys of their own: an engine's name is its table's, slots are listed per engine."""


@dataclass(frozen=True, slots=True)
class Settings:
    """One installation's settings; every mapping is read-only and in the file's order.

    `engines` is `[engines]` with the environment laid over it, `declared` the same table without. `sources`
    maps each effective key to `default`, `file`, `host NAME` or `environment NAME`. `path` is None when there is no
    file. `engine` is as it is on this machine: `host` names it, and its table among `hosts` holds paths of its own.
    `written` holds the engines' tables as they are in the file, before that; `roots` by engine the folders that it may
    take repositories from on any machine.
    """

    path: Path | None
    services: ServiceSettings
    engines: EngineDefaults
    declared: EngineDefaults
    engine: Mapping[str, EngineSettings]
    pool: Mapping[str, PoolSettings]
    schedule: Mapping[str, ScheduleSettings]
    verify: Mapping[str, VerifySettings]
    sources: Mapping[str, str]
    written: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    host: str = ""
    hosts: Mapping[str, Mapping[str, HostEngineSettings]] = field(default_factory=dict)
    roots: Mapping[str, tuple[Path, ...]] = field(default_factory=dict)

    @property
    def data_dir(self) -> Path:
        """The absolute folder of everything Vibey keeps on this machine."""
        return self.services.data_dir

    @property
    def capabilities(self) -> frozenset[str]:
        """Every capability any engine is configured with."""
        return frozenset(word for engine in self.engine.values() for word in engine.capabilities)

    def slots_of(self, name: str) -> int:
        """How many runs the engine may have at once: its own count, else 1 if local and 2 if paid.

        Raises `UnknownName` for an engine that is not configured.
        """
        engine = self.engine.get(name)
        if engine is None:
            raise UnknownName("engine", name, tuple(self.engine))
        default = DEFAULT_LOCAL_SLOTS if engine.tier == "local" else DEFAULT_PAID_SLOTS
        return self.engines.slots.get(name, default)

    def windows(self) -> tuple[Window, ...]:
        """The schedules as the domain takes them, in the file's order."""
        return tuple(
            Window(
                name=name,
                member=each.member,
                factor=each.factor_millionths,
                start=each.from_minute,
                end=each.to_minute,
                days=frozenset(DAYS.index(day) for day in each.days),
                until_ms=None if each.until is None else int(each.until.timestamp() * 1000),
            )
            for name, each in self.schedule.items()
        )

    def effective(self) -> list[tuple[str, object, str]]:
        """Every key with its value (secrets hidden, ready for JSON) and its source."""
        return [
            (dotted(parts), presentable(_plain(value)), self.sources.get(dotted(parts), "default"))
            for parts, value in self.rows()
        ]

    def rows(self) -> Iterator[tuple[tuple[str, ...], object]]:
        """Every effective key, as the path of names that leads to it, with its value."""
        yield from _keys(("services",), self.services)
        yield from _keys(("engines",), self.engines)
        for name in self.engine:
            yield ("engines", "slots", name), self.slots_of(name)
        for name, engine in self.engine.items():
            yield from _keys(("engine", name), engine)
        for name, pool in self.pool.items():
            yield from _keys(("pool", name), pool)
        for name, schedule in self.schedule.items():
            yield from _keys(("schedule", name), schedule)
        for name, check in self.verify.items():
            yield from _keys(("verify", name), check)


def _keys(at: tuple[str, ...], table: BaseModel) -> Iterator[tuple[tuple[str, ...], object]]:
    for name, key in type(table).model_fields.items():
        value = getattr(table, name)
        if name in _NOT_KEYS:
            continue
        if isinstance(value, Mapping) and value:
            yield from (((*at, name, str(key)), item) for key, item in value.items())
        else:
            yield (*at, key.alias or name), _as_written(name, value)


def _as_written(name: str, value: object) -> object:
    if name in {"weight_millionths", "factor_millionths"} and isinstance(value, int):
        return Decimal(value) / MILLIONTHS
    if name in {"from_minute", "to_minute"} and isinstance(value, int):
        return f"{value // 60:02}:{value % 60:02}"
    return value


def _plain(value: object) -> object:
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, BaseModel):
        written = {parts[-1]: _plain(item) for parts, item in _keys((), value)}
        return {name: item for name, item in written.items() if item is not None}
    return dict(value) if isinstance(value, Mapping) else value
