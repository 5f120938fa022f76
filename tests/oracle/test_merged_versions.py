"""Versions that several entries share: to others pylance is not milder than with the parts."""

from __future__ import annotations

import shutil
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

import lance
import pytest

from lakefold_committer.tables.table_writer import TableWriter
from lakefold_table.entry import Committed, Rejected
from lakefold_table.lance.combine_transactions import combined
from lakefold_table.storage.local import LocalStorage
from lakefold_table.uri import local_path
from lakefold_table.versions.stored_table import StoredTable
from lakefold_table.versions.versions import Versions
from tests.folding import FORMAT, entries
from tests.oracle.committing import fold, owned, proposal, written
from tests.oracle.operations import version_of
from tests.oracle.pair_operations import KEYED, keyed, operations
from tests.oracle.pairs import Base, at_version_2, committed, transaction_of
from tests.oracle.rebasing import built, send
from tests.oracle.test_deletes import everything, rows_of, table_of, values
from tests.oracle.test_rebases import delete, merge, update

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    import pyarrow as pa

    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_protos.lance.transaction_pb2 import Transaction
    from lakefold_table.storage.base import Buffer, Put
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
    "an append and a delete": ["append", "delete f0"],
    "an append and a delete of all": ["append", "delete all f0"],
    "an append and an update": ["append", "update f1"],
    "a delete and an update": ["delete f0", "update f1"],
    "a delete of all and an update": ["delete all f0", "update f1"],
    "all three": ["append", "delete f0", "update f1"],
}


def together(parts: list[Transaction]) -> Transaction:
    """The transaction of a version that these share, of which no two touch one fragment."""
    replaced = {
        fragment.id: fragment
        for part in parts
        for fragment in (*part.delete.updated_fragments, *part.update.updated_fragments)
    }
    return combined(parts, [], replaced)


@pytest.mark.parametrize("names", SHARED.values(), ids=SHARED)
def test_no_verdict_is_weaker_than_on_any_part(base: Base, names: list[str], tmp_path: Path) -> None:
    made = operations(base)
    parts = [transaction_of(base, made[name]) for name in names]
    whole = committed(base, tmp_path / "whole", together(parts))
    alone = [committed(base, tmp_path / f"{index}", part) for index, part in enumerate(parts)]
    for name, operation in made.items():
        verdict = whole.verdict_of_pylance(operation)
        worst = max((theirs.verdict_of_pylance(operation) for theirs in alone), key=RANK.__getitem__)
        assert (name, RANK[verdict]) >= (name, RANK[worst])


@pytest.fixture(scope="module")
def keyed_base(tmp_path_factory: pytest.TempPathFactory) -> Base:
    """A table with a primary key: who inserts into it says which keys."""
    return Base(tmp_path_factory.mktemp("keyed") / "t", stable=False, schema=KEYED)


@pytest.mark.parametrize("names", SHARED.values(), ids=SHARED)
def test_nor_for_a_proposal_that_inserts_keys(
    base: Base, keyed_base: Base, names: list[str], tmp_path: Path
) -> None:
    made = operations(base)
    parts = [transaction_of(base, made[name]) for name in names]
    whole = committed(keyed_base, tmp_path / "whole", together(parts))
    alone = [committed(keyed_base, tmp_path / f"{index}", part) for index, part in enumerate(parts)]
    for inserted in ([500], [1, 500]):
        upsert = at_version_2(partial(insert_new, numbers=inserted))
        verdict = whole.verdict_of_pylance(upsert)
        assert RANK[verdict] >= max(RANK[theirs.verdict_of_pylance(upsert)] for theirs in alone)


def insert_new(dataset: lance.LanceDataset, numbers: list[int]) -> None:
    """Insert those of the rows whose keys aren't there."""
    builder = dataset.merge_insert("a").when_not_matched_insert_all().conflict_retries(0)
    builder.execute(keyed(numbers))


def test_nothing_conflicts_with_a_version_of_refusals(base: Base, tmp_path: Path) -> None:
    """A refused entry changes nothing, also not the answers to others, whichever client commits them."""
    refusals = committed(base, tmp_path / "refusals", together([]))
    for name, operation in operations(base).items():
        assert (name, refusals.verdict_of_pylance(operation)) == (name, "compatible")


def several(table: Path, *acts: Act) -> list[tuple[Envelope, Path]]:
    """What as many writers send who all opened the table as it is."""
    return [built(table, act, f"built-{index}") for index, act in enumerate(acts)]


@pytest.mark.parametrize("stable", [False, True], ids=["addresses", "stable"])
def test_deletes_in_one_version_come_to_what_pylance_makes_of_all(tmp_path: Path, *, stable: bool) -> None:
    table = table_of(tmp_path / "t", stable=stable, indices=True)
    wheres = ["a in (1, 11)", "a in (2, 12, 35)", "a >= 3 and a < 10", "a in (0, 30)", "a >= 20 and a < 30"]
    results = fold(owned(table), send(table, *several(table, *map(delete, wheres))), 0)
    assert [result.rows_deleted for result in results if isinstance(result, Committed)] == [2, 3, 7, 2, 10]
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
    assert all(isinstance(result, Committed) for result in results)
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


def test_the_first_of_those_that_change_one_row_succeeds(tmp_path: Path) -> None:
    table = table_of(tmp_path / "t", stable=True)
    acts = [update("a in (1, 2)", "one"), update("a in (2, 3)", "two"), update("a = 4", "three")]
    first, second, third = fold(owned(table), send(table, *several(table, *acts)), 0)
    assert isinstance(first, Committed)
    assert isinstance(second, Rejected)
    assert second.conflict.row_addresses == (2,)
    assert isinstance(third, Committed)
    actual = lance_dataset(table).to_table(filter="a in (1, 2, 3, 4)").sort_by("a")
    assert actual["s"].to_pylist() == ["one", "one", "r3", "three"]


def test_a_foreign_rebase_goes_over_a_shared_version(tmp_path: Path) -> None:
    table = table_of(tmp_path / "t", stable=True)
    stale = lance_dataset(table)
    acts = [delete("a in (1, 2)"), delete("a in (3, 4)")]
    fold(owned(table), send(table, *several(table, *acts)), 0)
    delete("a in (5, 6)")(stale)
    assert values(table) == [0, *range(7, 40)]


def append(*ids: int) -> Act:
    """Add these rows."""
    return lambda dataset: lance.write_dataset(rows_of(ids), dataset.uri, mode="append", max_rows_per_file=10)


def sent_append(table: Path, *ids: int, rows: Callable[[Sequence[int]], pa.Table] = rows_of) -> Envelope:
    """What a writer sends who adds these rows."""
    return proposal(table, written(table, rows(ids)), lance_dataset(table).version, f"append {ids}")


@pytest.mark.parametrize("stable", [False, True], ids=["addresses", "stable"])
def test_appends_deletes_and_updates_in_one_version_come_to_what_pylance_makes_of_all(
    tmp_path: Path, *, stable: bool
) -> None:
    """Rows of a fragment deleted by one and moved by others, a fragment that goes, appends in between."""
    table = table_of(tmp_path / "t", stable=stable, indices=True)
    changes = [delete("a in (1, 11)"), update("a in (2, 12, 35)", "two"), delete("a >= 20 and a < 30")]
    changes += [merge(3, 13, 100), delete("a in (10, 36)")]
    sent = send(table, *several(table, *changes))
    first, second = sent_append(table, 200, 201), sent_append(table, 300)
    results = fold(owned(table), [first, *sent[:3], second, *sent[3:]], 0)
    assert [result.version for result in results if isinstance(result, Committed)] == [4] * 7
    theirs = table_of(tmp_path / "theirs", stable=stable, indices=True)
    for act in (append(200, 201), *changes[:3], append(300), *changes[3:]):
        act(lance_dataset(theirs))
    assert version_of(table).manifest.version == 4
    transaction = version_of(table).transaction
    assert transaction is not None
    assert transaction.WhichOneof("operation") == "update"
    columns = ["a", "s", "_rowid", "_rowaddr"]
    assert values(table) == values(theirs)
    assert everything(table).select(columns) == everything(theirs).select(columns)
    for where in ("a in (2, 3, 11, 100, 200)", "s = 'two'"):
        assert values(table, where) == values(theirs, where)
    delete("a in (300, 35)")(lance_dataset(table))
    assert 300 not in values(table)


def test_a_foreign_rebase_goes_over_a_mixed_version(tmp_path: Path) -> None:
    table = table_of(tmp_path / "t", stable=True)
    stale = [lance_dataset(table) for _ in range(2)]
    sent = send(table, *several(table, delete("a in (1, 2)"), update("a in (3, 4)", "x")))
    results = fold(owned(table), [sent_append(table, 200), *sent], 0)
    assert all(isinstance(result, Committed) for result in results)
    delete("a in (5, 6)")(stale[0])
    append(400)(stale[1])
    assert values(table) == [0, 3, 4, *range(7, 40), 200, 400]


def test_beside_a_write_ahead_log_a_mixed_group_is_cut(tmp_path: Path) -> None:
    """However it was cut before: what can't share a version waits for the next, and is not refused."""
    table = logged(tmp_path / "t")
    act = delete("a in (1, 2)")
    first, second, last = (sent_append(table, number, rows=keyed) for number in (200, 201, 202))
    ours = owned(table)
    group = entries([first, second, *send(table, built(table, act)), last], 0)
    answered: list[list[int]] = []
    while group:
        outcomes = ours.fold(group).outcomes
        answered.append(
            [outcome.result.version for outcome in outcomes if isinstance(outcome.result, Committed)]
        )
        group = group[len(outcomes) :]
    assert answered == [[4, 4], [5], [6]]
    assert values(table) == [0, *range(3, 10), 200, 201, 202]


class Beginning(LocalStorage):
    """A disk on which another client begins a write-ahead log right before the next version is put."""

    begun = False

    def put_once_sure(self, path: str, buffers: Sequence[Buffer], sure: Callable[[], None]) -> Put:
        """See `Storage.put_once_sure`."""
        if path.endswith(".manifest") and not self.begun:
            self.begun = True
            lance.dataset(local_path(self.uri)).initialize_mem_wal(bucket_column="a", num_buckets=2)
        return super().put_once_sure(path, buffers, sure)


def test_a_log_that_begins_while_a_mixed_version_is_put_cuts_it(tmp_path: Path) -> None:
    """The put is lost; what was one group comes in two versions, and nothing of it is refused."""
    table = tmp_path / "t"
    lance.write_dataset(keyed(range(10)), str(table))
    first, last = (sent_append(table, number, rows=keyed) for number in (200, 201))
    group = entries([first, last, *send(table, built(table, delete("a in (1, 2)")))], 0)
    storage = Beginning(table)
    ours = TableWriter(StoredTable(FORMAT, Versions(storage, FORMAT.folder, FORMAT.detect)))
    outcomes = ours.fold(group).outcomes
    assert [outcome.result.version for outcome in outcomes if isinstance(outcome.result, Committed)] == [3, 3]
    (outcome,) = ours.fold(group[2:]).outcomes
    assert isinstance(outcome.result, Committed)
    assert (outcome.result.version, outcome.result.rebased) == (4, True)
    assert values(table) == [0, *range(3, 10), 200, 201]


def logged(path: Path) -> Path:
    """A table of ten rows and a write-ahead log, at version 3."""
    lance.write_dataset(keyed(range(10)), str(path)).initialize_mem_wal(bucket_column="a", num_buckets=2)
    lance.dataset(str(path)).create_scalar_index("a", "BTREE")
    return path


def test_segments_that_a_later_entry_leaves_idle_go(tmp_path: Path) -> None:
    """The first Delete of the version finds nothing idle, the second takes all that a segment covers."""
    table = table_of(tmp_path / "t", indices=True)
    append(*range(100, 110))(lance_dataset(table))
    lance_dataset(table).optimize.optimize_indices(num_indices_to_merge=0)
    assert segments(table) == {"a_idx": 2, "s_idx": 2}
    acts = [delete("a in (1, 2)"), delete("a >= 100"), delete("a = 3")]
    theirs = tmp_path / "theirs"
    shutil.copytree(table, theirs)
    results = fold(owned(table), send(table, *several(table, *acts)), 0)
    assert all(isinstance(result, Committed) for result in results)
    for act in acts:
        act(lance_dataset(theirs))
    assert segments(table) == segments(theirs) == {"a_idx": 1, "s_idx": 1}
    assert values(table, "a > 30") == list(range(31, 40))


def segments(table: Path) -> Counter[str]:
    """How many entries each index has."""
    return Counter(index.name for index in version_of(table).indices.indices)
