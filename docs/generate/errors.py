"""The tree of errors, as `vibey.domain.errors` has it."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

from docs.generate.markdown import code, table, words
from vibey.domain import errors
from vibey.engines import calling

if TYPE_CHECKING:
    from collections.abc import Iterator

INTRODUCTION = """\
# Errors

Whatever a person can be told is a `VibeyError`: in Python an exception, on the command line one line on standard error
and the exit code. The message names the thing, the value and what to do; the fields carry the same for programs.
"""


# GitFailed of vibey.engines.git never leaves the process that works on a tree.
TOLD = (errors.__name__, calling.__name__)


def page() -> str:
    """The page: one table, children below their parents."""
    return f"{INTRODUCTION}\n{table(('error', 'exit code', 'meaning', 'fields'), _rows(errors.VibeyError, 0))}"


def _rows(error: type[errors.VibeyError], depth: int) -> Iterator[tuple[str, ...]]:
    indent = "&nbsp;" * 4 * depth
    meaning = " ".join((inspect.getdoc(error) or "").replace("`", "").split())
    yield indent + code(error.__name__), str(error.exit_code), words(meaning), ", ".join(map(code, _fields(error)))
    for each in error.__subclasses__():
        if each.__module__ in TOLD:
            yield from _rows(each, depth + 1)


def _fields(error: type[errors.VibeyError]) -> list[str]:
    if "__init__" not in vars(error):
        return []
    return [name for name in inspect.signature(error).parameters if name != "self"]
