"""The tap inside real Node programs: what it reports of their requests, however these are made, and to whom."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest
from typing_extensions import override

from vibey.engines.clients.tap import Tap

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Run = Callable[..., tuple[list[dict[str, Any]], str]]

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed here")

BODY = {"error": {"message": "slow down", "code": "rate_limit_exceeded"}}
# The two ways of a request: by `fetch`, which the tap replaces, and past it, as a client does that brings an undici.
ASKS = {
    "fetch": """
export async function ask(url, init = {}) {
  const answer = await fetch(url, { method: "POST", body: "{}", ...init })
  return [answer.status, await answer.text()]
}
""",
    "undici": """
globalThis.fetch.name
await fetch("data:,x")
const agent = globalThis[Symbol.for("undici.globalDispatcher.1")]
export function ask(url, init = {}) {
  const { origin, pathname, search } = new URL(url)
  return new Promise((resolve, reject) => {
    let status, text = ""
    agent.dispatch({ origin, path: pathname + search, method: "POST", body: "{}", ...init }, {
      onConnect() {}, onError: reject,
      onHeaders(code) { status = code; return true },
      onData(chunk) { text += chunk; return true },
      onComplete() { resolve([status, text]) },
    })
  })
}
""",
}
WRAPPERS = {
    "spawnSync": "spawnSync(process.execPath, ['--expose-gc', cli], { stdio: 'inherit', env: { ...process.env } })",
    "spawn": "spawn(process.execPath, [cli], { stdio: ['pipe', 'inherit', 'inherit'] })",
    "fork": "fork(cli)",
}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    @override
    def log_message(self, format: str, *args: Any) -> None:
        return

    def do_GET(self) -> None:
        self.do_POST()

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length") or 0))
        status = int(self.path.partition("status=")[2] or 429)
        body = json.dumps(BODY).encode()
        self.send_response(status)
        self.send_header("Retry-After", "3600")
        self.send_header("X-RateLimit-Remaining", "7")
        self.send_header("Set-Cookie", "session=private")
        unending = "unending" in self.path
        self.send_header("content-length", str(len(body) + unending))
        self.send_header("connection", "close")
        self.end_headers()
        self.wfile.write(body)
        if unending:
            self.server.over.wait(20)  # type: ignore[attr-defined]


@pytest.fixture
def url() -> Iterator[str]:
    """A provider that answers with the status in the query, by default a refusal, and names limits."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        server.over = threading.Event()  # type: ignore[attr-defined]
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
        server.over.set()  # type: ignore[attr-defined]
        server.shutdown()
        thread.join()


@pytest.fixture
def run(tmp_path: Path, url: str) -> Run:
    """Runs a program under a tap: the tap's lines, and what the program printed."""

    def begin(program: str, **variables: str) -> tuple[list[dict[str, Any]], str]:
        (tmp_path / "main.mjs").write_text(program, encoding="utf-8")
        passed = {"PATH": os.environ["PATH"], **variables}
        tap = Tap()
        environment = {**passed, **tap.node_variables(url, passed), "URL": f"{url}/chat/completions"}
        ended = subprocess.run(
            (str(shutil.which("node")), str(tmp_path / "main.mjs")),
            env=environment,
            capture_output=True,
            timeout=60,
            check=True,
            text=True,
        )
        told = [json.loads(line) for line in ended.stderr.splitlines() if line.startswith("{")]
        assert all(tap.signed(line) for line in told), ended.stderr
        return told, ended.stdout

    return begin


@pytest.mark.parametrize("way", ASKS)
def test_each_refusal_is_reported_once(way: str, run: Run) -> None:
    """With what it says of a reset; the client gets its answer as it is, and nothing private is printed."""
    asking = 'for (const _ of "123") console.log(JSON.stringify(await ask(process.env.URL)))'
    told, printed = run(f"{ASKS[way]}\n{asking}")
    assert [each["type"] for each in told] == ["vibey.request", *["vibey.refusal"] * 3]
    for each in told[1:]:
        assert each["status"] == 429
        assert (each["headers"]["retry-after"], each["headers"]["x-ratelimit-remaining"]) == ("3600", "7")
        assert set(each["headers"]) == {"date", "retry-after", "x-ratelimit-remaining"}
        if way == "fetch":
            assert json.loads(each["body"]) == BODY
    assert [json.loads(line) for line in printed.splitlines()] == [[429, json.dumps(BODY)]] * 3


@pytest.mark.parametrize("way", ASKS)
def test_a_refusal_whose_body_does_not_end_is_reported(way: str, run: Run) -> None:
    """Status and headers suffice: the client would wait for the rest for as long as the connection is open."""
    asking = 'ask(process.env.URL + "?unending").catch(() => 0); setTimeout(() => process.exit(), 5000)'
    told, _ = run(f"{ASKS[way]}\n{asking}")
    assert [each["type"] for each in told] == ["vibey.request", "vibey.refusal"]
    assert told[1]["headers"]["retry-after"] == "3600"


@pytest.mark.parametrize("way", ASKS)
def test_limits_of_successes_are_reported_seldom(way: str, run: Run) -> None:
    """Once for the successes of ten seconds; a refusal among them is reported all the same."""
    asking = 'for (const status of [200, 201, 503, 200]) await ask(process.env.URL + "?status=" + status)'
    told, _ = run(f"{ASKS[way]}\n{asking}")
    assert [(each["type"], each.get("status")) for each in told] == [
        ("vibey.request", None),
        ("vibey.limits", 200),
        ("vibey.refusal", 503),
    ]
    assert told[1]["headers"]["x-ratelimit-remaining"] == "7"


@pytest.mark.parametrize("way", ASKS)
def test_other_requests_are_no_concern(way: str, run: Run) -> None:
    """Neither those to another address nor those for anything but an answer of the model."""
    asking = """
const other = process.env.URL.replace("127.0.0.1", "localhost")
for (const url of [other, process.env.URL + "/files", process.env.URL.replace("chat/completions", "models")])
  await ask(url).catch(() => 0)
await ask(process.env.URL, { method: "GET", body: undefined })
"""
    told, _ = run(f"{ASKS[way]}\n{asking}")
    assert told == []


@pytest.mark.parametrize("wrapper", WRAPPERS.values(), ids=WRAPPERS)
@pytest.mark.parametrize("way", ASKS)
def test_a_wrapper_passes_the_tap_on_and_the_client_does_not(way: str, wrapper: str, run: Run, tmp_path: Path) -> None:
    """What a small program starts in its own place is watched; a tool of the client's finds no trace of the tap."""
    names = "JSON.stringify(Object.keys(process.env).filter(n => /^VIBEY|NODE_OPTIONS/.test(n)))"
    tool = f"console.log({names} + (process.env.NODE_OPTIONS ?? ''))"
    (tmp_path / "cli.mjs").write_text(
        f"{ASKS[way]}\nimport {{ execFileSync }} from 'node:child_process'\n"
        f"process.stdout.write(execFileSync(process.execPath, ['-e', `{tool}`], {{ encoding: 'utf8' }}))\n"
        "await ask(process.env.URL)\n",
        encoding="utf-8",
    )
    program = f"""
const {{ spawnSync, spawn, fork }} = await import("node:child_process")
const cli = new URL("cli.mjs", import.meta.url).pathname
{wrapper}
"""
    told, printed = run(program)
    assert [each["type"] for each in told] == ["vibey.request", "vibey.refusal"]
    assert printed == "[]\n"
    told, printed = run(program, NODE_OPTIONS="--no-deprecation")
    assert [each["type"] for each in told] == ["vibey.request", "vibey.refusal"]
    assert printed == '["NODE_OPTIONS"]--no-deprecation\n'
