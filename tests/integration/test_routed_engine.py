"""Engines with an app, with real child processes: what is no affair of Celery's has its outcome here."""

from __future__ import annotations

import base64
import json
import pickle
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import redis

from tests.support.bookshop import APP, PROJECT, VARIABLES
from tests.support.carried import outcome_of
from vibey.domain.effort import Effort
from vibey.domain.errors import InvalidInput
from vibey.domain.outcome import Failure, FailureClass, Success
from vibey.engines.contract import EngineConfig, Job
from vibey.engines.registry import build, equipped

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from vibey.domain.outcome import Outcome

    Run = Callable[..., Outcome]

PRESS = EngineConfig("press", "celery", app=APP, env=VARIABLES)


def call(task: str, content_type: str = "application/json") -> dict[str, Any]:
    """The payload of a call without arguments."""
    return {
        "celery_task": {
            "id": "an-id",
            "task": task,
            "headers": {"id": "an-id", "task": task, "retries": 0},
            "body": '[[], {}, {"callbacks": null, "errbacks": null, "chain": null, "chord": null}]',
            "content_type": content_type,
            "content_encoding": "utf-8",
        }
    }


@pytest.fixture
def run(tmp_path: Path, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a payload on an engine, with the sample project on the import path as for a worker."""
    monkeypatch.syspath_prepend(str(PROJECT))
    monkeypatch.setenv("BOOKSHOP_REDIS", redis_url)
    monkeypatch.setenv("BOOKSHOP_DIARY", str(tmp_path / "diary"))

    def begin(payload: dict[str, Any], config: EngineConfig = PRESS) -> Outcome:
        job = Job(7, 70, 9, 1, Effort.HIGH, payload, "site", installation=uuid.uuid4().hex)
        return outcome_of(equipped(config), job, tmp_path)

    return begin


def test_a_call_is_carried_out(run: Run, tmp_path: Path) -> None:
    """The job's result is a word about the call; the value itself is in the app's result backend."""
    assert run(call("bookshop.tasks.hurry")) == Success({"celery": "SUCCESS", "returned": "'in time'"})
    assert (tmp_path / "diary").read_text().split()[:2] == ["hurry", "press"]


def test_any_engine_with_an_app_takes_calls_beside_its_own_jobs(run: Run) -> None:
    """The kind is the engine's own affair."""
    other = EngineConfig("other", "noop", app=APP, env=VARIABLES)
    assert run({"n": 1}, other) == Success(None)
    assert run(call("bookshop.tasks.hurry"), other) == Success({"celery": "SUCCESS", "returned": "'in time'"})
    assert "routed-tasks" in equipped(other).describe().capabilities


def test_a_project_whose_broker_is_our_redis_is_given_its_address(
    run: Run, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One server for both, by the same address: the variable that the engine names passes all the same."""
    monkeypatch.setenv("VIBEY_REDIS_URL", redis_url)
    assert run(call("bookshop.tasks.hurry")) == Success({"celery": "SUCCESS", "returned": "'in time'"})


def test_the_body_finds_a_configuration_named_relatively(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its folder is another than the worker's."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VIBEY_CONFIG", "vibey.toml")
    outcome = run(call("bookshop.tasks.tell"))
    assert isinstance(outcome, Success)
    assert outcome.result is not None
    assert f"'config': '{tmp_path / 'vibey.toml'}'" in outcome.result["returned"]


@pytest.mark.parametrize("task", ["bookshop.tasks.unheard", "bookshop.tasks.add"])
def test_a_task_that_is_not_the_apps_to_route_is_handed_off(run: Run, task: str) -> None:
    """Unknown, or known and not routed: another engine's app may know better, and this one runs nothing else."""
    failure = Failure(FailureClass.HANDOFF, f"{APP} has no routed task {task}")
    assert run(call(task)) == failure


def test_another_job_is_handed_off(run: Run) -> None:
    """Kind `celery` runs calls alone."""
    assert run({"n": 1}) == Failure(FailureClass.HANDOFF, f"engine press runs only tasks of {APP}", unstarted=True)


def test_a_body_of_arguments_the_app_does_not_accept_fails(run: Run, redis_url: str) -> None:
    """An app that accepts JSON is given no pickle by way of the router either; the caller is told, at once."""
    outcome = run(call("bookshop.tasks.hurry", "application/x-python-serialize"))
    assert isinstance(outcome, Failure)
    assert (outcome.failure_class, outcome.final) == (FailureClass.WORK, True)
    assert "ContentDisallowed" in outcome.detail
    client = redis.Redis.from_url(redis_url)
    stored = json.loads(client.get("bookshop:celery-task-meta-an-id") or "{}")
    client.close()
    assert (stored["status"], stored["result"]["exc_type"]) == ("FAILURE", "ContentDisallowed")


@pytest.mark.parametrize(
    ("app", "words"),
    [
        ("bookshop.nothing:app", "cannot be imported"),
        ("bookshop.tasks:add", "is not a Celery app"),
    ],
)
def test_an_app_that_is_not_there_is_misconfigured(run: Run, app: str, words: str) -> None:
    """It is the operator's to mend, and the doctor says so first."""
    broken = replace(PRESS, app=app)
    outcome = run(call("bookshop.tasks.hurry"), broken)
    assert isinstance(outcome, Failure)
    assert (outcome.failure_class, words in outcome.detail) == (FailureClass.MISCONFIGURED, True)
    health = equipped(broken).doctor()
    assert not health.good
    assert words in health.detail
    assert "engine.press.app" in health.fix


@pytest.mark.usefixtures("run")
def test_the_doctor_finds_the_app() -> None:
    """An app that can be imported, with its tasks, is well."""
    assert equipped(PRESS).doctor().good


def test_the_kind_needs_an_app() -> None:
    """Without one there is nothing it could run."""
    with pytest.raises(InvalidInput, match=r"engine\.press\.app"):
        build(EngineConfig("press", "celery"))


def test_a_payload_cannot_make_a_run_accept_pickles(run: Run, tmp_path: Path) -> None:
    """Of what a payload names as settings only those are applied that decide how results are written."""
    marker = tmp_path / "executed"
    payload = call("bookshop.tasks.hurry", "application/x-python-serialize")
    body = base64.b64encode(pickle.dumps(_Executes(str(marker)))).decode()
    payload["celery_task"] |= {
        "body": body,
        "binary": True,
        "content_encoding": "binary",
        "settings": {"accept_content": ["pickle", "json"], "result_serializer": "json"},
    }
    outcome = run(payload)
    assert isinstance(outcome, Failure)
    assert "ContentDisallowed" in outcome.detail
    assert not marker.exists()


class _Executes:
    """Touches a file when it is unpickled."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (self._path, "w")
