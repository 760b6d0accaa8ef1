"""Enqueue: validate a job, insert it with its event, wake the router.

All of a batch is checked before any of it is written; a batch of thousands is one statement per thousand in
one transaction. With a connection of the caller's (`place_within`) the job commits or vanishes with the caller's
own work, and the router is woken after that commit, or by the next tick. An open transaction of a caller never
blocks routing.

`Order` is the one definition of what may be asked of a job: the client's keywords, the keys of a batch file's lines and
the arguments of the Celery task `vibey.enqueue` are its fields, and the command line's options set them.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from vibey import tracing
from vibey.domain.call import ROUTED_TASKS, task_call_of
from vibey.domain.depth import DEEP, is_too_deep
from vibey.domain.effort import Effort, effort_of
from vibey.domain.errors import InvalidInput, NothingApplied, Refused, UnknownName, Unservable
from vibey.domain.requirement import Requirement
from vibey.domain.titles import check_labels, check_title, shortened_title, title_source
from vibey.engines.stream import masking
from vibey.services.confidence import secrets_of
from vibey.services.requirements import Candidates
from vibey.store import callers, jobs, projects

if TYPE_CHECKING:
    from vibey.domain.call import TaskCall
    from vibey.services.installation import Installation
    from vibey.store.database import Connection

PAYLOAD_LIMIT = 256 * 1024
NAME_LIMIT = 200
REPO_LIMIT = 4096
LIST_LIMIT = 50
PRIORITY_LIMIT = 1_000_000
ATTEMPTS_LIMIT = 100
YEAR_SECONDS = 366 * 86400
CHUNK = 1000
IN_PAYLOAD = ("repo", "ref", "verify")
"""The fields of an order that become keys of its payload."""
_AS_PAYLOAD = (
    'a prompt stands under payload, {"payload": "…"}, and so do keys of your own, {"payload": {"prompt": "…"}}'
)
EXCERPT = 60
NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


@dataclass(frozen=True, slots=True)
class Order:
    """One job as a producer asks for it; every field is checked by `place`.

    A text as `payload` is a prompt: `{"prompt": text}`. `repo`, `ref` and `verify` are written into the payload.
    Without a `title` the job takes the first line of its prompt, or the name of the Celery task that it calls.
    `engines`, if there are any, are the only ones that may run it, whatever engines there will be. A payload that is
    the call of a Celery task (`vibey.domain.call`) needs an engine that runs such calls; one that names a repository
    (`repo`) needs an engine whose `workspace_roots` it lies under. A job that no configured engine could ever serve is
    refused, unless it is to be enqueued `anyway`: then it waits for one, and may name unknown engines and capabilities.
    `traceparent` is the span it belongs under, as the W3C writes it; None takes the caller's current one.
    `deadline_seconds` and `delay_seconds`, after which it is due at the earliest, count from when it is enqueued.
    """

    project: str = "default"
    payload: Mapping[str, Any] | str = field(default_factory=dict)
    title: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    repo: str | None = None
    ref: str | None = None
    verify: str | None = None
    pool: str = "main"
    priority: int = 0
    effort: str = "low"
    capabilities: Sequence[str] = ()
    engines: Sequence[str] = ()
    exclude: Sequence[str] = ()
    session: str | None = None
    idempotency_key: str | None = None
    max_attempts: int | None = None
    deadline_seconds: float | None = None
    traceparent: str | None = None
    delay_seconds: float | None = None
    anyway: bool = False


@dataclass(frozen=True, slots=True)
class Placed:
    """The job an order led to; `created` is False when its idempotency key had been used before."""

    job_id: int
    created: bool


def place(installation: Installation, orders: Sequence[Order]) -> list[Placed]:
    """Enqueue a batch in one transaction and wake the router; all of it or, with an error, nothing."""
    placed = installation.database.once(lambda connection: place_in(connection, installation, orders))
    _wake(installation, orders)
    return placed


def place_within(
    caller: object,
    installation: Installation,
    orders: Sequence[Order],
    dispatch: Callable[[Callable[[], None]], object] | None = None,
) -> list[Placed]:
    """Enqueue in the transaction of a caller's connection (`vibey.store.callers`); its commit wakes the router.

    `dispatch` makes the wake-up elsewhere than in the caller's thread. InvalidInput when the caller is no usable
    connection, Refused when it leads to another database than the installation's.
    """

    def wake() -> None:
        if dispatch is None:
            _wake(installation, orders)
        else:
            dispatch(partial(_wake, installation, orders))

    transaction = callers.CallerTransaction(caller)
    transaction.require_same(installation.database)
    with transaction as connection:
        placed = place_in(connection, installation, orders)
    transaction.after_commit(wake)
    return placed


def place_in(connection: Connection, installation: Installation, orders: Sequence[Order]) -> list[Placed]:
    """Enqueue in a transaction of ours that goes on; whoever opened it wakes the router after the commit."""
    orders = [with_whole_payload(order) for order in orders]
    payloads = [validate(order) for order in orders]
    checked = _Checked.load(connection, installation, orders)
    given = enumerate(zip(orders, payloads, strict=True))
    batch = [checked.job(number, order, payload) for number, (order, payload) in given]
    if not tracing.is_on():
        return _inserted(connection, batch)
    with ExitStack() as told:
        spans = [told.enter_context(_span(order)) for order in orders]
        traced = [replace(job, traceparent=span.traceparent) for job, span in zip(batch, spans, strict=True)]
        placed = _inserted(connection, traced)
        for span, each in zip(spans, placed, strict=True):
            span.note({"vibey.job_id": each.job_id, "vibey.created": each.created})
    return placed


def order_of(values: Mapping[str, Any]) -> Order:
    """An order from loose JSON values, such as a line of a batch file; InvalidInput names a stray or missing key."""
    known = set(Order.__dataclass_fields__)
    for key in values:
        if key not in known:
            keys = f"one of the keys {', '.join(sorted(known))}"
            raise InvalidInput("job", key, f"{keys}; {_AS_PAYLOAD}" if not values.get("payload") else keys)
    return Order(**values)


def payload_from_text(text: str) -> Mapping[str, Any] | str:
    """What a text that somebody typed, piped or keeps in a file is as a payload: a JSON object, or else a prompt.

    InvalidInput for text that could be meant as either: it begins as an object does and is none, or is another JSON
    value.
    """
    text = text.strip()
    if not text:
        raise InvalidInput("payload", text, "the text of a prompt or a JSON object; {} for an empty one")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        if not text.startswith("{"):
            return text
        raise InvalidInput("payload", _excerpt(text), f"one JSON object ({error}); {_as_prompt(text)}") from error
    if isinstance(value, dict):
        return value
    raise InvalidInput("payload", _excerpt(text), f"a JSON object or the text of a prompt; {_as_prompt(text)}")


def local_repository(repo: str) -> str:
    """The absolute path of a repository that is a folder as seen from here; any other name as it is.

    A name that is no folder here is looked up below the `workspace_roots` of the engine that runs the job.
    """
    return os.path.abspath(repo) if os.path.isdir(repo) else repo  # noqa: PTH100, PTH112


def with_whole_payload(order: Order) -> Order:
    """The order with a payload that says all it is to say: a text as a prompt, and the repository beside it."""
    # A producer's JSON may hold anything here.
    payload: Any = order.payload
    has_keys = order.repo is not None or order.ref is not None or order.verify is not None
    if not has_keys and not isinstance(payload, str):
        return order
    if isinstance(payload, str):
        if not payload.strip():
            raise InvalidInput("payload", payload, "the text of a prompt; {} for an empty payload")
        payload = {"prompt": payload}
    if not isinstance(payload, Mapping):
        raise InvalidInput("payload", payload, "a JSON object")
    asked = {name: value for name in IN_PAYLOAD if (value := getattr(order, name)) is not None}
    for name, value in asked.items():
        check_word(name, value, REPO_LIMIT if name == "repo" else NAME_LIMIT)
        if payload.get(name, value) != value:
            expected = f"the same as payload.{name}, which is {payload[name]!r}, or only one of them"
            raise InvalidInput(name, value, expected)
    if asked and "repo" not in asked and "repo" not in payload:
        raise InvalidInput(next(iter(asked)), next(iter(asked.values())), "a repo beside it (--repo)")
    return replace(order, payload={**payload, **asked}, repo=None, ref=None, verify=None)


def orders_of(lines: Iterable[str], defaults: Mapping[str, Any]) -> list[Order]:
    """Orders from JSON lines; InvalidInput names the first line that is not a job by its number."""
    orders = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InvalidInput(f"line {number}", line.strip(), f"one JSON object ({error})") from error
        if not isinstance(value, dict):
            raise InvalidInput(f"line {number}", value, "one JSON object")
        try:
            order = order_of({**_without_payload_keys(defaults, value.get("payload")), **value})
            order = with_whole_payload(_with_local_repository(order))
            validate(order)
        except InvalidInput as error:
            raise InvalidInput(f"line {number}: {error.field}", error.value, error.expected) from error
        orders.append(order)
    return orders


def _without_payload_keys(defaults: Mapping[str, Any], payload: object) -> Mapping[str, Any]:
    """The defaults of a line but those that its payload says itself."""
    said = payload if isinstance(payload, Mapping) else {}
    return {name: value for name, value in defaults.items() if name not in IN_PAYLOAD or name not in said}


def _with_local_repository(order: Order) -> Order:
    return order if order.repo is None else replace(order, repo=local_repository(order.repo))


def validate(order: Order) -> str:
    """Check everything about an order that needs no database; returns its payload as JSON text."""
    order = with_whole_payload(order)
    _check_words(order)
    if order.title is not None:
        check_title(order.title)
    if order.labels != {}:
        check_labels(order.labels)
    task_call_of(order.payload)
    _check_whole("priority", order.priority, -PRIORITY_LIMIT, PRIORITY_LIMIT)
    efforts = [level.label for level in Effort]
    if order.effort not in efforts:
        raise InvalidInput("effort", order.effort, f"one of {', '.join(efforts)}")
    if order.max_attempts is not None:
        _check_whole("max_attempts", order.max_attempts, 1, ATTEMPTS_LIMIT)
    if not isinstance(order.anyway, bool):
        raise InvalidInput("anyway", order.anyway, "true or false")
    for name in ("deadline_seconds", "delay_seconds"):
        _check_seconds(name, getattr(order, name))
    if order.traceparent is not None and tracing.taken(order.traceparent) is None:
        expected = "a W3C trace context: 00-, 32 hexadecimal digits, -, 16, -, 2"
        raise InvalidInput("traceparent", order.traceparent, expected)
    return _payload_text(order.payload)


def _check_words(order: Order) -> None:
    for name in ("project", "pool"):
        check_word(name, getattr(order, name))
    for name in ("session", "idempotency_key"):
        if getattr(order, name) is not None:
            check_word(name, getattr(order, name))
    for name in ("capabilities", "engines", "exclude"):
        words = getattr(order, name)
        if isinstance(words, str) or not isinstance(words, Sequence) or len(words) > LIST_LIMIT:
            raise InvalidInput(name, words, f"a list of at most {LIST_LIMIT} names")
        for word in words:
            check_word(name, word)


def check_word(name: str, value: object, limit: int = NAME_LIMIT) -> None:
    """InvalidInput unless the value is text fit for a name or a key: printable, not blank, not overlong."""
    if not isinstance(value, str) or not value.strip() or len(value) > limit or not value.isprintable():
        raise InvalidInput(name, value, f"printable text of 1 to {limit} characters")


def _check_whole(name: str, value: object, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InvalidInput(name, value, f"a whole number from {low} to {high}")


def _check_seconds(name: str, seconds: object) -> None:
    if seconds is None:
        return
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= YEAR_SECONDS:
        raise InvalidInput(name, seconds, "a number of seconds above 0, at most a year")


def _excerpt(text: str) -> str:
    return text if len(text) <= EXCERPT else f"{text[:EXCERPT]}…"


def _as_prompt(text: str) -> str:
    shown = json.dumps({"prompt": text}, ensure_ascii=False) if len(text) <= EXCERPT else '{"prompt": "…"}'
    return f"to enqueue this text as a prompt, write {shown}"


def _payload_text(payload: object) -> str:
    if not isinstance(payload, Mapping):
        raise InvalidInput("payload", payload, "a JSON object")
    try:
        text = json.dumps(payload, allow_nan=False)
        json.dumps(payload, ensure_ascii=False).encode()
    except RecursionError as error:
        raise InvalidInput("payload", *DEEP) from error
    except (TypeError, ValueError) as error:
        raise InvalidInput("payload", str(error), "JSON values only, in valid Unicode") from error
    if NUL.search(text):
        raise InvalidInput("payload", "text with a NUL character", "text without NUL, which Postgres cannot keep")
    if len(text) > PAYLOAD_LIMIT:
        raise InvalidInput(
            "payload",
            f"{len(text)} bytes",
            f"at most {PAYLOAD_LIMIT} bytes; put large input in a file and name it",
        )
    if is_too_deep(payload):
        raise InvalidInput("payload", *DEEP)
    return text


@dataclass(frozen=True, slots=True)
class _Checked:
    """What orders are checked against, read once for the batch."""

    projects: Mapping[str, projects.Project]
    candidates: Candidates
    connection: Connection
    pools: frozenset[str]
    max_attempts: int
    masked: Callable[[str], str]

    @classmethod
    def load(cls, connection: Connection, installation: Installation, orders: Sequence[Order]) -> _Checked:
        candidates = Candidates.load(connection)
        if candidates.generation is None:
            raise NothingApplied
        names = dict.fromkeys(order.project for order in orders)
        return cls(
            {name: projects.named(connection, name) for name in names},
            candidates,
            connection,
            frozenset({"main", *candidates.pools}),
            installation.under(connection, candidates.generation).settings.engines.max_attempts,
            masking(secrets_of(installation.settings)),
        )

    def job(self, number: int, order: Order, payload: str) -> jobs.NewJob:
        """The job an order asks for, checked; `number` is the order's place among those of its batch."""
        if order.pool not in self.pools:
            raise UnknownName("pool", order.pool, tuple(sorted(self.pools)))
        said = cast("Mapping[str, Any]", order.payload)
        call = task_call_of(said)
        if not order.anyway:
            self._require_known(order, call)
        asked = Effort.named(order.effort)
        requirement = Requirement(
            pool=order.pool,
            project=order.project,
            effort=effort_of(1, asked),
            capabilities=frozenset((*order.capabilities, *(() if call is None else (ROUTED_TASKS,)))),
            excluded=frozenset(order.exclude),
            pinned=frozenset(order.engines),
            workspace=self.candidates.workspace(said),
        )
        if not order.anyway:
            try:
                self.candidates.require_one(requirement, said)
            except Unservable as error:
                if not self._is_known(order):
                    error.number = number
                    raise
        return jobs.NewJob(
            project_id=self.projects[order.project].id,
            requirement=requirement,
            asked=asked,
            payload=payload,
            priority=order.priority,
            idempotency_key=order.idempotency_key,
            max_attempts=order.max_attempts or self.max_attempts,
            deadline_seconds=order.deadline_seconds,
            delay_seconds=order.delay_seconds,
            session=order.session,
            traceparent=order.traceparent,
            task_id=None if call is None else call.id,
            title=self._title(order),
            labels=order.labels,
        )

    def _is_known(self, order: Order) -> bool:
        """Whether the order's key has been used: then it leads to the job there is, whatever that may be served by."""
        if order.idempotency_key is None:
            return False
        return bool(jobs.with_keys(self.connection, [(self.projects[order.project].id, order.idempotency_key)]))

    def _require_known(self, order: Order, call: TaskCall | None) -> None:
        engines = self.candidates.capabilities
        for name in (*order.engines, *order.exclude):
            if name not in engines:
                raise UnknownName("engine", name, tuple(engines))
        if call is not None and not any(ROUTED_TASKS in engines[name] for name in order.engines or engines):
            raise Refused(f"no engine asked for runs Celery tasks, such as {call.task}", "give one the key: app")
        offered = frozenset[str]().union(*engines.values())
        for capability in order.capabilities:
            if capability not in offered:
                raise UnknownName("capability", capability, tuple(sorted(offered)))

    def _title(self, order: Order) -> str:
        """The order's title, or its default, without the secrets that this installation knows."""
        if order.title is not None:
            return self.masked(order.title)
        return shortened_title(self.masked(title_source(order.payload)))


def _wake(installation: Installation, orders: Sequence[Order]) -> None:
    for pool in sorted({order.pool for order in orders}):
        installation.wake(pool)


def _span(order: Order) -> tracing.Span:
    told: tracing.Attributes = {"vibey.project": order.project, "vibey.pool": order.pool, "vibey.effort": order.effort}
    return tracing.begin("vibey.enqueue", "producer", order.traceparent, told, joins=True)


def _inserted(connection: Connection, batch: Sequence[jobs.NewJob]) -> list[Placed]:
    """Insert the jobs in parts; where each order led, in the order of the batch."""
    if any(job.idempotency_key is not None for job in batch):
        return _inserted_by_key(connection, batch) if len(batch) > 1 else [_inserted_alone(connection, batch[0])]
    placed: list[Placed] = []
    for start in range(0, len(batch), CHUNK):
        part = batch[start : start + CHUNK]
        placed += [Placed(row.id, created=True) for row in jobs.insert(connection, part, [None] * len(part), None)]
    return placed


def _inserted_alone(connection: Connection, job: jobs.NewJob) -> Placed:
    """Insert one job with a key; again where its key's old job is removed between the insert and the look."""
    while True:
        if rows := jobs.insert(connection, [job], [None], None):
            return Placed(rows[0].id, created=True)
        if known := _known(connection, [job]):
            return Placed(known[_key(job)], created=False)


def _inserted_by_key(connection: Connection, batch: Sequence[jobs.NewJob]) -> list[Placed]:
    """Insert jobs in the order of their keys, with numbers in the order of the batch.

    An insert waits for whoever has inserted the same key and not yet committed. All batches come to their keys in one
    order, so however they overlap, no two wait for one another. A key whose old job is removed after the insert met it
    cannot be inserted behind greater ones: then all of the batch's inserts are undone, and made again.
    """
    while True:
        jobs.SAVE.run(connection)
        placed = _inserted_once(connection, batch)
        if placed is not None:
            jobs.KEEP.run(connection)
            return placed
        jobs.UNDO.run(connection)


def _inserted_once(connection: Connection, batch: Sequence[jobs.NewJob]) -> list[Placed] | None:
    """Where each order led, in the order of the batch; None when a key's job was removed in between."""
    taken = jobs.NUMBERS.all(connection, count=len(batch))
    numbers, at = [row.id for row in taken], taken[0].at
    order = sorted(range(len(batch)), key=lambda place: (batch[place].project_id, batch[place].idempotency_key or ""))
    made = set[int]()
    for start in range(0, len(order), CHUNK):
        part = order[start : start + CHUNK]
        rows = jobs.insert(connection, [batch[place] for place in part], [numbers[place] for place in part], at)
        made.update(row.id for row in rows)
    known = _known(connection, [job for job, number in zip(batch, numbers, strict=True) if number not in made])
    answers: list[Placed] = []
    for job, number in zip(batch, numbers, strict=True):
        found = number if number in made else known.get(_key(job))
        if found is None:
            return None
        answers.append(Placed(found, created=number in made))
    return answers


def _known(connection: Connection, repeated: Sequence[jobs.NewJob]) -> dict[tuple[int, str], int]:
    """The jobs that carry these orders' keys."""
    return jobs.with_keys(connection, [_key(job) for job in repeated]) if repeated else {}


def _key(job: jobs.NewJob) -> tuple[int, str]:
    return job.project_id, str(job.idempotency_key)
