"""What the pages and the exporter of metrics ask of every request: the name it was sent to, and a token."""

from __future__ import annotations

import hmac
import ipaddress
import socket
from urllib.parse import urlsplit


def is_open(address: str) -> bool:
    """Whether an address to listen on can be reached from other machines.

    The empty address stands for all of them; a name other than localhost counts as one that can be reached.
    """
    if address == "localhost":
        return False
    try:
        return not ipaddress.ip_address(address).is_loopback
    except ValueError:
        return True


def is_here(host: str) -> bool:
    """Whether a request's `Host` is an address, localhost, or the name of this machine.

    A site that lets its own name lead to this machine could otherwise read pages through a visitor's browser, which
    takes them for that site's own.
    """
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return name == "localhost" or name.endswith(".localhost") or name == socket.gethostname().lower()
    return True


def is_token(shown: str, token: str) -> bool:
    """Whether a text is the token, compared in a time that does not depend on how much of it is right."""
    return hmac.compare_digest(shown.encode("utf-8", "surrogateescape"), token.encode())


def has_bearer(authorization: str, token: str) -> bool:
    """Whether an `Authorization` header carries the token, as `Bearer TOKEN`."""
    return is_token(authorization, f"Bearer {token}")
