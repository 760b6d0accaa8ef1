"""Proxy: a way to a server that is so many milliseconds longer, there and back.

    python -m vibey.bench.proxy HOST PORT MILLISECONDS FILE

Listens on a free loopback port, which it writes to FILE, and passes on what comes, in order, each piece half of the
time later. A process of its own, so that it takes no time from who measures; `select` as the selector, because that is
the one whose waits are not rounded up to whole milliseconds.
"""

from __future__ import annotations

import asyncio
import selectors
import sys
from collections import deque
from pathlib import Path

from typing_extensions import override


class Way(asyncio.Protocol):
    """One direction's receiving end: what it is sent goes out at the other's, later."""

    def __init__(self, delay: float) -> None:
        """Pass on after so many seconds."""
        self.other: Way | None = None
        self.transport: asyncio.Transport | None = None
        self._delay = delay
        self._pieces: deque[bytes | None] = deque()

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember where to write to."""
        if isinstance(transport, asyncio.Transport):
            self.transport = transport

    @override
    def data_received(self, data: bytes) -> None:
        """Pass a piece on when its time has come."""
        self._pass_on(data)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        """Close the other side once all that was on its way is there."""
        self._pass_on(None)

    def _pass_on(self, piece: bytes | None) -> None:
        self._pieces.append(piece)
        if self._delay > 0:
            asyncio.get_running_loop().call_later(self._delay, self._deliver)
        else:
            self._deliver()

    def _deliver(self) -> None:
        piece = self._pieces.popleft()
        if self.other is None or self.other.transport is None:
            return
        if piece is None:
            self.other.transport.close()
        else:
            self.other.transport.write(piece)


class Entrance(Way):
    """A client's end: opens the way to the server first, and keeps what comes meanwhile waiting in the socket."""

    def __init__(self, host: str, port: int, delay: float) -> None:
        """Lead to this server."""
        super().__init__(delay)
        self._server = host, port
        self._opening: asyncio.Task[None] | None = None

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connect on."""
        super().connection_made(transport)
        if self.transport is not None:
            self.transport.pause_reading()
        self._opening = asyncio.get_running_loop().create_task(self._open())

    async def _open(self) -> None:
        far = Way(self._delay)
        far.other = self
        try:
            await asyncio.get_running_loop().create_connection(lambda: far, *self._server)
        except OSError:
            if self.transport is not None:
                self.transport.abort()
            return
        self.other = far
        if self.transport is not None and not self.transport.is_closing():
            self.transport.resume_reading()


async def serve(host: str, port: int, delay: float, told: Path) -> None:
    """Listen until ended."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Entrance(host, port, delay), "127.0.0.1", 0)
    draft = told.with_suffix(".new")
    draft.write_text(str(server.sockets[0].getsockname()[1]), encoding="ascii")
    draft.rename(told)
    await server.serve_forever()


def main(host: str, port: str, milliseconds: str, told: str) -> None:
    """Run a proxy."""
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selectors.SelectSelector())) as runner:
        runner.run(serve(host, int(port), float(milliseconds) / 2000, Path(told)))


if __name__ == "__main__":
    main(*sys.argv[1:])
