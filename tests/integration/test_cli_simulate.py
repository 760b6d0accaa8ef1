"""`vibey simulate` as people use it, on the examples that come with the project."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from vibey.cli.main import cli

EXAMPLES = Path(__file__).parents[2] / "config" / "examples" / "simulate"
CONFIG = EXAMPLES / "vibey.toml"
# Any version of Python must come to these very bytes; a change of the router's decisions changes them on purpose.
DIGESTS = {
    "cap": "230d9f12c6541a1379b9eaacbac436f545ef4f87fe1711fc290179b47796f2f5",
    "threshold": "48c4913dbff53b0fa4a1af877d5c587270a64d2dec7b621185951c4cc900f20f",
    "second-slot": "152c947bdc95313a7e63381d2e0ad31e856e250b4f32bc65ddc9f8f1fbeb1922",
}


def vibey(*arguments: object) -> Result:
    """Run a simulation."""
    return CliRunner().invoke(cli, ["simulate", *map(str, arguments)])


def told(*arguments: object) -> dict[str, Any]:
    """The summary as programs get it."""
    result = vibey(*arguments, "--json")
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


@pytest.mark.parametrize("name", DIGESTS)
def test_the_examples_decide_the_same_everywhere(name: str, tmp_path: Path) -> None:
    """A digest of all decisions, byte for byte."""
    out = tmp_path / "d.jsonl"
    found = told("--config", CONFIG, "--trace", EXAMPLES / f"{name}.jsonl", "--out", out)
    assert hashlib.sha256(out.read_bytes()).hexdigest() == DIGESTS[name]
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(lines) == found["decisions"]
    assert set(lines[0]) == {"at", "job", "attempt", "outcome", "engine", "tier", "reason"}
    picks = {engine["name"]: engine["picks"] for engine in found["engines"]}
    granted = [line["engine"] for line in lines if line["engine"]]
    assert picks == {name: granted.count(name) for name in picks}
    assert abs(sum(engine["expected_share"] for engine in found["engines"]) - 1) < 1e-5


def test_the_how_to_tells_the_truth() -> None:
    """The numbers of its three tables."""
    paid = {
        change: told("--config", CONFIG, "--trace", EXAMPLES / f"{trace}.jsonl", "--what-if", change)
        for trace, change in (
            ("cap", "cap=5"),
            ("cap", "cap=15"),
            ("threshold", "overflow_after=1800"),
            ("second-slot", "slots.ollama=2"),
        )
    }
    assert paid["cap=5"]["overflows"] + paid["cap=5"]["fallbacks"] == 51
    assert paid["cap=15"]["waits"]["p95"] == 861.0
    assert paid["overflow_after=1800"]["overflows"] == 25
    assert paid["slots.ollama=2"]["overflows"] == 23


def test_people_get_a_table() -> None:
    """Engines, waits, paid work and cap."""
    shown = vibey("--config", CONFIG, "--trace", EXAMPLES / "cap.jsonl").stdout
    assert "EXPECTED" in shown
    assert "200 succeeded, 0 failed, 0 left queued" in shown
    assert "72 overflows, 13 fallbacks" in shown


def test_a_bad_trace_runs_nothing_and_leaves_nothing(tmp_path: Path) -> None:
    """Exit 2, every problem on a line of its own, and no file."""
    trace, out = tmp_path / "bad.jsonl", tmp_path / "d.jsonl"
    trace.write_text('{"at": 1, "job": "a"}\n{"at": 0, "job": "b"}\n{"at": 2, "job": "a"}\n')
    said = vibey("--config", CONFIG, "--trace", trace, "--out", out)
    assert said.exit_code == 2
    assert "2 problems" in said.stderr
    assert "line 2, at" in said.stderr
    assert sorted(tmp_path.iterdir()) == [trace]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "--from-ledger"),
        (("--trace", EXAMPLES / "cap.jsonl", "--save-trace", "t.jsonl"), "--from-ledger"),
        (("--trace", EXAMPLES / "cap.jsonl", "--plot", "t.gif"), ".png"),
        (("--trace", EXAMPLES / "cap.jsonl", "--what-if", "cap=many"), "paid_daily_cap"),
        (("--trace", "/nowhere/t.jsonl"), "does not exist"),
    ],
)
def test_misuse_is_explained(arguments: tuple[object, ...], said: str) -> None:
    """Exit 2 and the remedy."""
    result = vibey("--config", CONFIG, *arguments)
    assert result.exit_code == 2
    assert said in result.stderr


def test_nothing_at_all_is_simulated_well(tmp_path: Path) -> None:
    """An empty trace has a summary of nothing."""
    trace = tmp_path / "empty.jsonl"
    trace.write_text("")
    found = told("--config", CONFIG, "--trace", trace)
    assert (found["decisions"], found["makespan"], found["waits"]["max"]) == (0, 0, 0)


def test_what_can_never_run_is_left_with_its_reason(tmp_path: Path) -> None:
    """The end of a trace whose engines are gone."""
    trace = tmp_path / "gone.jsonl"
    lines = [
        *({"at": 0, "engine": name, "event": "down"} for name in ("ollama", "claude")),
        {"at": 1, "job": "a"},
    ]
    trace.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = told("--config", CONFIG, "--trace", trace)
    assert found["jobs"] == {"succeeded": 0, "failed": 0, "queued": 1, "reasons": {"no_eligible_engine": 1}}


@pytest.mark.parametrize(("name", "begin"), [("week.png", b"\x89PNG"), ("week.html", b"<!doctype html>")])
def test_a_picture_is_drawn(name: str, begin: bytes, tmp_path: Path) -> None:
    """As an image, or as a page that holds it."""
    plot = tmp_path / name
    assert vibey("--config", CONFIG, "--trace", EXAMPLES / "cap.jsonl", "--plot", plot).exit_code == 0
    drawn = plot.read_bytes()
    assert drawn.startswith(begin)
    assert len(drawn) > 10_000


def test_what_if_changes_nothing_but_what_it_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable stays in force beside a change of another key, and gives way to a change of its own."""
    trace = ("--config", CONFIG, "--trace", EXAMPLES / "cap.jsonl")
    monkeypatch.setenv("VIBEY_ENGINES_MODE", "singleton")
    assert told(*trace, "--what-if", "cap=10") == told(*trace)
    assert told(*trace, "--what-if", "mode=hybrid")["overflows"] == 72


@pytest.mark.parametrize(
    "line",
    ['{"at":1e99999999999999999999,"job":"a"}', '{"at":1,"job":"a","seconds":{"*":1e-999999999999999999999}}'],
)
def test_a_number_beyond_all_numbers_is_named(line: str, tmp_path: Path) -> None:
    """No arithmetic of a trace ends in an internal error."""
    trace = tmp_path / "t.jsonl"
    trace.write_text(line + "\n")
    said = vibey("--config", CONFIG, "--trace", trace)
    assert said.exit_code == 2
    assert "line 1" in said.stderr


def test_a_plot_s_folder_is_asked_for_first(tmp_path: Path) -> None:
    """Before anything is simulated."""
    said = vibey("--config", CONFIG, "--trace", EXAMPLES / "cap.jsonl", "--plot", tmp_path / "no" / "p.png")
    assert said.exit_code == 2
    assert "a folder that exists" in said.stderr
