"""Finds ports for servers that must use the same port again after a crash.

The operating system chooses a "free port" from the range that outgoing connections use as well. While a
killed broker is down, an outgoing connection could get its port. So ports are chosen at random below that
range, and no process chooses one twice as long as others are free, since the server of the first choice may
not listen at the moment.
"""

from __future__ import annotations

import random
import socket
from contextlib import suppress
from pathlib import Path

from lakefold.errors import SetupError

_LOWEST = 15_000
_OUTGOING = Path("/proc/sys/net/ipv4/ip_local_port_range")
_chosen: set[int] = set()


def is_free(port: int) -> bool:
    """Returns whether a server could listen on this port of 127.0.0.1 now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return True
    return False


def below_outgoing() -> range:
    """Returns the ports among which `free_port` chooses."""
    return range(_LOWEST, int(_OUTGOING.read_text().split()[0]) if _OUTGOING.exists() else 32_768)


def free_port() -> int:
    """Returns a port of 127.0.0.1 that is free now and that outgoing connections don't use.

    Raises `SetupError` if none is free.
    """
    ports = below_outgoing()
    if not ports:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            return int(probe.getsockname()[1])
    first = random.SystemRandom().randrange(len(ports))
    in_order = [*ports[first:], *ports[:first]]
    port: int | None = next((each for each in in_order if each not in _chosen and is_free(each)), None)
    if port is None:
        _chosen.clear()
        port = next((each for each in in_order if is_free(each)), None)
    if port is None:
        message = f"no port from {ports[0]} to {ports[-1]} is free"
        raise SetupError(message, where="127.0.0.1", hint="end servers that are not needed any more")
    _chosen.add(port)
    return port
