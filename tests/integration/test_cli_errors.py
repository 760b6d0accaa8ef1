"""The command line when something is wrong: one clear line, the right exit code, and nothing half done."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.cli import Cli, write_config
from tests.support.commandline import CommandLine
from tests.support.json_output import described
from vibey import Vibey
from vibey.domain.errors import ServiceUnavailable
from vibey.embedded.processes import free_port

if TYPE_CHECKING:
    from pathlib import Path

KINDS = {2: {"usage", "invalid_input", "settings"}, 3: {"refused", "unknown_name"}}


MISTAKES = pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["enqueue", "{oops"], 2, "payload: '{oops' is not usable; expected one JSON object"),
        (["enqueue", "fix", "the", "flaky", "test"], 2, "put the prompt in quotes: vibey enqueue 'fix the flaky test'"),
        (["enqueue", "it's", "--priority", "1", "x" * 99], 2, """vibey enqueue 'it'"'"'s xxx"""),
        (["enqueue", "[1]"], 2, "payload: '[1]' is not usable; expected a JSON object or the text of a prompt"),
        (["enqueue", '{"a": "' + "x" * 300_000 + '"}'], 2, "at most 262144 bytes"),
        (["enqueue", '{"a": NaN}'], 2, "JSON values only"),
        (["enqueue", "{}", "-p", "nowhere"], 3, "unknown project 'nowhere'; known: default"),
        (["enqueue", "{}", "--exclude", "nobody"], 3, "unknown engine 'nobody'; known: near, far, bought"),
        (["enqueue", "{}", "--require", "flight"], 3, "unknown capability 'flight'; known: web"),
        (["enqueue", "{}", "--pool", "deep"], 3, "unknown pool 'deep'; known: main"),
        (["enqueue", "{}", "--effort", "some"], 2, "effort: 'some' is not usable; expected one of trivial, low"),
        (["enqueue", "{}", "--deadline", "soon"], 2, "'soon' is not a length of time"),
        (["enqueue", "{}", "--max-attempts", "0"], 2, "max_attempts: 0 is not usable"),
        (["enqueue", "{}", "--batch", "-"], 2, "give one of a payload, --payload-file and --batch"),
        (["enqueue", "--payload-file", "no/such/file"], 2, "No such file"),
        (["job", "7"], 3, "unknown job 7"),
        (["logs", "7"], 3, "unknown job 7"),
        (["jobs", "--state", "asleep"], 2, "state: 'asleep' is not usable; expected one of queued"),
        (["jobs", "--engine", "nobody"], 3, "unknown engine 'nobody'"),
        (["jobs", "--limit", "0"], 2, "limit: 0 is not usable"),
        (["ledger", "--kind", "Nothing"], 2, "kind: 'Nothing' is not usable"),
        (["engine", "reset", "nobody"], 3, "unknown engine 'nobody'"),
        (["new", "default"], 3, "project 'default' exists already"),
        (["new", " "], 2, "project: ' ' is not usable"),
        (["project", "show", "nowhere"], 3, "unknown project 'nowhere'"),
        (["project", "set", "default", "cap=1"], 2, "project key: 'cap' is not usable; expected one of mode"),
        (["project", "set", "default", "paid_daily_cap=-1"], 2, "paid_daily_cap: '-1' is not usable"),
        (["project", "set", "default", "mode"], 2, "write KEY=VALUE"),
        (["status", "-p", "nowhere"], 3, "unknown project 'nowhere'"),
        (["staus"], 2, "no such command: staus; did you mean status?"),
        (["jobs", "--foo"], 2, "No such option"),
        (["--config", "absent.toml", "jobs"], 2, "absent.toml: 1 problem"),
    ],
)


@MISTAKES
def test_each_mistake_gets_its_line(vibey: CommandLine, arguments: list[str], code: int, words: str) -> None:
    """A mistake leaves with its exit code and says on standard error what is wrong."""
    said = vibey(*arguments)
    assert said.code == code
    assert said.out == ""
    assert words in said.err
    assert said.err.startswith("vibey: ")
    assert "Traceback" not in said.err
    if "absent.toml" not in arguments:
        assert said.err.count("\n") == 1
    assert vibey.bench.value("select count(*) from jobs") == 0


@MISTAKES
def test_each_mistake_is_told_to_a_program(vibey: CommandLine, arguments: list[str], code: int, words: str) -> None:
    """With --json a mistake is one object on standard output, with the same exit code and nothing beside it."""
    said = vibey(*arguments, "--json")
    assert (said.code, said.err) == (code, "")
    error = said.json["error"]
    assert list(error) == ["kind", "message", "fix"]
    assert all(isinstance(value, str) and value for value in error.values())
    assert error["kind"] in KINDS[code]
    assert words in f"{error['message']}; {error['fix']}"
    assert vibey.bench.value("select count(*) from jobs") == 0


def test_what_cannot_be_watched_by_a_program_is_told_to_it(vibey: CommandLine) -> None:
    """Options that exclude each other are a mistake like any other."""
    error = vibey("status", "--watch", "--json").json["error"]
    assert error["kind"] == "usage"
    assert "--watch is for people" in error["message"]


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (['{"payload": {}}', "", '{"payload": '], "line 3: '{\"payload\":' is not usable"),
        (["{}", "[]"], "line 2: [] is not usable; expected one JSON object"),
        (["{}", "{}", '{"colour": 1}'], "line 3: job: 'colour' is not usable"),
        (["{}", '{"priority": "high"}'], "line 2: priority: 'high' is not usable"),
        (["{}", "", '{"project": "nowhere"}', "{}"], "line 3: unknown project 'nowhere'"),
        (["{}", '{"exclude": ["nobody"]}'], "line 2: unknown engine 'nobody'"),
        (["{}", "[" * 100_000], "line 2: "),
    ],
)
def test_a_broken_line_is_named_and_nothing_enqueued(vibey: CommandLine, lines: list[str], words: str) -> None:
    """A batch with one bad line enqueues none of its jobs and names the line."""
    said = vibey("enqueue", "--batch", "-", stdin="\n".join(lines))
    assert said.code in {2, 3}
    assert words in said.complaint
    assert vibey.bench.value("select count(*) from jobs") == 0


def test_a_line_that_is_not_text_is_named(vibey: CommandLine) -> None:
    """Bytes that are not UTF-8 are a broken line like any other."""
    said = vibey("enqueue", "--batch", "-", stdin=b'{}\n{"payload": {"a": "\xff"}}\n')
    assert said.code == 2
    assert said.complaint.startswith("vibey: line 2: ")
    assert vibey.bench.value("select count(*) from jobs") == 0


def test_a_database_that_is_down_is_named(redis_url: str, tmp_path: Path) -> None:
    """Without a database a command leaves with 4 and names the remedy."""
    url = f"postgres://vibey@127.0.0.1:{free_port()}/vibey"
    config = write_config(tmp_path / "vibey.toml", {"database_url": url, "redis_url": redis_url})
    said = Cli(config)("jobs")
    assert said.code == 4
    assert said.complaint.startswith("vibey: Postgres is unreachable")
    told = Cli(config)("jobs", "--json")
    assert (told.code, told.json["error"]["kind"]) == (4, "service_unavailable")


def test_embedded_servers_never_started_point_to_up(tmp_path: Path) -> None:
    """A folder where nothing was ever started says which command does."""
    said = Cli(write_config(tmp_path / "vibey.toml", {}))("status")
    assert said.code == 4
    assert said.complaint.endswith("run: vibey up")


def test_a_program_that_finds_no_configuration_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder without a file, and with no variable that names one, nothing has to be started but found."""
    monkeypatch.chdir(tmp_path)
    for name in ("VIBEY_CONFIG", "VIBEY_DATABASE_URL", "VIBEY_REDIS_URL", "VIBEY_DATA_DIR"):
        monkeypatch.delenv(name, raising=False)
    with (
        pytest.raises(ServiceUnavailable, match=r"no vibey\.toml.*\$VIBEY_CONFIG, or run: vibey up$"),
        Vibey() as vibey,
    ):
        vibey.enqueue({})


def test_a_missing_schema_names_the_command(empty_database_url: str, redis_url: str, tmp_path: Path) -> None:
    """On a database without tables every command says how to make them, and migrate does."""
    services = {"database_url": empty_database_url, "redis_url": redis_url}
    vibey = Cli(write_config(tmp_path / "vibey.toml", services))
    said = vibey("enqueue", "{}")
    assert said.code == 4
    assert said.complaint.endswith("run: vibey migrate")
    first = described("migrate", vibey("migrate", "--json").json)
    assert (first["from"], first["changed"]) == (None, True)
    assert vibey("migrate", "--json").json == {
        "from": first["to"],
        "to": first["to"],
        "changed": False,
        "applied": False,
    }
    assert vibey("jobs").code == 0


def test_every_mistake_of_a_file_is_told(tmp_path: Path) -> None:
    """A configuration's problems come all at once, each on a line, with exit 2."""
    config = tmp_path / "vibey.toml"
    config.write_text('[engines]\nmode = "both"\npaid_daily_cap = -1\n', encoding="utf-8")
    said = Cli(config)("config", "check")
    assert said.code == 2
    assert [line.split(":")[0].strip() for line in said.err.splitlines()[1:]] == [
        "engines.mode",
        "engines.paid_daily_cap",
    ]


def test_an_engine_of_a_later_version_is_told(tmp_path: Path) -> None:
    """A kind this version does not have fails the check by name, and is no usage mistake."""
    config = tmp_path / "vibey.toml"
    config.write_text('[engine.some]\nkind = "from-the-future"\n', encoding="utf-8")
    said = Cli(config)("config", "check", "--json")
    assert said.code == 1
    assert "from-the-future" in said.json["problems"][0]


def test_a_traceback_only_on_request(vibey: CommandLine) -> None:
    """VIBEY_DEBUG shows where an error came from; without it nobody has to read that."""
    assert "Traceback" not in vibey("job", "7").err
    assert "Traceback" in vibey("job", "7", VIBEY_DEBUG="1").err


def test_redis_down_still_enqueues(database_url: str, redis_url: str, tmp_path: Path) -> None:
    """A job needs Postgres alone: without Redis it is enqueued, and the next tick finds it."""
    line = CommandLine(database_url, redis_url, tmp_path)
    line.bench.close()
    services = {"database_url": database_url, "redis_url": f"redis://127.0.0.1:{free_port()}/0"}
    said = Cli(write_config(tmp_path / "other.toml", services))("enqueue", "{}", "--json")
    assert said.code == 0
    assert said.json["created"] is True


SPOILED = [
    ("database_url", "postgresql://u:{}@127.0.0.1:1/d"),
    ("database_url", "postgresql://u:{}@nosuch.invalid/d"),
    ("database_url", "postgresql://127.0.0.1:1/d?user=u&password={}"),
    ("database_url", "postgresql://u:{} x@127.0.0.1:1/d"),
    ("database_url", "postgresql://u:x@{}@127.0.0.1:1/d"),
    ("database_url", "postgresql://u@x:{}@127.0.0.1:1/d"),
    ("database_url", "postgresql://u:{}/#x@127.0.0.1:1/d"),
    ("database_url", "postgresql://u\t:{}@h/d"),
    ("database_url", "mysql://u:{}@h/d"),
    ("database_url", "u:{}@h/d"),
    ("database_url", "host=h port=1 password={}"),
    ("redis_url", "redis://:{}@127.0.0.1:1/0"),
    ("redis_url", "redis://127.0.0.1:1/0?password={}"),
    ("redis_url", "redis://:{} y@127.0.0.1:1"),
    ("redis_url", "redis://:{}@127.0.0.1:1/zero"),
    ("redis_url", "redis+socket:///nosuch?password={}"),
    ("redis_url", "amqp://u:{}@h//"),
]


@pytest.mark.parametrize("where", ["file", "environment"])
@pytest.mark.parametrize(("key", "address"), SPOILED)
def test_no_password_of_a_spoiled_address_is_shown(where: str, key: str, address: str, tmp_path: Path) -> None:
    """Whatever is wrong with an address, and whoever says so, its password is not said."""
    url = address.format("planted-password")
    services = {
        "database_url": "postgresql://u:x@127.0.0.1:1/d",
        "redis_url": "redis://127.0.0.1:1/0",
        "data_dir": str(tmp_path / "data"),
    }
    overlaid = {f"VIBEY_{key.upper()}": url} if where == "environment" else {}
    written = services if overlaid else {**services, key: url}
    cli = Cli(write_config(tmp_path / "vibey.toml", written), **overlaid)
    for command in ("config show", "config show --json", "config check", "doctor --json", "jobs", "enqueue {}"):
        said = cli(*command.split())
        assert said.out + said.err
        assert "planted-password" not in said.out + said.err, command
