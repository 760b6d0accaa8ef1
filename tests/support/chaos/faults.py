"""Faults: how each kind of strike is carried out.

A fault that lasts is undone by a timer, so faults overlap as they would in life; only a second fault on the same server
or disk ends the first one early. `strike` says what was struck, or None when there was nothing of that kind to strike.
"""

from __future__ import annotations

import signal
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

import psycopg2

from tests.support import trees
from tests.support.chaos.crew import send, stopped
from tests.support.chaos.servers import POSTGRES, REDIS
from tests.support.databases import query
from tests.support.wait import until
from vibey.publisher import Build

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.support.chaos.crew import Crew
    from tests.support.chaos.plan import Strike
    from tests.support.chaos.servers import Servers
    from tests.support.fleet import Member

T = TypeVar("T")

MOVED_SECONDS = 5.0
SEEK_SECONDS = 5.0
LETTERS_KEPT = 50
CONNECTIONS = "connections"


class Faults:
    """Everything that can strike one fleet and its servers."""

    def __init__(self, crew: Crew, servers: Servers) -> None:
        """Strike nothing yet."""
        self._crew = crew
        self._servers = servers
        self._fleet = crew.fleet
        self._prefix = crew.fleet.settings.services.redis_prefix
        self._letters: list[tuple[str, bytes]] = []
        self._undoing: dict[str, tuple[threading.Timer, Callable[[], None]]] = {}
        self._count = 0
        self._ways: dict[str, Callable[[Strike], str | None]] = {
            "kill a control worker": lambda strike: self._kill_member("control", strike),
            "kill a control worker's main process": lambda strike: self._kill_main("control", strike),
            "kill a router": lambda strike: self._kill_child("control", strike),
            "kill a build worker": lambda strike: self._kill_member("build", strike),
            "kill a build worker's main process": lambda strike: self._kill_main("build", strike),
            "kill a holder": lambda strike: self._kill_child("build", strike),
            "kill beat": lambda strike: self._kill_member("beat", strike),
            "kill an engine's process": self._kill_program,
            "kill a supervisor": self._kill_supervisor,
            "let a job escape": self._let_escape,
            "stop a control worker": lambda strike: self._stop("control", strike),
            "stop a build worker past its leases": lambda strike: self._stop("build", strike),
            "stop a holder for good": self._stop_holder,
            "wipe Redis": self._wipe,
            "restart Redis": lambda strike: self._restart(REDIS, strike),
            "stall Redis": lambda strike: self._freeze(REDIS, strike),
            "restart Postgres at once": lambda strike: self._restart(POSTGRES, strike),
            "stall Postgres": lambda strike: self._freeze(POSTGRES, strike),
            "cut every connection": self._cut_all,
            "cut some connections": self._cut_some,
            "stall some connections": self._stall_some,
            "exhaust connections": self._exhaust,
            "fill the disk": self._fill_disk,
            "move a clock": self._move_clock,
            "set the database's clock": self._set_clock,
            "deliver messages again": self._deliver_again,
            "start a second beat": self._second_beat,
            "route twice without the lock": self._route_twice,
        }

    def strike(self, strike: Strike) -> str | None:
        """Let a fault happen."""
        return self._ways[strike.kind](strike)

    def undo(self) -> None:
        """Undo at once whatever still lasts."""
        for name in list(self._undoing):
            self._undo_now(name)

    def _lasting(self, name: str, seconds: float, undo: Callable[[], None]) -> None:
        timer = threading.Timer(seconds, self._undo_now, [name])
        timer.daemon = True
        self._undoing[name] = (timer, undo)
        timer.start()

    def _undo_now(self, name: str) -> None:
        timer, undo = self._undoing.pop(name, (None, None))
        if timer is not None and undo is not None:
            timer.cancel()
            undo()

    def _unique(self, name: str) -> str:
        self._count += 1
        return f"{name} {self._count}"

    def _found(self, ask: Callable[[], Sequence[T]], strike: Strike) -> T | None:
        """One of what can be struck, waited for if there is none just now."""
        with suppress(AssertionError):
            among = until(ask, seconds=SEEK_SECONDS, what=strike.kind)
            return among[int(strike.target * len(among))]
        return None

    def _member(self, kind: str, strike: Strike) -> Member | None:
        return self._found(lambda: self._crew.of(kind), strike)

    def _kill_member(self, kind: str, strike: Strike) -> str | None:
        member = self._member(kind, strike)
        if member is None:
            return None
        member.kill()
        return member.name

    def _kill_main(self, kind: str, strike: Strike) -> str | None:
        member = self._member(kind, strike)
        if member is None:
            return None
        member.signal(signal.SIGKILL)
        member.ended()
        return member.name

    def _kill_child(self, kind: str, strike: Strike) -> str | None:
        pid = self._found(lambda: self._crew.pools(kind), strike)
        if pid is None:
            return None
        send(pid)
        return f"process {pid}"

    def _kill_program(self, strike: Strike) -> str | None:
        pid = self._found(lambda: sorted(trees.living(self._fleet.installation.identity)), strike)
        if pid is None:
            return None
        send(pid)
        return f"process {pid}"

    def _kill_supervisor(self, strike: Strike) -> str | None:
        """Of a holder that can do its part: one that is stopped as well leaves the tree to the next worker."""
        pid = self._found(self._guarded_supervisors, strike)
        if pid is None:
            return None
        send(pid)
        return f"process {pid}"

    def _guarded_supervisors(self) -> list[int]:
        """Supervisors of live runs whose holders are not stopped."""
        calm = {pid for pid in self._crew.pools("build") if not stopped(pid)}
        live = {int(str(pid)) for (pid,) in self._query("select pid from runs where state = 'running'")} & calm
        return [pid for pid in trees.supervisors(self._fleet.installation.identity) if trees.parent(pid) in live]

    def _let_escape(self, strike: Strike) -> str | None:
        """Have a job leave a process without marks behind and kill its supervisor; then wait for the end of both.

        Were its holder struck before it has killed that process, nobody would: so much is promised to no one.
        """

        def found() -> list[tuple[int, int]]:
            guards = set(self._guarded_supervisors())
            programs = trees.living(self._fleet.installation.identity)
            return sorted((pid, guard) for pid in programs if (guard := trees.parent(pid)) in guards)

        pair = self._found(found, strike)
        if pair is None:
            return None
        program, guard = pair
        send(program, signal.SIGUSR1)
        log = self._fleet.labour_log
        with suppress(AssertionError):
            until(lambda: trees.ended(program), seconds=SEEK_SECONDS, what="the program's end")
            until(lambda: not trees.unmarked(log), seconds=SEEK_SECONDS, what="the end of what escaped")
        return f"process {program} of supervisor {guard}"

    def _stop_holder(self, strike: Strike) -> str | None:
        pid = self._found(lambda: [pid for pid in self._crew.pools("build") if not stopped(pid)], strike)
        if pid is None:
            return None
        send(pid, signal.SIGSTOP)
        return f"process {pid}"

    def _stop(self, kind: str, strike: Strike) -> str | None:
        member = self._member(kind, strike)
        if member is None:
            return None
        member.signal_all(signal.SIGSTOP)
        self._lasting(self._unique("stop"), strike.seconds, lambda: _go_on(member))
        return member.name

    def _wipe(self, _: Strike) -> str:
        self._undo_now("Redis")
        client = self._servers.redis()
        client.flushall()
        client.close()
        return "all keys"

    def _restart(self, number: int, strike: Strike) -> str:
        self._undo_now(_name(number))
        self._undo_now(CONNECTIONS)
        self._servers.end(number)
        threading.Event().wait(strike.seconds)
        self._servers.start()
        return _name(number)

    def _freeze(self, number: int, strike: Strike) -> str:
        self._undo_now(_name(number))
        self._lasting(_name(number), strike.seconds, self._servers.freeze(number))
        return _name(number)

    def _cut_all(self, _: Strike) -> str:
        self._undo_now("Redis")
        self._undo_now("Postgres")
        client = self._servers.redis()
        for kind in ("normal", "pubsub"):
            client.client_kill_filter(_type=kind, skipme=True)
        client.close()
        self._query(
            "select pg_terminate_backend(pid) from pg_stat_activity "
            "where backend_type = 'client backend' and pid <> pg_backend_pid()",
        )
        return "both servers"

    def _cut_some(self, strike: Strike) -> str | None:
        cut = [proxy.cut(strike.target) for proxy in self._servers.proxies]
        return f"{cut[POSTGRES]} to Postgres, {cut[REDIS]} to Redis"

    def _stall_some(self, strike: Strike) -> str | None:
        number = POSTGRES if strike.number % 2 else REDIS
        proxy = self._servers.proxies[number]
        pipes = proxy.stall(strike.target)
        self._lasting(self._unique("stall"), strike.seconds, lambda: proxy.resume(pipes))
        return f"{len(pipes) // 2} to {_name(number)}"

    def _exhaust(self, strike: Strike) -> str:
        self._undo_now(CONNECTIONS)
        self._lasting(CONNECTIONS, strike.seconds, self._servers.exhaust())
        return "Postgres"

    def _query(self, statement: str) -> list[tuple[object, ...]]:
        """Rows; whoever took all connections gives them back first."""
        self._undo_now(CONNECTIONS)
        return query(self._servers.direct.database_url, statement)

    def _fill_disk(self, strike: Strike) -> str | None:
        self._undo_now("disk")
        self._lasting("disk", strike.seconds, self._crew.fill_disk())
        return "the runs' disk"

    def _move_clock(self, strike: Strike) -> str | None:
        if not self._crew.has_clocks:
            return None
        kinds = ("control", "build", "beat")
        member = self._found(lambda: [each for kind in kinds for each in self._crew.of(kind)], strike)
        if member is None:
            return None
        self._crew.move_clock(member, strike.seconds)
        self._lasting(self._unique("clock"), MOVED_SECONDS, lambda: self._crew.move_clock(member, 0))
        return member.name

    def _set_clock(self, strike: Strike) -> str:
        """Set the clock that everything stored goes by, and back after a while."""
        self._undo_now(CONNECTIONS)
        self._undo_now("Postgres")
        self._servers.clock.move(strike.seconds)
        self._lasting(self._unique("database clock"), MOVED_SECONDS, lambda: self._set_back(strike.seconds))
        return "Postgres"

    def _set_back(self, seconds: float) -> None:
        """A server that does not answer just now leaves that to the next time the clock is set."""
        with suppress(psycopg2.Error):
            self._servers.clock.move(-seconds)

    def _deliver_again(self, strike: Strike) -> str | None:
        """Messages of runs live and long over, and letters as they once lay in Redis."""
        self._undo_now("Redis")
        recent = "select id, token, engine, job_id, attempt from runs order by id desc limit 40"
        rows = self._found(lambda: [self._query(recent)], strike) or []
        builds = [Build(run, token, engine, job, "", attempt) for run, token, engine, job, attempt in rows]  # type: ignore[arg-type]
        self._fleet.installation.publisher.builds(builds[:8] + builds[30:])
        client = self._servers.redis()
        for queue, letter in self._letters:
            client.lpush(queue, letter)
        for engine in self._fleet.settings.engine:
            queue = f"{self._prefix}engine.{engine}"
            self._letters += [(queue, letter) for letter in client.lrange(queue, 0, 4)]
        again, self._letters = len(self._letters), self._letters[-LETTERS_KEPT:]
        client.close()
        return f"{len(builds)} runs, {again} letters"

    def _second_beat(self, strike: Strike) -> str:
        member = self._crew.extra_beat()
        self._lasting(self._unique("beat"), strike.seconds, member.clear)
        return member.name

    def _route_twice(self, _: Strike) -> str:
        """Take the lock away again and again while messages ask every router at once."""
        self._undo_now("Redis")
        client = self._servers.redis()
        for _ in range(4):
            for _ in range(4):
                self._fleet.installation.publisher.route("main")
            for word in ("wake", "route", "again"):
                client.delete(f"{self._prefix}{word}:main")
        client.close()
        return "pool main"


def _name(number: int) -> str:
    return "Postgres" if number == POSTGRES else "Redis"


def _go_on(member: Member) -> None:
    with suppress(ProcessLookupError):
        member.signal_all(signal.SIGCONT)
