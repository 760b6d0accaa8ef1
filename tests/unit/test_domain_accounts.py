"""Which accounts of a machine are other people's."""

from __future__ import annotations

import pytest

from vibey.domain.accounts import other_accounts

SYSTEM = """\
root:x:0:0:root:/root:/bin/bash
daemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin
sync:x:4:65534:sync:/bin:/bin/sync
postgres:x:101:104:PostgreSQL administrator,,,:/var/lib/postgresql:/bin/bash
nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin
"""


def line(name: str = "bob", uid: object = 1001, shell: str = "/bin/bash") -> str:
    """A line of the file."""
    return f"{name}:x:{uid}:{uid}:,,,:/home/{name}:{shell}\n"


@pytest.mark.parametrize("own", [0, 999, 1000])
def test_a_machine_of_one_person_has_no_other(own: int) -> None:
    """Accounts of the system count as nobody's, those of services with a shell included."""
    assert other_accounts(SYSTEM + (line("alice", own) if own >= 1000 else ""), own) == ()


@pytest.mark.parametrize("own", [0, 999, 1000])
def test_an_account_that_can_log_in_counts(own: int) -> None:
    """Whoever runs Vibey: another person, root, or a user of its own."""
    text = line("alice", 1000) + SYSTEM + line("bob", 1001, "/usr/bin/zsh")
    assert other_accounts(text, own) == (("bob",) if own == 1000 else ("alice", "bob"))


@pytest.mark.parametrize(
    ("uid", "counts"),
    [(0, False), (999, False), (1000, True), (60_000, True), (65_533, True), (65_534, False), (1_000_001, True)],
)
def test_by_its_uid(uid: int, counts: bool) -> None:  # noqa: FBT001  a column
    """From 1000 on, but for nobody's."""
    assert bool(other_accounts(line(uid=uid), 1)) is counts


@pytest.mark.parametrize(
    ("shell", "counts"),
    [
        ("/bin/bash", True),
        ("", True),
        ("/usr/bin/git-shell", True),
        ("/opt/nologin/sh", True),
        ("/usr/sbin/nologin", False),
        ("/sbin/nologin", False),
        ("/bin/false", False),
        ("/usr/bin/false", False),
        ("nologin", False),
    ],
)
def test_by_its_shell(shell: str, counts: bool) -> None:  # noqa: FBT001  a column
    """No shell stands for /bin/sh; only those that let nobody in are none."""
    assert bool(other_accounts(line(shell=shell), 1)) is counts


@pytest.mark.parametrize(
    "bad", ["", "# bob:x:1001:1001::/home/bob:/bin/sh", "bob", "bob:x:1001", "bob:x:1001:1001:,,,:/home/bob", "-bob"]
    + [line(uid=uid) for uid in ("", "-2", "x", "1001x", "²001", "1 001")]
    + [line(name="")],
)  # fmt: skip
def test_a_malformed_line_is_skipped(bad: str) -> None:
    """And keeps none of the others from being found."""
    assert other_accounts(bad, 1) == ()
    assert other_accounts(f"{bad}\n{line('eve')}", 1) == ("eve",)


@pytest.mark.parametrize("entry", ["+", "+::::::", "+@staff", "+bob::::::"])
def test_accounts_of_a_directory_service_count(entry: str) -> None:
    """They stand in no line of the file, and may be anybody's."""
    assert other_accounts(SYSTEM + entry + "\n", 0) == (entry.partition(":")[0],)
