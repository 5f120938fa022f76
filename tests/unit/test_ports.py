"""Ports for servers that may be away for a while."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from lakefold.local import ports

if TYPE_CHECKING:
    import pytest


def test_a_port_is_chosen_once_and_only_while_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    free = [ports.free_port() for _ in range(3)]
    assert set(free) < set(ports.below_outgoing())
    monkeypatch.setattr(ports, "below_outgoing", lambda: range(min(free), max(free) + 1))
    monkeypatch.setattr(ports, "_chosen", {*range(min(free), max(free) + 1)} - {*free})
    with socket.create_server(("127.0.0.1", free[0])):
        assert {ports.free_port() for _ in range(2)} == {*free[1:]}
    assert ports.free_port() == free[0]
