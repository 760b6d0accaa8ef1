"""The forms of a secret: whatever a program's library makes of it, it is found."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote, quote_plus, urlencode

from hypothesis import given
from hypothesis import strategies as st

from vibey.engines.spelling import spellings
from vibey.engines.stream import MASK, Redactor, masked, masked_line

SIGNS = st.characters(min_codepoint=33, max_codepoint=0x2FF, exclude_categories=["Zs", "Cc"])
SECRETS = st.text(SIGNS, min_size=8, max_size=40)


@given(SECRETS)
def test_every_library_form_is_known(secret: str) -> None:
    """JSON once and twice, with and without ASCII alone; addresses; queries."""
    once = json.dumps(secret)
    forms = {
        secret,
        once[1:-1],
        json.dumps(secret, ensure_ascii=False)[1:-1],
        json.dumps(once)[3:-3],
        json.dumps(secret)[1:-1].replace("/", "\\/"),
        quote(secret, safe=""),
        quote(secret),
        quote_plus(secret),
        urlencode({"k": secret})[2:],
    }
    for form in forms:
        assert masked(f"<{form}>", [secret]) == f"<{MASK.decode()}>"


@given(SECRETS, st.binary(max_size=9), st.binary(max_size=9), st.booleans())
def test_base64_is_found_wherever_the_secret_begins(secret: str, before: bytes, after: bytes, url: bool) -> None:  # noqa: FBT001
    """Within any longer text, in both alphabets, no more than a sign at each end is left of it."""
    encode = base64.urlsafe_b64encode if url else base64.b64encode
    text = encode(before + secret.encode() + after).decode()
    left = masked(text, [secret])
    assert MASK.decode() in left
    assert len(left) <= 2 + len(encode(before)) + len(MASK) + len(encode(after)) + 2


@given(SECRETS, st.data())
def test_seams_and_cuts_hide_no_form(secret: str, data: st.DataObject) -> None:
    """Cut into pieces anywhere, and of a line cut within a form, no form passes."""
    form = data.draw(st.sampled_from(spellings([secret])))
    said = f"before {form} after".encode()
    at = sorted(data.draw(st.lists(st.integers(0, len(said)), max_size=4)))
    redactor = Redactor([secret])
    pieces = [said[start:end] for start, end in zip([0, *at], [*at, len(said)], strict=True)]
    assert form.encode() not in b"".join([*(redactor.feed(piece) for piece in pieces), redactor.rest()])
    cut = data.draw(st.integers(4, len(form)))
    assert form[:cut] not in masked_line(f"before {form[:cut]}\u2026", [secret])


def test_lines_of_a_key_are_secrets_each() -> None:
    """A key of several lines is told line by line."""
    key = "-----BEGIN KEY-----\nMIIEvQIBADANBgkq\nabc\n-----END KEY-----"
    assert masked("x MIIEvQIBADANBgkq abc", [key]) == f"x {MASK.decode()} abc"
    assert "MIIE" not in masked(json.dumps({"key": key}), [key])


def test_short_secrets_have_no_forms() -> None:
    """Seven bytes hide nothing, in any form."""
    assert spellings(["1234567", "\u00e9\u00e9\u00e9", ""]) == ()
