"""Text files: UTF-8 with or without a mark is read, any other encoding is named."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vibey.domain.text import NotText, decode_text

MARK = b"\xef\xbb\xbf"


@given(st.text())
def test_text_is_read_with_or_without_a_mark(text: str) -> None:
    """Whatever the text is, a byte order mark before it changes nothing, and ends of lines stay."""
    plain = text.lstrip("\ufeff").replace("\0", "")
    assert decode_text(plain.encode()) == plain
    assert decode_text(MARK + plain.encode()) == plain


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-16-le", "utf-32"])
def test_another_encoding_is_named(encoding: str) -> None:
    """What an editor saved as UTF-16, with a mark or without, is told as that and not as a broken byte."""
    name = encoding.upper()[:6]
    with pytest.raises(NotText, match=f"{name}, not UTF-8; save it as UTF-8"):
        decode_text('{"a": 1}\n'.encode(encoding))


def test_a_broken_byte_is_named_with_its_line() -> None:
    """Latin-1 and the like have no mark; the first byte that is no UTF-8 is named."""
    with pytest.raises(NotText, match="byte 0xe9") as caught:
        decode_text("a\nb\ncafé".encode("latin-1"))
    assert caught.value.line == 3


@given(st.binary())
def test_any_bytes_are_text_or_named(content: bytes) -> None:
    """There is no third outcome."""
    try:
        decode_text(content)
    except NotText as error:
        assert error.reason  # noqa: PT017  it may be text as well
