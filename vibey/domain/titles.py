"""Titles and labels: what a job is called in lists, and the `key=value` pairs it is found by.

A title is one line. A job that is given none takes the name of the Celery task it calls, or the first line of its
prompt; a job with neither has an empty title. Labels are few and short, as an index holds each of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from vibey.domain.call import CALL
from vibey.domain.errors import InvalidInput
from vibey.domain.prompt import prompt_of

if TYPE_CHECKING:
    from collections.abc import Iterable

TITLE_LIMIT = 200
DEFAULT_TITLE_LIMIT = 120
LABELS_LIMIT = 20
KEY_LIMIT = 63
VALUE_LIMIT = 200
_KEY = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._/-]{{0,{KEY_LIMIT - 1}}}")
# The text in which a title is looked for: a prompt may be large, and its beginning blank.
_LOOKED_AT = 4096


def title_source(payload: object) -> str:
    """The line of a payload that its default title is made of; empty if there is none.

    It is whole, so that secrets can be masked in it before `shortened_title` cuts it.
    """
    if not isinstance(payload, Mapping):
        return ""
    call = payload.get(CALL)
    if isinstance(call, Mapping):
        name = call.get("task")
        return name if isinstance(name, str) else ""
    prompt = prompt_of(payload)
    if prompt is None:
        return ""
    begin = prompt[:_LOOKED_AT].lstrip()
    # The only printable blank is the common one: such a text is one line.
    return begin if begin.isprintable() else begin.splitlines()[0]


def shortened_title(line: str) -> str:
    """A line as a title: printable, without runs of blanks, and at most `DEFAULT_TITLE_LIMIT` characters long."""
    if line.isprintable():
        words = line.strip() if "  " not in line else " ".join(line.split())
    else:
        words = " ".join("".join(character if character.isprintable() else " " for character in line).split())
    if len(words) <= DEFAULT_TITLE_LIMIT:
        return words
    return words[: DEFAULT_TITLE_LIMIT - 1].rstrip() + "…"


def check_title(title: object) -> None:
    """InvalidInput unless this is text fit for a title."""
    if not isinstance(title, str) or not title.strip() or len(title) > TITLE_LIMIT or not title.isprintable():
        raise InvalidInput("title", title, f"one line of printable text, of 1 to {TITLE_LIMIT} characters")


def check_labels(labels: object) -> None:
    """InvalidInput unless these are labels: a mapping of a bounded number of keys to short texts."""
    if not isinstance(labels, Mapping):
        raise InvalidInput("labels", labels, 'an object of texts, such as {"team": "web"}')
    if len(labels) > LABELS_LIMIT:
        raise InvalidInput("labels", f"{len(labels)} labels", f"at most {LABELS_LIMIT}")
    for key, value in labels.items():
        if not isinstance(key, str) or not _KEY.fullmatch(key):
            expected = f"a key of 1 to {KEY_LIMIT} letters, digits, dots, dashes, slashes or underscores"
            raise InvalidInput("labels", key, f"{expected}, which begins with a letter or digit")
        if not isinstance(value, str) or not value.strip() or len(value) > VALUE_LIMIT or not value.isprintable():
            raise InvalidInput(f"labels.{key}", value, f"printable text of 1 to {VALUE_LIMIT} characters")


def labels_of(pairs: Iterable[str]) -> dict[str, str]:
    """Labels from texts of the form `key=value`; InvalidInput for any other text, and for a key with two values."""
    labels: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals:
            raise InvalidInput("label", pair, "the form key=value, such as team=web")
        if labels.setdefault(key, value) != value:
            raise InvalidInput("label", pair, f"one value for the label {key!r}, which is {labels[key]!r} already")
    check_labels(labels)
    return labels
