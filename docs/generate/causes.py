"""Whose fault a refusal is, as `vibey.engines.causes` has it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from docs.generate.markdown import code, table, words
from vibey.engines.causes import CAUSES, NO_STATUS, Cause
from vibey.engines.chat import END_SECONDS, FAILED_ENDINGS
from vibey.engines.moments import FARTHEST_WITHOUT_YEAR, JUST_PASSED

if TYPE_CHECKING:
    from collections.abc import Iterator

INTRODUCTION = """\
# Refusals

One table for every kind of engine: the model servers behind `openai`, and the coding clients with their providers.
What is said decides first: the first row whose codes, figures or words fit. Only where nothing known is said does
the status decide. A server that names no status, as in an event of a stream that began well, is judged by what it
says alone.

Only fields that servers fill themselves are read, also in errors that gateways wrap in errors of their own. A
quotation of several words is left out, and so is the input that validators repeat: a job about rate limits is not
judged by its own text.
"""
FOLLOWS = """\
## What follows

| class | the circuit of the account | attempt | unit of the cap |
|---|---|---|---|
| work | is not touched | counted | used |
| engine | one engine failure, three in a row open it | counted | used |
| capacity window, credits, login | opens | refunded, at most 5 times an attempt | given back if no token was spent |
| capacity busy | is not touched; the engine is full for `slot_poll_seconds` | as above | as above |
| misconfigured | is not touched; the engine is gone until `vibey doctor` finds it good | as above | used |

A coding client is ended with the line that shows a spent window, spent credits, a refused login, a server without a
slot, or a configuration that cannot work. An overloaded provider and a broken server are left to the client's own
tries for a while ([how a run ends](engines/README.md)).

## Sentences

Clients print a refusal as a sentence without any status, such as `You've hit your limit · resets 3pm
(Europe/Berlin)` or `Claude AI usage limit reached|1798761600`. As a client's error such a sentence has the class of
its row. In the place of the answer it is a refusal only if it is the whole answer and no token was spent on it.
"""


def page() -> str:
    """The page: the table, what follows from a class, endings and resets."""
    heads = ("cause", "class", "what it means", "status", "codes", "example", "source")
    return "\n".join((INTRODUCTION, table(heads, _rows()), "", FOLLOWS, _endings(), _resets()))


def _rows() -> Iterator[tuple[str, ...]]:
    for cause in CAUSES:
        kind = f" {cause.kind.value}" if cause.kind else ""
        codes = " ".join(code(name) for name in sorted(cause.codes))
        yield (
            code(cause.name),
            cause.failure_class.value + kind,
            words(cause.meaning),
            _statuses(cause),
            codes,
            words(cause.example),
            cause.source.replace("|", "\\|"),
        )


def _statuses(cause: Cause) -> str:
    more = {"server_fault": ["any other 5xx", "none"], "bad_request": ["any other 4xx"], "not_there": ["any 3xx"]}
    listed = [*map(str, sorted(cause.statuses)), *more.get(cause.name, [])]
    if cause.name == "no_slot":
        listed.append("503 with `retry-after`")
    where = ", ".join(listed)
    return f"{where}; codes only without a status" if cause.among == NO_STATUS else where


def _endings() -> str:
    reasons = ", ".join(code(name) for name in sorted(FAILED_ENDINGS))
    return f"""\
## The end of a completion

- A choice that carries an `error`, or whose `finish_reason` is one of {reasons}, is a failure, however much of the
  answer came before it. `length`, `content_filter` and others are a success that names its `finish_reason`.
- An answer with a `finish_reason` is complete. Token counts and `[DONE]` are waited for {END_SECONDS:g} s at most;
  a connection that then stays open, or breaks, changes nothing.
- Errors are found in `data`, in an event named `error`, in a field `error:`, and in JSON or words without any
  field. The media type is not asked: an answer is read as the events or the JSON that it is.
- `content` may be a list of parts; parts that are thoughts are printed and are no part of the result.
"""


def _resets() -> str:
    minutes, days = int(JUST_PASSED.total_seconds()) // 60, FARTHEST_WITHOUT_YEAR.days
    return f"""\
## Resets

Of window and busy the reset is taken from the first of these that names one: `retry-after` and `retry-after-ms`;
the reset headers of the limit that is spent; fields of the error that name a wait, then fields that name an
instant; the same headers repeated within the error; its words. Understood are seconds, milliseconds and longer
units with or without words (`6m0s`, `1 hour and 2 minutes`, `PT5M`), instants in seconds or milliseconds since
1970, dates, and times of day with a zone of the zone database (`3pm (America/New_York)`), without one in this
machine's.

A doubt names no reset, and the account's probe schedule decides: an instant that has passed, a wait of more than a
year, a zone that is unknown or has several meanings (`CST`), a time of day that passed less than {minutes} minutes
ago, a day without a year more than {days} days ahead.
"""
