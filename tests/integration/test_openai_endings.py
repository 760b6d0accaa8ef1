"""How answers of model servers end, and what follows for circuit, cap and attempts: real servers on loopback."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.chat_server import DONE, END, ChatServer, Reply, delta, event, head, usage
from vibey.engines.chat import END_SECONDS, Order, complete
from vibey.services import views
from vibey.services.route import route
from vibey.services.run import carry_out

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.chat_server import Piece
    from tests.support.installation import Bench

TOO_LONG = "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens."
ENGINE, WORK, CAPACITY = "engine", "work", "capacity"


@pytest.fixture
def server() -> Iterator[ChatServer]:
    """A model server that a test gives its answers."""
    with ChatServer() as running:
        yield running


def answer(server: ChatServer, reply: Reply, silence: float = 30) -> dict[str, Any]:
    """The report of a completion that the server answers so."""
    server.answers["/v1/chat/completions"] = reply
    return complete(Order(server.url, "m", {}, silence), "", {"prompt": "hi"})


def text(report: dict[str, Any]) -> object:
    """The text of a success."""
    assert "failure" not in report, report
    return report["result"]["text"]


def failed(report: dict[str, Any]) -> tuple[str, str | None]:
    """Class and kind of a failure."""
    assert "failure" in report, report
    return report["failure"]["class"], report["failure"].get("kind")


def choice(**more: object) -> bytes:
    """An event with one choice."""
    return event({"choices": [{"index": 0, "delta": {"content": ""}, **more}]})


def plain(document: object, kind: str, *, closes: bool = True) -> Reply:
    """A document of this media type, without a length; the connection stays open unless it closes."""
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    rest: tuple[Piece, ...] = () if closes else (threading.Event(),)
    return Reply((head(200, {"content-type": kind} if kind else {}), body, *rest))


def test_finish_on_an_open_connection_is_a_success(server: ChatServer) -> None:
    """No [DONE] comes and the connection is never closed: the answer is complete all the same, with its tokens."""
    assert END_SECONDS == 5.0
    never = threading.Event()
    report = answer(server, Reply.stream(delta("all done"), END, usage(7, 2), never), silence=0.5)
    assert (text(report), report["tokens_in"], report["tokens_out"]) == ("all done", 7, 2)
    assert not never.is_set()


def test_an_end_that_says_it_is_none(server: ChatServer) -> None:
    """Events that only say that all is well, or nothing, end nothing and are no error."""
    fine = (event({"code": 200, "message": "success"}), event({"error": None}), event({"error": {}}), b"data:\n\n")
    assert text(answer(server, Reply.stream(*fine, delta("x"), *fine, END, DONE))) == "x"


def test_finish_and_comments_on_an_open_connection(server: ChatServer) -> None:
    """What keeps the line open after the end holds the slot no longer."""
    pause = threading.Event()
    report = answer(server, Reply.stream(delta("x"), END, b": ping\n\n", event({}), pause), silence=0.5)
    assert text(report) == "x"


def test_finish_and_a_broken_connection(server: ChatServer) -> None:
    """A chunk that is cut off after the end takes nothing away."""
    chunk = delta("x") + END
    pieces = (f"{len(chunk):x}\r\n".encode(), chunk, b"\r\n5\r\nda")
    kinds = {"content-type": "text/event-stream", "transfer-encoding": "chunked"}
    assert text(answer(server, Reply((head(200, kinds), *pieces)))) == "x"


def test_a_finish_in_every_piece_ends_nothing(server: ChatServer) -> None:
    """Some servers say "stop" with each piece; what comes after it belongs to the answer."""
    pieces = (delta(part, finish_reason="stop") for part in ("a", "b", "c"))
    assert text(answer(server, Reply.stream(*pieces, DONE))) == "abc"


def test_silence_before_the_end_is_no_end(server: ChatServer) -> None:
    """Without a finish an open connection is a server that has stopped talking."""
    report = answer(server, Reply.stream(delta("half"), choice(finish_reason=""), threading.Event()), silence=0.5)
    assert failed(report) == (ENGINE, None)


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ((choice(finish_reason="error"), DONE), (ENGINE, None)),
        ((choice(finish_reason="network_error"), DONE), (ENGINE, None)),
        ((choice(finish_reason="abort"), DONE), (ENGINE, None)),
        ((choice(finish_reason="insufficient_system_resource"), DONE), (CAPACITY, "busy")),
        ((choice(finish_reason="stop", error={"code": 502, "message": "Upstream error"}), DONE), (ENGINE, None)),
        ((choice(error={"message": TOO_LONG}), DONE), (WORK, None)),
        ((choice(error={"code": 429, "message": "Rate limit reached"}), DONE), (CAPACITY, "window")),
        ((event({"choices": [{"message": {"content": "", "error": "out of credits"}}]}), DONE), (CAPACITY, "credits")),
        ((END, event({"error": {"message": "internal"}})), (ENGINE, None)),
        ((b'error: {"code":400,"message":"the request exceeds the available context size"}\n\n', DONE), (WORK, None)),
        ((b"error: Rate limit exceeded\n\n", DONE), (CAPACITY, "window")),
        ((b"event: error\ndata: " + json.dumps({"message": TOO_LONG}).encode() + b"\n\n",), (WORK, None)),
        ((b"event: error\ndata: " + TOO_LONG.encode() + b"\n\n",), (WORK, None)),
        ((b'event: error\ndata: "Overloaded"\n\n',), (CAPACITY, "busy")),
        ((b"data: Rate limit reached\n\n",), (CAPACITY, "window")),
        ((b'{"error":{"message":"Budget has been exceeded! Max budget: 10"}}\n',), (CAPACITY, "credits")),
        ((b'{"error":{"message":"' + TOO_LONG.encode() + b'"}}',), (WORK, None)),
        ((b"data: " + json.dumps({"error": TOO_LONG}).encode(),), (WORK, None)),
        ((event([{"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "q"}}]),), (CAPACITY, "window")),
        ((event({"type": "error", "error": {"type": "overloaded_error", "message": "O"}}),), (CAPACITY, "busy")),
        ((event({"object": "error", "message": TOO_LONG, "code": 40303}),), (WORK, None)),
        ((event({"code": "Arrearage", "message": "Access denied"}),), (CAPACITY, "credits")),
        ((event({"detail": "Max budget limit reached."}),), (CAPACITY, "credits")),
        ((event({"error_code": 336501, "error_msg": "Rate limit reached for RPM"}),), (CAPACITY, "window")),
        ((b'{"message": "Too many requests"}\n',), (CAPACITY, "window")),
        ((b'{"status": "error", "msg": "out of order"}\n',), (ENGINE, None)),
        ((event({"errors": ["Rate limit exceeded"]}),), (CAPACITY, "window")),
        ((event({"base_resp": {"status_code": 2013, "status_msg": "context window exceeds limit"}}),), (WORK, None)),
        ((event({"error": {"message": "", "code": None}}), DONE), (ENGINE, None)),
    ],
)
def test_half_an_answer_is_no_success(
    server: ChatServer, pieces: tuple[Piece, ...], expected: tuple[str, str | None]
) -> None:
    """Whatever the server says went wrong is a failure of its class, wherever it says so, also after half an answer."""
    assert failed(answer(server, Reply.stream(*pieces))) == expected
    assert failed(answer(server, Reply.stream(delta("half of the ans"), *pieces))) == expected


def test_whole_answer_with_a_failed_choice(server: ChatServer) -> None:
    """The same without a stream."""
    message = {"role": "assistant", "content": "half of the ans"}
    for more in ({"finish_reason": "error"}, {"finish_reason": "stop", "error": {"code": 502, "message": "Upstream"}}):
        report = answer(server, Reply.of(200, {"choices": [{"message": message, **more}]}))
        assert failed(report) == (ENGINE, None)


@pytest.mark.parametrize("kind", ["", "text/plain", "text/html", "application/octet-stream", "application/json"])
def test_media_types_of_small_gateways(server: ChatServer, kind: str) -> None:
    """An answer is read for what it is, whatever type it is sent with."""
    whole = {"choices": [{"message": {"content": "whole"}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 3}}
    stream = delta("str") + delta("eam") + END + DONE
    lines = b"".join(
        json.dumps({"choices": [{"delta": {"content": part}, "finish_reason": end}]}).encode() + b"\n"
        for part, end in (("li", None), ("nes", "stop"))
    )
    assert text(answer(server, plain(stream, kind))) == "stream"
    assert text(answer(server, plain(lines, kind))) == "lines"
    for body in (whole, json.dumps(whole, indent=2).encode(), json.dumps(whole).encode() + b"\n"):
        report = answer(server, plain(body, kind))
        assert (text(report), report["tokens_in"]) == ("whole", 3)
    assert text(answer(server, plain(json.dumps(whole).encode() + b"\n", kind, closes=False), silence=0.5)) == "whole"
    assert failed(answer(server, plain({"error": {"message": TOO_LONG}}, kind))) == (WORK, None)
    assert failed(answer(server, plain(b"Rate limit exceeded, try again later", kind))) == (CAPACITY, "window")
    assert failed(answer(server, plain(b"<html><title>Login</title>rate limit reached</html>", kind))) == (ENGINE, None)


def test_content_as_a_list_of_parts(server: ChatServer, capfd: pytest.CaptureFixture[str]) -> None:
    """Text is the result, thoughts are only printed."""
    thought = [{"type": "thinking", "thinking": [{"type": "text", "text": "hmm "}]}]
    parts: list[object] = [{"type": "text", "text": "the answer "}, "is ", {"type": "image_url", "image_url": {}}, None]
    pieces = (choice(delta={"content": thought}), choice(delta={"content": parts}), delta("4"), END, DONE)
    assert text(answer(server, Reply.stream(*pieces))) == "the answer is 4"
    assert capfd.readouterr().out == "hmm the answer is 4\n"


def test_counts_as_servers_write_them(server: ChatServer) -> None:
    """Whole numbers in any notation count, anything else does not."""
    odd = event({"choices": None, "usage": {"prompt_tokens": 1e3, "completion_tokens": -1}})
    report = answer(server, Reply.stream(delta("x"), usage(1, 2), odd, END, DONE))
    assert (report["tokens_in"], report["tokens_out"]) == (1000, 2)


@pytest.mark.parametrize(
    ("said", "tokens", "expected"),
    [
        ("You've hit your limit \u00b7 resets 3pm (Europe/Berlin)", 0, (CAPACITY, "window")),
        ("Credit balance is too low", 0, (CAPACITY, "credits")),
        ("Prompt is too long", 0, (WORK, None)),
        ("You've hit your limit \u00b7 resets 3pm (Europe/Berlin)", 9, None),
        ("Rate limit reached", None, None),
        ("To handle a rate limit, wait. You've hit your limit when the server answers 429.", 0, None),
    ],
)
def test_sentence_in_the_place_of_an_answer(
    server: ChatServer, said: str, tokens: int | None, expected: tuple[str, str] | None
) -> None:
    """It is a refusal only if it is nothing else and no token was spent on it."""
    counted = () if tokens is None else (usage(5, tokens),)
    report = answer(server, Reply.stream(delta(said), END, *counted, DONE))
    if expected is None:
        assert text(report) == said
    else:
        assert failed(report) == expected


AFTER = {
    # The cause, and the status and body that show it; then the circuit, the attempts and the units of the cap in use.
    "prompt_too_long": (500, {"error": {"message": TOO_LONG}}, None, 1, 1),
    "larger_than_rate": (
        429,
        {"error": {"message": "Request too large on tokens per min (TPM): Limit 30000, Requested 47133"}},
        None,
        1,
        1,
    ),
    "output_limit": (400, {"error": {"message": "max_tokens is too large: 9. At most 4 are supported"}}, None, 1, 1),
    "credits": (400, {"error": {"message": "Budget has been exceeded!"}}, "credits_exhausted", 0, 0),
    "window": (429, {"error": {"message": "Rate limit reached", "resets_in": 900}}, "window_exhausted", 0, 0),
    "login": (400, {"error": {"message": "API key not valid."}}, "login_failed", 0, 0),
    "overloaded": (503, {"error": {"message": "The model is overloaded"}}, None, 0, 0),
    "server_fault": (500, {"error": {"message": "oops"}}, None, 1, 1),
}


@pytest.mark.parametrize("name", AFTER)
def test_circuit_cap_and_attempts_after_a_refusal(
    open_bench: Callable[..., Bench], server: ChatServer, name: str
) -> None:
    """A whole run on a real installation: what is the job's own touches no circuit, what is capacity costs nothing."""
    status, body, reason, attempts, units = AFTER[name]
    engine = {"kind": "openai", "tier": "paid", "base_url": server.url, "model": "m", "account": "x"}
    covers = {"paid_daily_cap": 5, "paid_daily_cap_covers": "all"}
    bench = open_bench(engine={"chat": engine}, engines=covers)
    bench.enqueue(1, payload={"prompt": "hi"})
    server.refuses(status, body)
    assert route(bench.installation, "main") == 1
    run, token, _ = bench.live()[0]
    assert carry_out(bench.installation, run, token) == "failed"
    assert bench.rows("select state, attempt from jobs") == [("queued", attempts)]
    opened = bench.rows("select open_reason from accounts where name = 'x' and open_reason is not null")
    assert opened == ([] if reason is None else [(reason,)])
    trouble = bench.rows("select failures_in_a_row from accounts where name = 'x'")
    fed = reason is not None or name == "server_fault"
    assert (trouble[0][0] if trouble else 0) == int(fed)
    assert views.status(bench.installation, environ={})["cap"]["used"] == units
