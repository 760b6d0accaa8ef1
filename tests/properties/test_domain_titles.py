"""Titles and labels: one bounded printable line from whatever a payload says, and pairs that come back as given."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vibey.domain.errors import InvalidInput
from vibey.domain.titles import (
    DEFAULT_TITLE_LIMIT,
    KEY_LIMIT,
    LABELS_LIMIT,
    VALUE_LIMIT,
    check_labels,
    check_title,
    labels_of,
    shortened_title,
    title_source,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda children: st.lists(children) | st.dictionaries(st.text(), children),
    max_leaves=8,
)
KEYS = st.from_regex(rf"[A-Za-z0-9][A-Za-z0-9._/-]{{0,{KEY_LIMIT - 1}}}", fullmatch=True)
VALUES = st.text(string.ascii_letters + string.digits + " =,ü☃", min_size=1, max_size=VALUE_LIMIT).filter(str.strip)


@given(st.dictionaries(st.sampled_from(["prompt", "celery_task", "other"]), JSON) | JSON)
def test_any_payload_has_a_title_that_would_be_accepted(payload: object) -> None:
    """The default title is empty, or one that a caller might have given, and not longer than its own bound."""
    title = shortened_title(title_source(payload))
    assert len(title) <= DEFAULT_TITLE_LIMIT
    if title:
        check_title(title)


@given(st.lists(st.text(string.ascii_letters, min_size=1, max_size=12), min_size=1, max_size=40), st.text(" \t\n"))
def test_title_is_the_first_line_of_the_prompt(words: list[str], blank: str) -> None:
    """Its words in their order, a whole number of them unless the line is too long; blanks before it do not matter."""
    line = " ".join(words)
    title = shortened_title(title_source({"prompt": f"{blank}{line}\nand more of it"}))
    assert title == line if len(line) <= DEFAULT_TITLE_LIMIT else line.startswith(title.removesuffix("…"))


def test_title_of_a_celery_call_is_the_name_of_its_task() -> None:
    """Whatever prompt stands beside it."""
    assert title_source({"celery_task": {"task": "shop.build"}, "prompt": "no"}) == "shop.build"


@given(st.dictionaries(KEYS, VALUES, max_size=LABELS_LIMIT))
def test_labels_come_back_from_their_pairs(labels: dict[str, str]) -> None:
    """Written as `key=value` and read again they are the same, however many equals signs a value has."""
    check_labels(labels)
    assert labels_of(f"{key}={value}" for key, value in labels.items()) == labels


@given(st.text())
def test_any_text_is_a_label_or_named_in_the_error(text: str) -> None:
    """Nothing but InvalidInput is raised, and what is accepted has a key and a value that are not blank."""
    try:
        labels = labels_of([text])
    except InvalidInput:
        return
    ((key, value),) = labels.items()
    assert f"{key}={value}" == text
    assert key.strip()
    assert value.strip()


@pytest.mark.parametrize(
    "labels",
    [
        {f"k{number}": "v" for number in range(LABELS_LIMIT + 1)},
        {"k" * (KEY_LIMIT + 1): "v"},
        {"k": "v" * (VALUE_LIMIT + 1)},
        {"": "v"},
        {"k": ""},
        {"k": 1},
        {1: "v"},
        {"k": "a\nb"},
        {"k y": "v"},
        ["k=v"],
        None,
    ],
)
def test_labels_have_bounds(labels: object) -> None:
    """Too many, too long, blank, not text, not printable, or no mapping at all."""
    with pytest.raises(InvalidInput):
        check_labels(labels)


def test_one_key_has_one_value() -> None:
    """The same pair twice is one label; two values are an error that names both."""
    assert labels_of(["a=1", "a=1"]) == {"a": "1"}
    with pytest.raises(InvalidInput, match="'a=2' is not usable; expected one value for the label 'a', which is '1'"):
        labels_of(["a=1", "a=2"])
