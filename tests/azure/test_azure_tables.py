"""Whole tables on Azure's emulator: written by us and read by pylance, and the other way round."""

from __future__ import annotations

from typing import TYPE_CHECKING

import lance
import pytest

import lakefold
from lakefold_table.entry import Committed
from lakefold_table.errors import InvalidError
from lakefold_table.storage import open_storage
from tests.delta_logs.proposed_table import ProposedTable, take_turns_with_delta_rs
from tests.proposals import append, rows
from tests.tables import Folded

if TYPE_CHECKING:
    from tests.azure.azurite import Azurite

VERSIONS = 5


def test_pylance_opens_a_table_written_here_and_goes_on_with_it(azurite: Azurite, container: str) -> None:
    options = azurite.options
    table = Folded(open_storage(f"{container}/lake/a%20b", options))
    for number in range(VERSIONS):
        made = append(
            table.uri, rows([number]), table.owned.table.version, "app", number, storage_options=options
        )
        assert isinstance(table.fold(made)[0].result, Committed)
    dataset = lance.dataset(table.uri, storage_options=options)
    dataset.validate()
    assert dataset.version == 1 + VERSIONS
    assert sorted(dataset.to_table()["id"].to_pylist()) == list(range(VERSIONS))
    dataset.insert(rows([100]))
    table.take_over()
    table.fold(append(table.uri, rows([101]), 2 + VERSIONS, storage_options=options))
    read = lakefold.open(table.uri, storage_options=options)
    assert read.version == 3 + VERSIONS
    assert sorted(read.to_arrow()["id"].to_pylist()) == [*range(VERSIONS), 100, 101]


def test_a_table_of_pylance_is_opened_and_tailed(azurite: Azurite, container: str) -> None:
    options, uri = azurite.options, f"{container}/foreign"
    for number in range(VERSIONS):
        lance.write_dataset(
            rows([number]), uri, mode="append" if number else "create", storage_options=options
        )
    table = lakefold.open(uri, storage_options=options)
    assert table.count_rows() == VERSIONS
    assert len(list(table.history())) == VERSIONS
    seen = [
        row
        for change in lakefold.tail(uri, start="earliest", storage_options=options)
        for row in change.inserted()["id"].to_pylist()
    ]
    assert seen == list(range(VERSIONS))


def test_delta_rs_and_we_write_one_table_by_turns(azurite: Azurite, container: str) -> None:
    take_turns_with_delta_rs(ProposedTable(f"{container}/lake/flights", azurite.options))


def test_wrong_credentials_are_reported_with_the_location(azurite: Azurite, container: str) -> None:
    wrong = {**azurite.options, "azure_storage_account_key": "d3Jvbmc="}
    lance.write_dataset(rows([1]), f"{container}/t", storage_options=azurite.options)
    with pytest.raises(InvalidError, match=f"{container}/t") as raised:
        lakefold.open(f"{container}/t", storage_options=wrong)
    assert "credentials" in raised.value.hint
