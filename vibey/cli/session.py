"""Session: the settings and the installation a command works on, opened for it and closed after it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vibey.services.installation import Installation
    from vibey.settings import Settings


def settings() -> Settings:
    """The settings in force: of `--config`, else `$VIBEY_CONFIG`, else ./vibey.toml."""
    from vibey.settings import load

    return load()


@contextmanager
def installation() -> Iterator[Installation]:
    """The installation, with its schema checked; ServiceUnavailable names `vibey up` when its own servers are down."""
    from vibey.domain.errors import ServiceUnavailable
    from vibey.services.host import require_host
    from vibey.services.installation import Installation

    chosen = settings()
    opened = Installation.open(chosen)
    try:
        try:
            opened.require_schema()
        except ServiceUnavailable as error:
            # What answers, but lacks something, is not mended by starting it.
            if chosen.services.database_url or type(error) is not ServiceUnavailable:
                raise
            # A server of our own may have ended because its disk is full.
            require_host(chosen)
            raise ServiceUnavailable(error.service, error.detail, "run: vibey up") from error
        yield opened.current()
    finally:
        opened.close()
