"""`vibey metrics`: the installation as numbers, for Prometheus and whatever reads its formats."""

from __future__ import annotations

import os
import sys

import click

from vibey.cli import session
from vibey.cli.command import Command


@click.command(
    cls=Command,
    examples=(
        "vibey metrics                          serve them on http://127.0.0.1:9464/metrics",
        "vibey metrics --once                   print them",
        "VIBEY_METRICS_TOKEN=… vibey metrics --listen 0.0.0.0:9464",
        "vibey metrics --describe               what each of them means",
    ),
)
@click.option("--listen", metavar="HOST:PORT", default="127.0.0.1:9464", show_default=True, help="Where to serve them.")
@click.option("--once", is_flag=True, help="Print them and leave.")
@click.option("--describe", is_flag=True, help="Print the reference, as Markdown, and leave.")
def metrics(*, listen: str, once: bool, describe: bool) -> None:
    """Serve metrics of slots, queue, cap, circuits, decisions and hand-overs; Ctrl-C ends.

    They are read from the database when they are asked for, at most once a second. An address that other machines can
    reach is refused unless $VIBEY_METRICS_TOKEN names a token for scrapers to show. They are also pushed by
    OpenTelemetry where its standard environment asks, as with $OTEL_EXPORTER_OTLP_ENDPOINT.
    """
    if once and describe:
        raise click.UsageError("--once and --describe are two different things")
    if describe:
        from vibey.services.families import reference

        click.echo(reference(), nl=False)
        return
    with session.installation() as installation:
        if once:
            from vibey.services.exposition import text
            from vibey.services.metrics import snapshot

            sys.stdout.write(text(snapshot(installation))[0].decode())
            return
        from vibey.services import push
        from vibey.services.exporter import TOKEN_VARIABLE, Exporter

        exporter = Exporter(installation, listen, os.environ.get(TOKEN_VARIABLE, ""))
        pushed = push.start(exporter.scraper)
        click.echo(f"metrics: {exporter.url}{', and pushed by OpenTelemetry' if pushed else ''}")
        sys.stdout.flush()
        exporter.serve()
