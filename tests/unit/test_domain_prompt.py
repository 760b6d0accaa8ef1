"""Which payloads have a prompt, and which kinds of engine need one."""

from __future__ import annotations

import pytest

from vibey.domain.outcome import CapacityKind, Failure, FailureClass
from vibey.domain.prompt import NEEDS_PROMPT, prompt_of
from vibey.domain.workspace import READS_THE_PAYLOAD
from vibey.engines.registry import BUILT_IN


@pytest.mark.parametrize(
    ("payload", "prompt"),
    [({"prompt": "x"}, "x"), ({"prompt": " x "}, " x "), ({"prompt": " "}, None), ({"prompt": 3}, None), ({}, None)],
)
def test_a_prompt_is_text(payload: dict[str, object], prompt: str | None) -> None:
    """Blank text, and what is no text, is none."""
    assert prompt_of(payload) == prompt


def test_every_kind_of_ours_either_needs_a_prompt_or_reads_the_payload() -> None:
    """A kind that is added has to be one of them."""
    calls_only = {"celery"}
    assert frozenset(BUILT_IN) == NEEDS_PROMPT | READS_THE_PAYLOAD | calls_only


@pytest.mark.parametrize("failure_class", [FailureClass.WORK, FailureClass.MISCONFIGURED, FailureClass.HANDOFF])
def test_what_failed_before_a_program_was_started_did_no_work(failure_class: FailureClass) -> None:
    """Whatever its class; but not where something was spent all the same."""
    assert Failure(failure_class, "x", unstarted=True).did_no_work
    assert not Failure(failure_class, "x").did_no_work
    assert not Failure(failure_class, "x", unstarted=True, tokens_in=1).did_no_work
    assert Failure(FailureClass.CAPACITY, "x", CapacityKind.WINDOW).did_no_work
