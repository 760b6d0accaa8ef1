"""Parts of the bench: the proxy that lengthens a way, and the peers' environment and scripts."""

from __future__ import annotations

import json
import socket
import sys
import threading
from contextlib import closing, suppress
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

import pytest

from tests.support.wait import until
from vibey.bench import peers, report
from vibey.bench.figures import Bar, Figure
from vibey.bench.peers import NAMES, Dialogue, Peers
from vibey.bench.processes import Processes
from vibey.domain.errors import VibeyError

if TYPE_CHECKING:
    from collections.abc import Iterator

MEGABYTE = 1_000_000


@pytest.fixture
def echo() -> Iterator[int]:
    """The port of a server that sends back whatever it is sent, to one client after the other."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:

        def serve() -> None:
            while True:
                try:
                    client, _ = listening.accept()
                except OSError:
                    return
                with client:
                    while piece := client.recv(65536):
                        client.sendall(piece)

        threading.Thread(target=serve, daemon=True).start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)


def proxied(processes: Processes, folder: Path, port: int, milliseconds: int) -> socket.socket:
    """A connection to a local port through a proxy."""
    told = folder / f"{port}-{milliseconds}.port"
    processes.start(told.stem, ["-m", "vibey.bench.proxy", "127.0.0.1", str(port), str(milliseconds), str(told)], {})
    until(told.exists, what="the proxy to listen")
    return socket.create_connection(("127.0.0.1", int(told.read_text(encoding="ascii"))), timeout=20)


def read(source: socket.socket, size: int) -> bytes:
    """So many bytes, or what there was before the end."""
    found = b""
    while len(found) < size and (piece := source.recv(65536)):
        found += piece
    return found


@pytest.mark.parametrize("milliseconds", [0, 40])
def test_a_proxy_passes_on_every_byte_in_order_no_sooner_than_it_should(
    tmp_path: Path, echo: int, milliseconds: int
) -> None:
    """There and back takes at least the delay; a megabyte comes back as it was; the end of one side ends the other."""
    with Processes(tmp_path) as processes, closing(proxied(processes, tmp_path, echo, milliseconds)) as client:
        began = monotonic()
        client.sendall(b"?")
        assert read(client, 1) == b"?"
        assert monotonic() - began >= milliseconds / 1000
        sent = bytes(number * 7 % 251 for number in range(MEGABYTE))
        threading.Thread(target=client.sendall, args=(sent,)).start()
        assert read(client, MEGABYTE) == sent
        client.shutdown(socket.SHUT_WR)
        assert client.recv(1) == b""


def test_a_proxy_to_nobody_closes(tmp_path: Path) -> None:
    """Where no server listens, the client's connection ends."""
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
    with (
        Processes(tmp_path) as processes,
        closing(proxied(processes, tmp_path, port, 0)) as client,
        suppress(ConnectionResetError),
    ):
        assert client.recv(1) == b""


def test_peers_are_found_by_what_is_installed(tmp_path: Path) -> None:
    """This very environment has Celery and no LiteLLM; a folder without an interpreter has none of them."""
    here = Peers.found(Path(sys.prefix))
    assert here.has("celery")
    assert here.celery == str(Path(sys.prefix) / "bin" / "python")
    assert set(here.versions) | set(here.missing) == set(NAMES)
    for directory in (None, tmp_path):
        none = Peers.found(directory)
        assert (set(none.missing), none.python, none.celery) == (set(NAMES), None, sys.executable)


def test_a_script_that_fails_is_told_with_its_words(tmp_path: Path) -> None:
    """An answer that does not come is an error with the end of what the script said."""
    with (
        Dialogue.begun(sys.executable, "peer_litellm", tmp_path, {}) as dialogue,
        pytest.raises(VibeyError, match=r"peer_litellm failed(.|\n)*litellm"),
    ):
        dialogue.ask(engines=1, count=1)


def test_a_peer_whose_workers_are_gone_is_not_waited_for(tmp_path: Path) -> None:
    """While an answer is awaited, the processes that would bring it about are watched."""
    with Processes(tmp_path) as processes:
        processes.start("gone", ["-c", "raise SystemExit(3)"], {})
        script = Path(peers.__file__).with_name("peer_litellm.py")
        assert script.exists()
        with (
            Dialogue.begun(sys.executable, "proxy", tmp_path, {}, ["127.0.0.1", "1", "0", str(tmp_path / "p")]) as mute,
            pytest.raises(VibeyError, match="the gone process ended with 3"),
        ):
            mute.ask(processes, count=1)


def test_a_report_says_what_was_missed_and_what_is_missing(tmp_path: Path) -> None:
    """The page, the numbers and the picture tell the same, and a quick run judges nothing."""
    figures = (
        Figure("one", "ours over theirs", "x", (1.0, 3.0, 2.0), Bar(4)),
        Figure("one", "theirs", "jobs/s", (1234.5, 1300, 1200)),
        Figure("two", "quick enough", "x", (0.5, 0.4, 0.6), Bar(1, ceiling=True)),
    )
    made = report.Report({"cores": 2}, figures, {"celery": "5.7.0"}, {"litellm": "it is not there"}, 3, quick=False)
    written = list(report.write(made, tmp_path))
    assert [path.name for path in written] == ["bench.md", "bench.json", "bench.svg"]
    page = written[0].read_text(encoding="utf-8")
    assert "| one | ours over theirs | 2 | 1 to 3 | x | ≥ 4 | missed |" in page
    assert "| one | theirs | 1,234 | 1,200 to 1,300 | jobs/s |  |  |" in page
    assert "| two | quick enough | 0.5 | 0.4 to 0.6 | x | ≤ 1 | ok |" in page
    assert "Missing: litellm, because it is not there." in page
    assert "- *one: ours over theirs*: 2 x, not ≥ 4. No reason is known yet." in page
    assert "*two: quick enough*" not in page
    numbers = json.loads(written[1].read_text(encoding="utf-8"))
    assert (numbers["missed"], numbers["rounds"], numbers["peers"]) == (1, 3, {"celery": "5.7.0"})
    assert "two: quick enough" in written[2].read_text(encoding="utf-8")
    quick = report.Report({}, figures, {}, {}, 1, quick=True)
    assert "missed" not in quick.page()
