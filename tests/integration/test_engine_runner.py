"""The runner's loop with real processes: renewals, stops, limits, and what each makes of the outcome."""

from __future__ import annotations

import threading
import time
import uuid
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.trees import living
from tests.support.wait import HANGING, until
from vibey.domain.depth import MOST_LEVELS
from vibey.domain.effort import Effort
from vibey.domain.outcome import LARGEST_COST, Failure, FailureClass, Success
from vibey.engines.context import run_log
from vibey.engines.contract import (
    Context,
    Description,
    EngineConfig,
    Health,
    Job,
    Progress,
    Renewal,
    RunSteps,
    Stopped,
    StopReason,
)
from vibey.engines.moment import Moment
from vibey.engines.output import read_text
from vibey.engines.registry import build
from vibey.engines.runner import execute

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from vibey.domain.outcome import Outcome
    from vibey.engines.contract import Engine

    Run = Callable[..., Outcome | Stopped]

NEVER = 3600.0
"""Seconds, longer than a test may take."""
ENDLESS = "while :; do sleep 0.02; done"


@dataclass
class Keeper:
    """Whoever keeps the lease: the answers it gives, in turn (the last one for ever), and how often it was asked."""

    answers: list[Renewal | Exception] = field(default_factory=lambda: [Renewal.KEPT])
    asked: int = 0

    def __call__(self) -> Renewal:
        """Answer one renewal."""
        answer = self.answers[min(self.asked, len(self.answers) - 1)]
        self.asked += 1
        if isinstance(answer, Exception):
            raise answer
        return answer


def nested(levels: int) -> dict[str, object]:
    """An object of this many levels."""
    value: dict[str, object] = {}
    for _ in range(levels):
        value = {"in": value}
    return value


class Steps:
    """A third party's engine: runs the given function as its `run`."""

    def __init__(self, steps: Callable[[Job, Context], RunSteps], **prices: Decimal) -> None:
        self._steps = steps
        self._prices = prices

    def describe(self) -> Description:
        """Nothing special but its prices."""
        return Description("steps", price_in=self._prices.get("price_in"), price_out=self._prices.get("price_out"))

    def doctor(self) -> Health:
        """Always well."""
        return Health(installed=True)

    def run(self, job: Job, context: Context) -> RunSteps:
        """The given steps."""
        return self._steps(job, context)


@pytest.fixture
def installation() -> Iterator[str]:
    """A mark no other test has, and nothing that carries it outlives the test."""
    name = f"test-{uuid.uuid4().hex}"
    yield name
    assert not living(name, without_supervisor=False)


@pytest.fixture
def run(tmp_path: Path, installation: str) -> Callable[..., Outcome | Stopped]:
    """Runs an engine, or a shell script on a command engine, as run 70 of job 7."""

    def begin(what: Engine | str, keeper: Keeper | None = None, **changes: object) -> Outcome | Stopped:
        shell = EngineConfig("shell", "command", argv=("sh", "-c", what)) if isinstance(what, str) else None
        options = {
            "directory_root": tmp_path,
            "lease_seconds": 60.0,
            "renew": keeper or Keeper(),
            "timeout_seconds": 60.0,
            **changes,
        }
        job = Job(7, 70, 1, 1, Effort.LOW, {}, "default", installation=installation)
        return execute(build(shell) if shell else what, job, **options)  # type: ignore[arg-type]

    return begin


def test_noop_touches_nothing(run: Run, tmp_path: Path) -> None:
    """The engine that measures the router makes no folder, no thread and no renewal."""
    keeper = Keeper()
    threads = threading.active_count()
    assert run(build(EngineConfig("none", "noop")), keeper, directory_root=tmp_path / "runs") == Success()
    assert (keeper.asked, threading.active_count()) == (0, threads)
    assert not (tmp_path / "runs").exists()


def test_short_run_costs_no_renewal(run: Run) -> None:
    """A run shorter than a third of its lease never asks for a renewal."""
    keeper = Keeper()
    assert run("exit 0", keeper) == Success()
    assert keeper.asked == 0


def test_long_run_renews_every_third(run: Run, tmp_path: Path) -> None:
    """A run of several leases lives on renewals, a third of a lease apart."""
    asked: list[float] = []

    def renew() -> Renewal:
        asked.append(time.monotonic())
        if len(asked) == 4:
            (tmp_path / "enough").touch()
        return Renewal.KEPT

    script = f"until [ -e '{tmp_path}/enough' ]; do sleep 0.05; done"
    assert run(script, lease_seconds=3.0, renew=renew) == Success()
    # A machine at work makes renewals late, never early.
    assert all(later - earlier > 0.9 for earlier, later in pairwise(asked))


def test_failed_renewals_are_tried_again(run: Run, tmp_path: Path) -> None:
    """Renewals that could not be asked are repeated, and the run goes on when one succeeds in time."""
    answers: list[Renewal | Exception] = [ConnectionError("down"), ConnectionError("down"), Renewal.KEPT]

    def renew() -> Renewal:
        answer = answers.pop(0) if answers else Renewal.KEPT
        if isinstance(answer, Exception):
            raise answer
        (tmp_path / "kept").touch()
        return answer

    assert run(f"until [ -e '{tmp_path}/kept' ]; do sleep 0.05; done", lease_seconds=6.0, renew=renew) == Success()


def test_slow_renewal_counts_from_its_sending(run: Run) -> None:
    """An answer that took longer than the lease extends nothing: the tree is dead before it comes."""
    answered = threading.Event()
    came: list[bool] = []

    def renew() -> Renewal:
        came.append(answered.wait(HANGING))
        return Renewal.KEPT

    outcome = run(ENDLESS, lease_seconds=1.0, renew=renew)
    assert outcome == Stopped(StopReason.LEASE_LOST)
    assert came == []
    answered.set()


def test_lease_counts_from_the_claim(run: Run) -> None:
    """A run whose claim was sent long ago has no lease left to start a process under."""
    claimed_at = Moment.now().plus(-61)
    outcome = run("exit 0", Keeper([ConnectionError("down")]), claimed_at=claimed_at)
    assert outcome == Stopped(StopReason.LEASE_LOST)


def test_lost_lease_ends_the_run(run: Run) -> None:
    """A refused renewal stops the run without grace."""
    outcome = run("trap '' TERM; " + ENDLESS, Keeper([Renewal.LOST]), lease_seconds=3.0, grace_seconds=NEVER)
    assert outcome == Stopped(StopReason.LEASE_LOST)


def test_news_brings_a_cancel_at_once(run: Run, tmp_path: Path) -> None:
    """A cancel is seen when there is news, long before the next renewal is due, and the log says why it ended."""
    news = threading.Event()

    def wake(seconds: float) -> bool:
        return news.wait(min(seconds, 0.05)) if not news.is_set() else True

    def announce(_progress: Progress) -> None:
        news.set()

    script = "echo up; sleep 1.2; echo still up; " + ENDLESS
    outcome = run(script, Keeper([Renewal.CANCEL]), wake=wake, on_progress=announce, lease_seconds=NEVER)
    assert outcome == Stopped(StopReason.CANCEL)
    assert "[vibey] the run was ended: cancel" in read_text(run_log(tmp_path, 70))


def test_work_that_ended_by_itself_survives_a_cancel(run: Run) -> None:
    """A result that was there before the cancel arrived is kept."""

    def steps(_job: Job, context: Context) -> RunSteps:
        ending = context.spawn(("true",), environment={"PATH": "/bin:/usr/bin"}).wait()
        until(lambda: context.stopped, what="the cancel")
        yield Progress("late")
        return Success({"code": ending.code})

    outcome = run(Steps(steps), Keeper([Renewal.CANCEL]), lease_seconds=1.0)
    assert outcome == Success({"code": 0})


def test_no_process_is_started_after_a_stop(run: Run) -> None:
    """A run of several processes ends between two of them."""
    started = []

    def steps(_job: Job, context: Context) -> RunSteps:
        for number in range(2):
            context.spawn(("true",), environment={"PATH": "/bin:/usr/bin"}).wait()
            started.append(number)
            yield Progress(cost_usd=Decimal("0.50"))
            until(lambda: context.stopped, what="the cancel")
        return Success()

    outcome = run(Steps(steps), Keeper([Renewal.CANCEL]), lease_seconds=1.0)
    assert outcome == Stopped(StopReason.CANCEL, cost_usd=Decimal("0.50"))
    assert started == [0]


def test_timeout_is_the_engines_failure(run: Run) -> None:
    """A run that takes too long is ended politely and counts against the engine."""
    outcome = run(ENDLESS, timeout_seconds=0.3)
    assert outcome == Failure(FailureClass.ENGINE, "timeout: not done after 0.3 s")


def test_stall_is_the_engines_failure(run: Run, tmp_path: Path) -> None:
    """Silence for too long ends the run; output keeps it alive."""
    script = "for i in 1 2 3 4 5; do echo word $i; sleep 0.7; done; " + ENDLESS
    assert run(script, stall_seconds=3) == Failure(FailureClass.ENGINE, "stall: silent for 3 s")
    assert "word 5" in read_text(run_log(tmp_path, 70))


def test_tokens_cost_what_the_operator_says(run: Run) -> None:
    """Without a cost of the engine's own the prices make one of its tokens, the latest ones; a cost it names wins."""

    def steps(named: Decimal | None) -> Callable[[Job, Context], RunSteps]:
        def go(_: Job, __: Context) -> RunSteps:
            yield Progress(tokens_in=1000, tokens_out=10)
            return Success(cost_usd=named, tokens_out=500)

        return go

    prices = {"price_in": Decimal(3), "price_out": Decimal(15)}
    assert run(Steps(steps(None), **prices)) == Success(None, Decimal("0.0105"), 1000, 500)
    assert run(Steps(steps(Decimal("0.2")), **prices)) == Success(None, Decimal("0.2"), 1000, 500)
    assert run(Steps(steps(None), price_out=Decimal(15))) == Success(None, Decimal("0.0075"), 1000, 500)
    assert run(Steps(steps(None))) == Success(None, None, 1000, 500)


def test_the_price_of_tokens_ends_the_run(run: Run) -> None:
    """A run that reports tokens only is held to the same limit."""

    def steps(_: Job, context: Context) -> RunSteps:
        process = context.spawn(("sh", "-c", ENDLESS), environment={"PATH": "/usr/bin:/bin"})
        yield Progress(tokens_in=1_000_000)
        yield Progress(tokens_in=2_000_000)
        process.wait()
        return Success()

    outcome = run(Steps(steps, price_in=Decimal(3)), cost_limit_usd=Decimal(5))
    assert isinstance(outcome, Failure)
    assert (outcome.failure_class, outcome.cost_usd) == (FailureClass.WORK, Decimal(6))


def test_cost_above_the_limit_ends_the_run(run: Run) -> None:
    """A run that reports more than it may cost is ended, and what it cost is kept."""

    def steps(_job: Job, context: Context) -> RunSteps:
        process = context.spawn(("sleep", "600"), environment={"PATH": "/bin:/usr/bin"})
        yield Progress(cost_usd=Decimal(1), tokens_in=10)
        yield Progress(cost_usd=Decimal(6), tokens_out=20)
        process.wait()
        return Success()

    outcome = run(Steps(steps), cost_limit_usd=Decimal(5))
    assert isinstance(outcome, Failure)
    assert (outcome.failure_class, outcome.cost_usd) == (FailureClass.WORK, Decimal(6))
    assert (outcome.tokens_in, outcome.tokens_out) == (10, 20)


def test_broken_adapter_is_vibeys_failure(run: Run, installation: str) -> None:
    """An adapter that raises leaves no process behind and harms neither job nor engine."""

    def steps(_job: Job, context: Context) -> RunSteps:
        context.spawn(("sleep", "600"), environment={"PATH": "/bin:/usr/bin"})
        until(lambda: living(installation), what="the process")
        yield Progress()
        raise KeyError("oops")

    outcome = run(Steps(steps))
    assert isinstance(outcome, Failure)
    assert outcome.failure_class is FailureClass.VIBEY
    assert "KeyError: 'oops' (test_engine_runner.py:" in outcome.detail


def test_what_an_adapter_says_of_secrets_is_masked(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    """An adapter that works in the worker itself and starts no process shows no secret: not by its errors, nor else."""
    key = "sk-planted-secret-0123456789"

    def breaking(_job: Job, _context: Context) -> RunSteps:
        yield Progress()
        raise ValueError(f"cannot send Bearer {key}")

    def answering(_job: Job, _context: Context) -> RunSteps:
        yield Progress()
        return Success({"sent": [key]})

    broken = run(Steps(breaking), secrets=lambda: (key,))
    assert isinstance(broken, Failure)
    assert "cannot send Bearer ********" in broken.detail
    assert "cannot send Bearer ********" in caplog.text
    assert key not in broken.detail + caplog.text
    assert run(Steps(answering), secrets=lambda: (key,)) == Success({"sent": ["********"]})


def test_interrupted_worker_kills_the_tree(run: Run, installation: str) -> None:
    """An interrupt passes through, once nothing of the run is left."""

    def steps(_job: Job, context: Context) -> RunSteps:
        context.spawn(("sleep", "600"), environment={"PATH": "/bin:/usr/bin"})
        until(lambda: living(installation), what="the process")
        yield Progress()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(Steps(steps))
    assert not living(installation)


def test_folder_of_an_earlier_database_is_moved_aside(run: Run, tmp_path: Path) -> None:
    """A run never works in a folder that something else has used."""
    (tmp_path / "run-70").mkdir()
    (tmp_path / "run-70" / "old").touch()
    assert run("test ! -e old") == Success()
    assert (tmp_path / "run-70.old-1" / "old").exists()
    assert (tmp_path / "run-70").stat().st_mode & 0o077 == 0


def test_no_thread_outlives_its_run(run: Run) -> None:
    """The watch ends with the run."""
    before = threading.active_count()
    run("exit 0")
    assert threading.active_count() == before


def test_no_descriptor_outlives_its_run(run: Run) -> None:
    """Runs leave the worker's table of open files as it was."""
    run("exit 0")
    before = len(list(Path("/proc/self/fd").iterdir()))
    for script in ("exit 0", "sleep 600 &", "exit 1"):
        run(script)
    run(build(EngineConfig("missing", "command", argv=("nosuchprogram",))))
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_answer_that_is_no_outcome_is_vibeys_failure(run: Run) -> None:
    """An adapter that returns something else is told so, and the job is not harmed."""

    def steps(_job: Job, _context: Context) -> RunSteps:
        yield Progress()
        return "done"  # type: ignore[return-value]

    outcome = run(Steps(steps))
    assert isinstance(outcome, Failure)
    assert outcome.failure_class is FailureClass.VIBEY


def test_process_left_behind_spoils_no_result(run: Run) -> None:
    """An adapter may return while its process still runs: the process is killed, the outcome stays."""

    def steps(_job: Job, context: Context) -> RunSteps:
        process = context.spawn(("sh", "-c", "echo ready; sleep 600"), environment={"PATH": "/bin:/usr/bin"})
        yield Progress(next(process.lines()))
        return Success({"seen": True})

    assert run(Steps(steps)) == Success({"seen": True})


@pytest.mark.parametrize(
    ("answer", "stored"),
    [
        (Success(cost_usd=Decimal("999999.9999999")), Success(cost_usd=LARGEST_COST)),
        (Success(cost_usd=Decimal("1e30"), tokens_in=10**30), Success(cost_usd=LARGEST_COST, tokens_in=2**53)),
        (Success(cost_usd=Decimal("NaN"), tokens_out=-1), Success()),
        (Success(cost_usd=Decimal(-1)), Success()),
        (Success({"text": "a\0b\ud800"}), Success({"text": "a\ufffdb\ufffd"})),
        (Failure(FailureClass.WORK, "a\0b"), Failure(FailureClass.WORK, "a\ufffdb", unstarted=True)),
    ],
    ids=str,
)
def test_whatever_an_adapter_answers_can_be_stored(run: Run, answer: Outcome, stored: Outcome) -> None:
    """Costs and tokens are within their columns and words without what Postgres refuses."""

    def steps(_job: Job, _context: Context) -> RunSteps:
        yield Progress()
        return answer

    assert run(Steps(steps)) == stored


def test_prices_make_no_cost_that_cannot_be_stored(run: Run) -> None:
    """Tokens at the operator's prices are no more than the column holds, to the millionth of a dollar."""

    def steps(_job: Job, _context: Context) -> RunSteps:
        yield Progress(tokens_in=2**53, tokens_out=1)
        return Success()

    assert run(Steps(steps, price_in=Decimal("0.3"))) == Success(None, LARGEST_COST, 2**53, 1)


@pytest.mark.parametrize(
    "result", [{"a": {1, 2}}, {"a": float("nan")}, nested(MOST_LEVELS + 1), {"a": "x" * 2_000_000}]
)
def test_result_that_cannot_be_stored_is_vibeys_failure(run: Run, result: dict[str, object]) -> None:
    """An adapter's answer that is no JSON, or too deep or large for its column, harms no job."""

    def steps(_job: Job, _context: Context) -> RunSteps:
        yield Progress()
        return Success(result)

    outcome = run(Steps(steps))
    assert isinstance(outcome, Failure)
    assert outcome.failure_class is FailureClass.VIBEY
