"""`vibey init` and what it finds; and the command line's own manners: quick help, quiet ends of pipes."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
from typing_extensions import override

from tests.support.chat_server import ChatServer, Reply
from tests.support.cli import Cli
from tests.support.json_output import described
from vibey.embedded.processes import free_port
from vibey.engines.contract import Health
from vibey.services import discovery, starter
from vibey.services.discovery import Found
from vibey.services.fleet import config_of, looks
from vibey.settings import load

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

ROOT = Path(__file__).parents[2]
SERVER = Found("ollama", "openai", "local", "http://127.0.0.1:11434/v1")


@contextmanager
def answering(body: bytes, status: int = 200) -> Iterator[int]:
    """A server on a loopback port that gives this answer to every request; yields the port."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        @override
        def log_message(self, format: str, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Answer)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(
    ("body", "status", "model"),
    [
        (b'{"object": "list", "data": [{"id": "qwen3-coder"}, {"id": "other"}]}', 200, "qwen3-coder"),
        (b'{"object": "list", "data": null}', 200, None),
    ],
)
def test_a_model_server_is_found(body: bytes, status: int, model: str | None) -> None:
    """A server that lists models as the OpenAI API does is found, with the first of them."""
    with answering(body, status) as port:
        found = discovery.server("local", port)
    assert found is not None
    assert (found.where, found.model, found.is_usable) == (f"http://127.0.0.1:{port}/v1", model, model is not None)


@pytest.mark.parametrize(
    ("body", "status"), [(b"<html>", 200), (b"[1]", 200), (b'{"data": 3}', 200), (b'{"data": []}', 404)]
)
def test_another_server_is_no_engine(body: bytes, status: int) -> None:
    """Whatever else listens on a well-known port is not taken for a model server."""
    with answering(body, status) as port:
        assert discovery.server("local", port) is None


def test_a_silent_port_is_no_engine() -> None:
    """Nothing listening is found at once to be nothing."""
    assert discovery.server("local", free_port()) is None


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Puts an executable with this name and shell script on a PATH that holds nothing else of a client's."""
    folder, home = tmp_path / "bin", tmp_path / "home"
    folder.mkdir()
    home.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}/usr/bin{os.pathsep}/bin")
    monkeypatch.setenv("HOME", str(home))
    for name in {name for vendor in discovery.CLIENTS.values() for name in vendor.keys}:
        monkeypatch.delenv(name, raising=False)

    def put(name: str, script: str) -> None:
        (folder / name).write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        (folder / name).chmod(0o755)

    return put


CODEX = '[ "$1" = login ] && { echo Not logged in; exit 1; }; echo codex-cli 1.2.3'


@pytest.fixture
def ports(monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, int]], None]:
    """Says on which ports model servers are looked for; none, until told."""
    monkeypatch.setattr(discovery, "SERVERS", {})
    return lambda found: monkeypatch.setattr(discovery, "SERVERS", found)


@pytest.fixture
def model_server() -> Iterator[ChatServer]:
    """A server of OpenAI's API with three models, the first of which answers no question."""
    with ChatServer() as server:
        entries = [{"id": name, "owned_by": "library"} for name in ("nomic-embed-text", "qwen3-coder", "other")]
        server.answers["/v1/models"] = Reply.of(200, {"object": "list", "data": entries})
        server.answers["/api/version"] = Reply.of(200, {"version": "0.11.4"})
        yield server


def port_of(server: ChatServer) -> int:
    """The server's port."""
    return urlsplit(server.url).port or 0


def test_what_is_written_works(
    programs: Callable[[str, str], None],
    ports: Callable[[dict[str, int]], None],
    model_server: ChatServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Server, login and key make engines that the check and the doctor find good, one account a vendor."""
    ports({"ollama": port_of(model_server)})
    programs("claude", '[ "$1" = auth ] && exit 0; echo "2.1.197 (Claude Code)"')
    programs("codex", CODEX)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-nobody")
    path = tmp_path / "vibey.toml"
    vibey = Cli(path)
    answer = described("init", vibey("init", "--json").json)
    written = {each["name"]: each for each in answer["engines"]}
    assert [(name, each["version"], each["logged_in"]) for name, each in written.items()] == [
        ("ollama", "0.11.4", None),
        ("claude", "2.1.197", True),
        ("codex", "1.2.3", True),
    ]
    assert all(each["runnable"] and not each["needs"] for each in written.values())
    engines = load(path, {}).engine
    assert (engines["ollama"].model, engines["ollama"].tier) == ("qwen3-coder", "local")
    assert [engines[name].account for name in ("claude", "codex")] == ["anthropic", "openai"]
    assert (engines["claude"].api_key_env, engines["codex"].api_key_env) == (None, "OPENAI_API_KEY")
    assert {engine.price_in for engine in engines.values()} == {None}
    assert vibey("config", "check").code == 0
    assert all(health.good for _, health in looks(config_of(engine) for engine in engines.values()))
    assert not [asked for asked in model_server.asked if asked.line.startswith("POST")]


def test_a_missing_login_is_all_that_is_missing(
    programs: Callable[[str, str], None], ports: Callable[[dict[str, int]], None], tmp_path: Path
) -> None:
    """A client without a login is an engine already, and both the file and the output say how to log in."""
    ports({})
    programs("codex", CODEX)
    said = Cli(tmp_path / "vibey.toml")("init")
    assert "codex: 1.2.3, not logged in\n" in said.out
    assert "0 of 1 engine can run jobs now\nnext: vibey up, once one of them has its login" in said.out
    assert "or put a key in $CODEX_API_KEY" in said.out
    assert list(load(tmp_path / "vibey.toml", {}).engine) == ["codex"]
    text = (tmp_path / "vibey.toml").read_text(encoding="utf-8")
    assert "# Not logged in; run: codex login" in text
    assert "codex login" in said.out


@pytest.mark.parametrize(
    ("script", "reason"), [("exit 3", "exit 3"), ("echo hello", "hello"), ("exec sleep 600", "no answer within")]
)
def test_a_program_that_is_no_client_is_a_comment(
    script: str,
    reason: str,
    programs: Callable[[str, str], None],
    ports: Callable[[dict[str, int]], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What has a client's name and does not answer like one is told and written as a comment, with why."""
    ports({})
    monkeypatch.setattr(discovery, "LOOK_SECONDS", 2.0)
    programs("gemini", script)
    said = Cli(tmp_path / "vibey.toml")("init")
    assert "gemini" in said.out
    assert reason in said.out
    assert load(tmp_path / "vibey.toml", {}).engine == {}
    text = (tmp_path / "vibey.toml").read_text(encoding="utf-8")
    assert "# [engine.gemini]" in text
    assert reason in text


def test_one_that_hangs_keeps_no_other_waiting(
    programs: Callable[[str, str], None],
    ports: Callable[[dict[str, int]], None],
    tmp_path: Path,
) -> None:
    """Each is asked while the others are, and whoever keeps us waiting is named meanwhile."""
    ports({})
    hanging = tmp_path / "hanging"
    os.mkfifo(hanging)
    programs("codex", CODEX)
    # The slow one answers once it is known that the quick one was asked, and that somebody heard of the waiting.
    programs("claude", f'[ "$1" = auth ] && exit 0; read go < {hanging}; echo "$go"')
    named: list[str] = []

    def waiting(names: Sequence[str]) -> None:
        named.extend(names)
        hanging.write_text("2.1.197\n", encoding="utf-8")

    found = {each.name: each.health.version for each in discovery.discover(waiting)}
    assert found == {"claude": "2.1.197", "codex": "1.2.3"}
    assert "claude" in named


def test_a_server_without_a_model_is_a_comment(tmp_path: Path) -> None:
    """A server that has nothing to ask yet would be no usable engine, and is written as what to complete."""
    path = tmp_path / "vibey.toml"
    text = starter.write(path, [SERVER], force=False)
    assert load(path, {}).engine == {}
    assert "ollama pull" in text
    assert "# [engine.ollama]" in text
    assert "# [engine.agent]" in text


def test_odd_names_are_written_as_they_are(tmp_path: Path) -> None:
    """A model's name may hold what TOML has to escape; the other models are named beside it."""
    path = tmp_path / "vibey.toml"
    odd = replace(SERVER, model='a "quoted" \\ model', others=("b", "c"))
    text = starter.write(path, [odd], force=False)
    assert load(path, {}).engine["ollama"].model == 'a "quoted" \\ model'
    assert "# Other models there: b, c" in text
    assert "engine.agent" not in text


@pytest.mark.parametrize(
    ("keys", "logins", "cap", "words"),
    [
        (0, 0, 10, "0 API keys and 0 subscriptions"),
        (0, 2, 50, "0 API keys and 2 subscriptions"),
        (1, 0, 10, "1 API key and 0 subscriptions"),
        (1, 1, 10, "1 API key and 1 subscription"),
    ],
)
def test_the_cap_covers_every_paid_run_of_what_was_found(
    tmp_path: Path, keys: int, logins: int, cap: int, words: str
) -> None:
    """Ten a day where a key is billed, fifty where there are subscriptions only; and a retry takes a unit, too."""
    logged_in = Health(installed=True, logged_in=True)
    found = [
        *(Found(f"k{n}", "noop", "paid", "/k", key_variable="KEY", health=logged_in) for n in range(keys)),
        *(Found(f"s{n}", "noop", "paid", "/s", health=logged_in) for n in range(logins)),
        Found("out", "noop", "paid", "/o", health=Health(installed=True, logged_in=False)),
        Found("desk", "noop", "local", "/d", health=logged_in),
    ]
    path = tmp_path / "vibey.toml"
    text = starter.write(path, found, force=False)
    settings = load(path, {}).engines
    assert (settings.paid_daily_cap, settings.paid_daily_cap_covers) == (cap, "all")
    assert f"# Found here: {words}." in text
    assert "a retry is a run of its own and takes a unit" in text


def test_nothing_found_writes_nothing(
    programs: Callable[[str, str], None],  # noqa: ARG001  (no client of this machine's)
    ports: Callable[[dict[str, int]], None],
    tmp_path: Path,
) -> None:
    """Without any engine: exit 3, no file, also where one is to be replaced, and everything looked for is named."""
    port = free_port()
    ports({"ollama": port})
    path = tmp_path / "vibey.toml"
    said = Cli(path)("init")
    assert said.code == 3
    assert not path.exists()
    for words in ("claude, codex, opencode, gemini, qwen", f"{port} (ollama)", "nothing was written", "[engine.agent]"):
        assert words in said.complaint
    path.write_text("# mine\n", encoding="utf-8")
    assert Cli(path)("init", "--force").code == 3
    assert path.read_text(encoding="utf-8") == "# mine\n"


@pytest.mark.parametrize(("inside", "root"), [("site/src", "site"), ("elsewhere", None), ("home", None)])
def test_clients_may_work_in_the_repository_init_runs_in(
    inside: str,
    root: str | None,
    programs: Callable[[str, str], None],
    ports: Callable[[dict[str, int]], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Inside a repository its folder is a root; elsewhere, and in a home that is one, the key is a comment."""
    ports({})
    programs("claude", '[ "$1" = auth ] && exit 0; echo "2.1.197 (Claude Code)"')
    for folder in ("site/.git", "site/src", "elsewhere", "home/.git"):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
    monkeypatch.chdir(tmp_path / inside)
    path = tmp_path / "vibey.toml"
    said = Cli(path)("init")
    assert said.code == 0
    assert load(path, {}).engine["claude"].workspace_roots == (() if root is None else (tmp_path / root,))
    text = path.read_text(encoding="utf-8")
    assert "# workspace_roots = [" in text
    expected = (
        f"may work in clones of {tmp_path}/site on: claude" if root else "name folders in workspace_roots of: claude"
    )
    assert expected in said.out
    assert "not on PATH: codex, opencode, gemini, qwen" in said.out
    assert said.out.endswith("1 of 1 engine can run jobs now\nnext: vibey up\n")


def test_up_says_what_a_file_without_engines_needs(tmp_path: Path) -> None:
    """Not `vibey init`, which refuses to replace it; and disabled engines are told from none."""
    path = tmp_path / "vibey.toml"
    path.write_text("[engines]\n", encoding="utf-8")
    said = Cli(path)("up")
    assert said.code == 3
    assert f"no engine is configured in {path}" in said.complaint
    assert "vibey init --force" in said.complaint
    path.write_text('[engine.a]\nkind = "noop"\nenabled = false\n', encoding="utf-8")
    assert f"every engine in {path} is disabled" in Cli(path)("up").complaint


def test_init_writes_once(
    programs: Callable[[str, str], None], ports: Callable[[dict[str, int]], None], tmp_path: Path
) -> None:
    """Init writes a file that can be used, refuses to replace it, and replaces it when told to."""
    ports({})
    programs("codex", CODEX)
    path = tmp_path / "vibey.toml"
    vibey = Cli(path)
    answer = described("init", vibey("init", "--json").json)
    assert (answer["path"], [each["name"] for each in answer["engines"]]) == (str(path), ["codex"])
    assert tomllib.loads(path.read_text(encoding="utf-8"))["engines"]["paid_daily_cap_covers"] == "all"
    path.write_text("# mine\n", encoding="utf-8")
    refused = vibey("init")
    assert refused.code == 3
    assert "--force" in refused.complaint
    assert path.read_text(encoding="utf-8") == "# mine\n"
    assert vibey("init", "--force").code == 0
    assert path.read_text(encoding="utf-8") != "# mine\n"


def test_help_needs_no_heavy_library() -> None:
    """Help is quick because it imports neither the database's library nor Celery's, nor what prints tables."""
    script = (
        "import sys\nfrom vibey.cli.main import cli\n"
        "try:\n    cli.main(['--help'])\nexcept SystemExit as end:\n    assert end.code == 0\n"
        "heavy = {'sqlalchemy', 'celery', 'pydantic', 'rich', 'redis', 'psutil'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False, timeout=300
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "enqueue" in done.stdout


def test_a_reader_that_leaves_is_no_error(tmp_path: Path) -> None:
    """When whoever reads the output closes it, the command ends without a word."""
    receiver, sender = os.pipe()
    os.close(receiver)
    process = subprocess.Popen(
        [sys.executable, "-m", "vibey.cli.main", "config", "example", "vibey.toml"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "VIBEY_CONFIG": ""},
        stdout=sender,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(sender)
    _, err = process.communicate(timeout=300)
    assert (process.returncode, err) == (1, "")


def test_help_of_every_command() -> None:
    """Every command explains itself, and the list names each with a line that is not cut off."""
    vibey = Cli()
    listed = vibey("--help", COLUMNS="80").out
    assert "..." not in listed.replace("[ARGS]...", "").replace("COMMAND...", "")
    for name in ("init", "up", "down", "migrate", "doctor", "new", "enqueue", "jobs", "job", "logs", "slots"):
        assert vibey(name, "--help").code == 0
