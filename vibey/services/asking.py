"""Asking: questions that may hang, asked all at once, and their answers as they come.

Each question has a thread of its own. A thread cannot be ended, so one that hangs is left behind; it keeps no process
from ending. Whoever asks waits no longer than the time given, whatever the questions do.
"""

from __future__ import annotations

import time
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    Waiting = Callable[[Sequence[str]], None]

REMARK_SECONDS = 1.5
Answer = TypeVar("Answer")


def answers(
    questions: Mapping[str, Callable[[], Answer]], seconds: float, waiting: Waiting | None = None
) -> Iterator[tuple[str, Answer | None]]:
    """Each question's name with its answer, the quickest first; None for those without one after `seconds`.

    A question must not raise. `waiting` is called once, with the names still open, when the answers are slow.
    """
    inbox = SimpleQueue[tuple[str, Answer]]()
    for name, question in questions.items():
        Thread(target=_ask, args=(inbox, name, question), name=f"ask-{name}", daemon=True).start()
    begun = time.monotonic()
    still_open = dict.fromkeys(questions)
    while still_open:
        limit = seconds if waiting is None else min(REMARK_SECONDS, seconds)
        try:
            name, answer = inbox.get(timeout=max(0.0, begun + limit - time.monotonic()))
        except Empty:
            if limit >= seconds:
                break
            if waiting is not None:
                waiting(list(still_open))
            waiting = None
            continue
        del still_open[name]
        yield name, answer
    yield from dict.fromkeys(still_open).items()


def _ask(inbox: SimpleQueue[tuple[str, Answer]], name: str, question: Callable[[], Answer]) -> None:
    inbox.put((name, question()))
