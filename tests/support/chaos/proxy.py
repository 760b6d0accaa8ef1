"""A proxy in front of one server: its connections can be cut, or made to stand still, some of them or all.

Who goes through it cannot tell a stalled connection from a slow network: bytes are taken and not handed on, until the
stall is over. One thread serves all connections; it ends with `close`.
"""

from __future__ import annotations

import selectors
import socket
import threading
from contextlib import suppress
from dataclasses import dataclass

CHUNK = 65536


@dataclass(eq=False)
class _Pipe:
    """One direction of a connection."""

    source: socket.socket
    sink: socket.socket
    stalled: bool = False


class Proxy:
    """Hands bytes on between 127.0.0.1 and a server's port there."""

    def __init__(self, port: int) -> None:
        """Listen; connections are made to the server one by one, as clients come."""
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ, None)
        self._lock = threading.Lock()
        self._pairs: list[tuple[_Pipe, _Pipe]] = []
        self._ending = False
        self._thread = threading.Thread(target=self._serve, name="chaos-proxy", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._listener.getsockname()[1])

    def cut(self, part: float) -> int:
        """Cut this part of the connections, the oldest first, with a reset; says how many."""
        with self._lock:
            chosen = self._chosen(part)
            for pair in chosen:
                self._drop(pair)
            return len(chosen)

    def stall(self, part: float) -> list[_Pipe]:
        """Let this part of the connections stand still, the oldest first, until `resume` is given the answer."""
        with self._lock:
            pipes = [pipe for pair in self._chosen(part) for pipe in pair if not pipe.stalled]
            for pipe in pipes:
                pipe.stalled = True
                self._watch(pipe, on=False)
            return pipes

    def resume(self, pipes: list[_Pipe]) -> None:
        """Let what stood still go on."""
        with self._lock:
            for pipe in pipes:
                pipe.stalled = False
                self._watch(pipe, on=True)

    def close(self) -> None:
        """Cut everything and end."""
        self._ending = True
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        self._thread.join(5)
        with self._lock:
            for pair in list(self._pairs):
                self._drop(pair)
        self._listener.close()
        self._selector.close()

    def _chosen(self, part: float) -> list[tuple[_Pipe, _Pipe]]:
        return self._pairs[: max(1, round(part * len(self._pairs)))] if self._pairs else []

    def _serve(self) -> None:
        while not self._ending:
            for key, _ in self._selector.select(0.5):
                with self._lock:
                    if key.data is None:
                        self._accept()
                    else:
                        self._move(key.data)

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        try:
            server = socket.create_connection(("127.0.0.1", self._target), timeout=2)
        except OSError:
            _reset(client)
            return
        for end in (client, server):
            end.settimeout(None)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        pair = (_Pipe(client, server), _Pipe(server, client))
        self._pairs.append(pair)
        for pipe in pair:
            self._watch(pipe, on=True)

    def _move(self, pipe: _Pipe) -> None:
        pair = next((pair for pair in self._pairs if pipe in pair), None)
        if pair is None or pipe.stalled:
            return
        try:
            data = pipe.source.recv(CHUNK)
            if data:
                # A peer that does not read for two seconds is cut, so that it stops nobody else.
                pipe.sink.settimeout(2)
                pipe.sink.sendall(data)
                pipe.sink.settimeout(None)
                return
        except OSError:
            pass
        self._drop(pair)

    def _drop(self, pair: tuple[_Pipe, _Pipe]) -> None:
        self._pairs.remove(pair)
        for pipe in pair:
            with suppress(KeyError, ValueError):
                self._selector.unregister(pipe.source)
            _reset(pipe.source)

    def _watch(self, pipe: _Pipe, *, on: bool) -> None:
        with suppress(KeyError, ValueError):
            if on:
                self._selector.register(pipe.source, selectors.EVENT_READ, pipe)
            else:
                self._selector.unregister(pipe.source)


def _reset(end: socket.socket) -> None:
    """Close so that the peer gets a reset, as from a machine that lost its memory of the connection."""
    with suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    end.close()
