"""The shop's data files, read from the package itself, so that they are found inside an archive too."""

from __future__ import annotations

import json
from importlib import resources


def read(name: str) -> dict[str, int]:
    """The table in `NAME.json`: prices in cents by article, or percent by discount code."""
    table: dict[str, int] = json.loads(resources.files("shop").joinpath(f"{name}.json").read_text("utf-8"))
    return table


def flags() -> dict[str, bool]:
    """The shop's flags by name."""
    return {name: bool(value) for name, value in read("flags").items()}
