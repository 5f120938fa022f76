"""What every store promises, asked of Azure's emulator: the same suite, with its race of 32 threads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from lakefold_table.errors import InvalidError, LocationError
from lakefold_table.storage import open_storage
from tests.contracts.behaviour import *  # noqa: F403 - the suite

if TYPE_CHECKING:
    from lakefold_table.storage.base import Storage
    from tests.azure.azurite import Azurite


@dataclass(frozen=True)
class AzureSite:
    """An empty container, as the suite wants its places."""

    uri: str
    options: dict[str, str]
    cheap_size: bool = False
    tick_us: int = 1_000_000
    rounds: int = 200

    def open(self, below: str = "") -> Storage:
        """A store whose root is a folder of this container, or a folder below that."""
        return open_storage(f"{self.uri}/lake/table{below}", self.options)


@pytest.fixture
def site(azurite: Azurite, container: str) -> AzureSite:
    return AzureSite(container, azurite.options)


def test_a_container_may_be_a_root(azurite: Azurite, container: str) -> None:
    store = open_storage(container, azurite.options)
    assert not store.anything_at_root()
    store.put("v/1", [b"x"])
    assert store.names("v") == ["1"]
    assert store.anything_at_root()
    assert not store.anything_at_root(besides={"v"})


def test_a_wrong_key_and_a_missing_container_are_reported(azurite: Azurite, container: str) -> None:
    wrong = {**azurite.options, "azure_storage_account_key": "d3Jvbmc="}
    with pytest.raises(InvalidError, match="answered 403"):
        open_storage(container, wrong).names("v")
    with pytest.raises(InvalidError, match="answered 403"):
        open_storage(container, wrong).put_if_absent("v/1", [b"x"])
    with pytest.raises(LocationError, match="does not exist"):
        open_storage("az://missing/t", azurite.options).put_if_absent("v/1", [b"x"])
