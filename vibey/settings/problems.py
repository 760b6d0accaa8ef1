"""From a failed validation to problems a person can act on.

A problem names the key as the file spells it (`engines.slots.ollama`, `pool.main.members[1].weight`) or the
environment variable, the value as it came, what is allowed, and the nearest known name. What looks like a
secret is never repeated, because these lines end up in terminals, logs and bug reports.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from vibey.domain.errors import Problem
from vibey.settings.urls import redacted_url
from vibey.settings.values import Unusable, nearest_name

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError
    from pydantic_core import ErrorDetails

HIDDEN = "***"
NO_SECRETS = (
    "a secret is never written in this file; name an environment variable with api_key_env, "
    "or a file that holds it with api_key_file"
)

Part = str | int
Naming = Callable[[Sequence[Part]], str]

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_SECRET_NAME = re.compile(r"(?i).*(api[_-]?key|token|passw(or)?d|secret)s?")
_DEEPEST_SHOWN = 8
_MAPPING_KEY = "[key]"
_WRONG_SHAPES = {
    "dict_type": "expected a table",
    "mapping_type": "expected a table",
    "model_type": "expected a table",
    "tuple_type": "expected a list",
}


def dotted(parts: Iterable[Part]) -> str:
    """The path of a key as the file would spell it; places in a list stand in brackets."""
    text = ""
    for part in parts:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            name = part if _BARE_KEY.fullmatch(part) else '"' + part.replace('"', '\\"') + '"'
            text += f".{name}" if text else name
    return text


def presentable(value: object, key: str = "", depth: int = 0) -> object:
    """`value` fit to be shown: secrets and passwords in addresses hidden, nothing that cannot print.

    `key` is the name it stands under, `depth` how many tables or lists are around it.
    """
    if _SECRET_NAME.fullmatch(key):
        return HIDDEN
    if isinstance(value, Mapping | list | tuple):
        return _presentable_within(value, depth)
    if isinstance(value, str):
        return redacted_url(value)
    if isinstance(value, int) and value.bit_length() > 64:
        # Python refuses to write out an integer of more than a few thousand digits.
        return f"an integer of {value.bit_length()} bits"
    return value


def _presentable_within(value: Mapping[object, object] | Sequence[object], depth: int) -> object:
    if depth >= _DEEPEST_SHOWN:
        return "..."
    if isinstance(value, Mapping):
        return {str(name): presentable(item, str(name), depth + 1) for name, item in value.items()}
    return [presentable(item, "", depth + 1) for item in value]


def known_keys(model: type[BaseModel]) -> tuple[str, ...]:
    """The keys a table may have, as the file spells them."""
    return tuple(field.alias or name for name, field in model.model_fields.items())


def unknown_key(key: str, name: str, value: object, known: Iterable[str], elsewhere: str = "") -> Problem:
    """The problem of a key nobody reads; a secret written in the open gets its own explanation.

    `elsewhere` names the table that has this very key, in words; empty where none has.
    """
    names = tuple(known)
    if _SECRET_NAME.fullmatch(name) and "api_key_env" in names:
        return Problem(key, HIDDEN, NO_SECRETS)
    if elsewhere:
        return Problem(key, presentable(value, name), f"unknown key here; it stands under {elsewhere}")
    near = nearest_name(name, names)
    sentence = "unknown key" if near else f"unknown key; known here: {', '.join(names)}"
    return Problem(key, presentable(value, name), sentence, near)


def problems_of(
    error: ValidationError,
    known: Callable[[Sequence[Part]], Iterable[str]],
    naming: Naming,
    elsewhere: Callable[[str], str],
) -> list[Problem]:
    """Every problem in a failed validation.

    `known` gives a place's keys, `naming` spells a place, `elsewhere` names another table that has a key, if one does.
    """
    return [_problem(detail, known, naming, elsewhere) for detail in error.errors(include_url=False)]


def _problem(
    detail: ErrorDetails,
    known: Callable[[Sequence[Part]], Iterable[str]],
    naming: Naming,
    elsewhere: Callable[[str], str],
) -> Problem:
    place = [part for part in detail["loc"] if part != _MAPPING_KEY]
    name = str(place[-1]) if place else ""
    kind, value = detail["type"], detail["input"]
    if kind == "extra_forbidden":
        return unknown_key(naming(place), name, value, known(place[:-1]), elsewhere(name))
    if kind == "missing":
        return Problem(naming(place), None, "this key is required")
    cause = detail.get("ctx", {}).get("error")
    if isinstance(cause, Unusable):
        return Problem(naming(place), presentable(value, name), f"expected {cause.expected}", cause.nearest)
    return Problem(naming(place), presentable(value, name), _WRONG_SHAPES.get(kind, detail["msg"]))
