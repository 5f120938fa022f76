"""Ports for servers that may be away for a while."""

from __future__ import annotations

import socket

import pytest

from lakefold.errors import SetupError
from lakefold.local import ports


def test_a_port_is_chosen_once_and_only_while_no_server_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    free = [ports.free_port() for _ in range(3)]
    assert set(free) < set(ports.below_outgoing())
    monkeypatch.setattr(ports, "below_outgoing", lambda: range(min(free), max(free) + 1))
    monkeypatch.setattr(ports, "_chosen", {*range(min(free), max(free) + 1)} - {*free})
    with socket.create_server(("127.0.0.1", free[0])):
        assert {ports.free_port() for _ in range(2)} == {*free[1:]}
    assert ports.free_port() == free[0]


def test_chosen_ports_are_forgotten_once_no_other_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    free = {20_001, 20_002}
    monkeypatch.setattr(ports, "below_outgoing", lambda: range(20_000, 20_003))
    monkeypatch.setattr(ports, "is_free", lambda port: port in free)
    monkeypatch.setattr(ports, "_chosen", set())
    for _ in range(20):
        assert {ports.free_port() for _ in free} == free
    free.clear()
    with pytest.raises(SetupError, match="no port from 20000 to 20002 is free"):
        ports.free_port()
