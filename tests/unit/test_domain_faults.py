"""What an operating system or a server lacks, as errors a person can act on."""

from __future__ import annotations

import errno

import pytest

from vibey.domain.errors import OutOfResources, ServiceUnavailable, TooManyConnections, UnsuitableService
from vibey.domain.faults import fault_of_os, fault_of_redis, fault_of_sql


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, "the disk is full"),
        (errno.EDQUOT, "quota"),
        (errno.EROFS, "read-only"),
        (errno.EMFILE, "ulimit -n"),
        (errno.ENFILE, "fs.file-max"),
        (errno.ENOLCK, "no locks"),
        (errno.EACCES, "chown"),
    ],
)
def test_an_operating_system_error_names_the_file_and_the_remedy(number: int, words: str) -> None:
    """Whatever wanted the file."""
    fault = fault_of_os(OSError(number, "it says", "/srv/data"))
    assert isinstance(fault, OutOfResources)
    assert str(fault).startswith("/srv/data: ")
    assert words in str(fault)
    assert fault.exit_code == 4


def test_other_operating_system_errors_are_left_alone() -> None:
    """A missing file is not a lack of anything."""
    assert fault_of_os(FileNotFoundError(errno.ENOENT, "no such file", "x")) is None
    assert fault_of_os(OSError("words alone")) is None


@pytest.mark.parametrize(
    ("state", "text", "kind", "words"),
    [
        ("53100", "could not extend file\nHINT: Check free disk space.", OutOfResources, "disk of the database server"),
        ("53300", "too many connections", TooManyConnections, "max_connections"),
        (None, 'FATAL:  too many connections for role "x"', TooManyConnections, "max_connections"),
        (None, "FATAL:  sorry, too many clients already", TooManyConnections, "pooler"),
        (None, "port 5 failed: FATAL:  could not write init file: No space left on device", OutOfResources, "disk"),
        (None, "FATAL:  could not fork new process for connection: Cannot allocate memory", OutOfResources, "memory"),
        (None, "port 5 failed: session is read-only", UnsuitableService, "standby"),
        ("25006", "cannot execute INSERT in a read-only transaction", UnsuitableService, "standby"),
        ("42501", "permission denied for table jobs", UnsuitableService, "rights"),
    ],
)
def test_a_database_error_is_classified(state: str | None, text: str, kind: type, words: str) -> None:
    """By its SQLSTATE; by its words where a connection was refused."""
    fault = fault_of_sql(state, text)
    assert type(fault) is kind
    assert words in str(fault)
    assert "HINT" not in str(fault)
    assert isinstance(fault, ServiceUnavailable)


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ("FATAL:  sorry, too many clients already", 30),
        ("FATAL:  remaining connection slots are reserved for roles with the SUPERUSER attribute", 30),
        ("FATAL:  remaining connection slots are reserved for non-replication superuser connections", 30),
        ('FATAL:  too many connections for role "vibey"', None),
        ("FATAL:  no more connections allowed (max_client_conn)", None),
    ],
)
def test_a_server_without_a_free_connection_is_named_with_its_number(text: str, allowed: int | None) -> None:
    """With the server's number where the server is full; a limit of a role or a pooler is another one."""
    fault = fault_of_sql(None, text, max_connections=30)
    assert isinstance(fault, TooManyConnections)
    assert (fault.allowed, fault.word, fault.exit_code) == (allowed, "too_many_connections", 4)
    assert ("all 30 of max_connections are in use" in str(fault)) == (allowed is not None)
    assert "raise max_connections" in fault.fix
    assert "lower slots" in fault.fix


def test_other_database_errors_are_left_alone() -> None:
    """A violated constraint, or a server that is away, is something else."""
    assert fault_of_sql("23505", "duplicate key") is None
    assert fault_of_sql(None, "connection refused") is None


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ("MISCONF Errors writing to the AOF file: No space left on device", OutOfResources, "make room"),
        ("OOM command not allowed when used memory > 'maxmemory'.", OutOfResources, "maxmemory"),
        ("NOPERM this user has no permissions to run the 'eval' command", UnsuitableService, "ACL"),
        ("READONLY You can't write against a read only replica.", UnsuitableService, "primary"),
        ("Authentication required.", UnsuitableService, "password"),
        ("WRONGPASS invalid username-password pair or user is disabled.", UnsuitableService, "correct redis_url"),
        ("DB index is out of range", UnsuitableService, "lower one"),
        ("MOVED 3999 127.0.0.1:6381", UnsuitableService, "cluster"),
    ],
)
def test_a_reply_of_redis_is_classified(text: str, kind: type, words: str) -> None:
    """By its words: redis-py cuts the code from some."""
    fault = fault_of_redis(text)
    assert type(fault) is kind
    assert words in str(fault)


def test_other_replies_of_redis_are_left_alone() -> None:
    """They are faults of the caller."""
    assert fault_of_redis("WRONGTYPE Operation against a key") is None
