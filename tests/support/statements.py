"""The statements of the store, by what their SQL says."""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING

import vibey.store
from vibey.store.statement import Statement

if TYPE_CHECKING:
    import re


def statements(pattern: re.Pattern[str]) -> dict[str, Statement]:
    """Every statement of the store whose SQL the pattern matches somewhere, by name."""
    found = {}
    for module in pkgutil.walk_packages(vibey.store.__path__, "vibey.store."):
        if ".migrations" not in module.name:
            for value in vars(importlib.import_module(module.name)).values():
                if isinstance(value, Statement) and pattern.search(value.sql):
                    found[value.name] = value
    return found
