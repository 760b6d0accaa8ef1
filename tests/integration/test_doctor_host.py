"""Doctor on a machine that lacks something, or on which something hangs: it answers, names it, and starts nothing."""

from __future__ import annotations

import fcntl
import os
import resource
import signal
from typing import TYPE_CHECKING

import pytest

from tests.support.installation import noop
from vibey import embedded
from vibey.domain.errors import OutOfResources
from vibey.services import checks
from vibey.services.doctor import State, check, examine
from vibey.services.host import files_needed, host_checks, require_host
from vibey.services.installation import Installation
from vibey.settings import Settings, Source, settings_of

if TYPE_CHECKING:
    from pathlib import Path


def settings_under(folder: Path, **engine: object) -> Settings:
    """Settings of a single machine whose data lie in this folder."""
    tables = {"services": {"data_dir": str(folder)}, "engine": {"desk": noop(**engine)}}
    return settings_of(Source(None, folder.parent, tables), {})


def test_doctor_starts_nothing_on_a_new_machine(data_dir: Path) -> None:
    """It says what does not run and which one command sets it up; not even a folder is made."""
    found = {each.name: each for each in examine(settings_under(data_dir))}
    assert found["postgres"].state is State.FAIL
    assert found["redis"].fix == "run: vibey up"
    assert found["engine desk"].state is State.OK
    assert not data_dir.exists()


def test_doctor_starts_nothing_that_was_stopped(data_dir: Path) -> None:
    """What has been set up and is down stays down."""
    embedded.ensure(data_dir)
    embedded.stop(data_dir)
    found = {each.name: each for each in examine(settings_under(data_dir))}
    assert [found[name].detail for name in ("postgres", "redis")] == ["not running", "not running"]
    assert [server.pid for server in embedded.status(data_dir)] == [None, None]


def test_doctor_does_not_wait_for_the_lock_of_the_servers(data_dir: Path) -> None:
    """Another process may hold it for minutes."""
    embedded.ensure(data_dir)
    with (data_dir / "services.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = {each.name: each for each in examine(settings_under(data_dir))}
    assert found["postgres"].state is State.OK
    assert found["schema"].fix == "run: vibey up"


def test_a_check_that_hangs_is_named_and_the_others_go_on(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A frozen Redis is asked no longer than a check may take."""
    monkeypatch.setattr(checks, "CHECK_SECONDS", 3.0)
    embedded.ensure(data_dir)
    pid = embedded.status(data_dir)[1].pid
    assert pid is not None
    installation = Installation.open(settings_under(data_dir))
    os.kill(pid, signal.SIGSTOP)
    try:
        found = {each.name: each for each in check(installation, staff=False)}
    finally:
        os.kill(pid, signal.SIGCONT)
        installation.close()
    assert found["redis"].state is State.FAIL
    assert found["postgres"].state is State.OK
    assert found["engine desk"].state is State.OK


def test_an_error_in_a_check_hides_no_other() -> None:
    """Whatever it is."""

    def broken() -> list[checks.Check]:
        raise ValueError("odd")

    assert checks.run_check("thing", broken) == [checks.Check("thing", State.FAIL, "the check broke: ValueError: odd")]


def test_free_room_is_shown(data_dir: Path) -> None:
    """Of the folder itself, or of where it will be made; the probe leaves nothing."""
    (before,) = [each for each in host_checks(settings_under(data_dir)) if each.name == "disk"]
    assert str(data_dir.parent) in before.detail
    data_dir.mkdir()
    (after,) = [each for each in host_checks(settings_under(data_dir)) if each.name == "disk"]
    assert f"free at {data_dir}" in after.detail
    assert list(data_dir.iterdir()) == []


def test_a_disk_that_takes_no_write_is_named_by_its_path(data_dir: Path) -> None:
    """Also where the file is made and only its bytes are refused, as on a full disk, whose error has no path."""
    data_dir.mkdir()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        (found,) = [each for each in host_checks(settings_under(data_dir)) if each.name == "disk"]
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert found.state is State.FAIL
    assert str(data_dir) in found.detail
    assert list(data_dir.iterdir()) == []


def test_too_few_file_handles_are_named_with_what_is_needed(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By how many slots there are."""
    few = settings_under(data_dir)
    limit = files_needed(few) - 1
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
    with pytest.raises(OutOfResources, match=rf"may open {limit} files, and {limit + 1} are needed; raise the limit"):
        require_host(few)
