"""The configuration files that ship with Vibey."""

from __future__ import annotations

import re
import tomllib
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.settings_support import FOLDER, settings_from
from vibey.settings import (
    EngineDefaults,
    EngineSettings,
    PoolSettings,
    ScheduleSettings,
    ServiceSettings,
    Source,
    VerifySettings,
    load,
    settings_of,
)
from vibey.settings.problems import known_keys

if TYPE_CHECKING:
    from vibey.settings.model import Table

CONFIG = Path(__file__).parents[2] / "config"
REFERENCE = (CONFIG / "vibey.toml").read_text()
EXAMPLES = sorted((CONFIG / "examples").glob("*.toml"))
KEY_LINE = re.compile(r"(# )?(?P<key>[a-z_]+) = (?P<value>\S.*?)\s+# (?P<meaning>.+)")


def reference_keys(table: str) -> dict[str, re.Match[str]]:
    """The lines that document the keys of `[table]`, by key."""
    start = re.search(rf"^(# )?\[{re.escape(table)}\]$", REFERENCE, re.MULTILINE)
    assert start is not None
    body = re.split(r"^(?:# )?\[", REFERENCE[start.end() :], maxsplit=1, flags=re.MULTILINE)[0]
    return {found["key"]: found for found in KEY_LINE.finditer(body)}


def test_the_reference_equals_the_defaults() -> None:
    """Copying the file changes nothing."""
    settings = settings_from(REFERENCE)
    empty = settings_of(Source(None, FOLDER, {}), {})
    assert settings.services == empty.services
    assert settings.engines == empty.engines
    assert not settings.engine
    assert not settings.pool
    assert not settings.schedule
    assert not settings.verify


@pytest.mark.parametrize(
    ("table", "model"),
    [
        ("services", ServiceSettings),
        ("engines", EngineDefaults),
        ("engine.ollama", EngineSettings),
        ("pool.main", PoolSettings),
        ("schedule.night", ScheduleSettings),
        ("verify.unit", VerifySettings),
    ],
)
def test_the_reference_has_every_key_with_its_default(table: str, model: type[Table]) -> None:
    """No key is missing, none is made up, and each value is the default, an example or required."""
    lines = reference_keys(table)
    assert set(lines) == set(known_keys(model)) - {"name", "slots", "fair_weights"}
    for name, field in model.model_fields.items():
        line = lines.get(field.alias or name)
        if line is None or name == "account" or re.search(r"\(example|required", line["meaning"]):
            continue
        written = tomllib.loads(f"x = {line['value']}", parse_float=Decimal)["x"]
        default = field.get_default(call_default_factory=True)
        if name == "weight_millionths":
            written *= 1_000_000
        shape = list if isinstance(default, tuple) else str if isinstance(default, Path) else lambda value: value
        assert written == shape(default), name


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_examples_are_usable(file: Path) -> None:
    """Every example loads, names its engines, and shares its cap rule with a careful start."""
    settings = load(file, {})
    assert settings.engine
    assert settings.engines.paid_fallback == "count"


def test_there_is_an_example_for_each_kind_of_start() -> None:
    """One machine, several, and engines of one's own."""
    assert {"laptop", "team", "commands"} <= {file.stem for file in EXAMPLES}
    kinds = [engine.kind for engine in load(CONFIG / "examples" / "commands.toml", {}).engine.values()]
    assert kinds == ["command"] * 4
