"""Versions that several entries share: to others pylance is no milder than with the parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import lance
import pytest

from lakefold_table.entry import Committed, Rejected
from lakefold_table.lance.merging import merged
from tests.oracle.committing import fold, owned
from tests.oracle.operations import version_of
from tests.oracle.pair_operations import operations
from tests.oracle.pairs import Base, committed, transaction_of
from tests.oracle.rebasing import built, send
from tests.oracle.test_deletes import everything, table_of, values
from tests.oracle.test_rebases import delete, merge, update

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_protos.lance.transaction_pb2 import Transaction
    from tests.oracle.operations import Act

RANK = {"compatible": 0, "retryable": 1, "incompatible": 2}


@pytest.fixture(scope="module", params=[False, True], ids=["addresses", "stable row ids"])
def base(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Base]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LANCE_ENABLE_UNSTABLE_DATA_OVERLAY_FILES", "1")
        yield Base(tmp_path_factory.mktemp("merged") / "t", stable=request.param)


SHARED = {
    "deletes": ["delete f0", "delete f1"],
    "deletes, one of all": ["delete all f0", "delete f1"],
    "updates": ["update f0", "update f1"],
}


def together(parts: list[Transaction]) -> Transaction:
    """The transaction of a version that these share, of which no two touch one fragment."""
    replaced = {
        one.id: one
        for part in parts
        for one in (*part.delete.updated_fragments, *part.update.updated_fragments)
    }
    return merged(parts, [], replaced)


@pytest.mark.parametrize("names", SHARED.values(), ids=SHARED)
def test_no_verdict_is_weaker_than_on_any_part(base: Base, names: list[str], tmp_path: Path) -> None:
    made = operations(base)
    parts = [transaction_of(base, made[name]) for name in names]
    whole = committed(base, tmp_path / "whole", together(parts))
    alone = [committed(base, tmp_path / f"{place}", part) for place, part in enumerate(parts)]
    for name, operation in made.items():
        verdict = whole.verdict_of_pylance(operation)
        worst = max((one.verdict_of_pylance(operation) for one in alone), key=RANK.__getitem__)
        assert (name, RANK[verdict]) >= (name, RANK[worst])


def test_nothing_stands_against_a_version_of_refusals(base: Base, tmp_path: Path) -> None:
    """A refused entry changes nothing, also not what becomes of others, whoever commits them."""
    refusals = committed(base, tmp_path / "refusals", together([]))
    for name, operation in operations(base).items():
        assert (name, refusals.verdict_of_pylance(operation)) == (name, "compatible")


def several(table: Path, *acts: Act) -> list[tuple[Envelope, Path]]:
    """What as many writers send who all opened the table as it is."""
    return [built(table, act, f"built-{place}") for place, act in enumerate(acts)]


@pytest.mark.parametrize("stable", [False, True], ids=["addresses", "stable"])
def test_deletes_in_one_version_come_to_what_pylance_makes_of_all(tmp_path: Path, *, stable: bool) -> None:
    table = table_of(tmp_path / "t", stable=stable, indices=True)
    wheres = ["a in (1, 11)", "a in (2, 12, 35)", "a >= 3 and a < 10", "a in (0, 30)", "a >= 20 and a < 30"]
    results = fold(owned(table), send(table, *several(table, *map(delete, wheres))), 0)
    assert [one.rows_deleted for one in results if isinstance(one, Committed)] == [2, 3, 7, 2, 10]
    gone = {0, 1, 2, *range(3, 10), 11, 12, 35, 30, *range(20, 30)}
    assert values(table) == [a for a in range(40) if a not in gone]
    assert values(table, "a >= 5 and a < 25") == [10, *range(13, 20)]
    assert version_of(table).manifest.version == 4
    update("a = 13")(lance_dataset(table))
    assert 13 in values(table)


def lance_dataset(table: Path) -> lance.LanceDataset:
    """The newest version."""
    return lance.dataset(str(table))


@pytest.mark.parametrize("stable", [False, True], ids=["addresses", "stable"])
def test_updates_in_one_version_come_to_what_pylance_makes_of_all(tmp_path: Path, *, stable: bool) -> None:
    table = table_of(tmp_path / "t", stable=stable, indices=True)
    acts = [update("a in (1, 11)", "one"), update("a in (2, 12, 35)", "two"), merge(3, 13, 100)]
    results = fold(owned(table), send(table, *several(table, *acts)), 0)
    assert all(isinstance(one, Committed) for one in results)
    theirs = table_of(tmp_path / "theirs", stable=stable, indices=True)
    for act in acts:
        act(lance_dataset(theirs))
    columns = ["a", "s", "_rowid", "_rowaddr"]
    assert values(table) == values(theirs)
    assert everything(table).select(columns) == everything(theirs).select(columns)
    assert version_of(table).manifest.version == version_of(theirs).manifest.version - 2
    assert values(table, "s in ('one', 'two', 'merged3')") == [1, 2, 3, 11, 12, 35]
    delete("a in (100, 35)")(lance_dataset(table))
    assert 100 not in values(table)


def test_of_those_that_take_one_row_the_first_does(tmp_path: Path) -> None:
    table = table_of(tmp_path / "t", stable=True)
    acts = [update("a in (1, 2)", "one"), update("a in (2, 3)", "two"), update("a = 4", "three")]
    first, second, third = fold(owned(table), send(table, *several(table, *acts)), 0)
    assert isinstance(first, Committed)
    assert isinstance(second, Rejected)
    assert second.conflict.row_addresses == (2,)
    assert isinstance(third, Committed)
    found = lance_dataset(table).to_table(filter="a in (1, 2, 3, 4)").sort_by("a")
    assert found["s"].to_pylist() == ["one", "one", "r3", "three"]


def test_a_foreign_rebase_goes_over_a_shared_version(tmp_path: Path) -> None:
    table = table_of(tmp_path / "t", stable=True)
    stale = lance_dataset(table)
    acts = [delete("a in (1, 2)"), delete("a in (3, 4)")]
    fold(owned(table), send(table, *several(table, *acts)), 0)
    delete("a in (5, 6)")(stale)
    assert values(table) == [0, *range(7, 40)]
