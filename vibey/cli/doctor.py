"""`vibey doctor`: is everything there, and if not, what to do."""

from __future__ import annotations

import click

from vibey.cli import output, session
from vibey.cli.command import Command, json_option


@click.command(
    cls=Command,
    examples=(
        "vibey doctor            look at services, schema, engines, workers",
        "vibey doctor --json     the same for a program; exit 1 if anything failed",
    ),
)
@json_option
@click.pass_context
def doctor(context: click.Context, *, as_json: bool) -> None:
    """Check services, schema, engines and workers; say how to mend them.

    Starts the embedded servers if the configuration names none. The engines are asked for their version, login and
    model all at once, never for work; what does not answer within half a minute is named. An engine whose login is
    good again is reopened.
    """
    from vibey.services.doctor import State, check
    from vibey.services.installation import Installation, ensure_services

    chosen = session.settings()
    ensure_services(chosen)
    opened = Installation.open(chosen)
    try:
        found = []
        for each in check(opened, waiting=output.slow):
            found.append(each)
            if not as_json:
                state = each.state.value
                output.check_line(f"{state:<4}", state, f"{each.name}: {each.detail}", each.fix)
    finally:
        opened.close()
    is_good = all(each.state is not State.FAIL for each in found)
    if as_json:
        output.print_json({"ok": is_good, "checks": [each.as_json() for each in found]})
    context.exit(0 if is_good else 1)
