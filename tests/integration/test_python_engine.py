"""The python kind with real child processes: every way a callable can end."""

from __future__ import annotations

import uuid
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from tests.support.carried import outcome_of
from tests.support.trees import living
from vibey.domain.effort import Effort
from vibey.domain.outcome import CapacityKind, Failure, FailureClass, Success
from vibey.engines.contract import EngineConfig, Job
from vibey.engines.registry import build

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from vibey.domain.outcome import Outcome

    Run = Callable[..., Outcome]

WORK = "tests.support.callables:work"


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs the callable that behaves as told."""

    def begin(how: str, dotted: str = WORK) -> Outcome:
        installation = uuid.uuid4().hex
        job = Job(7, 70, 9, 2, Effort.HIGH, {"how": how, "n": 3}, "site", installation=installation)
        outcome = outcome_of(build(EngineConfig("py", "python", callable=dotted)), job, tmp_path)
        assert not living(installation, without_supervisor=False)
        return outcome

    return begin


def test_callable_gets_payload_and_info(run: Run, tmp_path: Path) -> None:
    """The callable sees its payload and its run, and works in the run's folder."""
    here = str(tmp_path / "run-70")
    assert run("info") == Success({"attempt": 2, "effort": "high", "here": here, "n": 3})


@pytest.mark.parametrize(
    ("how", "outcome"),
    [
        ("plain", Success({"value": 5})),
        ("nothing", Success()),
        ("answer", Success({"a": "\ufffd"}, Decimal("0.25"), 1, 2, near_quota_ms=90_000)),
        ("background", Success({"path": None})),
        ("raise", Failure(FailureClass.WORK, "ValueError: no good")),
        ("engine", Failure(FailureClass.ENGINE, "the server crashed")),
        ("give_up", Failure(FailureClass.WORK, "there is no such book", final=True)),
        ("handoff", Failure(FailureClass.HANDOFF, "saved at step 3")),
        (
            "window",
            Failure(FailureClass.CAPACITY, "come back later", CapacityKind.WINDOW, resets_in_ms=90_000),
        ),
        ("sys_exit", Failure(FailureClass.WORK, "the callable called sys.exit(0)")),
        ("os_exit", Failure(FailureClass.WORK, f"{WORK} ended its process without returning")),
        ("os_exit_3", Failure(FailureClass.WORK, "exit 3")),
        ("interrupt", Failure(FailureClass.WORK, "KeyboardInterrupt:")),
    ],
)
def test_end_of_a_call(run: Run, how: str, outcome: Outcome) -> None:
    """Results, declared failures and abrupt ends each have their outcome."""
    assert run(how) == outcome


@pytest.mark.parametrize(
    ("how", "failure_class", "words"),
    [
        ("recurse", FailureClass.WORK, "RecursionError"),
        ("memory", FailureClass.WORK, "Error"),
        ("abort", FailureClass.ENGINE, "killed by SIGABRT"),
        ("huge", FailureClass.WORK, "at most 262144"),
        ("not_json", FailureClass.WORK, "not JSON"),
        ("infinite", FailureClass.WORK, "inf"),
    ],
)
def test_abuse_is_survived(run: Run, how: str, failure_class: FailureClass, words: str) -> None:
    """Neither depth, nor memory, nor size, nor a crash reaches the worker."""
    outcome = run(how)
    assert isinstance(outcome, Failure)
    assert outcome.failure_class is failure_class
    assert words in outcome.detail


def test_traceback_is_in_the_log(run: Run, tmp_path: Path) -> None:
    """Whoever looks for the reason finds the traceback."""
    run("raise")
    assert 'raise ValueError("no good")' in (tmp_path / "run-70" / "output.log").read_text()


@pytest.mark.parametrize(
    "dotted",
    ["tests.support.nothing_here:work", "tests.support.callables:nothing", "tests.support.callables:NOT_CALLABLE"],
)
def test_missing_callable_is_misconfigured(run: Run, dotted: str) -> None:
    """A callable that is not there is the operator's to mend, and the doctor says so first."""
    outcome = run("plain", dotted)
    assert isinstance(outcome, Failure)
    assert outcome.failure_class is FailureClass.MISCONFIGURED
    health = build(EngineConfig("py", "python", callable=dotted)).doctor()
    assert not health.good
    assert dotted in health.detail
    assert "engine.py.callable" in health.fix


def test_doctor_finds_the_callable() -> None:
    """A callable that can be imported is well."""
    assert build(EngineConfig("py", "python", callable=WORK)).doctor().good
