"""Accounts: who else can log in to a machine, by the text of its /etc/passwd."""

from __future__ import annotations

FIRST_UID = 1000
NOBODY_UID = 65_534
NO_LOGIN = frozenset({"nologin", "false", "true", "sync", "shutdown", "halt"})
FIELDS = 7


def other_accounts(passwd: str, own_uid: int) -> tuple[str, ...]:
    """The accounts of people other than `own_uid`, in the order of the file; root, who can read everything, is none.

    An account counts whose uid is at least 1000, other than nobody's, and whose shell can be logged in to; no shell
    stands for /bin/sh. A line that the C library would skip is skipped. A line that begins with `+` takes accounts from
    a directory service, whoever they are, and counts as one.
    """
    found = []
    for line in passwd.splitlines():
        fields = line.strip().split(":", FIELDS - 1)
        if fields[0].startswith("+"):
            found.append(fields[0])
            continue
        if len(fields) != FIELDS or not fields[0] or fields[0].startswith(("#", "-")):
            continue
        name, _, uid, _, _, _, shell = fields
        if not (uid.isascii() and uid.isdigit()) or int(uid) in {own_uid, NOBODY_UID} or int(uid) < FIRST_UID:
            continue
        if shell.strip().rpartition("/")[2] not in NO_LOGIN:
            found.append(name)
    return tuple(found)
