"""Streams of bytes as they arrive in pieces: cut into lines, and rid of secrets, in bounded memory.

How a secret may be spelled, and so has to be looked for, `vibey.engines.spelling` says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from vibey.engines.spelling import SHORTEST_SECRET, spellings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

LONGEST_LINE = 4 * 1024 * 1024
MASK = b"********"


class LineCutter:
    """Cuts pieces into lines. A line without an end comes out in parts of `longest` bytes."""

    def __init__(self, longest: int = LONGEST_LINE) -> None:
        self._longest = longest
        self._parts: list[bytes] = []
        self._held = 0

    def feed(self, piece: bytes) -> Iterator[str]:
        """The lines this piece completes, without their ends; bytes that are not UTF-8 are replaced."""
        *ended, rest = piece.split(b"\n")
        for end in ended:
            yield self._taken(end).decode("utf-8", "replace").removesuffix("\r")
        if rest:
            self._parts.append(rest)
            self._held += len(rest)
        if self._held >= self._longest:
            yield self._taken(b"").decode("utf-8", "replace")

    def rest(self) -> Iterator[str]:
        """What is left when nothing more comes."""
        if self._held:
            yield self._taken(b"").decode("utf-8", "replace")

    def _taken(self, end: bytes) -> bytes:
        if not self._parts:
            return end
        line = b"".join((*self._parts, end))
        self._parts.clear()
        self._held = 0
        return line


class Redactor:
    """Masks secrets, also those that fall on the seam of two pieces.

    Values shorter than eight bytes are left alone: masking them would deface ordinary text and hide nothing.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets = [spelled.encode() for spelled in spellings(secrets)]
        self._seam = b""

    def feed(self, piece: bytes) -> bytes:
        """The masked text that is certain so far; the beginning of what may become a secret is kept back."""
        if not self._secrets:
            return piece
        text = self._seam + piece
        for secret in self._secrets:
            text = text.replace(secret, MASK)
        kept = max(_overlap(text, secret) for secret in self._secrets)
        self._seam = text[len(text) - kept :]
        return text[: len(text) - kept]

    def rest(self) -> bytes:
        """What was kept back, once nothing more comes."""
        seam, self._seam = self._seam, b""
        return seam


def masking(secrets: Iterable[str]) -> Callable[[str], str]:
    """What makes of a text the same without the secrets; for many texts, as finding every spelling costs most."""
    spelled = tuple(spellings(secrets))
    mask = MASK.decode()

    def masked(text: str) -> str:
        for secret in spelled:
            text = text.replace(secret, mask)
        return text

    return masked


def masked(text: str, secrets: Iterable[str]) -> str:
    """The text without the secrets, as a Redactor would give it out."""
    return masking(secrets)(text)


def masked_line(text: str, secrets: Iterable[str]) -> str:
    """As `masked`, for a line that may have been cut within a secret."""
    secrets = tuple(secrets)
    text = masked(text, secrets)
    body = text.removesuffix("…")
    longest = max((_overlap(body.encode(), spelled.encode()) for spelled in spellings(secrets)), default=0)
    if body == text or longest < SHORTEST_SECRET // 2:
        return text
    return f"{body.encode()[:-longest].decode('utf-8', 'replace')}…"


def masked_tree(value: object, secrets: Sequence[str]) -> object:
    """A JSON value without the secrets, in its keys as well."""
    if isinstance(value, str):
        return masked(value, secrets)
    if isinstance(value, Mapping):
        return {masked(str(key), secrets): masked_tree(item, secrets) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [masked_tree(item, secrets) for item in value]
    return value


def _overlap(text: bytes, secret: bytes) -> int:
    """Length of the longest end of the text that begins the secret."""
    end = text[-(len(secret) - 1) :]
    at = end.find(secret[:1])
    while at >= 0:
        if secret.startswith(end[at:]):
            return len(end) - at
        at = end.find(secret[:1], at + 1)
    return 0
