"""Havoc: a fleet of which some part is killed, stopped or wiped again and again, in an order that a seed decides."""

from __future__ import annotations

import os
import random
import signal
from contextlib import suppress
from threading import Event
from typing import TYPE_CHECKING

import redis

from tests.support import trees
from tests.support.wait import until
from vibey import embedded

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.fleet import Fleet, Member

OUTAGE_SECONDS = (0.0, 1.0, 4.0)
ENOUGH_WAITING = 40


class Havoc:
    """A fleet on embedded servers, kept busy and complete, and the faults that can strike it."""

    def __init__(self, fleet: Fleet, data_dir: Path, seed: int) -> None:
        """Start two control workers, two build workers and a beat."""
        self.fleet = fleet
        self.enqueued = 0
        self.struck: list[str] = []
        self._data_dir = data_dir
        self._chance = random.Random(seed)
        self._count = 0
        self._starts: dict[str, Callable[[str], Member]] = {
            "control": fleet.control,
            "build": fleet.build,
            "beat": fleet.beat,
        }
        self._crew: list[Member] = []
        self.faults: dict[str, Callable[[], None]] = {
            "kill a worker": self._kill_member,
            "kill a main process": self._kill_main,
            "kill a child of a pool": self._kill_child,
            "kill a supervisor": self._kill_supervisor,
            "stop a worker past its lease": self._stop_member,
            "wipe Redis": self._wipe,
            "kill Redis": self._kill_redis,
            "cut every connection": self._cut,
            "crash Postgres": self._crash_postgres,
        }
        self.complete()

    def complete(self) -> None:
        """Start again whatever of the fleet does not run."""
        embedded.ensure(self._data_dir)
        self._crew = [member for member in self._crew if member.running]
        for kind in ("control", "control", "build", "build", "beat"):
            wanted = 1 if kind == "beat" else 2
            if sum(member.name.startswith(kind) for member in self._crew) < wanted:
                self._count += 1
                self._crew.append(self._starts[kind](f"{kind}{self._count}"))

    def feed(self) -> None:
        """Keep jobs waiting."""
        waiting = int(self.fleet.value("select count(*) from jobs where state = 'queued'"))
        while waiting < ENOUGH_WAITING:
            payload = {"seconds": self._chance.choice((0, 0.05, 0.3, 1.5)), "family": self._chance.random() < 0.1}
            self.fleet.enqueue(5, payload=payload, max_attempts=100)
            self.enqueued += 5
            waiting += 5

    def strike(self) -> None:
        """Let one fault happen, mend it, and wait until work goes on."""
        name = self._chance.choice(sorted(self.faults))
        self.struck.append(name)
        self.faults[name]()
        self.complete()
        self.feed()
        done = "select count(*) from jobs where ended_at is not null"
        before = self.fleet.value(done)
        self.fleet.until(f"select ({done}) > {before} + 3", seconds=90, what=f"work to go on after: {name}")

    def _one(self, kind: str) -> Member:
        return self._chance.choice([member for member in self._crew if member.name.startswith(kind)])

    def _kill_member(self) -> None:
        self._one("").kill()

    def _kill_main(self) -> None:
        member = self._one("")
        member.signal(signal.SIGKILL)
        member.ended()

    def _kill_child(self) -> None:
        children = self._one(self._chance.choice(("control", "build"))).pool()
        if children:
            self._kill(self._chance.choice(children))

    def _kill_supervisor(self) -> None:
        found = trees.supervisors(self.fleet.installation.identity)
        if found:
            self._kill(self._chance.choice(found))

    def _stop_member(self) -> None:
        member = self._one(self._chance.choice(("control", "build")))
        member.signal_all(signal.SIGSTOP)
        self._pass_time(self.fleet.settings.engines.lease_seconds + 2)
        member.signal_all(signal.SIGCONT)

    def _wipe(self) -> None:
        client = self._redis()
        client.flushall()
        client.close()

    def _kill_redis(self) -> None:
        self._kill_server(1, signal.SIGKILL)

    def _crash_postgres(self) -> None:
        self._kill_server(0, signal.SIGQUIT)

    def _kill_server(self, number: int, signum: int) -> None:
        pid = embedded.status(self._data_dir)[number].pid
        assert pid is not None
        os.kill(pid, signum)
        until(lambda: embedded.status(self._data_dir)[number].pid is None, what="a server's end")
        self._pass_time(self._chance.choice(OUTAGE_SECONDS))
        embedded.ensure(self._data_dir)

    def _cut(self) -> None:
        client = self._redis()
        for kind in ("normal", "pubsub"):
            client.client_kill_filter(_type=kind, skipme=True)
        client.close()
        self.fleet.rows(
            "select pg_terminate_backend(pid) from pg_stat_activity "
            "where backend_type = 'client backend' and pid <> pg_backend_pid()"
        )

    def _redis(self) -> redis.Redis:
        return redis.Redis.from_url(embedded.ensure(self._data_dir).redis_url)

    @staticmethod
    def _kill(pid: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    @staticmethod
    def _pass_time(seconds: float) -> None:
        """A fault's length is part of the fault: nothing could be waited for that says it is long enough."""
        Event().wait(seconds)
