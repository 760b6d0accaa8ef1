"""The command kind with real programs: what they are given and what their ends and files mean."""

from __future__ import annotations

import json
import uuid
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from tests.support.carried import outcome_of
from vibey.domain.effort import Effort
from vibey.domain.outcome import CapacityKind, Failure, FailureClass, Success
from vibey.engines.contract import EngineConfig, Job
from vibey.engines.registry import build

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from vibey.domain.outcome import Outcome

    Run = Callable[..., Outcome]

PAYLOAD = {"prompt": 'it\'s; $(touch owned) `x` "q" \u00e9', "n": 1}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs a shell script as a command engine; keyword arguments change the engine."""

    def begin(script: str, *more: str, **config: object) -> Outcome:
        engine = EngineConfig("shell", "command", argv=("sh", "-c", script, "sh", *more), **config)  # type: ignore[arg-type]
        job = Job(7, 70, 9, 2, Effort.HIGH, PAYLOAD, "site", installation=uuid.uuid4().hex, session="s1")
        return outcome_of(build(engine), job, tmp_path)

    return begin


def test_job_arrives_on_input_and_in_a_file(run: Run, tmp_path: Path) -> None:
    """The payload arrives as data, twice the same, and nothing of it is executed."""
    assert run('cat > stdin; cp "$VIBEY_JOB_FILE" file; pwd > pwd') == Success()
    folder = tmp_path / "run-70"
    assert (folder / "stdin").read_bytes() == (folder / "file").read_bytes()
    document = json.loads((folder / "stdin").read_bytes())
    assert document == {
        "job_id": 7,
        "run_id": 70,
        "engine": "shell",
        "attempt": 2,
        "effort": "high",
        "project": "site",
        "session": "s1",
        "capabilities": [],
        "payload": PAYLOAD,
    }
    assert (folder / "pwd").read_text().strip() == str(folder)
    assert not (folder / "owned").exists()


def test_arguments_come_from_the_operator_alone(run: Run, tmp_path: Path) -> None:
    """Placeholders are filled, and the effort really achieved adds its arguments."""
    efforts = {Effort.LOW: ("--low",), Effort.STANDARD: ("--std", "{effort}")}
    run('printf "%s|" "$@" > arguments', "{model}", "{run_directory}", "{{effort}}", model="m1", efforts=efforts)
    arguments = (tmp_path / "run-70" / "arguments").read_text().split("|")[:-1]
    assert arguments == ["m1", str(tmp_path / "run-70"), "{effort}", "--std", "standard"]


def test_environment_is_an_allow_list(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only listed and named variables arrive, and Vibey's own addresses under no name at all."""
    url = "postgresql://u:p@localhost/vibey"
    monkeypatch.setenv("VIBEY_DATABASE_URL", url)
    monkeypatch.setenv("COPY_OF_URL", url)
    monkeypatch.setenv("SECRET_OF_THE_WORKER", "s")
    monkeypatch.setenv("WANTED", "w")
    assert run("env > environment", env=("WANTED", "COPY_OF_URL")) == Success()
    names = {line.partition("=")[0] for line in (tmp_path / "run-70" / "environment").read_text().splitlines()}
    assert {"WANTED", "PATH", "VIBEY_JOB", "VIBEY_RUN", "VIBEY_TOKEN", "VIBEY_RESULT_FILE"} <= names
    assert not names & {"VIBEY_DATABASE_URL", "COPY_OF_URL", "SECRET_OF_THE_WORKER"}


@pytest.mark.parametrize(
    ("script", "failure_class", "detail"),
    [
        ("echo first; echo the reason; echo; exit 1", FailureClass.WORK, "exit 1: the reason"),
        ("exit 69", FailureClass.CAPACITY, "exit 69"),
        ("exit 75", FailureClass.HANDOFF, "exit 75"),
        ("exit 78", FailureClass.MISCONFIGURED, "exit 78"),
        ("exit 124", FailureClass.ENGINE, "exit 124"),
        ("exit 137", FailureClass.ENGINE, "exit 137"),
        ("kill -KILL $$", FailureClass.ENGINE, "killed by SIGKILL"),
        ("printf 'no\\0end\\377'; exit 2", FailureClass.WORK, "exit 2: no\ufffdend\ufffd"),
    ],
)
def test_end_is_classified(run: Run, script: str, failure_class: FailureClass, detail: str) -> None:
    """Each way to end has its class, and the last line that says something explains it."""
    outcome = run(script)
    assert isinstance(outcome, Failure)
    assert (outcome.failure_class, outcome.detail) == (failure_class, detail)


def test_result_file_becomes_the_result(run: Run) -> None:
    """Result, cost and tokens are taken from the file."""
    text = '{"result": {"branch": "x"}, "cost_usd": 0.1, "tokens_in": 5, "tokens_out": 6}'
    assert run(f"echo '{text}' > $VIBEY_RESULT_FILE") == Success({"branch": "x"}, Decimal("0.1"), 5, 6)


def test_cost_of_a_failure_is_kept(run: Run) -> None:
    """A program that fails has still cost what it says."""
    outcome = run('echo \'{"cost_usd": 2, "result": 1}\' > $VIBEY_RESULT_FILE; exit 1')
    assert outcome == Failure(FailureClass.WORK, "exit 1", cost_usd=Decimal(2))


def test_declared_failure_counts_whatever_the_exit(run: Run) -> None:
    """A refusal in the file wins over exit 0."""
    text = '{"failure": {"class": "capacity", "kind": "window", "detail": "5 h window", "resets_in": 60}}'
    outcome = run(f"echo '{text}' > $VIBEY_RESULT_FILE")
    assert outcome == Failure(FailureClass.CAPACITY, "5 h window", CapacityKind.WINDOW, resets_in_ms=60_000)


@pytest.mark.parametrize(
    "script",
    [
        "mkfifo $VIBEY_RESULT_FILE",
        "mkdir $VIBEY_RESULT_FILE",
        "ln -s /etc/passwd $VIBEY_RESULT_FILE",
        "echo '[1]' > $VIBEY_RESULT_FILE",
        "echo '{\"cost_usd\": -1}' > $VIBEY_RESULT_FILE",
        'echo \'{"failure": {"class": "vibey"}}\' > $VIBEY_RESULT_FILE',
        "head -c 300000 /dev/zero > $VIBEY_RESULT_FILE",
        "head -c 200000 /dev/zero | tr '\\0' '[' > $VIBEY_RESULT_FILE",
    ],
)
def test_unusable_result_file_is_the_works_failure(run: Run, script: str) -> None:
    """Whatever a program leaves in place of a report neither blocks nor is believed."""
    outcome = run(script)
    assert isinstance(outcome, Failure)
    assert outcome.failure_class is FailureClass.WORK


def test_named_secret_is_masked(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key the engine passes on shows neither in the log nor in the detail."""
    monkeypatch.setenv("MODEL_API_KEY", "sk-very-secret-indeed")
    outcome = run("echo bad key $MODEL_API_KEY; exit 1", env=("MODEL_API_KEY",))
    assert outcome == Failure(FailureClass.WORK, "exit 1: bad key ********")
    assert "very-secret" not in (tmp_path / "run-70" / "output.log").read_text()
