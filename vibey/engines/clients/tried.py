"""Tried: the versions of clients that the tests of real clients have run.

`tried.json` beside this file holds, for each kind, what was tried and when; `make test-clients` writes it.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

RECORD = Path(__file__).with_name("tried.json")


@dataclass(frozen=True, slots=True)
class Trial:
    """One version of a client: the day it was last tried, and the names of the scenarios that failed."""

    version: str
    day: str
    failed: tuple[str, ...] = ()

    def order(self) -> tuple[tuple[int, ...], bool]:
        """What puts trials in the order of their versions: by numbers, a preview before the release it leads to."""
        return _order(self.version)


@cache
def trials() -> Mapping[str, tuple[Trial, ...]]:
    """What was tried, by kind, the oldest version first."""
    return {
        kind: tuple(Trial(each["version"], each["day"], tuple(each["failed"])) for each in listed)
        for kind, listed in json.loads(RECORD.read_text(encoding="utf-8")).items()
    }


def newer_than_tried(kind: str, version: str) -> Trial | None:
    """The newest trial of a kind, if the version is newer; None for versions that are not, and kinds without trials."""
    newest = newest_of(kind)
    return newest if newest is not None and _order(version) > newest.order() else None


def newest_of(kind: str) -> Trial | None:
    """The newest version that was tried of a kind; None if there is none."""
    return max(trials().get(kind, ()), key=Trial.order, default=None)


def _order(version: str) -> tuple[tuple[int, ...], bool]:
    numbers, _, preview = version.partition("+")[0].partition("-")
    return tuple(int(number) for number in re.findall(r"\d+", numbers)), not preview
