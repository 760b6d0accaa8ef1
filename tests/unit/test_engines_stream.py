"""Cutting lines and masking secrets, in pieces of any size."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from vibey.engines.stream import MASK, LineCutter, Redactor

SECRET = "abcabcabd-secret"


def cut(pieces: list[bytes], longest: int = 1000) -> list[str]:
    """All lines of these pieces."""
    cutter = LineCutter(longest)
    return [line for piece in pieces for line in cutter.feed(piece)] + list(cutter.rest())


@given(st.lists(st.binary(max_size=20), max_size=10))
def test_seams_change_no_line(pieces: list[bytes]) -> None:
    """Lines do not depend on how the output was cut into pieces."""
    assert cut(pieces) == cut([b"".join(pieces)])


def test_lines_lose_their_ends_only() -> None:
    """Line ends of both kinds go, empty lines stay, bytes that are not UTF-8 are replaced."""
    assert cut([b"a\r\n\nb\xff\nc"]) == ["a", "", "b\ufffd", "c"]


def test_endless_line_is_given_out_in_parts() -> None:
    """Nothing longer than the bound is held."""
    assert cut([b"a" * 6, b"a" * 6, b"\nb"], longest=10) == ["a" * 12, "", "b"]


@given(st.lists(st.sampled_from([b"abc", b"abd-", b"secret", b"x", b"\n", SECRET.encode()]), max_size=20))
def test_secret_never_passes_whatever_the_seams(pieces: list[bytes]) -> None:
    """Cut anywhere, the masked output is that of the whole."""
    redactor = Redactor([SECRET])
    masked = b"".join([redactor.feed(piece) for piece in pieces] + [redactor.rest()])
    assert SECRET.encode() not in masked
    assert masked == b"".join(pieces).replace(SECRET.encode(), MASK)


def test_short_values_and_no_values_mask_nothing() -> None:
    """A value that ordinary text would contain is not masked."""
    assert Redactor(["", "on", "1234567"]).feed(b"on 1234567") == b"on 1234567"


def test_longer_of_two_secrets_is_masked_whole() -> None:
    """A secret that begins with another leaves no end of itself."""
    assert Redactor(["password", "password-and-more"]).feed(b"password-and-more!") == MASK + b"!"
