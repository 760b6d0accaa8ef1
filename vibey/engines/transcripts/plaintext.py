"""Plain text: an output without escape sequences and other controls that a terminal or a reader would obey."""

from __future__ import annotations

import codecs
import re

LONGEST_ESCAPE = 4096
# A control sequence; an operating system command or other string, up to its end; any other two-byte escape; and one
# that is broken off by the next.
_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_].*?(?:\x07|\x1b\\)|\x1b[ -/]*[0-OQ-WYZ\\`-~]"
    r"|\x1b(?:\[[0-?]*)?[ -/]*(?=\x1b)",
    re.DOTALL,
)
_UNFINISHED = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07]*|[ -/]*)\Z", re.DOTALL)
_CONTROLS = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff]"
)


class PlainText:
    """Turns pieces of output into text that only says something."""

    def __init__(self) -> None:
        """Begin at any place in an output."""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""

    def feed(self, piece: bytes) -> str:
        """The text of a piece; the beginning of a character or escape at its end is kept for the next."""
        text = _ESCAPES.sub("", self._rest + self._decoder.decode(piece))
        unfinished = _UNFINISHED.search(text)
        self._rest = ""
        if unfinished is not None and len(unfinished[0]) <= LONGEST_ESCAPE:
            text, self._rest = text[: unfinished.start()], unfinished[0]
        if text.endswith("\r"):
            text, self._rest = text[:-1], "\r" + self._rest
        return _CONTROLS.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))


def plain_text(text: str) -> str:
    """Text of an output, whole, that only says something."""
    if text.isprintable():
        return text
    return PlainText().feed(text.encode("utf-8", "replace"))
