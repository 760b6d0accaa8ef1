"""What servers say when they refuse: whose fault it is, and when to come back."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vibey.domain.outcome import CapacityKind, FailureClass
from vibey.engines.refusal import Refusal, message_of
from vibey.engines.resets import provider_clock, reset_seconds

NOW = 1_800_000_000.0
CAPACITY, ENGINE, WORK = FailureClass.CAPACITY, FailureClass.ENGINE, FailureClass.WORK
MISCONFIGURED = FailureClass.MISCONFIGURED


def error(message: str, **more: object) -> str:
    """An error's body in the usual form."""
    return json.dumps({"error": {"message": message, **more}})


@pytest.mark.parametrize(
    ("status", "body", "failure_class", "kind"),
    [
        (429, error("Rate limit reached for gpt", code="rate_limit_exceeded"), CAPACITY, CapacityKind.WINDOW),
        (429, error("You exceeded your current quota", code="insufficient_quota"), CAPACITY, CapacityKind.CREDITS),
        (400, error("Your credit balance is too low to access the API"), CAPACITY, CapacityKind.CREDITS),
        (402, error("Insufficient credits"), CAPACITY, CapacityKind.CREDITS),
        (429, error("the engine is currently overloaded"), CAPACITY, CapacityKind.BUSY),
        (401, error("Incorrect API key provided"), CAPACITY, CapacityKind.LOGIN),
        (403, "forbidden", CAPACITY, CapacityKind.LOGIN),
        (503, error("Loading model", type="unavailable_error"), CAPACITY, CapacityKind.BUSY),
        (503, error("no slot available"), CAPACITY, CapacityKind.BUSY),
        (503, error("server busy, please try again.  maximum pending requests exceeded"), CAPACITY, CapacityKind.BUSY),
        (529, error("Overloaded", type="overloaded_error"), CAPACITY, CapacityKind.BUSY),
        (503, "<html>bad gateway</html>", ENGINE, None),
        (500, error("model requires more system memory than is available"), ENGINE, None),
        (502, "", ENGINE, None),
        (408, "", ENGINE, None),
        (404, error('model "m" not found, try pulling it first'), MISCONFIGURED, None),
        (404, error("The model `m` does not exist", code="model_not_found"), MISCONFIGURED, None),
        (404, "404 page not found", MISCONFIGURED, None),
        (307, "", MISCONFIGURED, None),
        (400, error("This model's maximum context length is 8192 tokens", code="context_length_exceeded"), WORK, None),
        (400, error("the request exceeds the available context size", type="exceed_context_size_error"), WORK, None),
        (413, "too large", WORK, None),
        (422, error("invalid"), WORK, None),
    ],
)
def test_class_of_an_answer(status: int, body: str, failure_class: FailureClass, kind: CapacityKind | None) -> None:
    """Every answer has its class."""
    failure = Refusal(status, body).failure("m")
    assert (failure.failure_class, failure.kind) == (failure_class, kind)
    assert str(status) in str(failure)


def test_retry_word_makes_unavailable_busy() -> None:
    """A server that says when to come back is full, not broken."""
    failure = Refusal(503, "", {"retry-after": "7"}, NOW).failure("m")
    assert (failure.kind, failure.resets_in) == (CapacityKind.BUSY, 7.0)


@pytest.mark.parametrize(
    ("said", "failure_class"),
    [
        ({"code": 429, "message": "slow down"}, CAPACITY),
        ({"code": "insufficient_quota", "message": "x"}, CAPACITY),
        ({"type": "overloaded_error"}, CAPACITY),
        ({"code": "context_length_exceeded"}, WORK),
        ({"code": 7, "message": "x"}, ENGINE),
        ("just text", ENGINE),
        ([1], ENGINE),
    ],
)
def test_error_within_a_stream(said: object, failure_class: FailureClass) -> None:
    """An event that is an error is judged by the code it carries."""
    assert Refusal.in_event(said, {}, NOW).failure("m").failure_class is failure_class


def test_fix_for_a_missing_model() -> None:
    """Where the server can fetch the model, the command to do so is named."""
    body = error('model "qwen" not found, try pulling it first')
    assert "ollama pull qwen" in str(Refusal(404, body).failure("qwen"))


@pytest.mark.parametrize(
    ("headers", "body", "seconds"),
    [
        ({"retry-after": "120"}, "", 120.0),
        ({"retry-after-ms": "1500", "retry-after": "2"}, "", 1.5),
        ({"retry-after": "Fri, 15 Jan 2027 08:01:00 GMT"}, "", 60.0),
        ({"x-ratelimit-reset-requests": "1s", "x-ratelimit-reset-tokens": "6m0s"}, "", 360.0),
        (
            {
                "x-ratelimit-reset-requests": "2h",
                "x-ratelimit-reset-tokens": "90ms",
                "x-ratelimit-remaining-requests": "4",
                "x-ratelimit-remaining-tokens": "0",
            },
            "",
            0.09,
        ),
        ({"x-ratelimit-reset": str(int(NOW * 1000) + 5000)}, "", 5.0),
        ({"x-ratelimit-reset": str(int(NOW) + 5)}, "", 5.0),
        ({"anthropic-ratelimit-tokens-reset": "2027-01-15T08:00:30Z"}, "", 30.0),
        ({}, "Please try again in 6m0s.", 360.0),
        ({}, "Please try again in 20 seconds", 20.0),
        ({}, "Please retry in 12.5s", 12.5),
        ({}, "try again in 3 hours", 10800.0),
        ({}, "Try again in 250ms.", 0.25),
        ({}, '{"error":{"details":[{"retryDelay": "23s"}]}}', 23.0),
        ({}, '{"error":{"resets_in_seconds": 77}}', 77.0),
        ({"retry-after": "9" * 400}, "", 366 * 86400),
        ({}, "try again in " + "9" * 400 + " days", 366 * 86400),
        ({"retry-after": "soon"}, "come back later", None),
        ({"retry-after": "-5"}, "", None),
    ],
)
def test_reset_is_found(headers: dict[str, str], body: str, seconds: float | None) -> None:
    """Every usual way to name a reset is understood, and nothing else is taken for one."""
    assert reset_seconds(headers, body, NOW) == pytest.approx(seconds)


def test_reset_in_the_past_is_now() -> None:
    """A clock that is ahead of the provider's makes no negative wait."""
    assert reset_seconds({"x-ratelimit-reset": str(int(NOW) - 50)}, "", NOW) == 0


def test_clock_is_the_providers() -> None:
    """Its date header counts, ours only without one."""
    assert provider_clock({"date": "Fri, 15 Jan 2027 08:00:00 GMT"}, 5.0) == NOW
    assert provider_clock({"date": "yesterday"}, 5.0) == 5.0


@given(
    st.integers(300, 599), st.text(max_size=60), st.dictionaries(st.sampled_from(["retry-after", "date"]), st.text())
)
def test_any_answer_has_one_class(status: int, body: str, headers: dict[str, str]) -> None:
    """Nothing a server sends breaks the table."""
    failure = Refusal(status, body, headers, NOW).failure("m")
    assert (failure.kind is None) == (failure.failure_class is not CAPACITY)
    assert failure.resets_in is None or failure.resets_in >= 0


@pytest.mark.parametrize("body", ["[[[", "[]", "{}", '{"error": null}', '{"error": {"error": {}}}', "[" * 100_000])
def test_odd_bodies_are_their_own_message(body: str) -> None:
    """A body of another form is shown as it is."""
    assert message_of(body) == body
