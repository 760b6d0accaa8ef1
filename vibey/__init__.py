"""Vibey routes long, expensive jobs to a mixed fleet of engines.

Importing this package is light and has no effects: nothing is read, opened or started. What programs need of it is
found here, and its module imported when it is first asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vibey.async_client import AsyncVibey
    from vibey.client import Cancelled, Job, Order, Placed, Run, Vibey
    from vibey.domain.errors import Contended, InvalidInput, Refused, ServiceUnavailable, TimedOut, VibeyError
    from vibey.routed import RoutedTask

__version__ = "0.1.0.dev0"

__all__ = [
    "AsyncVibey",
    "Cancelled",
    "Contended",
    "InvalidInput",
    "Job",
    "Order",
    "Placed",
    "Refused",
    "RoutedTask",
    "Run",
    "ServiceUnavailable",
    "TimedOut",
    "Vibey",
    "VibeyError",
]

_HOMES = dict.fromkeys(("Cancelled", "Job", "Order", "Placed", "Run", "Vibey"), "vibey.client") | {
    "AsyncVibey": "vibey.async_client",
    "RoutedTask": "vibey.routed",
}


def __getattr__(name: str) -> object:
    """A name of `__all__`, from where it lives."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES.get(name, "vibey.domain.errors")), name)
