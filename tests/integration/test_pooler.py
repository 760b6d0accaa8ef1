"""Behind a connection pooler: nothing is prepared, since the next transaction may be another server process's."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

import pytest

from vibey.store.database import Database
from vibey.store.statement import Statement

if TYPE_CHECKING:
    from collections.abc import Iterator

SQUARE = Statement("square", "a number's square", "select %(n)s::int * %(n)s::int", prepared=True)
# A message of type K and length 12: the number of the server process and its secret.
BACKEND_KEY = b"K\x00\x00\x00\x0c"


class Pooler(threading.Thread):
    """Stands between one client and the server, and promises the client a server process that is not there."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(daemon=True)
        self._server = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]

    def run(self) -> None:
        """Serve the one client until it leaves."""
        client, _ = self._listener.accept()
        with client, socket.create_connection(self._server) as server:
            forward = threading.Thread(target=self._forward, args=(client, server), daemon=True)
            forward.start()
            while received := server.recv(65536):
                before, found, after = received.partition(BACKEND_KEY)
                client.sendall(before + found + bytes(4) + after[4:] if found else received)
            forward.join()

    def close(self) -> None:
        """End, after the client has."""
        self._listener.close()
        self.join(10)

    @staticmethod
    def _forward(client: socket.socket, server: socket.socket) -> None:
        # The last word of a client that leaves may find the server gone.
        with contextlib.suppress(OSError):
            while received := client.recv(65536):
                server.sendall(received)
            server.shutdown(socket.SHUT_WR)


@pytest.fixture
def pooled_url(database_url: str) -> Iterator[str]:
    """The test's database by way of a pooler."""
    parts = urlsplit(database_url)
    assert parts.hostname
    assert parts.port
    pooler = Pooler(parts.hostname, parts.port)
    pooler.start()
    address = f"{parts.netloc.rpartition('@')[0]}@127.0.0.1:{pooler.port}"
    yield urlunsplit(parts._replace(netloc=address, query="sslmode=disable&gssencmode=disable"))
    pooler.close()


def prepared(url: str) -> tuple[list[int], list[str]]:
    """What a statement answers twice on one connection, and what the server then has prepared on it."""
    database = Database(url, pool_size=1)
    try:
        with database.begin() as connection:
            answers = [SQUARE.scalar(connection, n=number) for number in (3, 4)]
            names = connection.exec_driver_sql("select name from pg_prepared_statements").scalars().all()
        return answers, list(names)
    finally:
        database.dispose()


def test_a_statement_is_prepared_on_a_connection_of_our_own(database_url: str) -> None:
    """Once, by its name."""
    assert prepared(database_url) == ([9, 16], ["vibey:square"])


def test_nothing_is_prepared_behind_a_pooler(pooled_url: str) -> None:
    """The same answers, and no trace on the server's side."""
    assert prepared(pooled_url) == ([9, 16], [])
