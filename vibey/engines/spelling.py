"""Spelling: the forms in which a secret turns up in what programs print.

A client that shows the request it made shows its key as JSON, as part of an address, or in base64 within a `Basic`
login. Each such form is a secret, too. A program that sets out to hide a key has other ways, and none of them is
looked for: what keeps a key from a program is not to give it.
"""

from __future__ import annotations

import base64
import json
from functools import lru_cache
from typing import TYPE_CHECKING
from urllib.parse import quote, quote_plus

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SHORTEST_SECRET = 8
"""Bytes. Masking shorter values would deface ordinary text and hide nothing."""


def spellings(secrets: Iterable[str]) -> tuple[str, ...]:
    """Every form of every secret worth masking, the longest first, so that none leaves the end of another."""
    return _spellings(tuple(secrets))


# A log's every line is asked about the same few secrets.
@lru_cache(maxsize=32)
def _spellings(secrets: tuple[str, ...]) -> tuple[str, ...]:
    parts = {part.strip() for secret in secrets for part in (secret, *secret.splitlines())}
    found = {form for part in parts if _is_long(part) for form in _forms(part)}
    return tuple(sorted(filter(_is_long, found), key=lambda form: (-len(form), form)))


def _is_long(text: str) -> bool:
    return len(text.encode("utf-8", "replace")) >= SHORTEST_SECRET


def _forms(secret: str) -> Iterator[str]:
    plain = secret.encode("utf-8", "replace").decode()
    yield plain
    for once in (_in_json(plain, ascii_only=True), _in_json(plain, ascii_only=False)):
        yield once
        yield once.replace("/", "\\/")
        # A program that prints JSON in JSON is quoted once more by a client's events, whose text a transcript shows.
        twice = _in_json(once, ascii_only=True)
        yield from (twice, _in_json(twice, ascii_only=True))
    for quoted in (quote(plain, safe=""), quote(plain), quote_plus(plain)):
        yield quoted
        yield _lower_hex(quoted)
    yield from _in_base64(plain.encode())


def _in_json(text: str, *, ascii_only: bool) -> str:
    return json.dumps(text, ensure_ascii=ascii_only)[1:-1]


def _lower_hex(quoted: str) -> str:
    first, *rest = quoted.split("%")
    return "%".join((first, *(piece[:2].lower() + piece[2:] for piece in rest)))


def _in_base64(secret: bytes) -> Iterator[str]:
    """What base64 makes of the secret within a longer text, at each of the three places it can begin."""
    for before in range(3):
        encoded = base64.b64encode(bytes(before) + secret).decode()
        # Signs that the neighbours have a share in are no help: they may be anything.
        certain = encoded[(before * 8 + 5) // 6 : (before + len(secret)) * 8 // 6]
        yield certain
        yield certain.replace("+", "-").replace("/", "_")
