"""Recognises addresses that belong to this machine alone."""

from __future__ import annotations

from ipaddress import ip_address


def is_loopback(host: str) -> bool:
    """Returns whether an address names the machine itself."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def is_this_machine(host: str) -> bool:
    """Returns whether a request to this address, on which a port may be bound, stays on this machine."""
    return is_loopback(host) or host in {"0.0.0.0", "::"}  # noqa: S104 - compared, not bound
