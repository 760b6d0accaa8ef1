"""Reading: a client's output, line by line, as it comes: what it tells, and whether it is time to end it.

A refusal for want of capacity and a wrong configuration end the run with the line that shows them: a client that
waits silently must not hold the slot. Trouble that may pass (5xx, overload, broken connections) is left to the
client's own tries: the run ends with the fourth report in a row, or 30 s after the first without a sign of life;
one such sign ends the row. What the model says is never held against the table.
"""

from __future__ import annotations

import json
import time
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from vibey.domain.outcome import Failure, FailureClass, Outcome, Success, one_line
from vibey.engines.clients.rules import lookup, text_of
from vibey.engines.clients.signs import sentence
from vibey.engines.clients.transcript import Hearing, Transcript
from vibey.engines.contract import Exit, Progress
from vibey.engines.exits import failure_of_exit
from vibey.engines.handover import PROGRESS_SECONDS
from vibey.engines.results import LARGEST_RESULT, LONGEST_RESET_SECONDS, storable
from vibey.engines.stream import LONGEST_LINE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from vibey.engines.clients.rules import Table
    from vibey.engines.clients.signs import Sign
    from vibey.engines.clients.tap import Tap

TRIES = 3
PATIENCE_SECONDS = 30.0
_LONGEST_ANSWER = LARGEST_RESULT - 4096
_LAST_WORDS = 8
_LONGEST_BLOCK = 64 * 1024
_VIBEYS_OWN = frozenset({69, 75, 78})


class Block:
    """An object that a client prints over several lines, as clients do with the error that they end with."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._left = 0

    def take(self, line: str) -> Mapping[str, Any] | None:
        """Take in a line that is no JSON by itself; the object, if it ends with this line."""
        line = line.rstrip()
        if line == "{":
            self._lines, self._left = [], _LONGEST_BLOCK
        self._left -= len(line) + 1
        if self._left < 0:
            self._lines, self._left = [], 0
            return None
        self._lines.append(line)
        if line != "}":
            return None
        text, self._lines, self._left = "\n".join(self._lines), [], 0
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            return None
        return found if isinstance(found, dict) else None


class Reading:
    """The output of one run. `refusal` is the sign to end the run by, once there is one; `tapped`: the tap reported."""

    def __init__(self, table: Table, hear: Hearing, tap: Tap, clock: Callable[[], float] = time.monotonic) -> None:
        self._table = table
        self._hear = hear
        self._tap = tap
        self._clock = clock
        self._torn = False
        self._row = 0
        self._row_tapped = False
        self._row_began = 0.0
        self._row_alive = 0
        self._reported = clock()
        self._told: tuple[object, ...] = ()
        self._last_line = ""
        self._last_words: deque[str] = deque(maxlen=_LAST_WORDS)
        self._block = Block()
        self._last_sign: Sign | None = None
        self.transcript = Transcript()
        self.refusal: Sign | None = None
        self.tapped = False

    def take(self, line: str) -> Progress | None:
        """Take in a line; a report when there is news of what it costs, or words and a second has passed."""
        torn, self._torn = self._torn, len(line) >= LONGEST_LINE // 4 and len(line.encode()) >= LONGEST_LINE
        if torn or self._torn or not line or line.isspace():
            return None
        for event in self._events(line):
            self._take(event)
        return self._news()

    @property
    def untapped(self) -> bool:
        """Whether the model has answered, and the tap has reported no request."""
        return self.transcript.alive > 0 and not self.tapped

    @property
    def patience(self) -> float | None:
        """Seconds that the trouble on the way may still last; None if there is none."""
        if not self._row or self.refusal is not None:
            return None
        return max(0.0, self._row_began + PATIENCE_SECONDS - self._clock())

    def expire(self) -> None:
        """Take the trouble on the way for the end, if its time is up."""
        if self.patience == 0.0:
            self.refusal = self._last_sign

    def outcome(self, ending: Exit, program: str) -> Outcome:
        """What the run comes to, given how the client ended."""
        told = self.transcript
        failure = self._failure(ending, program)
        until = told.near_quota_until
        wait = None if until is None else int(min(max(until - time.time(), 0.0), LONGEST_RESET_SECONDS) * 1000)
        if failure is not None:
            outcome: Outcome = failure
        else:
            outcome = Success({"text": _fitting(str(storable(told.answer or "")))})
        return replace(
            outcome,
            cost_usd=told.cost_usd,
            tokens_in=told.tokens_in,
            tokens_out=told.tokens_out,
            near_quota_ms=wait or None,
        )

    def _events(self, line: str) -> Iterator[Mapping[str, Any]]:
        text = line.strip()
        document: object = None
        if text[0] in "{[":
            try:
                document = json.loads(text)
            except (ValueError, RecursionError):
                document = None
        listed = document if isinstance(document, list) else [document]
        if any(isinstance(each, dict) for each in listed):
            yield from (each for each in listed if isinstance(each, dict))
            return
        self._last_line = text
        self._last_words.append(text)
        yield {"line": text}
        whole = self._block.take(line)
        if whole is not None:
            self._last_line = text_of(lookup(whole, "error.message")) or text
            yield whole

    def _take(self, event: Mapping[str, Any]) -> None:
        if self._tap.signed(event):
            self.tapped = True
            sign = self._tap.sign(event)
            if sign is not None:
                self._row_tapped = True
                self._judge(sign, counts=True)
            return
        sign = self._table.sign(event)
        if sign is not None:
            # What the tap has told, the client's own words for it do not tell again.
            self._judge(sign, counts=not self._row_tapped)
        if "line" not in event and (sign is None or event.get("type") == "result"):
            self._hear(event, self.transcript)
        if sign is None and self.transcript.alive != self._row_alive:
            self._row, self._row_tapped, self._last_sign = 0, False, None
        self._row_alive = self.transcript.alive

    def _judge(self, sign: Sign, *, counts: bool) -> None:
        self._last_sign = sign
        trouble = sign.passing and sign.failure_class is FailureClass.ENGINE
        if self.refusal is not None:
            self.refusal = _better(self.refusal, sign)
        elif not sign.passing or (trouble and counts and self._is_too_much()):
            self.refusal = sign

    def _is_too_much(self) -> bool:
        now = self._clock()
        self._row_began = self._row_began if self._row else now
        self._row += 1
        return self._row > TRIES or now - self._row_began >= PATIENCE_SECONDS

    def _news(self) -> Progress | None:
        told = self.transcript
        spent = (told.cost_usd, told.tokens_in, told.tokens_out)
        now = self._clock()
        talks = (*spent, told.said) != self._told and now - self._reported >= PROGRESS_SECONDS
        if not talks and spent == self._told[:3]:
            return None
        self._told, self._reported = (*spent, told.said), now
        return Progress(one_line(told.said), *spent)

    def _failure(self, ending: Exit, program: str) -> Failure | None:
        if self.refusal is not None:
            return self.refusal.failure()
        if ending.errno is not None or ending.stopped is not None or ending.code is None:
            return failure_of_exit(ending, program)
        if self._last_sign is not None:
            return self._last_sign.failure()
        well = ending.code == 0 and self.transcript.ended
        return self._refused_in_words(ended_well=well) or self._failure_of_code(ending, ending.code, program)

    def _failure_of_code(self, ending: Exit, code: int, program: str) -> Failure | None:
        if code == 0:
            silent = Failure(FailureClass.ENGINE, f"{program} ended without a result")
            return None if self.transcript.ended else silent
        sign = self._table.exits.get(code)
        if sign is not None:
            return sign.saying(f"exit {code}: {self._last_line}").failure()
        # The client's own codes are not ours, and one that ends without a reason has crashed.
        plain = replace(ending, code=1) if code in _VIBEYS_OWN else ending
        failure = failure_of_exit(plain, program, self._last_line)
        return None if failure is None else replace(failure, failure_class=FailureClass.ENGINE, capacity_kind=None)

    def _refused_in_words(self, *, ended_well: bool) -> Failure | None:
        """The refusal that stands in the place of an answer no model has given, or that is all a client has to say."""
        told = self.transcript
        sign = sentence(told.answer or "") if told.spent_nothing else None
        if sign is None and not ended_well and told.alive == 0:
            # What to do about it often follows in lines of its own.
            said = (sentence(words) for words in (self._last_line, *reversed(self._last_words)))
            sign = next((found for found in said if found is not None), None)
        return None if sign is None else sign.failure()


def _better(refusal: Sign, sign: Sign) -> Sign:
    """The refusal, with the reset that a later line of the same meaning adds."""
    same = (refusal.failure_class, refusal.kind) == (sign.failure_class, sign.kind)
    dated = sign.resets_at is not None or sign.resets_in is not None
    return sign if same and dated and refusal.resets_at is None and refusal.resets_in is None else refusal


def _fitting(text: str) -> str:
    while (size := len(json.dumps(text, ensure_ascii=False).encode("utf-8", "replace"))) > _LONGEST_ANSWER:
        text = text[: len(text) * _LONGEST_ANSWER // size]
    return text
