"""A real broker behind a relay that cuts connections; started once for each test process."""

from __future__ import annotations

from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest

from tests.integration.conftest import (
    _no_client_is_left,
    _no_client_is_left_of_a_module,
    _patient_clients,
    topic_names,
)
from tests.servers.kafka_relay import KafkaRelay, RelayedBroker
from tests.servers.quick_java import quick_java

__all__ = [
    "_no_client_is_left",
    "_no_client_is_left_of_a_module",
    "_patient_clients",
    "relay",
    "relayed",
    "topic_names",
]

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session", autouse=True)
def _quick_java() -> Iterator[None]:
    """Each broker of this process, and of those it starts, starts from an archive of its classes."""
    yield from quick_java()


@pytest.fixture(scope="session")
def relay() -> Iterator[KafkaRelay]:
    """The relay before `relayed`; each test plans its own cut."""
    with KafkaRelay() as running:
        yield running


@pytest.fixture(scope="session")
def relayed(relay: KafkaRelay) -> Iterator[RelayedBroker]:
    """A running broker that is reached directly and through `relay`."""
    with TemporaryDirectory(prefix="lakefold-broker-") as folder, RelayedBroker(folder, relay) as running:
        yield running
