"""Keys: what an engine is told in confidence, and so what is masked wherever its words are kept."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from vibey.domain.errors import InvalidInput
from vibey.engines.environment import allowed, secrets_in

if TYPE_CHECKING:
    from pathlib import Path

    from vibey.engines.contract import EngineConfig

_LARGEST_KEY = 16 * 1024


def key_of(config: EngineConfig) -> str:
    """The engine's key, empty if it has none; InvalidInput names the variable or file that should hold it."""
    if config.api_key_env:
        value = os.environ.get(config.api_key_env, "")
        return _usable(value, config.api_key_env, "the key, in the worker's environment")
    if config.api_key_file:
        return _usable(_contents(config.api_key_file), str(config.api_key_file), "a file with nothing but the key")
    return ""


def confided(config: EngineConfig) -> tuple[str, ...]:
    """Every secret that the engine's processes get or could find by its settings: its variables' and its key."""
    secrets = secrets_in(allowed(os.environ, config.env))
    try:
        key = key_of(config)
    except InvalidInput:
        return secrets
    return (*secrets, key) if key else secrets


def _contents(path: Path) -> str:
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise InvalidInput(str(path), "not a plain file", "a readable file that holds the key")
        with path.open("rb") as file:
            return file.read(_LARGEST_KEY).decode("utf-8-sig", "replace")
    except OSError as error:
        raise InvalidInput(str(path), error.strerror, "a readable file that holds the key") from None


def _usable(value: str, where: str, expected: str) -> str:
    key = value.strip()
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        # The value itself is nobody's to read.
        raise InvalidInput(where, f"{len(value)} characters", expected)
    return key
