"""Answers of model servers and outputs of clients, as independently collected, and what each must come to.

`tests/data/answers.jsonl` holds one case a line: what is sent or printed, the class expected (one of several where
either is right), and the seconds until the reset. A text may name instants that depend on the clock: `@MS+60@` is a
minute from now in Unix milliseconds, `@UTC+60@` in words, `@CLOCK+60 Asia/Tokyo@` as a time of day and its zone.
"""

from __future__ import annotations

import json
import re
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pytest

from tests.support.chat_server import DONE, END, ChatServer, Reply, delta, head, usage
from tests.support.recordings import CLIENTS, WORD
from vibey.domain.outcome import Failure, Outcome
from vibey.engines.chat import Order, complete
from vibey.engines.clients.reading import Reading
from vibey.engines.clients.tap import Tap
from vibey.engines.contract import Exit
from vibey.engines.results import parse_report

if TYPE_CHECKING:
    from collections.abc import Iterator

SLACK_SECONDS = 90
"""A time of day has no seconds, and a loaded machine takes its time."""
CASES: list[dict[str, Any]] = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "data" / "answers.jsonl").read_text(encoding="utf-8").splitlines()
]
SERVED = [case for case in CASES if "body" in case or "events" in case]
PRINTED = [case for case in CASES if "client" in case]
TALK = [case["talk"] for case in CASES if "talk" in case]


@pytest.fixture(scope="module")
def server() -> Iterator[ChatServer]:
    """A model server that a test gives its answers."""
    with ChatServer() as running:
        yield running


def dated(text: str) -> str:
    """The text with its instants put in."""
    text = re.sub(r"@MS\+(\d+)@", lambda found: str(int((time.time() + int(found[1])) * 1000)), text)
    text = re.sub(r"@UTC\+(\d+)@", lambda found: f"{ahead(found[1]):%F %T} UTC", text)
    clock = r"@CLOCK\+(\d+) ([^@]+)@"
    return re.sub(clock, lambda found: f"{ahead(found[1]).astimezone(ZoneInfo(found[2])):%-I:%M%p} ({found[2]})", text)


def ahead(seconds: str) -> datetime:
    """The instant so many seconds from now."""
    return datetime.now(UTC) + timedelta(seconds=int(seconds))


def reply(case: dict[str, Any]) -> Reply:
    """What the server sends in this case."""
    if "events" in case:
        pieces = [dated(event).encode() for event in case["events"]]
        ends = [threading.Event()] if case.get("end") == "open" else []
        return Reply.stream(*pieces, *ends)
    body = case["body"]
    data = dated(body if isinstance(body, str) else json.dumps(body)).encode()
    headers = {"content-type": "application/json", **case.get("headers", {}), "content-length": str(len(data))}
    return Reply((head(case["status"], headers), data))


def printed(case: dict[str, Any]) -> Outcome:
    """What the client's output comes to in this case."""
    client = CLIENTS[case["client"]]
    reading = Reading(client.table, client.hear, Tap(WORD))
    for line in dated(f"{case['stdout']}{case['stderr']}").splitlines():
        reading.take(line)
    return reading.outcome(Exit(case["exit"]), client.kind)


def check(outcome: Outcome, case: dict[str, Any]) -> None:
    """The outcome is what the case expects."""
    expected = [case["expect"]] if isinstance(case["expect"], str) else case["expect"]
    found, reset = "success", None
    if isinstance(outcome, Failure):
        kind = "" if outcome.capacity_kind is None else f"/{outcome.capacity_kind.value}"
        found = f"{outcome.failure_class.value}{kind}"
        reset = None if outcome.resets_in_ms is None else outcome.resets_in_ms / 1000
        if outcome.resets_at_ms is not None:
            reset = outcome.resets_at_ms / 1000 - time.time()
    assert found in expected, outcome
    wait = case.get("reset")
    assert (reset is None) == (wait is None), outcome
    assert reset is None or abs(reset - wait) <= min(SLACK_SECONDS, 2 * wait / 3), outcome


@pytest.mark.parametrize("case", SERVED, ids=lambda case: case["name"])
def test_answer_of_a_server(server: ChatServer, case: dict[str, Any]) -> None:
    """Each answer has its class, and its reset where it names one."""
    server.answers["/v1/chat/completions"] = reply(case)
    report = complete(Order(server.url, "m", {}, 30), "", {"prompt": "hi"})
    check(parse_report(json.dumps(report).encode()).outcome(None), case)


@pytest.mark.parametrize("case", PRINTED, ids=lambda case: case["name"])
def test_output_of_a_client(case: dict[str, Any]) -> None:
    """Each output has its class, and its reset where it names one."""
    check(printed(case), case)


@pytest.mark.parametrize("text", TALK)
def test_talk_is_the_answer_of_a_server(server: ChatServer, text: str) -> None:
    """A text that only speaks of limits is a result, also where the server counts no token."""
    for tokens in (None, 0, 40):
        counted = () if tokens is None else (usage(5, tokens),)
        server.answers["/v1/chat/completions"] = Reply.stream(delta(text), END, *counted, DONE)
        report = complete(Order(server.url, "m", {}, 30), "", {"prompt": "hi"})
        assert report.get("result", {}).get("text") == text, report


@pytest.mark.parametrize("text", TALK)
@pytest.mark.parametrize("tokens", [0, 40])
def test_talk_is_the_answer_of_a_client(text: str, tokens: int) -> None:
    """The same from a client, whether or not it counts tokens."""
    used = {"input_tokens": tokens, "output_tokens": tokens}
    lines = [
        {"type": "system", "subtype": "init", "session_id": "s", "model": "x", "tools": []},
        {"type": "assistant", "message": {"id": "1", "content": [{"type": "text", "text": text}], "usage": used}},
        {"type": "result", "subtype": "success", "is_error": False, "result": text, "usage": used},
    ]
    stdout = "".join(json.dumps(line) + "\n" for line in lines)
    outcome = printed({"client": "claude-code", "stdout": stdout, "stderr": "", "exit": 0})
    assert not isinstance(outcome, Failure), outcome
    assert outcome.result == {"text": text}
