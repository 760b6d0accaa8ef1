"""Error bodies: what a server says of its refusal, taken from the fields that servers fill themselves.

Servers repeat parts of the request in an error: an invalid value, the text that a filter rejected, a whole message.
What the job has sent must not decide how its failure is classified. So only named fields are read, a quotation of
several words within a message is left out, and so is everything after the marks by which validators introduce
the input.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_LONGEST_TEXT = 4000
_DEEPEST = 8
_MOST_NODES = 200
_LONGEST_LITERAL = 16 * 1024
_LONGEST_SENT = 4 * 1024 * 1024
_SHORTEST_REPEAT = 5
_WORDS = frozenset(
    {
        "message",
        "msg",
        "error",
        "detail",
        "title",
        "description",
        "errormessage",
        "errormsg",
        "errordescription",
        "statusmsg",
        "uimessage",
    }
)
_CODES = frozenset(
    {"code", "type", "status", "reason", "name", "errortype", "errorcode", "statuscode", "errorname", "errorinfo"}
)
_NUMBERS = frozenset({"code", "status", "statuscode", "errorcode", "httpstatus"})
_INNER = frozenset(
    {"error", "errors", "detail", "details", "innererror", "metadata", "baseresp", "cause", "response", "data", "raw"}
)
_PACKED = frozenset({"raw", "body", "responsebody"})
_HEADERS = frozenset({"headers", "responseheaders"})
_TORN = re.compile(r'"(message|msg|code|type|status|detail|error)"\s*:\s*("(?:[^"\\]|\\.)*"|\d{3}\b)')
_ECHO = re.compile(r"input_value=|['\"]input['\"]\s*:")
_QUOTED = re.compile(r"(?<![\w'])'([^']{0,400}(?:\w'\w[^']{0,400}){0,5})'(?!\w)")
_MARKS = (("\u201c", "\u201d"), ('"', '"'), ("`", "`"))
_MARKUP = re.compile(r"<[!?a-z]", re.IGNORECASE)
_TAG = re.compile(r"<(?:script|style)\b.*?</(?:script|style)>|<[^<>]*>", re.DOTALL | re.IGNORECASE)
_TITLE = re.compile(r"<(title|h1)\b[^>]*>(.*?)</\1>", re.DOTALL | re.IGNORECASE)


@dataclass(slots=True)
class ErrorBody:
    """What an error says. `codes` are lowercase, `fields` have names in lowercase letters and digits alone.

    `status` is the HTTP status that the body itself names, `headers` those of a provider that a gateway repeats.
    """

    messages: list[str] = field(default_factory=list)
    codes: set[str] = field(default_factory=set)
    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    fields: dict[str, Any] = field(default_factory=dict)
    sent: str = ""

    @classmethod
    def of(cls, body: object, sent: str = "") -> ErrorBody:
        """What a body says: a text, which may be JSON, or a value that has been JSON; `sent` is what the job asked."""
        found = cls(sent=sent)
        _Reader(found).read(body)
        return found

    @property
    def text(self) -> str:
        """The words in one line, without what they quote or repeat of what was sent."""
        return _unrepeated(" ".join(_unquoted(message) for message in self.messages)[:_LONGEST_TEXT], self.sent)

    @property
    def whole_text(self) -> str:
        """The words for people, as they are."""
        return " ".join(dict.fromkeys(" ".join(message.split()) for message in self.messages))


class _Reader:
    """Reads nested values in bounded time."""

    def __init__(self, found: ErrorBody) -> None:
        self._found = found
        self._left = _MOST_NODES

    def read(self, value: object, depth: int = 0) -> None:
        self._left -= 1
        if self._left < 0 or depth > _DEEPEST:
            return
        if isinstance(value, str):
            self._read_text(value, depth)
        elif isinstance(value, Mapping):
            for name, item in value.items():
                self._read_field(_plain(str(name)), item, depth)
        elif isinstance(value, list):
            for item in value[:20]:
                self.read(item, depth + 1)

    def _read_text(self, text: str, depth: int) -> None:
        text = text.strip()
        if _MARKUP.match(text):
            titles = [title[1].strip() for title in _TITLE.findall(text[:_LONGEST_TEXT])]
            self._found.messages += titles or [" ".join(_TAG.sub(" ", text[:_LONGEST_TEXT]).split())]
            return
        start, inner = _packed(text)
        if inner is not None:
            before = text[:start].strip().rstrip("-: b'\"").removeprefix("[")
            self._found.messages += [before] if before else []
            self.read(inner, depth + 1)
        elif text.startswith(("{", "[{")):
            # A body that was cut: its first fields are still whole.
            for name, value in _TORN.findall(text[:_LONGEST_LITERAL]):
                self._read_field(name, json.loads(value), _DEEPEST)
        elif text:
            self._found.messages.append(text)

    def _read_field(self, name: str, value: object, depth: int) -> None:
        if isinstance(value, str):
            if name in _CODES and len(value) <= 80:
                self._read_code(name, value)
            if name in _WORDS or name in _PACKED:
                self._read_text(value, depth + 1)
        elif isinstance(value, Mapping | list):
            if name in _HEADERS and isinstance(value, Mapping):
                self._found.headers.update({str(key).lower(): _first(item) for key, item in value.items()})
            elif name in _INNER:
                self.read(value, depth + 1)
        elif isinstance(value, int) and not isinstance(value, bool):
            self._read_number(name, value)
        # The outermost word on a name counts: the ones within may be another server's.
        if not isinstance(value, Mapping | list | bool | None):
            self._found.fields.setdefault(name, value)

    def _read_code(self, name: str, value: str) -> None:
        if value.isascii() and value.isdecimal():
            self._read_number(name, int(value))
        elif name != "type" or not value.startswith("type.googleapis.com"):
            self._found.codes.add(value.strip().lower())

    def _read_number(self, name: str, value: int) -> None:
        if name in _NUMBERS and 300 <= value < 600 and self._found.status is None:
            self._found.status = value


def _packed(text: str) -> tuple[int, Any]:
    """Where an object, or a list of them, begins in a text, and the object; None for it if there is none."""
    for mark in "[{" if text.startswith(("[{", "[\n")) else "{[":
        start = text.find(mark, 0, _LONGEST_TEXT)
        value = _parsed(text, start) if start >= 0 else None
        first = value[0] if isinstance(value, list) and value else value
        if isinstance(first, dict) and first and (start == 0 or _is_error(first)):
            return start, value
    return 0, None


def _is_error(document: dict[str, Any]) -> bool:
    """Whether an object within a text is an error that was passed on, and not a part of the request."""
    names = document.keys()
    return not names.isdisjoint({"error", "errors", "detail"}) or ("message" in names and len(names & _CODES) > 0)


def _parsed(text: str, start: int) -> Any:  # noqa: ANN401  (any JSON)
    """The JSON value, or Python's notation of one, that begins there; None if it is none."""
    try:
        return json.JSONDecoder().raw_decode(text, start)[0]
    except (ValueError, RecursionError):
        pass
    literal = text[start:].rstrip("\"'] ")
    if len(literal) > _LONGEST_LITERAL or not literal.endswith("}") or "'" not in literal:
        return None
    try:
        return ast.literal_eval(literal)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None


def _plain(name: str) -> str:
    return "".join(mark for mark in name.lower() if mark.isalnum())


def _first(value: object) -> str:
    return str(value[0]) if isinstance(value, list) and value else str(value)


def _unquoted(message: str) -> str:
    message = " ".join(message[:_LONGEST_TEXT].split())
    echo = _ECHO.search(message)
    message = message[: echo.start()] if echo else message
    for opening, closing in _MARKS:
        message = "".join(_without(message, opening, closing))
    return _QUOTED.sub(lambda quoted: _shortened(quoted[1]), message)


def _without(message: str, opening: str, closing: str) -> Iterator[str]:
    end = 0
    while (start := message.find(opening, end)) >= 0 and (stop := message.find(closing, start + 1)) >= 0:
        yield message[end:start]
        yield _shortened(message[start + 1 : stop])
        end = stop + 1
    yield message[end:]


def _unrepeated(text: str, sent: str) -> str:
    """The text without runs of words that are in what was sent: a server has repeated them."""
    if not sent:
        return text
    asked, words = " ".join(sent[:_LONGEST_SENT].split()), text.split()
    repeated: set[int] = set()
    for start in range(len(words) - _SHORTEST_REPEAT + 1):
        if " ".join(words[start : start + _SHORTEST_REPEAT]) in asked:
            repeated.update(range(start, start + _SHORTEST_REPEAT))
    return " ".join(word for at, word in enumerate(words) if at not in repeated)


def _shortened(quoted: str) -> str:
    """A quoted name stays, for servers quote parameters and models; a quotation of several words goes."""
    return quoted if len(quoted) <= 80 and " " not in quoted.strip() else "\u2026"
