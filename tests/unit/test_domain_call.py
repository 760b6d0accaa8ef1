"""The call of a Celery task as a payload: whole there and back, and told from every other payload."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vibey.domain.call import CALL, TaskCall, task_call_of, with_body
from vibey.domain.errors import InvalidInput

texts = st.text(max_size=20)
scalars = st.none() | st.booleans() | st.integers() | texts
objects = st.dictionaries(texts, scalars, max_size=3)
GOOD = {
    "id": "a",
    "task": "t",
    "headers": {},
    "body": "[]",
    "content_type": "application/json",
    "content_encoding": "utf-8",
}


@given(texts, texts, objects, objects, texts | st.binary(max_size=20), texts, objects)
def test_a_call_survives_its_payload(
    task_id: str,
    task: str,
    headers: dict[str, object],
    properties: dict[str, object],
    body: str | bytes,
    content: str,
    settings: dict[str, object],
) -> None:
    """As JSON and back it is the same call, with the same body, of text or of bytes."""
    call = TaskCall(
        id=task_id,
        task=task,
        headers=headers,
        properties=properties,
        content_type=content,
        content_encoding=content,
        settings=settings,
        **with_body(body),
    )
    assert ("settings" in call.payload()[CALL]) == bool(settings)
    again = task_call_of(json.loads(json.dumps(call.payload())))
    assert again == call
    assert again.content() == body


@given(st.none() | scalars | st.lists(scalars) | objects.filter(lambda found: CALL not in found))
def test_any_other_payload_is_no_call(payload: object) -> None:
    """Whatever it is, it is left alone."""
    assert task_call_of(payload) is None


@pytest.mark.parametrize(
    "said",
    [
        "t",
        {},
        {**GOOD, "id": 1},
        {**GOOD, "headers": None},
        {**GOOD, "colour": "red"},
        {**GOOD, "binary": 1},
        {"id": "a"},
        [GOOD],
    ],
)
def test_what_only_pretends_is_refused(said: object) -> None:
    """A payload under that name that is no call is a mistake, not somebody's data."""
    with pytest.raises(InvalidInput, match=r"payload.celery_task: .* expected the call of a Celery task"):
        task_call_of({CALL: said})


def test_each_try_has_its_own_key() -> None:
    """A retry and a replacement are other jobs; the same try sent twice is the same."""
    keys = [
        TaskCall(**{**GOOD, "headers": headers}, properties={}).key  # type: ignore[arg-type]
        for headers in ({}, {"retries": 0}, {"retries": 1}, {"retries": 1, "replaced_task_nesting": 2})
    ]
    assert keys == ["celery a 0.0", "celery a 0.0", "celery a 1.0", "celery a 1.2"]
