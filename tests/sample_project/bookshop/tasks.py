"""The bookshop's tasks. What needs an engine is routed; what is small work stays with the bookshop's own workers."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from celery.exceptions import Ignore, SoftTimeLimitExceeded

from bookshop.celery import app
from vibey import RoutedTask
from vibey.engines.calling import CapacityRefused

DIARY = Path(os.environ["BOOKSHOP_DIARY"])
PULSE_SECONDS = 0.02


class BookError(Exception):
    """Something is wrong with a book."""


def note(word: str, task: Any, what: object = "") -> None:
    """One line of the diary: the word, the engine or `-`, the process, the instant, what it is about."""
    run = getattr(task, "run_info", None)
    engine = run.engine if run is not None else "-"
    with DIARY.open("a", encoding="utf-8") as diary:
        diary.write(f"{word} {engine} {os.getpid()} {time.time_ns()} {what}\n")


@app.task
def add(left: int, right: int) -> int:
    """A sum, in the bookshop's own worker."""
    return left + right


@app.task
def total(numbers: list[int]) -> int:
    """The sum of many, in the bookshop's own worker."""
    return sum(numbers)


@app.task
def complain(task_id: str) -> None:
    """Write a complaint down, in the bookshop's own worker; linked to failures."""
    note("complaint", complain, task_id)


@app.task
def grumble(request: Any, error: Exception, _traceback: str) -> None:
    """A link of Celery's other form, which is called where the failure was."""
    note("grumble", grumble, f"{request.id} {type(error).__name__}")


@app.task(bind=True, base=RoutedTask, engines=["press", "cloud"])
def double(self: Any, number: int) -> int:
    """Twice the number, on an engine."""
    note("double", self, number)
    return number * 2


@app.task(bind=True, base=RoutedTask, engines=["press", "cloud"])
def gather(self: Any, numbers: list[int]) -> int:
    """The sum of many, on an engine."""
    note("gather", self)
    return sum(numbers)


@app.task(bind=True, base=RoutedTask, engines=["press", "cloud"])
def compose(self: Any, left: str, right: str) -> str:
    """Two words as one line, on an engine."""
    note("compose", self, f"{left}-{right}")
    return f"{left} {right}"


@app.task
def gather_words(lines: list[str]) -> str:
    """Many lines as one, in the bookshop's own worker."""
    return ", ".join(lines)


@app.task(bind=True, base=RoutedTask, engines=["press"])
def print_book(self: Any, book: str, gate: str = "", seconds: float = 0) -> str:
    """Print a book: it takes a while, and until the gate is open."""
    note("start", self, book)
    end = time.monotonic() + seconds
    while time.monotonic() < end or (gate and not Path(gate).exists()):
        note("alive", self, book)
        time.sleep(PULSE_SECONDS)
    note("end", self, book)
    return f"{book} printed by {self.run_info.engine} for {self.request.id}"


@app.task(bind=True, base=RoutedTask, engines=["press", "cloud"], throws=(BookError,))
def spoil(self: Any, book: str) -> None:
    """Fail, and be counted."""
    note("spoil", self, book)
    raise BookError(f"{book} is spoiled")


@app.task(bind=True, base=RoutedTask, engines=["press", "cloud"], max_retries=3)
def persist(self: Any, times: int, countdown: float = 0) -> dict[str, Any]:
    """Succeed after so many retries."""
    note("persist", self, self.request.retries)
    if self.request.retries < times:
        raise self.retry(countdown=countdown, exc=BookError(f"try {self.request.retries}"))
    return {"retries": self.request.retries, "effort": self.run_info.effort}


@app.task(
    bind=True,
    base=RoutedTask,
    engines=["press", "cloud"],
    autoretry_for=(BookError,),
    retry_kwargs={"max_retries": 1, "countdown": 0},
)
def insist(self: Any) -> None:
    """Fail until the retries are used up."""
    note("insist", self, self.request.retries)
    raise BookError("never")


@app.task(bind=True, base=RoutedTask, autoretry_for=(Exception,), engines=["lender", "cloud"])
def borrow(self: Any) -> str:
    """Be refused by the first engine, and served by the next: no retry of the task."""
    note("borrow", self, self.request.retries)
    if self.run_info.engine == "lender":
        raise CapacityRefused("window", resets_in=600)
    return str(self.run_info.engine)


@app.task(bind=True, base=RoutedTask, max_attempts=2)
def crash(self: Any, always: bool = True) -> str:  # noqa: FBT001, FBT002
    """Die, at the first attempt or at each."""
    note("crash", self, self.run_info.attempt)
    if always or self.run_info.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return f"attempt {self.run_info.attempt}"


@app.task(bind=True, base=RoutedTask, engines=["press"], soft_time_limit=3)
def hurry(self: Any) -> str:
    """Be told to come to an end, and do."""
    note("hurry", self)
    try:
        time.sleep(60)
    except SoftTimeLimitExceeded:
        return "in time"
    return "too late"


@app.task(bind=True, base=RoutedTask, engines=["press"], time_limit=0.5)
def dawdle(self: Any) -> None:
    """Take too long, and be ended."""
    note("dawdle", self)
    time.sleep(60)


@app.task(bind=True, base=RoutedTask, engines=["press", "cloud"])
def shrug(self: Any) -> None:
    """Leave the result as it is."""
    note("shrug", self)
    raise Ignore


@app.task(bind=True, base=RoutedTask, engines=["press"], ignore_result=True)
def whisper(self: Any, word: str) -> str:
    """Do the work, and keep the result to oneself."""
    note("whisper", self, word)
    return word


@app.task(bind=True, base=RoutedTask, engines=["press", "cloud"])
def delegate(self: Any, number: int) -> None:
    """Let another task give the result, under this one's id."""
    note("delegate", self, number)
    raise self.replace(double.s(number))


@app.task(bind=True, base=RoutedTask, engines=["press", "cloud"])
def tell(self: Any) -> dict[str, Any]:
    """What the body sees of its call."""
    request, run = self.request, self.run_info
    return {
        "id": request.id,
        "root_id": request.root_id,
        "parent_id": request.parent_id,
        "headers": request.headers,
        "stamps": request.stamps,
        "hostname": request.hostname.partition("@")[0],
        "engine": run.engine,
        "effort": run.effort,
        "session": run.session,
        "project": run.project,
        "config": os.environ.get("VIBEY_CONFIG"),
    }
