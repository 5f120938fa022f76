"""An emulator for all the tests here."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

from tests.azure.azurite import Azurite, running

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def azurite() -> Iterator[Azurite]:
    with running() as azurite:
        yield azurite


@pytest.fixture
def container(azurite: Azurite) -> str:
    """The URI of an empty container."""
    name = f"c{uuid.uuid4().hex}"
    azurite.make_container(name)
    return f"az://{name}"
