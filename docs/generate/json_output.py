"""JSON output: the keys of every object that a command prints with `--json`, as `vibey.cli.json_output` has them."""

from __future__ import annotations

import inspect
import types
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin, get_type_hints

from docs.generate.markdown import code, table, words
from vibey.cli import json_output
from vibey.cli.json_output import OUTPUTS, Shape

if TYPE_CHECKING:
    from collections.abc import Iterator

INTRODUCTION = """\
# JSON output

A command with `--json` prints one object on one line of standard output, in ASCII alone: what is beyond ASCII is
escaped, as JSON allows, so the output is the same whatever the terminal's encoding is. A command that fails prints an
[error](errors.md) in its place. Notes for a person go to standard error.

Instants are ISO 8601 in UTC with milliseconds, such as `2026-03-01T14:05:09.000Z`; durations are seconds, shares are
fractions of 1. Keys are stable as [what is stable](stability.md) says; a program must ignore keys that it does not
know. A key marked *optional* is not always there; what may be null says so.
"""
WORDS = {
    int: "whole number",
    float: "number",
    str: "text",
    bool: "true or false",
    type(None): "null",
    Any: "any value",
    json_output.Instant: "instant",
    json_output.Day: "date",
}


def page() -> str:
    """The page: the commands by name, then the objects within their output."""
    parts = [INTRODUCTION, "## Any command", "Instead of its own object, when it fails.", _keys(json_output.Error)]
    shapes: dict[type[Shape], None] = dict.fromkeys(_within(json_output.Error))
    for command, printed in OUTPUTS.items():
        parts.append(f"## `{json_heading(command)}`")
        for shape in printed:
            parts += [_meaning(shape), _keys(shape)]
            shapes |= dict.fromkeys(_within(shape))
    parts.append("## Objects within")
    for shape in sorted(shapes, key=lambda each: each.__name__):
        parts += [f"### {shape.__name__}", _meaning(shape), _keys(shape)]
    return "\n\n".join(parts)


def json_heading(command: str) -> str:
    """A command as its heading names it."""
    return f"vibey {command} --json"


def _meaning(shape: type[Shape]) -> str:
    return " ".join((inspect.getdoc(shape) or "").replace("`", "").split())


def _keys(shape: type[Shape]) -> str:
    hints = get_type_hints(shape, include_extras=True)
    return table(("key", "value", "meaning"), (_row(shape, name, hints[name]) for name in shape.model_fields))


def _row(shape: type[Shape], name: str, hint: object) -> tuple[str, str, str]:
    field = shape.model_fields[name]
    optional = "" if field.is_required() else " *optional*"
    return code(field.alias or name) + optional, _type(hint), words(field.description or "")


def _type(hint: object) -> str:
    if hint in WORDS:
        return WORDS[hint]
    if isinstance(hint, type) and issubclass(hint, Shape):
        return f"[{hint.__name__}](#{hint.__name__.lower()})"
    origin, parts = get_origin(hint), get_args(hint)
    if origin is list:
        return f"list of {_type(parts[0])}"
    if origin is dict:
        return f"object of {_type(parts[1])}"
    if origin in {Union, types.UnionType}:
        return " or ".join(_type(part) for part in parts)
    raise TypeError(f"docs/generate/json_output.py has no words for {hint}")


def _within(shape: type[Shape]) -> Iterator[type[Shape]]:
    """The shapes that an object of this shape holds, at any depth."""
    for hint in get_type_hints(shape, include_extras=True).values():
        for each in _shapes(hint):
            yield each
            yield from _within(each)


def _shapes(hint: object) -> Iterator[type[Shape]]:
    if isinstance(hint, type) and issubclass(hint, Shape):
        yield hint
    for part in get_args(hint):
        yield from _shapes(part)
