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

import pytest
from typing_extensions import override

from tests.support.cli import Cli
from vibey.embedded.processes import free_port
from vibey.engines.registry import known_kinds
from vibey.services import discovery, starter
from vibey.services.discovery import Found
from vibey.settings import load

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
SERVER = Found("ollama", "openai", "local", "http://127.0.0.1:11434/v1", 'a "quoted" model')
CLIENT = Found("claude", "claude-code", "paid", "/usr/bin/claude")


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
    assert found == Found("local", "openai", "local", f"http://127.0.0.1:{port}/v1", model)


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


def test_clients_are_found_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A coding client on PATH is found with its place; a file that cannot be run is not."""
    for name, mode in (("codex", 0o755), ("gemini", 0o644)):
        (tmp_path / name).write_text("#!/bin/sh\n", encoding="utf-8")
        (tmp_path / name).chmod(mode)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert discovery.clients() == [Found("codex", "codex", "paid", str(tmp_path / "codex"))]


def test_kinds_of_a_later_version_are_comments(tmp_path: Path) -> None:
    """An engine this version cannot run is written as a comment with the reason, and an example stands beside it."""
    path = tmp_path / "vibey.toml"
    text = starter.write(path, [SERVER, CLIENT], ("command",), force=False)
    assert load(path, {}).engine == {}
    assert '# [engine.ollama]\n# kind = "openai"' in text
    assert "comes in a later version; this one has command" in text
    assert "# [engine.agent]" in text


def test_kinds_of_this_version_are_engines(tmp_path: Path) -> None:
    """An engine this version can run is configured with what was found, odd names of models included."""
    path = tmp_path / "vibey.toml"
    text = starter.write(path, [SERVER, CLIENT], ("openai",), force=False)
    settings = load(path, {})
    assert list(settings.engine) == ["ollama"]
    assert settings.engine["ollama"].model == SERVER.model
    assert settings.engines.paid_fallback == "count"
    assert "engine.agent" not in text


def test_server_without_a_model_is_a_comment(tmp_path: Path) -> None:
    """A server that has nothing to ask yet would be no usable engine, and is written as what to complete."""
    path = tmp_path / "vibey.toml"
    text = starter.write(path, [replace(SERVER, model=None)], ("openai",), force=False)
    assert load(path, {}).engine == {}
    assert "It has no model yet" in text
    assert "# [engine.ollama]" in text
    assert "# [engine.agent]" in text


def test_init_writes_once(tmp_path: Path) -> None:
    """Init writes a file that can be used, refuses to replace it, and replaces it when told to."""
    path = tmp_path / "vibey.toml"
    vibey = Cli(path)
    written = vibey("init", "--json").json
    assert written["path"] == str(path)
    assert tomllib.loads(path.read_text(encoding="utf-8"))["engines"]["paid_fallback"] == "count"
    path.write_text("# mine\n", encoding="utf-8")
    refused = vibey("init")
    assert refused.code == 3
    assert "--force" in refused.complaint
    assert path.read_text(encoding="utf-8") == "# mine\n"
    assert vibey("init", "--force").code == 0
    assert path.read_text(encoding="utf-8") != "# mine\n"
    runnable = [each for each in written["engines"] if each["kind"] in known_kinds()]
    assert [each["runnable"] for each in runnable] == [True] * len(runnable)


def test_help_needs_no_heavy_library() -> None:
    """Help is quick because it imports neither the database's library nor Celery's, nor what prints tables."""
    script = (
        "import sys\nfrom vibey.cli.main import cli\n"
        "try:\n    cli.main(['--help'])\nexcept SystemExit as end:\n    assert end.code == 0\n"
        "heavy = {'sqlalchemy', 'celery', 'pydantic', 'rich', 'redis', 'psutil'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "enqueue" in done.stdout


def test_a_reader_that_leaves_is_no_error(tmp_path: Path) -> None:
    """When whoever reads the output closes it, the command ends without a word."""
    receiver, sender = os.pipe()
    os.close(receiver)
    process = subprocess.Popen(
        [sys.executable, "-m", "vibey.cli.main", "config", "show", "--json"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "VIBEY_CONFIG": ""},
        stdout=sender,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(sender)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (1, "")


def test_help_of_every_command() -> None:
    """Every command explains itself, and the list names each with a line that is not cut off."""
    vibey = Cli()
    listed = vibey("--help", COLUMNS="80").out
    assert "..." not in listed.replace("[ARGS]...", "").replace("COMMAND...", "")
    for name in ("init", "up", "down", "migrate", "doctor", "new", "enqueue", "jobs", "job", "logs", "slots"):
        assert vibey(name, "--help").code == 0
