"""The command line as a process in surroundings that are not as they should be: streams, locales, files, folders."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import pytest

from tests.support.cli import Cli
from tests.support.databases import query
from tests.support.fleet import ROOT
from tests.support.wait import until
from vibey.cli.command import Group
from vibey.cli.main import cli
from vibey.cli.status import by_trouble

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.commandline import CommandLine

PROGRAM = (sys.executable, "-m", "vibey.cli.main")
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
ROCKET = json.dumps({"prompt": "🚀"}, ensure_ascii=False)


def surroundings(folder: Path, **variables: str) -> dict[str, str]:
    """An environment in which the configuration of a test is in force."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("LC_", "LANG", "COLUMNS"))}
    return {**inherited, "PYTHONPATH": str(ROOT), "VIBEY_CONFIG": str(folder / "vibey.toml"), **variables}


def run(folder: Path, *arguments: str | bytes, **variables: str) -> subprocess.CompletedProcess[bytes]:
    """A command as a process, to its end."""
    environment = surroundings(folder, **variables)
    return subprocess.run((*PROGRAM, *arguments), env=environment, cwd=folder, capture_output=True, check=False)


def shell(folder: Path, line: str) -> subprocess.CompletedProcess[bytes]:
    """A line of a shell, in which "$@" is the command."""
    command = ("sh", "-c", line, "sh", *PROGRAM)
    return subprocess.run(command, env=surroundings(folder), cwd=folder, capture_output=True, check=False)


@pytest.mark.parametrize("command", ["jobs", "jobs --json", "config show", "--version", "metrics --once"])
def test_a_full_disk_behind_the_output_is_named(vibey: CommandLine, tmp_path: Path, command: str) -> None:
    """What could not be printed is told on standard error in one line, with exit 1."""
    vibey.enqueued()
    said = shell(tmp_path, f'"$@" {command} > /dev/full')
    assert (said.returncode, said.stderr.count(b"\n")) == (1, 1), said
    assert said.stderr.startswith(b"vibey: standard output cannot be written: No space left on device; ")


@pytest.mark.parametrize(
    ("line", "errors"),
    [
        ('"$@" jobs >&-', b""),
        ('"$@" jobs --json >&- 2>&-', b""),
        ('"$@" enqueue --batch - <&-', b"standard input has no line with a job\n"),
        ('"$@" jobs <&- >&- 2>&-', b""),
    ],
)
def test_closed_streams_lead_nowhere(vibey: CommandLine, tmp_path: Path, line: str, errors: bytes) -> None:
    """A service manager may close them; nothing that is opened later takes their place."""
    vibey.enqueued()
    said = shell(tmp_path, line)
    assert (said.returncode, said.stderr) == (0, errors), said


def test_a_closed_pipe_ends_it_silently(vibey: CommandLine, tmp_path: Path) -> None:
    """`head` has seen enough."""
    vibey.enqueued()
    said = shell(tmp_path, '{ "$@" jobs --json; echo "left with $?" >&2; } | true')
    assert re.fullmatch(rb"left with [01]\n", said.stderr), said


@pytest.mark.parametrize(
    ("encoding", "variables"), [("ascii", ASCII), ("iso-8859-1", {"PYTHONIOENCODING": "iso-8859-1"})]
)
def test_what_a_terminal_cannot_encode_is_escaped(
    vibey: CommandLine, tmp_path: Path, encoding: str, variables: dict[str, str]
) -> None:
    """An emoji in a job is no fault of the one who looks at it; JSON has the same bytes in every encoding."""
    vibey("enqueue", ROCKET)
    for command in (("ledger",), ("nonsense🚀",)):
        said = run(tmp_path, *command, **variables)
        assert b"internal error" not in said.stderr
        (said.stdout + said.stderr).decode(encoding)
    assert "\\U0001f680" in run(tmp_path, "job", "1", **variables).stdout.decode(encoding)
    found = run(tmp_path, "job", "1", "--json", **variables)
    assert found.stdout.isascii()
    assert json.loads(found.stdout)["payload"] == {"prompt": "🚀"}


def test_arguments_are_utf8_in_any_locale(vibey: CommandLine, tmp_path: Path) -> None:
    """What a shell sends in UTF-8 is stored as that, though the locale is POSIX; other bytes are refused by name."""
    said = run(tmp_path, "enqueue", ROCKET, "--json", **ASCII)
    assert vibey("job", json.loads(said.stdout)["job_id"], "--json").json["payload"] == {"prompt": "🚀"}
    for option in ("--key", "--project"):
        said = run(tmp_path, "enqueue", "{}", option, b"caf\xe9", "--json")
        error = json.loads(said.stdout)["error"]
        assert (said.returncode, error["kind"]) == (2, "usage")
        assert option in error["message"]
        assert "is not UTF-8 text" in error["message"]


@pytest.mark.parametrize(
    "variables",
    [
        {"PYTHONWARNINGS": "error", "TERM": "dumb", "COLUMNS": "0", "LINES": "0", "HOME": ""},
        {"NO_COLOR": "1", "COLUMNS": "wide", "LINES": "-1", "TMPDIR": "/nonexistent"},
        {
            "COLUMNS": "9" * 30,
            "PGCLIENTENCODING": "LATIN1",
            "PGTZ": "America/New_York",
            "PGDATESTYLE": "German",
            "VIBEY_PORT": "tcp://10.0.0.9:5555",
            "FLOWER_PORT": "tcp://10.0.0.9:5555",
        },
        # Python then compiles every module that is imported, unless it has done so before.
        pytest.param({"PYTHONOPTIMIZE": "2"}, marks=pytest.mark.slow),
    ],
    ids=lambda variables: next(iter(variables)),
)
def test_variables_of_others_change_nothing(vibey: CommandLine, tmp_path: Path, variables: dict[str, str]) -> None:
    """A looking and a writing command work alike under whatever else the environment says."""
    vibey("enqueue", ROCKET)
    looked = run(tmp_path, "jobs", **variables)
    assert (looked.returncode, looked.stderr) == (0, b""), looked
    assert len(looked.stdout.splitlines()) == 3
    made = run(tmp_path, "enqueue", ROCKET, "--json", **variables)
    assert (made.returncode, json.loads(made.stdout)) == (0, {"job_id": 2, "created": True})


@pytest.mark.parametrize("command", ["config check", "init", "demo --jobs 1", "jobs", "simulate --from-ledger"])
def test_a_removed_working_folder_is_named(tmp_path: Path, command: str) -> None:
    """In a folder that is gone a command says that, and not what it stumbled over."""
    line = f'unset VIBEY_CONFIG; mkdir gone; cd gone; rmdir ../gone; "$@" {command}'
    said = shell(tmp_path, line)
    assert said.returncode == 2, said
    assert b"working folder" in said.stderr
    assert b"internal error" not in said.stderr


def write_each(folder: Path, name: str, text: str) -> tuple[Path, Path]:
    """A file with a byte order mark and Windows' ends of lines, and the same in UTF-16."""
    marked, other = folder / f"marked-{name}", folder / f"utf16-{name}"
    marked.write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    other.write_bytes(text.encode("utf-16"))
    return marked, other


def test_every_text_file_may_have_a_mark(vibey: CommandLine, tmp_path: Path) -> None:
    """A file that an editor on Windows wrote is read, one in UTF-16 is named as that."""
    trace = json.dumps({"at": 0, "job": "a", "seconds": {"*": 60}}) + "\n"
    config = (tmp_path / "vibey.toml").read_text(encoding="utf-8")
    cases: list[tuple[str, str, list[str]]] = [
        ("vibey.toml", config, ["--config", "FILE", "config", "check"]),
        ("jobs.jsonl", '{"payload": {"a": 1}}\n{}\n', ["enqueue", "--batch", "FILE"]),
        ("payload.json", '{"a": 1}\n', ["enqueue", "--payload-file", "FILE"]),
        ("trace.jsonl", trace, ["simulate", "--trace", "FILE"]),
    ]
    for name, text, command in cases:
        marked, other = write_each(tmp_path, name, text)
        good = vibey(*(str(marked) if word == "FILE" else word for word in command))
        assert good.code == 0, (name, good)
        bad = vibey(*(str(other) if word == "FILE" else word for word in command))
        assert bad.code == 2, (name, bad)
        assert "UTF-16" in bad.err, (name, bad)


@pytest.mark.parametrize(
    "make",
    [
        lambda path: path.mkdir(),
        lambda path: path.symlink_to(path),
        os.mkfifo,
        lambda path: path.symlink_to("/dev/zero"),
        Path.exists,
    ],
    ids=["folder", "loop", "pipe", "endless", "missing"],
)
def test_what_is_no_file_is_named(vibey: CommandLine, tmp_path: Path, make: Any) -> None:
    """A folder, a link to itself, a pipe without a writer, an endless device, or nothing: one line and exit 2."""
    odd = tmp_path / "odd"
    make(odd)
    commands = [["--config", str(odd), "config", "check"]]
    if not odd.is_fifo():
        commands += [["enqueue", "--batch", str(odd)], ["enqueue", "--payload-file", str(odd)]]
        commands += [["simulate", "--trace", str(odd)]]
    for command in commands:
        said = vibey(*command)
        assert (said.code, "internal error" in said.err) == (2, False), said
        assert "odd" in said.err or "bytes" in said.err, said


def whole_numbers(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[list[str], str]]:
    """Every option that takes a whole number, with the words before it."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, Group):
            yield from whole_numbers(command, (*path, name))
            continue
        needed = ["1" for each in command.params if isinstance(each, click.Argument) and each.required]
        for each in command.params:
            if isinstance(each, click.Option) and isinstance(each.type, click.types.IntParamType):
                yield [*path, name, *needed], each.opts[-1]


@pytest.mark.parametrize(("words", "option"), list(whole_numbers(cli)), ids=str)
def test_no_whole_number_is_too_large_for_a_line(vibey: CommandLine, words: list[str], option: str) -> None:
    """Beyond what the database holds, or of thousands of digits: a usage error that names the option."""
    for number in ("9223372036854775808", "-9223372036854775809", "9" * 5000):
        said = vibey(*words, option, number)
        assert said.code == 2, said
        assert option in said.complaint


def test_no_job_number_is_too_large_for_a_line(vibey: CommandLine) -> None:
    """The same of what names a job."""
    for command in ("job", "explain", "logs", "cancel", "retry"):
        for number in ("9223372036854775808", "9" * 5000):
            assert vibey(command, number).code in {2, 3}
            assert "internal error" not in vibey(command, number).err


def test_an_interrupt_is_told_to_a_program(vibey: CommandLine, tmp_path: Path) -> None:
    """Ctrl-C while it waits: one object, exit 130, nothing else."""
    command = (*PROGRAM, "enqueue", "{}", "--wait", "--json")
    waiting = subprocess.Popen(command, env=surroundings(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    until(lambda: vibey.bench.value("select count(*) from jobs") == 1, what="the job to be enqueued")
    waiting.send_signal(signal.SIGINT)
    out, err = waiting.communicate(timeout=300)
    assert waiting.returncode == 130, (out, err)
    assert json.loads(out)["error"]["kind"] == "interrupted"


def test_an_interrupt_during_an_import_has_the_same_exit_code(tmp_path: Path) -> None:
    """CPython would end a process by the signal after an interrupt in exec() of a text, as dataclasses use it."""
    (tmp_path / "interrupted.py").write_text(
        "import click\nfrom vibey.cli.main import Vibey\n\n"
        "@click.command(cls=Vibey, invoke_without_command=True)\n"
        "def interrupted():\n    exec('raise KeyboardInterrupt')\n\n"
        "interrupted()\n",
        encoding="utf-8",
    )
    command = (sys.executable, "-m", "interrupted")
    said = subprocess.run(command, cwd=tmp_path, env=surroundings(tmp_path), capture_output=True, check=False)
    assert said.returncode == 130, said


class Terminal:
    """A command on a terminal of a given size; what it shows is gathered until it ends."""

    def __init__(self, folder: Path, *arguments: str, rows: int, columns: int, **variables: str) -> None:
        """Start it."""
        import fcntl
        import struct
        import termios

        ours, theirs = os.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        environment = {**surroundings(folder, **variables), "TERM": variables.get("TERM", "xterm")}
        environment.pop("LINES", None)
        self._heard: list[bytes] = []
        self._process = subprocess.Popen(
            (*PROGRAM, *arguments), stdout=theirs, stderr=theirs, stdin=theirs, env=environment, cwd=folder
        )
        os.close(theirs)
        self._ours = ours
        self._listener = threading.Thread(target=self._listen)
        self._listener.start()

    @property
    def shown(self) -> str:
        """All it has shown so far."""
        return b"".join(self._heard).decode(errors="replace")

    def interrupt(self) -> int:
        """Ctrl-C; returns the exit code."""
        self._process.send_signal(signal.SIGINT)
        code = self._process.wait(timeout=300)
        self._listener.join(timeout=300)
        os.close(self._ours)
        return code

    def _listen(self) -> None:
        try:
            while piece := os.read(self._ours, 65536):
                self._heard.append(piece)
        except OSError:
            return  # the other side is closed


def test_a_low_terminal_shows_trouble_first_and_says_what_is_left_out(vibey: CommandLine, tmp_path: Path) -> None:
    """Forty engines on 24 rows: the broken one is among those shown, and the line below them is not lost."""
    config = tmp_path / "many.toml"
    engines = "".join(f'[engine.e{number:02}]\nkind = "noop"\ntier = "local"\n' for number in range(40))
    services = (tmp_path / "vibey.toml").read_text(encoding="utf-8").partition("[engines]")[0]
    config.write_text(f"{services}{engines}", encoding="utf-8")
    assert Cli(config)("apply", "--yes").code == 0
    query(vibey.bench.url, "update engines set paused = true where name = 'e37'")
    for variables in ({}, {"TERM": "dumb"}):
        screen = Terminal(tmp_path, "-c", str(config), "status", "--watch", rows=24, columns=100, **variables)
        until(lambda: "as of" in screen.shown, what="the first page")  # noqa: B023  used at once
        assert screen.interrupt() == 130
        assert "e37" in screen.shown
        if not variables:
            assert re.search(r"UTC; \d+ engines more: vibey engines", screen.shown), screen.shown


def test_trouble_comes_first() -> None:
    """Kept out, full, at work, and then the others in their order."""

    def engine(name: str, **values: Any) -> dict[str, Any]:
        usual = {"circuit": "closed", "paused": False, "worker": True, "in_use": 0}
        usual |= {"slots": 2, "detail": "version 1.2", "remark": "not needed so far"}
        return {"name": name, **usual, **values}

    fleet = [engine("idle"), engine("busy", in_use=1), engine("full", in_use=2), engine("open", circuit="open"),
             engine("second"), engine("gone", worker=False), engine("login", detail="x", remark="x")]  # fmt: skip
    assert [each["name"] for each in by_trouble(fleet)] == ["open", "login", "gone", "full", "busy", "idle", "second"]


REPORTS = ("jobs", "job 1", "job 3", "explain 1", "explain 3", "engines", "slots", "status", "ledger", "cost", "mode",
           "config show", "project list", "project show default", "doctor")  # fmt: skip
# What changes from one look to the next: ages and the clock.
CHANGING = re.compile(r"[\dhmsd.]|UTC")


def letters(text: str) -> Counter[str]:
    """The characters that a look a second later shows as well."""
    return Counter("".join(CHANGING.sub("", text).split()))


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_no_report_loses_a_character_at_any_width(vibey: CommandLine, width: int) -> None:
    """What a wide screen shows, a narrow one shows as well; what is piped has no blanks at the ends of lines."""
    vibey("new", "a-project-with-quite-a-name-of-its-own")
    vibey.enqueued(3, "-p", "a-project-with-quite-a-name-of-its-own")
    vibey.route()
    for command in REPORTS:
        wide, narrow = vibey(*command.split()).out, vibey(*command.split(), COLUMNS=str(width)).out
        assert letters(wide) <= letters(narrow), command
        assert not [line for line in wide.splitlines() if line != line.rstrip()], command


@pytest.mark.parametrize("shell_name", ["bash", "zsh", "fish"])
def test_a_shell_completes_commands(tmp_path: Path, shell_name: str) -> None:
    """The printed script asks the program, and the program answers with commands and options."""
    said = run(tmp_path, "completion", shell_name)
    assert said.returncode == 0, said
    assert f"_VIBEY_COMPLETE={shell_name}_complete".encode() in said.stdout
    words = {"COMP_WORDS": "vibey sta", "COMP_CWORD": "1" if shell_name != "fish" else "sta"}
    answered = run(tmp_path, _VIBEY_COMPLETE=f"{shell_name}_complete", **words)
    assert b"status" in answered.stdout, answered


def test_completion_goes_by_the_shell_in_use(tmp_path: Path) -> None:
    """Without a name it is the shell of $SHELL; one that is not supported is told so."""
    assert b"#compdef vibey" in run(tmp_path, "completion", SHELL="/usr/bin/zsh").stdout
    other = run(tmp_path, "completion", SHELL="/bin/dash")
    assert (other.returncode, b"name a shell: bash, zsh, fish" in other.stderr) == (2, True)
