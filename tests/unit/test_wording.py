"""Sentences about jobs and engines are for people: no word of the code is in them but keys that a person can set."""

from __future__ import annotations

import re

import pytest

from vibey.services import display, starts, telling, wording
from vibey.settings.model import EngineDefaults, EngineSettings, PoolSettings

WORD_OF_CODE = re.compile(r"\b[a-z]+(?:_[a-z]+)+\b")
KEYS = {*EngineDefaults.model_fields, *EngineSettings.model_fields, *PoolSettings.model_fields}
SENTENCES = [
    *wording.WAITS.values(),
    wording.WAITS_FOR_EVER,
    wording.IN_TURN,
    wording.NOT_LOOKED_AT,
    *starts.BY.values(),
    *starts.FIRST.values(),
    starts.SLOT_FIRST,
    starts.PINS_FIRST,
    starts.MIDNIGHT_ALONE,
    starts.TOO_LATE,
    *telling.EXCLUDED.values(),
    *telling.NOT_DRAWN.values(),
]


@pytest.mark.parametrize("sentence", SENTENCES)
def test_a_sentence_has_no_word_of_the_code(sentence: str) -> None:
    """Such as the stable words of `--json`; what stands in braces is filled in."""
    said = re.sub(r"\{.*?\}", "", sentence)
    assert set(WORD_OF_CODE.findall(said)) <= KEYS


@pytest.mark.parametrize(
    ("used", "limit", "said"),
    [
        (2, 5, "2 of 5 paid units of the project used on 2026-03-01 (UTC)"),
        (5, 5, "5 of 5 paid units of the project used on 2026-03-01 (UTC): spent"),
        (7, 5, "7 paid units of the project used on 2026-03-01 (UTC), cap 5: spent"),
        (1, 0, "1 paid unit of the project used on 2026-03-01 (UTC), cap 0: spent"),
        (0, 0, "0 of 0 paid units of the project used on 2026-03-01 (UTC)"),
    ],
)
def test_a_cap_reads_sensibly_after_it_was_lowered(used: int, limit: int, said: str) -> None:
    """More may have been used than there is by now."""
    assert display.cap({"used": used, "limit": limit, "scope": "project", "utc_day": "2026-03-01"}) == said
