"""Text from bytes: every text file that Vibey reads is UTF-8, with or without a byte order mark."""

from __future__ import annotations

# Longest first: the mark of UTF-32 begins with that of UTF-16.
_OTHER_MARKS = (
    (b"\xff\xfe\x00\x00", "UTF-32"),
    (b"\x00\x00\xfe\xff", "UTF-32"),
    (b"\xff\xfe", "UTF-16"),
    (b"\xfe\xff", "UTF-16"),
)
# What is UTF-16 without a mark has a zero byte beside each of the first two characters.
_PROBED = 4


class NotText(ValueError):
    """Bytes that are not UTF-8: `reason` says what they are, or what is wrong, and `line` where."""

    def __init__(self, reason: str, line: int) -> None:
        self.reason = reason
        self.line = line
        super().__init__(reason)


def decode_text(content: bytes) -> str:
    """The text that the bytes of a file are, without a byte order mark; raises NotText."""
    other = _other_encoding(content)
    if other:
        raise NotText(f"the text is {other}, not UTF-8; save it as UTF-8", 1)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise NotText(f"not UTF-8 text (byte 0x{content[error.start]:02x})", line) from error


def _other_encoding(content: bytes) -> str | None:
    for mark, name in _OTHER_MARKS:
        if content.startswith(mark):
            return name
    probed = content[:_PROBED]
    return "UTF-16" if len(probed) == _PROBED and probed.count(b"\0") == _PROBED // 2 else None
