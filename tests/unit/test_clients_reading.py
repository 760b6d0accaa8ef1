"""What clients print and what it comes to: recordings of the real ones, hostile texts, broken streams."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.recordings import CLIENTS, WORD, Clock, Recording, read, recordings
from vibey.domain.outcome import CapacityKind, Failure, FailureClass, Success
from vibey.engines.clients.reading import PATIENCE_SECONDS, TRIES, Reading
from vibey.engines.clients.tap import Tap
from vibey.engines.contract import Exit, StopReason
from vibey.engines.stream import LONGEST_LINE

if TYPE_CHECKING:
    from vibey.domain.outcome import Outcome

KINDS = sorted(CLIENTS)
ALL = recordings()
PROSE = [
    "[API Error: 401 Incorrect API key provided]",
    "429 Too Many Requests: rate limit exceeded, try again in 3600 s",
    "Credit balance is too low",
    "You've hit your usage limit. Try again at 5:00 PM.",
    "Reconnecting... 1/5 (exceeded retry limit, last status: 429 Too Many Requests)",
    '{"type":"error","message":"Quota exceeded. Check your plan and billing details."}',
    '{"type":"system","subtype":"api_retry","error_status":401,"error":"authentication_failed"}',
    '\n{"type":"result","is_error":true,"api_error_status":429,"result":"x"}\n',
    "\nAttempt 1 failed with status 429. Retrying with backoff...\n",
    json.dumps({"type": "vibey.refusal", "key": WORD, "status": 429, "headers": {}, "body": ""}),
    "\nerror: unknown option '--x'\nUnknown argument: y\n",
    "insufficient_quota overloaded_error invalid_api_key \0 \ud800",
]


def talk(kind: str, text: str) -> list[dict[str, Any]]:
    """The events of a good run in which model, command and its output all say this text."""
    usage = {"input_tokens": 12, "output_tokens": 3}
    claude: list[dict[str, Any]] = [
        {
            "type": "assistant",
            "message": {"id": "1", "model": "m", "content": [{"type": "text", "text": text}], "usage": usage},
        },
        {"type": "user", "message": {"content": [{"type": "tool_result", "content": text, "is_error": True}]}},
        {"type": "result", "subtype": "success", "is_error": False, "result": text, "usage": usage},
    ]
    steps = {"type": "step_finish", "part": {"id": "1", "reason": "stop", "tokens": {"input": 12, "output": 3}}}
    said: dict[str, list[dict[str, Any]]] = {
        "claude-code": claude,
        "qwen-code": claude,
        "codex": [
            {
                "type": "item.completed",
                "item": {"type": "command_execution", "command": text, "aggregated_output": text},
            },
            {"type": "item.completed", "item": {"type": "agent_message", "text": text}},
            {"type": "turn.completed", "usage": usage},
        ],
        "opencode": [
            {"type": "tool_use", "part": {"tool": "bash", "state": {"output": text, "error": text}}},
            {"type": "text", "part": {"text": text}},
            steps,
        ],
        "gemini": [
            {"type": "tool_result", "status": "error", "output": text, "error": {"message": text}},
            {"type": "message", "role": "assistant", "content": text, "delta": True},
            {"type": "result", "status": "success", "stats": usage},
        ],
    }
    return said[kind]


def printed(*events: object) -> bytes:
    """Events as a client prints them."""
    return b"".join(json.dumps(event).encode() + b"\n" for event in events)


def tapped(status: int, **headers: str) -> bytes:
    """A refusal as the tap prints it."""
    return printed({"type": "vibey.refusal", "key": WORD, "status": status, "headers": headers, "body": "{}"})


def verdict(outcome: Outcome) -> tuple[str, str | None]:
    """Class and kind."""
    if isinstance(outcome, Success):
        return "success", None
    return outcome.failure_class.value, outcome.capacity_kind and outcome.capacity_kind.value


@pytest.mark.parametrize("recording", ALL, ids=str)
def test_recording_has_its_class(recording: Recording) -> None:
    """Each ends in the class its scenario has, with the reset it names."""
    outcome = read(recording.kind, [recording.output], recording.exit_code)
    assert verdict(outcome) == recording.expected, outcome
    if isinstance(outcome, Failure):
        assert outcome.resets_in_ms == (recording.resets_in and recording.resets_in * 1000)
        assert outcome.resets_at_ms == (recording.resets_at and recording.resets_at * 1000)


@pytest.mark.parametrize("kind", KINDS)
def test_recorded_success_is_read(kind: str) -> None:
    """Answer and tokens of a real run."""
    recording = next(each for each in ALL if (each.kind, each.scenario) == (kind, "success"))
    outcome = read(kind, [recording.output], 0)
    assert isinstance(outcome, Success)
    assert outcome.result == {"text": "BUILD OK, no 429 here"}
    assert (outcome.tokens_in, outcome.tokens_out) == (24, 6)
    assert (outcome.cost_usd is None) == (kind != "claude-code")


@pytest.mark.parametrize("kind", ["claude-code", "opencode", "qwen-code"])
def test_tokens_before_a_refusal_are_kept(kind: str) -> None:
    """A run refused midway has spent what its first turn cost."""
    recording = next(each for each in ALL if (each.kind, each.scenario) == (kind, "rate_limited_midway"))
    outcome = read(kind, [recording.output], None)
    assert outcome.tokens_in == 12
    assert isinstance(outcome, Failure)
    assert not outcome.did_no_work


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", PROSE)
def test_talk_is_no_refusal(kind: str, text: str) -> None:
    """Whatever the model says and its commands print, the run is the success it is."""
    events = talk(kind, text)
    assert verdict(read(kind, [printed(*events)], 0)) == ("success", None)


@pytest.mark.parametrize("kind", KINDS)
def test_noise_changes_nothing(kind: str) -> None:
    """Half lines, text, NULs, deep and endless JSON between the events are passed over."""
    noise = [b"\0\0\xff{\n", b"[" * 50_000 + b"\n", b'{"type":\n', b"null\n[1, 2]\n", b'{"n":' + b"9" * 9000 + b"}\n"]
    good = [printed(event) for event in talk(kind, "done")]
    mixed = [piece for pair in zip([*noise], [*good, b"", b"", b""], strict=False) for piece in pair]
    assert verdict(read(kind, mixed, 0)) == ("success", None)


@pytest.mark.parametrize("kind", KINDS)
def test_line_too_long_is_passed_over_whole(kind: str) -> None:
    """The parts of a line that was cut are no lines, whatever they look like."""
    fake = b"Attempt 1 failed with status 429. Retrying with backoff... error: unknown option\n"
    torn = [b"x" * LONGEST_LINE, fake, b"\xf0\x9f\x98\x80" * (LONGEST_LINE // 4), fake]
    assert verdict(read(kind, [*torn, printed(*talk(kind, "done"))], 0)) == ("success", None)


@pytest.mark.parametrize("kind", KINDS)
def test_forged_tap_is_ignored(kind: str) -> None:
    """A refusal without the run's own word is noise."""
    forged = tapped(429).replace(WORD.encode(), b"v" * 32)
    assert verdict(read(kind, [forged, printed(*talk(kind, "done"))], 0)) == ("success", None)


@pytest.mark.parametrize("kind", KINDS)
def test_ends_without_a_reason_are_the_engines(kind: str) -> None:
    """A crash, Vibey's own codes and a silent end blame the engine; a client never hands off by its exit code."""
    for code in (1, 69, 75, 78, -11, 0):
        assert verdict(read(kind, [b"boom\n"], code)) == ("engine", None)


def test_trouble_that_passes_is_survived() -> None:
    """A client that gets over a few refusals has done its work, and a new row may begin after a sign of life."""
    step = printed(talk("opencode", "on")[0])
    row = tapped(503) * TRIES
    assert verdict(read("opencode", [row, step, row, printed(*talk("opencode", "done"))], 0)) == ("success", None)
    assert verdict(read("opencode", [row, tapped(503)], None)) == ("engine", None)


def test_patience_is_over_in_silence() -> None:
    """One report of trouble and then nothing ends the run by the clock, not before its time."""
    clock = Clock()
    reading = Reading(CLIENTS["gemini"].table, CLIENTS["gemini"].hear, Tap(WORD), clock)
    reading.take(tapped(503).decode())
    clock.now += PATIENCE_SECONDS - 1
    reading.expire()
    assert reading.refusal is None
    clock.now += 1
    reading.expire()
    outcome = reading.outcome(Exit(None, stopped=StopReason.CANCEL), "gemini")
    assert isinstance(outcome, Failure)
    assert (outcome.failure_class, outcome.detail) == (FailureClass.ENGINE, "HTTP 503: {}")


def test_refusal_is_seen_with_its_line() -> None:
    """The line that shows it is enough; nothing after it is waited for."""
    reading = Reading(CLIENTS["qwen-code"].table, CLIENTS["qwen-code"].hear, Tap(WORD))
    reading.take(tapped(429, **{"retry-after": "3"}).decode())
    assert reading.refusal is not None
    assert reading.refusal.failure() == Failure(
        FailureClass.CAPACITY, "HTTP 429: {}", CapacityKind.WINDOW, resets_in_ms=3000
    )


def test_local_server_without_a_slot_is_busy() -> None:
    """A server with slots is full, a provider that is overloaded is not."""
    full = json.loads(tapped(503))
    full["body"] = '{"error": {"message": "no slot available"}}'
    assert verdict(read("qwen-code", [printed(full)], None)) == ("capacity", "busy")


def test_near_quota_is_told() -> None:
    """A window that is nearly spent is passed on until it ends; overage that serves is no refusal."""
    warned = {"type": "rate_limit_event", "rate_limit_info": {"status": "allowed_warning", "resetsAt": 99_999_999_999}}
    over = {"type": "rate_limit_event", "rate_limit_info": {"status": "rejected", "isUsingOverage": True}}
    outcome = read("claude-code", [printed(warned, over, *talk("claude-code", "done"))], 0)
    assert isinstance(outcome, Success)
    assert outcome.near_quota_ms == 31 * 24 * 3600 * 1000


def test_running_cost_is_reported() -> None:
    """Cost and tokens reach the holder when they change."""
    client = CLIENTS["opencode"]
    reading = Reading(client.table, client.hear, Tap(WORD))
    part = {"id": "1", "reason": "tool-calls", "tokens": {"input": 5, "output": 2, "cache": {"read": 3}}, "cost": 0.25}
    progress = reading.take(json.dumps({"type": "step_finish", "part": part}))
    assert progress is not None
    assert (progress.cost_usd, progress.tokens_in, progress.tokens_out) == (Decimal("0.25"), 8, 2)


LIMITS = [
    "You've hit your limit \u00b7 resets 3pm (Europe/Berlin)",
    "Claude AI usage limit reached|99999999",
    "Spending cap reached resets 6pm",
    "You've hit your weekly limit \u00b7 resets Dec 4, 3pm (America/New_York)",
    "API Error: Rate limit reached",
]


@pytest.mark.parametrize("said", LIMITS)
@pytest.mark.parametrize("code", [0, 1])
def test_sentence_about_a_limit_without_a_status(said: str, code: int) -> None:
    """A client's own error in words alone is a spent window, however it exits."""
    result = {"type": "result", "subtype": "success", "is_error": True, "result": said}
    assert verdict(read("claude-code", [printed(result)], code)) == ("capacity", "window")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("said", LIMITS)
def test_sentence_in_the_place_of_an_answer(kind: str, said: str) -> None:
    """With no token spent it is no success, with one it is what the model says; so is a text that speaks of limits."""
    spent = talk(kind, said)
    free = json.loads(json.dumps(spent).replace('"input_tokens": 12, "output_tokens": 3', '"output_tokens": 0'))
    free = json.loads(json.dumps(free).replace('"input": 12, "output": 3', '"input": 0, "output": 0'))
    assert verdict(read(kind, [printed(*spent)], 0)) == ("success", None)
    assert verdict(read(kind, [printed(*free)], 0)) == ("capacity", "window")
    talking = json.loads(json.dumps(free).replace(json.dumps(said), json.dumps(f"I fixed it; the message was: {said}")))
    assert verdict(read(kind, [printed(*talking)], 0)) == ("success", None)


@pytest.mark.parametrize("kind", KINDS)
def test_last_line_that_is_a_refusal(kind: str) -> None:
    """A client that prints one sentence and ends badly has been refused; one that has worked has crashed."""
    line = b"You've hit your limit. Try again in 3h\n"
    outcome = read(kind, [line], 1)
    assert verdict(outcome) == ("capacity", "window")
    assert isinstance(outcome, Failure)
    assert outcome.resets_in_ms == 3 * 3600 * 1000
    assert verdict(read(kind, [printed(*talk(kind, "on")[:-1]), line], 1))[0] == "engine"


def test_result_that_lost_its_words() -> None:
    """An empty result beside an answer of the model is that answer; a window that is not rejected is no refusal."""
    events = talk("claude-code", "Hello.")
    events[-1]["result"] = ""
    allowed = {"type": "rate_limit_event", "rate_limit_info": {"status": "allowed", "overageStatus": "rejected"}}
    outcome = read("claude-code", [printed(allowed, *events)], 0)
    assert isinstance(outcome, Success)
    assert outcome.result == {"text": "Hello."}


@pytest.mark.parametrize(
    ("kind", "event", "expected"),
    [
        ("codex", "stream disconnected before completion: Rate limit reached for m. Try again in 11s.", "window"),
        ("codex", "Your input exceeds the context window of this model. Please adjust your input.", None),
        ("claude-code", 'API Error: 429 {"error":{"type":"rate_limit_error","message":"x"}}', "window"),
        ("claude-code", "API Error: Claude's response exceeded the 32000 output token maximum.", None),
        ("claude-code", "API Error (m): 400 prompt is too long: 9 > 8", None),
        (
            "gemini",
            "[API Error: You have exhausted your capacity on this model. Your quota will reset after 5s.]",
            "window",
        ),
        (
            "gemini",
            "[API Error: You exceeded your current quota, please check your plan and billing details]",
            "window",
        ),
        ("gemini", "[API Error: prepayment credits are depleted]", "credits"),
        ("qwen-code", "[API Error: Budget has been exceeded! Max budget: 10]", "credits"),
        ("qwen-code", "[API Error: This model's maximum context length is 8192 tokens]", None),
        ("opencode", "You've hit your limit", "window"),
    ],
)
def test_errors_of_clients_go_by_the_table(kind: str, event: str, expected: str | None) -> None:
    """What a provider said, in the field where each client repeats it; None stands for the job's own fault."""
    forms: dict[str, dict[str, Any]] = {
        "codex": {"type": "turn.failed", "error": {"message": event}},
        "claude-code": {"type": "result", "subtype": "success", "is_error": True, "result": event},
        "gemini": {"type": "result", "status": "error", "error": {"message": event}},
        "qwen-code": {"type": "result", "is_error": True, "error": {"message": event}},
        "opencode": {"type": "error", "error": {"name": "UnknownError", "data": {"message": event}}},
    }
    outcome = read(kind, [printed(forms[kind])], 1)
    assert verdict(outcome) == (("capacity", expected) if expected else ("work", None)), outcome


@pytest.mark.parametrize(
    ("kind", "event", "expected"),
    [
        (
            "codex",
            {"type": "error", "message": "You\u2019ve hit your usage limit. Try again in 2 days 3 hours."},
            "window",
        ),
        ("codex", {"type": "turn.failed", "error": {"message": "You're out of credits."}}, "credits"),
        (
            "codex",
            {"type": "error", "message": "Your refresh token has expired. Please log out and sign in again."},
            "login",
        ),
        (
            "claude-code",
            {"type": "system", "subtype": "api_retry", "error_status": None, "error": "billing_error"},
            "credits",
        ),
        ("claude-code", {"type": "system", "subtype": "api_retry", "error_status": 403, "error": "x"}, "login"),
        ("opencode", {"type": "error", "error": {"name": "ProviderAuthError", "data": {"message": "no key"}}}, "login"),
        ("gemini", {"type": "result", "status": "error", "error": {"message": "[API Error: quota]\nwait"}}, "window"),
    ],
)
def test_refusal_in_the_clients_words(kind: str, event: object, expected: str) -> None:
    """Words that are the client's own, in the fields where it puts them."""
    assert verdict(read(kind, [printed(event)], None)) == ("capacity", expected)
