"""One trace of a job, through real processes and the real exporter: spans of producer, router and worker."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from celery import Celery

from tests.support.otlp import Collector
from tests.support.wait import until
from vibey.publisher import ENQUEUE_QUEUE, ENQUEUE_TASK
from vibey.services import views
from vibey.services.installation import celery_configuration, service_urls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.support.fleet import Fleet
    from tests.support.otlp import Told

pytestmark = pytest.mark.slow

PRODUCER, CONSUMER, INTERNAL = 4, 5, 1
CALLER = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
# Writes down the trace context it was given, and reports what it cost.
PROGRAM = """
import json, os, sys
job = json.load(sys.stdin)
with open(os.path.join(job["payload"]["folder"], f"run-{job['run_id']}"), "w") as told:
    told.write(os.environ.get("TRACEPARENT", ""))
report = {"result": {"ok": 1}, "cost_usd": 0.25, "tokens_in": 12, "tokens_out": 3}
with open(os.environ["VIBEY_RESULT_FILE"], "w") as file:
    json.dump(report, file)
sys.exit(job["payload"].get("code", 0))
"""
ENGINE = {"kind": "command", "tier": "local", "argv": [sys.executable, "-I", "-S", "-c", PROGRAM]}


@pytest.fixture
def collector() -> Iterator[Collector]:
    """A collector that listens."""
    with Collector() as listening:
        yield listening


@pytest.fixture
def traced(collector: Collector, open_fleet: Callable[..., Fleet], monkeypatch: pytest.MonkeyPatch) -> Fleet:
    """A fleet at work whose every process traces."""
    for name, value in collector.environment.items():
        monkeypatch.setenv(name, value)
    fleet = open_fleet(engine={"near": ENGINE})
    fleet.muster()
    return fleet


def _enqueue(fleet: Fleet, *options: str, **environment: str) -> int:
    """Enqueue by the command line, a process of its own; the job's id."""
    said = subprocess.run(
        [sys.executable, "-m", "vibey.cli.main", "enqueue", "--json", *options],
        env={**os.environ, "VIBEY_CONFIG": str(fleet.config), **environment},
        capture_output=True,
        check=True,
        text=True,
    )
    job: int = json.loads(said.stdout)["job_id"]
    return job


def _chain(collector: Collector, runs: int = 1) -> list[Told]:
    """The spans of one job with so many runs, as they began, once all have arrived."""
    until(lambda: len(collector.spans("vibey.run")) >= runs and collector.spans("vibey.enqueue"), what="the spans")
    return collector.spans()


def _payload(folder: Path, **more: Any) -> str:
    return json.dumps({"folder": str(folder), **more})


def test_a_job_is_one_trace_from_enqueue_through_route_to_run(
    traced: Fleet, collector: Collector, tmp_path: Path
) -> None:
    """Three spans of three processes, each the child of the one before; the engine's program could be the next."""
    job = _enqueue(traced, _payload(tmp_path))
    assert traced.until_ended() == {"succeeded": 1}
    enqueued, routed, ran = _chain(collector)
    assert [each.name for each in (enqueued, routed, ran)] == ["vibey.enqueue", "vibey.route", "vibey.run"]
    assert [each.kind for each in (enqueued, routed, ran)] == [PRODUCER, INTERNAL, CONSUMER]
    assert {each.trace for each in (enqueued, routed, ran)} == {enqueued.trace}
    assert [each.parent for each in (enqueued, routed, ran)] == ["", enqueued.span, routed.span]
    assert {each.service for each in (enqueued, routed, ran)} == {"vibey"}
    assert enqueued.began_ns <= routed.began_ns <= routed.ended_ns <= ran.ended_ns
    ((run,),) = traced.rows("select id from runs")
    assert enqueued.attributes["vibey.job_id"] == routed.attributes["vibey.job_id"] == ran.attributes["vibey.job_id"]
    assert ran.attributes["vibey.job_id"] == job
    decision = {"vibey.engine": "near", "vibey.tier": "local", "vibey.why": "assign", "vibey.run_id": run}
    assert decision.items() <= routed.attributes.items()
    spent = {"vibey.cost_usd": 0.25, "gen_ai.usage.input_tokens": 12, "gen_ai.usage.output_tokens": 3}
    assert {"vibey.engine": "near", "vibey.outcome": "succeeded", **spent}.items() <= ran.attributes.items()
    assert not ran.failed
    assert (tmp_path / f"run-{run}").read_text() == f"00-{ran.trace}-{ran.span}-01"
    shown = views.job(traced.installation, job)
    assert shown["trace_id"] == shown["runs"][0]["trace_id"] == ran.trace


def test_every_attempt_of_a_job_is_in_its_trace(traced: Fleet, collector: Collector, tmp_path: Path) -> None:
    """A failed run says so and why; the next grant is another child of the enqueueing, not of the failed run."""
    _enqueue(traced, _payload(tmp_path, code=1), "--max-attempts", "2")
    assert traced.until_ended() == {"failed": 1}
    spans = _chain(collector, runs=2)
    assert len({each.trace for each in spans}) == 1
    enqueued = collector.spans("vibey.enqueue")[0]
    routed = collector.spans("vibey.route")
    ran = collector.spans("vibey.run")
    assert [each.parent for each in routed] == [enqueued.span] * 2
    assert [each.parent for each in ran] == [each.span for each in routed]
    assert [each.attributes["vibey.attempt"] for each in routed] == [1, 2]
    assert all(each.failed and each.attributes["vibey.failure_class"] == "work" and each.words for each in ran)


def test_the_trace_of_the_caller_goes_on(traced: Fleet, collector: Collector, tmp_path: Path) -> None:
    """A command called within a trace, and a message whose headers name one, belong to it."""
    _enqueue(traced, _payload(tmp_path), TRACEPARENT=CALLER)
    producer = Celery("producer", set_as_current=False)
    producer.conf.update(celery_configuration(traced.settings, service_urls(traced.settings)))
    producer.send_task(
        ENQUEUE_TASK,
        kwargs={"payload": {"folder": str(tmp_path)}},
        queue=ENQUEUE_QUEUE,
        headers={"traceparent": CALLER},
    )
    producer.close()
    until(lambda: len(collector.spans("vibey.run")) == 2, what="both runs")
    _, trace, parent, _ = CALLER.split("-")
    assert {each.trace for each in collector.spans()} == {trace}
    assert [each.parent for each in collector.spans("vibey.enqueue")] == [parent, parent]


def test_a_collector_that_is_away_keeps_no_job(
    open_fleet: Callable[..., Fleet], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Spans are lost, jobs are not, and a command returns."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    fleet = open_fleet(engine={"near": ENGINE})
    fleet.muster()
    _enqueue(fleet, _payload(tmp_path))
    assert fleet.until_ended() == {"succeeded": 1}


def test_nothing_is_traced_unless_asked_for(open_fleet: Callable[..., Fleet], tmp_path: Path) -> None:
    """Without the environment no context is made; one that a producer brings goes through to the program unchanged."""
    fleet = open_fleet(engine={"near": ENGINE})
    fleet.muster()
    _enqueue(fleet, _payload(tmp_path))
    assert fleet.until_ended() == {"succeeded": 1}
    _enqueue(fleet, _payload(tmp_path), TRACEPARENT=CALLER)
    fleet.until("select count(*) = 2 from jobs where state = 'succeeded'")
    (first, none), (second, given) = fleet.rows("select id, traceparent from runs order by id")
    assert (none, given) == (None, CALLER)
    assert (tmp_path / f"run-{first}").read_text() == ""
    assert (tmp_path / f"run-{second}").read_text() == CALLER


@pytest.mark.parametrize("asked", [False, True])
def test_without_the_extra_nothing_is_traced_and_nothing_fails(*, asked: bool) -> None:
    """A producer, a router and a worker do without OpenTelemetry's packages; who asks for traces is told what to do."""
    program = """
import sys
sys.modules["opentelemetry"] = None
import vibey.services.enqueue, vibey.services.route, vibey.services.run
from vibey import tracing
with tracing.begin("x", "internal", "kept", {}) as span:
    span.note({"a": 1})
    span.fail("no")
tracing.close()
print(tracing.is_on(), span.traceparent)
"""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    if asked:
        environment["OTEL_TRACES_EXPORTER"] = "otlp"
    said = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, check=True, text=True)
    assert said.stdout == "False kept\n"
    assert ("pip install 'vibey[otel]'" in said.stderr) == asked
