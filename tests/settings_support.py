"""Reading settings from text, for tests: no file and no environment of the machine takes part."""

from __future__ import annotations

import tomllib
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

from vibey.domain.errors import Problem, SettingsError
from vibey.settings import Settings, Source, settings_of

if TYPE_CHECKING:
    from collections.abc import Mapping

FOLDER = Path("/configuration")


def settings_from(text: str, environ: Mapping[str, str] | None = None) -> Settings:
    """The settings a file of `text` amounts to."""
    tables = tomllib.loads(text, parse_float=Decimal)
    return settings_of(Source(FOLDER / "vibey.toml", FOLDER, tables), environ or {})


def problems_in(text: str, environ: Mapping[str, str] | None = None) -> dict[str, Problem]:
    """Every problem of a file of `text`, by key; empty when there is none."""
    try:
        settings_from(text, environ)
    except SettingsError as error:
        return {problem.key: problem for problem in error.problems}
    return {}
