"""The files under `data_dir`: what each is, and whether it may be lost.

That nothing is missing is checked against the folder of an installation that has run jobs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from docs.generate.markdown import code, table
from vibey.services.outputs import KEPT_SECONDS
from vibey.settings.model import ServiceSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

FILES: Mapping[str, tuple[str, str]] = {
    "services.json": (
        "of the embedded servers: ports, passwords, the connections Postgres takes; readable by its owner alone",
        "made anew",
    ),
    "services.lock": ("held while those servers are started, stopped or removed", "made anew"),
    "postgres": (
        "the embedded Postgres; under root a link into `/var/lib/vibey`, whose owner is another user",
        "everything that is true: [back it up](../how-to/back-up.md)",
    ),
    "valkey": ("configuration and files of the embedded Redis-compatible server", "nothing"),
    "logs": ("`postgres.log` and `valkey.log`", "nothing"),
    "processes": ("what `vibey up` starts: supervisord's files, and a log for each process", "nothing"),
    "clients": (
        "which versions of coding clients were found to hide their requests, for `vibey doctor`",
        "found again by the next run",
    ),
    "runs": (
        f"a folder for each run on this machine: its output, and its files while it runs; {KEPT_SECONDS // 86400} days",
        "old output; `vibey logs` still has the end of it",
    ),
}


def page() -> str:
    """The page: one table."""
    default = ServiceSettings.model_fields["data_dir"].default
    introduction = (
        f"# Files\n\nEverything an installation keeps on a machine is under `data_dir` (default `{default}`, beside "
        "`vibey.toml`). With servers of your own, the folders of the embedded ones are not there. `vibey purge` "
        "removes all of it, and nothing in that folder that Vibey did not make.\n"
    )
    rows = ((code(name), what, lost) for name, (what, lost) in FILES.items())
    return f"{introduction}\n{table(('file or folder', 'what it is', 'what is lost with it'), rows)}"
