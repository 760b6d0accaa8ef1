"""The openai kind with a real child process and a real server on loopback."""

from __future__ import annotations

import json
import socket
import threading
import uuid
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest
from typing_extensions import override

from tests.support.chat_server import DONE, END, ChatServer, Reply, delta, event, head, usage
from tests.support.wait import until
from vibey.domain.effort import Effort
from vibey.domain.outcome import CapacityKind, Failure, FailureClass, Success
from vibey.engines.contract import EngineConfig, Job, Renewal, Stopped, StopReason
from vibey.engines.registry import build
from vibey.engines.runner import execute

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from vibey.domain.outcome import Outcome

    Run = Callable[..., Outcome | Stopped]

KEY = "sk-planted-secret-key-0123456789"


@pytest.fixture
def server() -> Iterator[ChatServer]:
    """A server that completes `hello` until told otherwise."""
    with ChatServer() as running:
        running.completes(delta("hel"), delta("lo"), END, usage(1000, 20), DONE)
        yield running


@pytest.fixture
def config(server: ChatServer, monkeypatch: pytest.MonkeyPatch) -> EngineConfig:
    """An engine on that server, with a key."""
    monkeypatch.setenv("TEAM_KEY", KEY)
    return EngineConfig("chat", "openai", base_url=server.url, model="m", api_key_env="TEAM_KEY")


@pytest.fixture
def run(tmp_path: Path, config: EngineConfig) -> Run:
    """Runs a prompt; keyword arguments change the engine."""

    def begin(payload: object = None, *, options: dict[str, object] | None = None, **changes: object) -> object:
        asked = {"prompt": "hi"} if payload is None else payload
        job = Job(7, 70, 9, 1, Effort.HIGH, asked, "site", installation=uuid.uuid4().hex)  # type: ignore[arg-type]
        arguments = {"lease_seconds": 60, "timeout_seconds": 60, "renew": lambda: Renewal.KEPT, **(options or {})}
        engine = build(replace(config, **changes))  # type: ignore[arg-type]
        return execute(engine, job, directory_root=tmp_path, **arguments)  # type: ignore[arg-type]

    return begin  # type: ignore[return-value]


def log(folder: Path) -> str:
    """The run's log."""
    return (folder / "run-70" / "output.log").read_text()


def failed(outcome: Outcome | Stopped) -> tuple[FailureClass, CapacityKind | None, str]:
    """The parts of a failure."""
    assert isinstance(outcome, Failure), outcome
    return outcome.failure_class, outcome.capacity_kind, outcome.detail


def test_completion_becomes_the_result(run: Run, server: ChatServer, tmp_path: Path) -> None:
    """The text streams to the log and is the result; tokens are the server's, the cost is theirs at our prices."""
    outcome = run({"prompt": "hi\u00e9", "system": "be brief"}, price_in=Decimal(3), price_out=Decimal("15.5"))
    assert outcome == Success({"text": "hello"}, Decimal("0.00331"), 1000, 20)
    assert log(tmp_path) == "hello\n"
    [request] = server.asked
    assert request.document == {
        "model": "m",
        "messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi\u00e9"}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    assert request.headers["authorization"] == f"Bearer {KEY}"


def test_text_is_in_the_log_while_it_comes(run: Run, server: ChatServer, tmp_path: Path) -> None:
    """What the model has said so far can be read before it has ended."""
    go_on = threading.Event()
    server.completes(delta("first\n"), go_on, delta("second"), END, DONE)
    ended: list[Outcome | Stopped] = []
    thread = threading.Thread(target=lambda: ended.append(run()))
    thread.start()
    path = tmp_path / "run-70" / "output.log"
    until(lambda: path.exists() and path.read_text() == "first\n", what="the first line")
    go_on.set()
    thread.join()
    assert ended == [Success({"text": "first\nsecond"})]


def test_effort_adds_fields(run: Run, server: ChatServer) -> None:
    """The fields of the effort really achieved are in the request, numbers as numbers."""
    run(efforts={Effort.LOW: (), Effort.STANDARD: ("reasoning_effort=high", "max_tokens=80")})
    document = server.asked[0].document
    assert (document["reasoning_effort"], document["max_tokens"]) == ("high", 80)


def test_plain_answer_and_thoughts(run: Run, server: ChatServer, tmp_path: Path) -> None:
    """A server that does not stream is understood; thoughts are logged and are no part of the result."""
    message = {"role": "assistant", "content": "all"}
    server.refuses(200, {"choices": [{"message": message, "finish_reason": "length"}], "usage": {"prompt_tokens": 3}})
    assert run() == Success({"text": "all", "finish_reason": "length"}, None, 3, None)
    thought = event({"choices": [{"delta": {"reasoning_content": "hmm "}}]})
    server.completes(thought, delta("yes"), END, DONE)
    assert run() == Success({"text": "yes"})
    assert log(tmp_path) == "hmm yes\n"


def test_cut_characters_and_bytes_that_are_no_text(run: Run, server: ChatServer) -> None:
    """Pieces may end within a character, and bytes that are not UTF-8 spoil only themselves."""
    whole = 'data: {"choices": [{"delta": {"content": "\u00e9\u20ac'.encode() + b'\xff"}}]}\r\n\r\n'
    server.completes(*(whole[at : at + 1] for at in range(len(whole))), END, DONE)
    assert run() == Success({"text": "\u00e9\u20ac\ufffd"})


def test_text_larger_than_a_result_is_cut(run: Run, server: ChatServer) -> None:
    """A text no result can hold loses its end and says so; the work is not lost."""
    server.completes(*[delta("\u20ac" * 10_000)] * 20, END, DONE)
    outcome = run()
    assert isinstance(outcome, Success)
    assert outcome.result is not None
    assert outcome.result["truncated"] is True
    assert 50_000 < len(str(outcome.result["text"])) < 90_000


@pytest.mark.parametrize(
    ("status", "headers", "failure_class", "kind", "resets_in_ms"),
    [
        (429, {"retry_after": "90"}, FailureClass.CAPACITY, CapacityKind.WINDOW, 90_000),
        (429, {}, FailureClass.CAPACITY, CapacityKind.WINDOW, None),
        (402, {}, FailureClass.CAPACITY, CapacityKind.CREDITS, None),
        (401, {}, FailureClass.CAPACITY, CapacityKind.LOGIN, None),
        (503, {"retry_after": "2"}, FailureClass.CAPACITY, CapacityKind.BUSY, 2_000),
        (529, {}, FailureClass.CAPACITY, CapacityKind.BUSY, None),
        (500, {}, FailureClass.ENGINE, None, None),
        (404, {}, FailureClass.MISCONFIGURED, None, None),
        (400, {}, FailureClass.WORK, None, None),
    ],
)
def test_refusals(
    run: Run,
    server: ChatServer,
    status: int,
    headers: dict[str, str],
    failure_class: FailureClass,
    kind: CapacityKind | None,
    resets_in_ms: int | None,
) -> None:
    """Each refusal arrives as its class, with the reset the server named, and without the key it repeats."""
    server.refuses(status, {"error": {"message": f"no, {KEY}, no"}}, **headers)
    outcome = run()
    assert failed(outcome) == (failure_class, kind, f"HTTP {status}: no, ********, no" + _advice(status))
    assert isinstance(outcome, Failure)
    assert outcome.resets_in_ms == resets_in_ms


def _advice(status: int) -> str:
    return "; base_url is usually an address that ends in /v1" if status == 404 else ""


def test_error_in_the_stream_keeps_what_was_counted(run: Run, server: ChatServer) -> None:
    """A refusal after a beginning has its class, and its tokens are not forgotten."""
    server.completes(usage(9, 1), delta("so"), event({"error": {"code": 429, "message": "try again in 5s"}}))
    outcome = run(price_in=Decimal(1_000_000))
    expected = Failure(FailureClass.CAPACITY, "", CapacityKind.WINDOW, resets_in_ms=5_000, tokens_in=9, tokens_out=1)
    assert isinstance(outcome, Failure)
    assert replace(outcome, detail="") == replace(expected, cost_usd=Decimal(9))


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (Reply.stream(delta("so f")), "ended before"),
        (Reply.stream(b"data: {\n\n"), "not JSON"),
        (Reply.stream(b"data: [1]\n\n"), "no JSON object"),
        (Reply.stream(b"data: " + b"x" * 5_000_000), "an event of more than"),
        (Reply.of(200, b"<html>", content_type="text/html"), "text/html"),
        (Reply.of(200, b"\xff\x00", content_type="application/json"), "not JSON"),
        (Reply((b"what?\r\n\r\n",)), "what?"),
        (Reply((b"",)), "closed"),
        (Reply((head(200, {"content-type": "text/event-stream", "transfer-encoding": "chunked"}), b"5\r\nda")), ""),
        (Reply((b"HTTP/1.1 200 OK\r\n" + b"x: " + b"y" * 100_000 + b"\r\n\r\n",)), "header line"),
    ],
    ids=["cut", "garbage", "array", "huge", "html", "bytes", "no-http", "nothing", "cut-chunk", "huge-header"],
)
def test_broken_server_is_the_engines_failure(run: Run, server: ChatServer, reply: Reply, words: str) -> None:
    """Whatever a server does wrong is neither the job's fault nor Vibey's."""
    server.answers["/v1/chat/completions"] = reply
    failure_class, _, detail = failed(run())
    assert failure_class is FailureClass.ENGINE
    assert words in detail


def test_nobody_there_is_the_engines_failure(run: Run) -> None:
    """A port nobody listens on, and a name nobody has."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    for address in (f"http://127.0.0.1:{port}/v1", "http://no-such-host.invalid/v1"):
        failure_class, _, detail = failed(run(base_url=address))
        assert failure_class is FailureClass.ENGINE
        assert address in detail


def test_redirect_is_not_followed(run: Run, server: ChatServer) -> None:
    """The key goes to no other address than the operator's."""
    with ChatServer() as other:
        server.refuses(302, b"", location=f"{other.url}/chat/completions")
        failure_class, _, detail = failed(run())
        assert other.asked == []
    assert failure_class is FailureClass.MISCONFIGURED
    assert "base_url" in detail


def test_silence_is_a_stall(run: Run, server: ChatServer) -> None:
    """A server that stops talking is given up, by the process and by the watch."""
    never = threading.Event()
    server.completes(delta("so"), never)
    assert failed(run(stall_seconds=0.5))[0] is FailureClass.ENGINE
    outcome = run(options={"stall_seconds": 0.5})
    assert failed(outcome)[2] == "stall: silent for 0.5 s"


def test_keeping_the_line_open_is_silence_too(run: Run, server: ChatServer) -> None:
    """Comments that only keep a connection alive do not count as a word."""
    server.completes(*(piece for _ in range(40) for piece in (b": waiting\n\n", _Tick())))
    failure_class, _, detail = failed(run(stall_seconds=0.5))
    assert (failure_class, "silent" in detail) == (FailureClass.ENGINE, True)


class _Tick(threading.Event):
    """Set by being waited for: a pause between two pieces."""

    @override
    def wait(self, timeout: float | None = None) -> bool:
        """Pause once."""
        super().wait(timeout)
        return True


def test_cancel_ends_it(run: Run, server: ChatServer) -> None:
    """A run is cancelled in the midst of a stream."""
    server.completes(delta("so"), threading.Event())
    asked = threading.Event()

    def renew() -> Renewal:
        asked.set()
        return Renewal.CANCEL

    outcome = run(options={"renew": renew, "lease_seconds": 3})
    assert asked.is_set()
    assert isinstance(outcome, Stopped)
    assert outcome.reason is StopReason.CANCEL


@pytest.mark.parametrize("payload", [{}, {"prompt": ""}, {"prompt": 5}, {"prompt": "x", "system": ["y"]}])
def test_job_without_a_prompt_asks_nothing(run: Run, server: ChatServer, payload: dict[str, object]) -> None:
    """A payload it cannot use is the work's failure, and costs no request."""
    failure_class, _, detail = failed(run(payload))
    assert failure_class is FailureClass.WORK
    assert "payload." in detail
    assert server.asked == []


def test_nothing_said_is_no_result(run: Run, server: ChatServer) -> None:
    """An empty completion is not passed off as work done."""
    server.completes(event({"choices": [{"delta": {}, "finish_reason": "length"}]}), usage(5, 0), DONE)
    outcome = run()
    assert failed(outcome)[0] is FailureClass.WORK
    assert "length" in failed(outcome)[2]


def test_key_reaches_neither_log_nor_result(run: Run, server: ChatServer, tmp_path: Path) -> None:
    """A server, or model, that repeats the key does not get it into anything kept."""
    server.completes(delta("your key is " + KEY[:9]), delta(KEY[9:] + "!"), END, DONE)
    assert run() == Success({"text": "your key is ********!"})
    assert log(tmp_path) == "your key is ********!\n"


def test_key_cut_at_the_end_of_a_detail_is_hidden(run: Run, server: ChatServer) -> None:
    """No beginning of the key is left where a long message is cut."""
    server.refuses(400, {"error": {"message": "x" * 275 + KEY}})
    assert KEY[:6] not in failed(run())[2]


def test_key_is_in_no_argument_and_no_file(run: Run, server: ChatServer, tmp_path: Path) -> None:
    """Only the process's environment holds the key."""
    key_file = tmp_path / "key"
    key_file.write_text(KEY + "\n")
    assert isinstance(run(api_key_env=None, api_key_file=key_file), Success)
    assert server.asked[0].headers["authorization"] == f"Bearer {KEY}"
    kept = [path for path in (tmp_path / "run-70").rglob("*") if path.is_file()]
    assert kept
    assert not [path for path in kept if KEY in path.read_text()]


@pytest.mark.parametrize("value", ["", "  ", "two words", "l\u00f6ng", "a\nb"])
def test_unusable_key_is_misconfigured(
    run: Run, config: EngineConfig, value: str, monkeypatch: pytest.MonkeyPatch, server: ChatServer
) -> None:
    """A missing or broken key is named by where it should be, never by what it is."""
    monkeypatch.setenv("TEAM_KEY", value)
    failure_class, _, detail = failed(run())
    assert (failure_class, "TEAM_KEY" in detail) == (FailureClass.MISCONFIGURED, True)
    assert server.asked == []
    health = build(config).doctor()
    assert health.logged_in is False
    assert "TEAM_KEY" in health.fix


def test_proxy_counts_only_when_allowed(run: Run, server: ChatServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy of the worker's is used only by an engine that names the variable."""
    with ChatServer() as proxy:
        target = "http://model.invalid/v1"
        monkeypatch.setenv("http_proxy", proxy.url.removesuffix("/v1").replace("://", "://me:pass-word-x@"))
        assert failed(run(base_url=target))[0] is FailureClass.ENGINE
        assert proxy.asked == []
        proxy.answers[f"{target}/chat/completions"] = Reply.stream(delta("by proxy"), END, DONE)
        assert run(base_url=target, env=("http_proxy",)) == Success({"text": "by proxy"})
        assert proxy.asked[0].headers["proxy-authorization"].startswith("Basic ")
    assert server.asked == []


MODELS = {"object": "list", "data": [{"id": "m", "owned_by": "x"}]}


def test_doctor_finds_server_and_model(config: EngineConfig, server: ChatServer) -> None:
    """The model is listed: all is well, by one request that is no completion, kept for a minute."""
    server.answers["/v1/models"] = Reply.of(200, MODELS, server="llm/1.2")
    for _ in range(3):
        health = build(config).doctor()
        assert (health.good, health.version, health.logged_in) == (True, "llm/1.2", True)
    assert [request.line for request in server.asked] == ["GET /v1/models HTTP/1.1"]


def test_doctor_of_a_server_without_keys(config: EngineConfig, server: ChatServer) -> None:
    """A local server's version is asked for, and a name without its tag is found."""
    server.answers["/v1/models"] = Reply.of(200, {"data": [{"id": "m:latest", "owned_by": "library"}]})
    server.answers["/api/version"] = Reply.of(200, {"version": "0.9.1"})
    health = build(replace(config, api_key_env=None)).doctor()
    assert (health.good, health.version, health.logged_in) == (True, "0.9.1", None)
    assert not any("authorization" in request.headers for request in server.asked)


@pytest.mark.parametrize(
    ("reply", "good", "fix"),
    [
        (Reply.of(200, {"data": [{"id": "other", "owned_by": "library"}]}), False, "ollama pull m"),
        (Reply.of(200, {"object": "list", "data": None}), False, "ollama pull m"),
        (Reply.of(200, {"data": [{"id": "other", "owned_by": "vllm"}]}), False, "engine.chat.model"),
        (Reply.of(200, {"data": [{"id": "other", "owned_by": "me"}]}), True, "engine.chat.model"),
        (Reply.of(200, b"<html>"), False, "/v1"),
        (Reply.of(401, {"error": {"message": KEY}}), False, "key"),
        (Reply.of(404, b""), True, ""),
        (Reply.of(503, b"busy"), True, ""),
        (Reply.of(500, b"oops"), False, "base_url"),
        (Reply((b"",)), False, "start the model server"),
    ],
)
def test_doctor_says_what_to_do(config: EngineConfig, server: ChatServer, reply: Reply, good: bool, fix: str) -> None:  # noqa: FBT001
    """Whatever is wrong, the doctor says what mends it, and keeps the key to itself."""
    server.answers["/v1/models"] = reply
    health = build(config).doctor()
    assert health.good is good
    assert fix in health.fix
    assert (health.fix == "") is (fix == "")
    assert KEY not in json.dumps([health.detail, health.fix])
