"""How the doctor looks at engines: all at once, each for a bounded time, and what it makes of what it finds."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.chat_server import ChatServer, Reply
from tests.support.cli import Cli, write_config
from tests.support.databases import query
from tests.support.fleet import gone
from tests.support.installation import noop
from tests.support.recordings import CLIENTS
from tests.support.wait import until
from vibey.engines import looking, modelserver
from vibey.engines.clients.tried import newest_of
from vibey.services import fleet
from vibey.services.doctor import State, check

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tests.support.installation import Bench
    from vibey.services.doctor import Check

ROOT = Path(__file__).parents[2]


@pytest.fixture
def server() -> Iterator[ChatServer]:
    """A model server with two models that says whose they are, until a test says otherwise."""
    with ChatServer() as running:
        running.answers["/v1/models"] = Reply.of(200, {"object": "list", "data": [{"id": "one"}, {"id": "two"}]})
        yield running


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Puts an executable shell script on the PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(tmp_path))

    def put(name: str, script: str) -> None:
        (folder / name).write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        (folder / name).chmod(0o755)

    return put


def engines_of(bench: Bench, waiting: Callable[[Sequence[str]], None] | None = None) -> list[Check]:
    """The doctor's checks of engines, in the order they come."""
    found = check(bench.installation, staff=False, waiting=waiting)
    return [each for each in found if each.name.startswith("engine ")]


def test_one_that_hangs_is_named_and_keeps_no_other_waiting(
    open_bench: Callable[..., Bench],
    program: Callable[[str, str], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The others come first; the hanging client's whole group is killed, and it is not taken out of service for it."""
    started = tmp_path / "started"
    program("codex", f"echo $$ > {started}; sleep 600 & echo $! >> {started}; wait")
    program("qwen", "echo 1.2.3")
    monkeypatch.setattr(looking, "PATIENCE_SECONDS", 3.0)
    bench = open_bench(engine={"slow": {"kind": "codex"}, "quick": {"kind": "noop"}, "other": {"kind": "qwen-code"}})
    found = engines_of(bench)
    assert [each.name for each in found][-1] == "engine slow"
    assert found[-1].state is State.FAIL
    assert "codex --version: no answer within 3 s" in found[-1].detail
    assert found[-1].fix
    for pid in map(int, started.read_text().split()):
        until(gone(pid), what=f"the end of {pid}")
    assert bench.rows("select name from engines where not installed") == []


def test_a_hung_server_is_named(
    open_bench: Callable[..., Bench], server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that takes the question and never answers is slow, not gone: nothing local turns into paid work."""
    monkeypatch.setattr(modelserver, "PATIENCE_SECONDS", 0.5)
    server.answers["/v1/models"] = Reply((threading.Event(),))
    engine = {"kind": "openai", "tier": "local", "base_url": server.url, "model": "one"}
    bench = open_bench(engine={"chat": engine})
    [found] = engines_of(bench)
    assert (found.state, found.detail) == (State.FAIL, f"{server.url}: no answer within 0.5 s")
    assert bench.rows("select name from engines where not installed") == []


def test_a_strangers_doctor_cannot_keep_us(
    open_bench: Callable[..., Bench], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A doctor that never returns is given up and named, one that breaks is told, whatever the kind; both are asked."""
    (tmp_path / "vibey_odd.py").write_text(
        "import threading\nfrom vibey.engines.noop import NoopEngine\n"
        "class Hanging(NoopEngine):\n    def doctor(self):\n        threading.Event().wait()\n"
        "class Breaking(NoopEngine):\n    def doctor(self):\n        raise KeyError('no such part')\n",
        encoding="utf-8",
    )
    metadata = tmp_path / "vibey_odd-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: vibey-odd\nVersion: 1.0\n")
    points = "[vibey.engines]\nhanging = vibey_odd:Hanging\nbreaking = vibey_odd:Breaking\n"
    (metadata / "entry_points.txt").write_text(points)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(fleet, "LOOK_SECONDS", 2.0)
    bench = open_bench(engine={name: {"kind": name} for name in ("hanging", "breaking")})
    waited_for: list[str] = []
    found = {each.name: each for each in engines_of(bench, waited_for.extend)}
    assert {each.state for each in found.values()} == {State.FAIL}
    assert found["engine hanging"].detail == "no answer within 2 s"
    assert "KeyError" in found["engine breaking"].detail
    assert "hanging" in waited_for
    assert bench.rows("select name from engines where not installed") == [("breaking",)]


def test_a_model_the_server_does_not_list_is_told(open_bench: Callable[..., Bench], server: ChatServer) -> None:
    """With the ones it has; a gateway may know more names than it lists, so it is a warning."""
    engine = {"kind": "openai", "tier": "local", "base_url": server.url}
    bench = open_bench(engine={"right": {**engine, "model": "two"}, "wrong": {**engine, "model": "three"}})
    found = {each.name: each for each in engines_of(bench)}
    assert (found["engine right"].state, found["engine right"].detail) == (State.OK, "model two")
    wrong = found["engine wrong"]
    assert (wrong.state, wrong.detail) == (State.WARN, "model three is not among those listed: one, two")
    assert "engine.wrong.model" in wrong.fix
    assert all(asked.line.startswith("GET ") for asked in server.asked)


def test_engines_of_one_client_ask_it_once(
    open_bench: Callable[..., Bench], program: Callable[[str, str], None], tmp_path: Path
) -> None:
    """Looked at all at once, they share one look, and a second doctor within the minute shares it, too."""
    calls = tmp_path / "calls"
    program("codex", f'echo "$*" >> {calls}; echo codex-cli 1.2.3')
    bench = open_bench(engine={name: {"kind": "codex"} for name in ("a", "b", "c")})
    found = [*engines_of(bench), *engines_of(bench)]
    assert {each.detail for each in found} == {"1.2.3, logged in"}
    assert calls.read_text().splitlines() == ["--version", "login status"]


def test_settings_a_kind_cannot_use_are_told_alike(tmp_path: Path) -> None:
    """`config check` tells them as it tells every other mistake, with their key; nothing has to be built for it."""
    config = tmp_path / "vibey.toml"
    config.write_text('[engine.chat]\nkind = "openai"\n', encoding="utf-8")
    said = Cli(config)("config", "check")
    assert said.code == 2
    assert said.err.splitlines()[1:] == [
        "  engine.chat.base_url: None: an engine of kind openai needs this key",
        "  engine.chat.model: None: an engine of kind openai needs this key",
    ]
    config.write_text(
        '[engine.a]\nkind = "comand"\n[engine.b]\nkind = "noop"\n[engine.c]\nkind = "codex"\nenv = ["PGPASSWORD"]\n',
        encoding="utf-8",
    )
    said = Cli(config)("config", "check")
    assert said.code == 1
    first, a, c = said.err.splitlines()
    assert first == f"vibey: {config}: 2 problems"
    assert a.startswith("  engine.a.kind: 'comand': unknown kind; known: ")
    assert a.endswith("(did you mean 'command'?)")
    assert c.startswith("  engine.c.env: 'PGPASSWORD': expected ")


def test_a_worker_tells_what_is_wrong_with_the_settings(tmp_path: Path) -> None:
    """A worker that cannot read its settings ends with the same words, and without a traceback."""
    config = tmp_path / "vibey.toml"
    config.write_text('[engine.chat]\nkind = "openai"\nmodel = "m"\n', encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "celery", "-A", "vibey", "worker"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "VIBEY_CONFIG": str(config)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 1
    assert "engine.chat.base_url: None: an engine of kind openai needs this key" in done.stderr
    assert "Traceback" not in done.stderr


def test_lines_fit_a_terminal(tmp_path: Path) -> None:
    """On a terminal longer lines are folded under their beginning; elsewhere each stays whole."""
    address = {"database_url": "postgresql://nobody@127.0.0.1:1/none", "redis_url": "redis://127.0.0.1:1/0"}
    long = "a-program-with-a-name-that-is-long/" * 4
    config = write_config(
        tmp_path / "vibey.toml", address, f'[engine.agent]\nkind = "command"\nargv = ["/{long}agent"]\n'
    )
    master, slave = pty.openpty()
    try:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "VIBEY_CONFIG": str(config), "COLUMNS": "80"}
        process = subprocess.Popen(
            [sys.executable, "-m", "vibey.cli.main", "doctor"],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=slave,
            stderr=subprocess.PIPE,
        )
        os.close(slave)
        shown = b""
        while chunk := _read(master):
            shown += chunk
        _, err = process.communicate(timeout=300)
    finally:
        os.close(master)
    lines = shown.decode().replace("\x1b[31m", "").replace("\x1b[32m", "").replace("\x1b[0m", "").splitlines()
    assert (process.returncode, err) == (1, b"")
    assert max(map(len, lines)) <= 80
    marked = [line for line in lines if line.startswith(("fail", "ok"))]
    assert marked == [line for line in lines if not line.startswith(" ")]
    plain = Cli(config)("doctor").out.splitlines()
    assert len([line for line in plain if f"there is no program /{long}agent" in line]) == 1


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except OSError:
        # The other end of a pseudo-terminal is gone.
        return b""


def test_rules_that_nobody_can_read_are_told_and_the_rest_is_looked_at(open_bench: Callable[..., Bench]) -> None:
    """A later version may have written them: the doctor names the project instead of giving up."""
    bench = open_bench(engine={"a": noop(), "b": noop("paid")})
    query(bench.url, """insert into projects (name, policy) values ('odd', '{"mode": "both"}')""")
    found = {each.name: each for each in check(bench.installation)}
    assert found["project odd"].state is State.FAIL
    assert "'both'" in found["project odd"].detail
    assert "database" in found
    assert "beat" in found


@pytest.mark.parametrize("kind", sorted(CLIENTS))
def test_a_client_newer_than_any_tried_is_named(
    kind: str, open_bench: Callable[..., Bench], program: Callable[[str, str], None]
) -> None:
    """Once for all engines of it, with the newest that was tried and when; tried and older ones go without a word."""
    newest = newest_of(kind)
    assert newest is not None
    major = int(newest.version.partition(".")[0])
    versions = (newest.version, f"{newest.version}-rc.1", "0.0.1", f"{major + 1}.0.0-beta.1")
    told = {}
    for version in versions:
        program(CLIENTS[kind].binary, f"echo {version}")
        # What was found is kept for a minute, by the model among others.
        bench = open_bench(engine={name: {"kind": kind, "model": f"m/{version}"} for name in ("a", "b")})
        found = check(bench.installation, staff=False)
        told[version] = [(each.state, each.detail) for each in found if each.name == "clients"]
    last = versions[-1]
    words = f"{kind} {last} is newer than any version tried ({newest.version} on {newest.day})"
    assert told == {**{version: [] for version in versions}, last: [(State.OK, words)]}
