"""`vibey pages`: where the pages in Flower are, and the link that logs a browser in."""

from __future__ import annotations

import os

import click

from vibey.cli import output, session
from vibey.cli.command import Command, json_option


@click.command(
    cls=Command,
    examples=(
        "vibey pages                  print where the pages are",
        'xdg-open "$(vibey pages)"    open them',
    ),
)
@json_option
def pages(*, as_json: bool) -> None:
    """Print the address of this machine's pages in Flower, as a link that logs in where they ask for that.

    By default they do where the machine has another account that can log in: a port on loopback is open to all of
    them. Keep the link to yourself. It stays the same until processes/flower.token under data_dir is removed and Flower
    started again, which logs out every browser.
    """
    from vibey.services.login import pages as found_pages

    found = found_pages(session.settings(), os.environ)
    if as_json:
        output.print_json({"address": found.address, "login": found.login, "link": found.link})
        return
    click.echo(found.link or found.address)
    if found.login == "own":
        output.note("the pages ask for the login that Flower was started with")
    elif found.login == "link" and found.link is None:
        output.note("Flower has not been started here yet: there is no link that logs in; run: vibey up")
