"""Finds ports for servers that must come back on the same port after a crash.

The operating system's own "any free port" lies in the range it also hands out to outgoing connections. While
a killed broker is down, its waiting clients, or Spark, could be given its port. So the port is drawn from
below that range, and the operating system is asked whether it is free.
"""

from __future__ import annotations

import random
import socket
from contextlib import suppress
from pathlib import Path

_LOWEST = 15_000
_OUTGOING = Path("/proc/sys/net/ipv4/ip_local_port_range")


def is_free(port: int) -> bool:
    """Whether a server could listen on this loopback port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return True
    return False


def free_port() -> int:
    """Give a loopback port that is free now and that no outgoing connection will be given."""
    highest = int(_OUTGOING.read_text().split()[0]) if _OUTGOING.exists() else 32_768
    draw = random.SystemRandom()
    while highest > _LOWEST:
        port = draw.randrange(_LOWEST, highest)
        if is_free(port):
            return port
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
