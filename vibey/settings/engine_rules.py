"""What two keys of one engine's table must agree on.

The rules read the table as the file holds it, so they speak up even where another key of the same table is
wrong: a person sees everything at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vibey.domain.errors import Problem
from vibey.settings.problems import Part, dotted, presentable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_ONLY_FOR_KIND = {"argv": "command", "callable": "python"}
_NEEDED = {"command": ("argv",), "python": ("callable",), "openai": ("base_url", "model"), "celery": ("app",)}


def engine_contradictions(name: str, table: Mapping[str, object]) -> list[Problem]:
    """Every rule between keys that `[engine.<name>]` breaks."""
    at: Sequence[Part] = ("engine", name)
    kind = table.get("kind")
    found = [
        Problem(dotted((*at, key)), None, f"an engine of kind {kind} needs this key")
        for key in _NEEDED.get(kind if isinstance(kind, str) else "", ())
        if key not in table
    ]
    found += [problem for key in _ONLY_FOR_KIND for problem in _foreign_key(at, key, table)]
    if "api_key_env" in table and "api_key_file" in table:
        sentence = "give api_key_env or api_key_file, not both"
        found.append(Problem(dotted((*at, "api_key_file")), presentable(table["api_key_file"]), sentence))
    return found


def _foreign_key(at: Sequence[Part], key: str, table: Mapping[str, object]) -> list[Problem]:
    owner, kind = _ONLY_FOR_KIND[key], table.get("kind")
    if isinstance(kind, str) and kind != owner and key in table:
        return [Problem(dotted((*at, key)), presentable(table[key]), f"only an engine of kind {owner} has this key")]
    return []
