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
    """Check this machine, services, schema, engines and workers; say how to mend them.

    Starts nothing: a server of this installation that does not run is reported as that. The engines are asked for
    their version, login and model all at once, never for work. Each check has half a minute; one that has not
    answered by then is named, and the others go on. An engine whose login is good again is reopened.
    """
    from vibey.services.doctor import State, examine

    found = []
    for each in examine(session.settings(), waiting=output.slow):
        found.append(each)
        if not as_json:
            state = each.state.value
            output.check_line(f"{state:<4}", state, f"{each.name}: {each.detail}", each.fix)
    is_good = all(each.state is not State.FAIL for each in found)
    if as_json:
        output.print_json({"ok": is_good, "checks": [each.as_json() for each in found]})
    context.exit(0 if is_good else 1)
