"""Streams of bytes as they arrive in pieces: cut into lines, and rid of secrets, in bounded memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

LONGEST_LINE = 4 * 1024 * 1024
MASK = b"********"
SHORTEST_SECRET = 8


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
        encoded = {secret.strip().encode() for secret in secrets}
        self._secrets = sorted((secret for secret in encoded if len(secret) >= SHORTEST_SECRET), key=len, reverse=True)
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


def _overlap(text: bytes, secret: bytes) -> int:
    """Length of the longest end of the text that begins the secret."""
    for length in range(min(len(text), len(secret) - 1), 0, -1):
        if text.endswith(secret[:length]):
            return length
    return 0
