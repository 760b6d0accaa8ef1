"""Reference pages made of the code: `python -m docs.generate` writes them, and a test holds them to it.

They are committed, so that they can be read on a Git host. Nothing here is needed to run Vibey.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from docs.generate import causes, clients, commandline, configuration, errors, events, json_output, manpage, places

if TYPE_CHECKING:
    from collections.abc import Mapping

MANUAL = Path(__file__).resolve().parent.parent / "man" / "vibey.1"
REFERENCE = Path(__file__).resolve().parent.parent / "reference"
NOTE = "<!-- Made by `python -m docs.generate` from the code: change that, not this page. -->"


def pages() -> Mapping[Path, str]:
    """Every generated page: its file and its whole text."""
    made = {
        "configuration.md": configuration.page(),
        "command-line.md": commandline.page(),
        "ledger.md": events.page(),
        "errors.md": errors.page(),
        "refusals.md": causes.page(),
        "files.md": places.page(),
        "json.md": json_output.page(),
        "engines/tried.md": clients.page(),
    }
    reference = {REFERENCE / name: f"{NOTE}\n\n{text.rstrip()}\n" for name, text in made.items()}
    return {**reference, MANUAL: f"{manpage.page()}\n"}
