"""A table that is dropped at each store call of a clean-up and made anew keeps its files, or is not dropped.

All versions of the new table have names of those that the clean-up removes. Promise: dropped-by-a-version
(docs/operations/promises.md).
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from typing import TYPE_CHECKING

import lance
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from lakefold.cli import run
from lakefold_reader.versions.listing import numbers_of
from lakefold_table.errors import LakefoldError, PreconditionError
from lakefold_table.storage.local import LocalStorage
from lakefold_table.versions.version_removals import FOLDER, VersionRemovals
from tests.oracle.test_refs_while_cleaning import MOST, At, Died, cleaned, die, is_killed_at, opened, tables

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["tables"]
ROWS, SMALL = [0, 1, 2, 3, 4], [7, 8, 9]
REFUSED = 3


@pytest.fixture(scope="module")
def unbound(tables: Path) -> Path:
    """The same tables, which follow no log, and smaller ones."""
    assert run(["detach", str(tables / "lance"), "--unanswered"]) == 0
    for number in SMALL:
        lance.write_dataset(pa.table({"id": [number]}), str(tables / "small lance"), mode="append")
        write_deltalake(tables / "small delta", pa.table({"id": [number]}), mode="append")
    return tables


def dropped(table: Path) -> bool:
    code = run(["drop", str(table), "--yes"])
    assert code in {0, REFUSED}
    return not code


def made_anew(table: Path, small: Path) -> bool:
    """Drops the table and makes a small one at its place. Returns False if it is not dropped."""
    if not dropped(table):
        return False
    shutil.copytree(small, table)
    return True


def rows(table: Path) -> list[int]:
    """As other clients read them."""
    if (table / "_versions").exists():
        dataset = lance.dataset(str(table))
        dataset.validate()
        return sorted(dataset.to_table()["id"].to_pylist())
    return sorted(DeltaTable(table).to_pyarrow_table()["id"].to_pylist())


@pytest.mark.parametrize("table_format", ["lance", "delta"])
def test_a_table_that_is_made_anew_at_each_call_of_a_clean_up_is_whole(
    unbound: Path, tmp_path: Path, table_format: str
) -> None:
    results, small = list[bool](), unbound / f"small {table_format}"
    for number in range(1, MOST):
        table = tmp_path / str(number) / "t"
        shutil.copytree(unbound / table_format, table)
        with pytest.MonkeyPatch.context() as patched:
            at = At(patched, number, lambda table=table: results.append(made_anew(table, small)))  # type: ignore[misc]
            # It may notice that the table is another one.
            with suppress(LakefoldError):
                cleaned(table)
        if at.left > 0:
            break
        assert rows(table) == (SMALL if results[-1] else ROWS)
        shutil.rmtree(table.parent)
    assert {*results} == {True, False}


@pytest.mark.parametrize("table_format", ["lance", "delta"])
def test_a_table_is_dropped_once_what_a_killed_clean_up_has_begun_is_ended(
    unbound: Path, tmp_path: Path, table_format: str
) -> None:
    results = list[bool]()
    for number in range(1, MOST):
        table = tmp_path / str(number) / "t"
        shutil.copytree(unbound / table_format, table)
        if not is_killed_at(table, number):
            break
        begun = VersionRemovals(LocalStorage(table)).begun("") & {*numbers_of(opened(table))}
        results.append(dropped(table))
        assert results[-1] is not bool(begun)
        if begun:
            cleaned(table)
            assert dropped(table)
        shutil.rmtree(table.parent)
    assert {*results} == {True, False}


@pytest.mark.parametrize("table_format", ["lance", "delta"])
def test_no_clean_up_begins_on_a_table_that_is_being_dropped(
    unbound: Path, tmp_path: Path, table_format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "t"
    shutil.copytree(unbound / table_format, table)
    with monkeypatch.context() as patched:
        patched.setattr("lakefold.binding.drop_table.remove", die)
        with pytest.raises((Died, TypeError)):
            dropped(table)
    before = numbers_of(opened(table))
    with pytest.raises(PreconditionError, match="is being dropped"):
        cleaned(table)
    assert numbers_of(opened(table)) == before
    assert LocalStorage(table).names(FOLDER) == []
    assert dropped(table)
