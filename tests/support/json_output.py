"""What a command prints with `--json`, held against its description in `vibey.cli.json_output`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from vibey.cli.json_output import OUTPUTS, Shape

if TYPE_CHECKING:
    from collections.abc import Sequence

WHERE = "vibey/cli/json_output.py"


def command_of(arguments: Sequence[str]) -> str:
    """The command that these arguments call, by its whole name."""
    names = (" ".join(arguments[:count]) for count in (2, 1))
    return next((name for name in names if name in OUTPUTS), arguments[0])


def described(command: str, printed: dict[str, Any]) -> dict[str, Any]:
    """The object that a command printed, which has the described keys and no other; its failure says what to add."""
    shapes = OUTPUTS.get(command)
    assert shapes, f"`vibey {command} --json` is not described: add it to OUTPUTS in {WHERE}"
    fitting = _fitting(shapes, printed)
    try:
        fitting.model_validate(printed)
    except ValidationError as error:
        lines = "\n".join(f"  {_problem(dict(each))}" for each in error.errors())
        message = f"`vibey {command} --json` and {fitting.__name__} in {WHERE} differ:\n{lines}"
        raise AssertionError(f"{message}\n(then: python -m docs.generate)") from error
    return printed


def _fitting(shapes: tuple[type[Shape], ...], printed: dict[str, Any]) -> type[Shape]:
    """The shape that has most of the keys."""
    return max(shapes, key=lambda shape: len(printed.keys() & {f.alias or n for n, f in shape.model_fields.items()}))


def _problem(error: dict[str, Any]) -> str:
    place = ".".join("[]" if isinstance(part, int) else str(part) for part in error["loc"]).replace(".[]", "[]")
    if error["type"] == "extra_forbidden":
        return f"{place} is printed and not described: add it to the class of the object that holds it"
    if error["type"] == "missing":
        return f"{place} is described and not printed: print it, or give it a default if it is not always there"
    return f"{place}: {error['msg']} ({error['input']!r} came)"
