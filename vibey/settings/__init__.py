"""Settings: one validated, frozen object from `vibey.toml` and the environment.

`load` is the way in. What it returns never changes and never has to be checked again; what it raises names
every problem there is, each with its key, its value, what is allowed and the nearest known name.
"""

from __future__ import annotations

from vibey.settings.load import load, settings_of
from vibey.settings.model import (
    EngineDefaults,
    EngineSettings,
    MemberSettings,
    PoolSettings,
    ScheduleSettings,
    ServiceSettings,
    VerifySettings,
)
from vibey.settings.policy import ProjectPolicy
from vibey.settings.settings import Settings
from vibey.settings.source import Source
from vibey.settings.urls import normalise_database_url, normalise_redis_url, redacted_url

__all__ = [
    "EngineDefaults",
    "EngineSettings",
    "MemberSettings",
    "PoolSettings",
    "ProjectPolicy",
    "ScheduleSettings",
    "ServiceSettings",
    "Settings",
    "Source",
    "VerifySettings",
    "load",
    "normalise_database_url",
    "normalise_redis_url",
    "redacted_url",
    "settings_of",
]
