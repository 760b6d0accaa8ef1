"""`vibey enqueue`: give the router a job, or a file of them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from vibey.cli import output, session, waiting
from vibey.cli.command import Command, json_option, seconds
from vibey.domain.errors import Refused
from vibey.domain.shell import command

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from vibey.services.batch import Batch
    from vibey.services.enqueue import Order
    from vibey.services.installation import Installation
    from vibey.settings import Settings

LARGE_BYTES = 1_000_000
# More than any payload has, with room for the blanks of a JSON text that is laid out for people.
READ_LIMIT = 4 * 1024 * 1024
PROMPT_SHOWN = 60


@click.command(
    cls=Command,
    examples=(
        'vibey enqueue "fix the flaky test" --repo .  a prompt, for the repository here',
        """vibey enqueue '{"task": "build"}'            a payload of your own""",
        "git diff | vibey enqueue - --title review    the payload from a pipe",
        "vibey enqueue --label team=web --wait '{}'   one job; wait for its end",
        "vibey enqueue --batch jobs.jsonl             a job a line, all or none",
        "producer | vibey enqueue --batch - --json    the same from a pipe",
    ),
)
# Any number of words is taken, because a prompt without quotes is refused by its own error.
@click.argument("payload", nargs=-1, metavar="[PAYLOAD]")
@click.option("--payload-file", type=click.File("rb"), help="Read the payload from a file; - for standard input.")
@click.option("--title", help="What lists call it; default: the first line of its prompt.")
@click.option("-l", "--label", "labels", multiple=True, metavar="KEY=VALUE", help="A label to find it by; repeatable.")
@click.option("--repo", help="The repository to work in: a folder here, or a name below an engine's workspace_roots.")
@click.option("--ref", help="The commit or branch of that repository to begin from; default: HEAD.")
@click.option("--verify", metavar="NAME", help="The operator's check that its changes have to pass.")
@click.option("-p", "--project", default="default", show_default=True, help="The project the job belongs to.")
@click.option("--pool", default="main", show_default=True, help="The pool that serves it.")
@click.option("--priority", type=int, default=0, show_default=True, help="Higher goes first.")
@click.option("--effort", default="low", show_default=True, help="trivial, low, standard, high, max or ultra.")
@click.option("--require", "capabilities", multiple=True, help="A capability its engine must have; repeatable.")
@click.option("--engine", "engines", multiple=True, help="An engine that may run it, and no other, ever; repeatable.")
@click.option("--exclude", multiple=True, help="An engine that must not run it; repeatable.")
@click.option("--session", help="Jobs of one session like the engine that holds it warm.")
@click.option("--key", "idempotency_key", help="Idempotency key: a second job with it is the first one.")
@click.option(
    "--deadline",
    "deadline_seconds",
    callback=seconds,
    metavar="TIME",
    help="Fail it unless it has ended by then: 90s, 15m, 2h.",
)
@click.option(
    "--delay", "delay_seconds", callback=seconds, metavar="TIME", help="Let it become due only after that time."
)
@click.option("--max-attempts", type=int, help="Attempts before it has failed; default: as configured.")
@click.option("--anyway", is_flag=True, help="Enqueue it even if no configured engine can ever serve it.")
@click.option("--batch", type=click.File("rb"), help="A file with a job a line, as JSON; - for standard input.")
@click.option("--wait", is_flag=True, help="Wait until it has ended; exit 1 unless it succeeded.")
@json_option
@click.pass_context
def enqueue(context: click.Context, /, **values: Any) -> None:  # noqa: ANN401  the options above
    """Enqueue a job with PAYLOAD: the text of a prompt, a JSON object, or - to read either from standard input.

    A text becomes the payload {"prompt": TEXT}; without PAYLOAD it is {}. The repository and its check are part of the
    payload, under the keys repo, ref and verify.

    A line of a batch is an object with any of the keys payload, title, labels, repo, ref, verify, project, pool,
    priority, effort, capabilities, engines, exclude, session, idempotency_key, max_attempts, deadline_seconds,
    delay_seconds, anyway; the options stand in for what a line leaves out.
    """
    as_json, wait, batch = values.pop("as_json"), values.pop("wait"), values.pop("batch")
    argument, file = _one_payload(values.pop("payload")), values.pop("payload_file")
    if sum(given is not None for given in (argument, file, batch)) > 1:
        raise click.UsageError("give one of a payload, --payload-file and --batch")
    if argument == "-":
        file = click.File("rb").convert("-", None, context)
    text = argument if file is None else _read_payload(file)
    order = _order(text, values, whole=batch is None)
    with session.installation() as installation:
        if batch is None:
            code = _one(installation, order, as_json=as_json, wait=wait)
        else:
            code = _many(installation, batch, asdict(order), as_json=as_json, wait=wait)
    context.exit(code)


def _one_payload(words: Sequence[str]) -> str | None:
    """The one argument that is the payload; a usage error for a prompt that the shell has split into its words."""
    if len(words) > 1:
        prompt = " ".join(words)
        shown = prompt if len(prompt) <= PROMPT_SHOWN else f"{prompt[:PROMPT_SHOWN]}…"
        raise click.UsageError(
            f"{len(words)} arguments, and a payload is one: put the prompt in quotes: {command('vibey enqueue', shown)}"
        )
    return words[0] if words else None


def _read_payload(file: IO[bytes]) -> str:
    """The text of a file or pipe, as much of it as a payload may be; a person at a terminal is told to type it."""
    from vibey.domain.text import NotText, decode_text
    from vibey.services.enqueue import PAYLOAD_LIMIT

    name = _name_of(file)
    if file.isatty():
        output.note("type the payload, a prompt or a JSON object, and end it with Ctrl-D")
    try:
        read = file.read(READ_LIMIT + 1)
    except OSError as error:
        raise click.UsageError(f"{name} cannot be read: {error.strerror}") from error
    if len(read) > READ_LIMIT:
        fix = f"a payload has at most {PAYLOAD_LIMIT:,} bytes; name a large file in it instead"
        raise click.UsageError(f"{name} has more than {READ_LIMIT:,} bytes; {fix}")
    try:
        return decode_text(read)
    except NotText as error:
        raise click.UsageError(f"{name}: {error.reason}") from error


def _order(text: str | None, values: Mapping[str, Any], *, whole: bool) -> Order:
    """The order that the options ask for; one that is not `whole` has what a batch's lines may leave out."""
    from vibey import tracing
    from vibey.domain.titles import labels_of
    from vibey.services.enqueue import Order, local_repository, payload_from_text, validate

    surrounding = tracing.taken(os.environ.get(tracing.VARIABLE))
    wanted = {**values, "labels": labels_of(values["labels"]), "traceparent": surrounding}
    if values["repo"] is not None:
        wanted["repo"] = local_repository(values["repo"])
    order = Order(payload={} if text is None else payload_from_text(text), **wanted)
    validate(order if whole else replace(order, repo=None, ref=None, verify=None))
    return order


def _one(installation: Installation, order: Order, *, as_json: bool, wait: bool) -> int:
    from vibey.services.enqueue import place
    from vibey.services.explain import spent_cap

    _require_repository(installation.settings, order)
    placed = place(installation, [order])[0]
    if not as_json:
        click.echo(f"job {placed.job_id}" + ("" if placed.created else " (known by its key already)"))
        if spent := spent_cap(installation, placed.job_id):
            output.note(f"it waits: {spent}")
    answer: dict[str, Any] = {"job_id": placed.job_id, "created": placed.created}
    code = 0
    if wait:
        code, job = waiting.wait_to_end(installation, placed.job_id, quiet=as_json)
        answer.update({key: job[key] for key in ("state", "engine", "reason", "result")})
    if as_json:
        output.print_json(answer)
    return code


def _require_repository(settings: Settings, order: Order) -> None:
    """Refuse a repository named below the roots when no root of this machine's file has it: most likely a misprint.

    The router compares names only, because a repository may lie on another machine. A run that does not find it would
    fail in every attempt, and each attempt on a paid engine takes a unit of the cap.
    """
    name = order.repo or (order.payload.get("repo") if isinstance(order.payload, Mapping) else None)
    roots = {root for engine in settings.engine.values() for root in engine.workspace_roots}
    if order.anyway or not isinstance(name, str) or not name or Path(name).is_absolute() or ".." in Path(name).parts:
        return
    if roots and all(root.is_dir() for root in roots) and not any((root / name).is_dir() for root in roots):
        places = ", ".join(sorted(map(str, roots)))
        raise Refused(
            f"there is no repository {name!r} under the workspace_roots of this machine ({places})",
            "correct the name, or add --anyway for one that lies on another machine",
        )


def _many(installation: Installation, file: IO[bytes], defaults: dict[str, Any], *, as_json: bool, wait: bool) -> int:
    batch = _placed(installation, file, defaults, quiet=as_json)
    duplicates = len(batch.placed) - batch.created
    if not batch.placed:
        output.note(f"{_name_of(file)} has no line with a job")
    answer: dict[str, Any] = {"created": batch.created, "duplicates": duplicates, "job_ids": batch.job_ids}
    if not as_json:
        known = f", {duplicates:,} known by their key already" if duplicates else ""
        click.echo(f"enqueued {output.many(batch.created, 'job')}{known}")
    code = 0
    if wait:
        try:
            ended = waiting.wait_for_jobs(installation, batch.job_ids, quiet=as_json)
        except KeyboardInterrupt:
            waiting.say_interrupted(batch.job_ids)
            if as_json:
                output.print_json(answer)
            return waiting.INTERRUPTED
        answer.update({state: ended.get(state, 0) for state in ("succeeded", "failed", "cancelled")})
        code = 0 if ended.get("succeeded", 0) == len(set(batch.job_ids)) else 1
        if not as_json:
            click.echo(
                ", ".join(f"{count:,} {state}" for state, count in sorted(ended.items())) or "nothing to wait for"
            )
    if as_json:
        output.print_json(answer)
    return code


def _placed(installation: Installation, file: IO[bytes], defaults: Mapping[str, Any], *, quiet: bool) -> Batch:
    """Enqueue the file, with a bar on a terminal when it is a large one."""
    from rich.progress import Progress

    from vibey.services.batch import place_lines

    size = _size(file)
    screen = output.console(stderr=True)
    hidden = quiet or not screen.is_terminal or (size is not None and size < LARGE_BYTES)
    with Progress(console=screen, transient=True, disable=hidden) as bars:
        reading = bars.add_task("reading", total=size)
        writing = bars.add_task("enqueueing", total=None, visible=False)

        def noted(what: str, count: int) -> None:
            if what == "read":
                bars.advance(reading, count)
            else:
                bars.update(writing, advance=count, visible=True)

        return place_lines(installation, _lines(file), defaults, noted=noted)


def _lines(file: IO[bytes]) -> Iterator[bytes]:
    from vibey.services.batch import LONGEST_LINE

    yield from iter(lambda: file.readline(LONGEST_LINE + 1), b"")


def _name_of(file: IO[bytes]) -> str:
    """What messages call the file. The number 0 is the name of a standard input that was closed and opened again."""
    return "standard input" if getattr(file, "name", 0) in {0, "-", "<stdin>"} else file.name


def _size(file: IO[bytes]) -> int | None:
    if not file.seekable():
        return None
    size = file.seek(0, 2)
    file.seek(0)
    return size
