"""The tree of errors, as `vibey.domain.errors` has it."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

from docs.generate.markdown import code, table, words
from vibey.cli.failures import COMMAND_LINE_KINDS
from vibey.domain import errors
from vibey.engines import calling

if TYPE_CHECKING:
    from collections.abc import Iterator

INTRODUCTION = """\
# Errors

Whatever a person can be told is a `VibeyError`: in Python an exception, on the command line one line on standard error
and the exit code. The message names the thing, the value and what to do; the fields carry the same for programs.

With `--json` an error is one object on standard output, with nothing beside it; the exit code is the same:

```json
{"error": {"kind": "unknown_name", "message": "unknown engine 'olma'", "fix": "did you mean ollama? known: ollama, pi"}}
```

`kind` is a stable word, the one in the table; `message` names what is wrong, and `fix` says what to do. The words are
for people and may change, `kind` changes only as [what is stable](stability.md) says.
"""
COMMAND_LINE = """\
## Of the command line alone

Some kinds have no class, for only the command line meets them.
"""


# GitFailed of vibey.engines.git never leaves the process that works on a tree.
TOLD = (errors.__name__, calling.__name__)


def page() -> str:
    """The page: one table, children below their parents."""
    tree = table(("error", "kind", "exit code", "meaning", "fields"), _rows(errors.VibeyError, 0))
    rest = ((code(kind), str(exit_code), words(meaning)) for kind, (exit_code, meaning) in COMMAND_LINE_KINDS.items())
    return f"{INTRODUCTION}\n{tree}\n\n{COMMAND_LINE}\n{table(('kind', 'exit code', 'meaning'), rest)}"


def _rows(error: type[errors.VibeyError], depth: int) -> Iterator[tuple[str, ...]]:
    indent = "&nbsp;" * 4 * depth
    meaning = " ".join((inspect.getdoc(error) or "").replace("`", "").split())
    fields = ", ".join(map(code, _fields(error)))
    yield indent + code(error.__name__), code(error.word), str(error.exit_code), words(meaning), fields
    for each in error.__subclasses__():
        if each.__module__ in TOLD:
            yield from _rows(each, depth + 1)


def _fields(error: type[errors.VibeyError]) -> list[str]:
    if "__init__" not in vars(error):
        return []
    return [name for name in inspect.signature(error).parameters if name != "self"]
