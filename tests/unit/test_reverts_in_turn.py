"""Undoing batches of which others were undone before: each table is what it would be without all of them.

Promise: a-revert-is-exact (docs/operations/promises.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import lance
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from lakefold_ingest.operations.append import append_source
from lakefold_ingest.operations.delete import DeleteWhere
from lakefold_ingest.operations.overwrite import OverwriteRows
from lakefold_ingest.proposals.key import Key
from lakefold_ingest.revert.conflicts import RevertConflictError
from lakefold_ingest.rows.row_source import RowSource
from lakefold_maintenance.rewriting.compact import Compaction
from lakefold_maintenance.rewriting.survey import Surveyor
from lakefold_reader.formats import open_source
from lakefold_table.entry import Committed, Duplicate
from lakefold_table.errors import PreconditionError
from tests.delta_merging import DeltaFolding
from tests.reverting import KINDS, Tables, words

if TYPE_CHECKING:
    from pathlib import Path

    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_table.entry import Outcome

FOR_OTHERS = pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "delta-tracked"])
"""Without the tables that delta-rs can't write."""
EACH_KIND = pytest.mark.parametrize("kind", KINDS)
ADDER, REMOVER = (("adder", 1),), (("remover", 1),)


@pytest.fixture
def made(tmp_path: Path, kind: str) -> Tables:
    """A table with a row."""
    table = Tables.made(kind, tmp_path / "t")
    table.append(words(100))
    return table


def ids(made: Tables) -> list[object]:
    """The ids of the rows."""
    return [row[0] for row in made.rows()]


def restored_by_others(made: Tables, version: int) -> int:
    """Restores a version as pylance or delta-rs does; returns the new one."""
    path = str(made.batches.path)
    if isinstance(made.batches, DeltaFolding):
        DeltaTable(path).restore(version)
    else:
        lance.dataset(path, version=version).restore()
    return made.version


def is_undone(made: Tables) -> bool:
    """Whether a repetition of the batch of `ADDER` is answered as one that was undone."""
    repetition = made.batches.build(append_source(RowSource(words(1))), Key("adder", 1))
    assert repetition is not None
    (answer,) = made.batches.fold(repetition)
    assert isinstance(answer, Duplicate)
    return bool(answer.rolled_back_by)


def overwrite(made: Tables, rows: pa.Table) -> int:
    """Replaces all rows and columns as pylance or delta-rs does; returns the version."""
    path = str(made.batches.path)
    if isinstance(made.batches, DeltaFolding):
        write_deltalake(path, rows, mode="overwrite", schema_mode="overwrite")
    else:
        lance.write_dataset(rows, path, mode="overwrite")
    return made.version


@EACH_KIND
@pytest.mark.parametrize("added", [(1, 2, 3), (1, 2)], ids=["some stay", "none stays"])
def test_rows_of_an_undone_batch_stay_away_if_their_deletion_is_undone(
    made: Tables, added: tuple[int, ...]
) -> None:
    made.append(words(*added), Key("adder", 1))
    made.delete("id in (1, 2)", Key("remover", 1))
    made.revert(batches=ADDER)
    made.compact()
    made.revert(batches=REMOVER)
    assert ids(made) == [100]
    with pytest.raises(PreconditionError, match="adder:1 was undone before"):
        made.revert(batches=ADDER)


@EACH_KIND
def test_rows_that_an_undone_update_had_changed_come_back_as_they_were_before_both(made: Tables) -> None:
    made.append(words(1, 2))
    made.upsert(words(1, 2, 3, word="second"), Key("adder", 1))
    made.upsert(words(1, 3, word="third"), Key("remover", 1))
    made.revert(batches=ADDER, keep_later=True, keys=("id",))
    made.revert(batches=REMOVER, keys=("id",))
    assert made.rows() == sorted(((n, f"first {n}") for n in (1, 2, 100)), key=repr)


@EACH_KIND
def test_a_revert_that_a_later_one_was_built_on_is_not_undone_alone(made: Tables) -> None:
    made.append(words(1, 2, 3), Key("adder", 1))
    made.delete("id in (1, 2)", Key("remover", 1))
    first = made.revert(batches=ADDER)
    second = made.revert(batches=REMOVER)
    with pytest.raises(
        PreconditionError, match=f"version {second} was built on the revert in version {first}"
    ):
        made.revert(version=first)
    made.revert(version=second)
    made.revert(version=first)
    assert ids(made) == [100, 3]


@FOR_OTHERS
def test_rows_that_an_undone_delete_of_another_client_brought_back_go_with_their_batch(made: Tables) -> None:
    made.append(words(1, 2), Key("adder", 1))
    path = str(made.batches.path)
    if isinstance(made.batches, DeltaFolding):
        DeltaTable(path).delete("id = 1")
    else:
        lance.dataset(path).delete("id = 1")
    foreign = made.version
    made.revert(version=foreign)
    assert ids(made) == [1, 100, 2]
    with pytest.raises(PreconditionError, match=f"version {foreign} was undone before"):
        made.revert(version=foreign)
    made.compact()
    made.revert(batches=ADDER)
    assert ids(made) == [100]


@pytest.mark.parametrize("kind", ["lance", "lance-ids", "delta-vectors", "delta-tracked"])
def test_rows_that_one_of_two_deletes_in_a_version_had_removed_go_with_their_batch(made: Tables) -> None:
    made.append(words(1, 2, 3, 4), Key("adder", 1))
    view, settings = made.batches.view(), made.batches.settings()
    deletes = [DeleteWhere(f"id = {n}").build(view, Key("remover", n), settings) for n in (1, 2)]
    results = made.batches.fold(*(each for each in deletes if each is not None))
    assert [result.version for result in results if isinstance(result, Committed)] == [made.version] * 2
    made.revert(batches=REMOVER)
    assert ids(made) == [1, 100, 3, 4]
    made.revert(batches=ADDER)
    assert ids(made) == [100]


@FOR_OTHERS
def test_a_batch_whose_rows_are_back_after_an_overwrite_was_undone_can_be_undone(made: Tables) -> None:
    made.append(words(1), Key("adder", 1))
    made.revert(version=overwrite(made, words(50)))
    assert ids(made) == [1, 100]
    made.revert(batches=ADDER)
    assert ids(made) == [100]


@EACH_KIND
def test_a_batch_whose_rows_are_back_after_a_restore_was_undone_can_be_undone(made: Tables) -> None:
    before = made.version
    made.append(words(1, 2), Key("adder", 1))
    made.revert(version=made.restore(before))
    assert ids(made) == [1, 100, 2]
    made.revert(batches=ADDER)
    assert ids(made) == [100]


@FOR_OTHERS
def test_rows_don_t_come_back_without_columns_that_went_with_them(made: Tables) -> None:
    version = overwrite(made, pa.table({"other": ["x"]}))
    with pytest.raises(PreconditionError, match=rf"version {version} dropped the columns id, word"):
        made.revert(version=version)


@pytest.mark.parametrize("kind", ["delta", "delta-vectors"])
def test_rows_are_followed_after_a_restore_of_a_compacted_file(made: Tables) -> None:
    made.append(words(1, 2), Key("adder", 1))
    made.compact()
    made.append(words(3), Key("adder", 2))
    restored = made.version
    made.compact()
    for number in range(4):
        made.append(words(70 + number))
    made.restore(restored)
    made.append(words(8), Key("adder", 3))
    made.compact()
    for number in (2, 3, 1):
        made.revert(batches=(("adder", number),))
    assert ids(made) == [100]


def later_keys(made: Tables) -> None:
    """Row 5 is changed and row 4 inserted by a batch that is undone, and row 4 is inserted again."""
    made.append(words(5))
    made.upsert(words(4, 5, word="adder"), Key("adder", 1))
    made.revert(batches=ADDER)
    made.upsert(words(4, word="later"), Key("later", 1))


@EACH_KIND
def test_a_key_that_is_there_again_is_a_conflict_of_an_undone_revert(made: Tables) -> None:
    later_keys(made)
    reverted = made.version - 1
    with pytest.raises(RevertConflictError, match=r"id=4 of version \d+: inserted again by"):
        made.revert(version=reverted)
    made.revert(version=reverted, keep_later=True)
    assert made.rows() == [(100, "first 100"), (4, "later 4"), (5, "adder 5")]


@EACH_KIND
def test_a_batch_and_the_overwrite_behind_it_are_undone_together(made: Tables) -> None:
    made.append(words(1), Key("adder", 1))
    view, settings = made.batches.view(), made.batches.settings()
    envelope = OverwriteRows(RowSource(words(50)), None, settings).build(view, Key("remover", 1), settings)
    assert envelope is not None
    made.batches.fold(envelope)
    assert ids(made) == [50]
    made.revert(batches=(*ADDER, *REMOVER))
    assert ids(made) == [100]


@EACH_KIND
@pytest.mark.parametrize("updates", [False, True], ids=["delete", "upsert"])
def test_rows_that_were_undone_and_had_again_stay_away_as_well(made: Tables, *, updates: bool) -> None:
    made.append(words(1, 2, 3), Key("adder", 1))
    made.revert(version=made.revert(batches=ADDER))
    if updates:
        made.upsert(words(1, 2, word="second"), Key("remover", 1))
    else:
        made.delete("id in (1, 2)", Key("remover", 1))
    made.revert(batches=ADDER, keep_later=True)
    made.revert(batches=REMOVER, keys=("id",))
    assert ids(made) == [100]


@EACH_KIND
def test_a_row_that_stayed_away_for_a_later_one_comes_back_if_that_is_undone(made: Tables) -> None:
    made.append(words(1, 2))
    made.delete("id in (1, 2)", Key("remover", 1))
    made.upsert(words(1, word="later"), Key("later", 1))
    made.revert(batches=REMOVER, keep_later=True, keys=("id",))
    assert made.rows() == [(1, "later 1"), (100, "first 100"), (2, "first 2")]
    made.revert(batches=(("later", 1),), keys=("id",))
    assert made.rows() == [(1, "first 1"), (100, "first 100"), (2, "first 2")]


@EACH_KIND
def test_an_overwrite_is_not_undone_before_what_was_had_again_behind_it(made: Tables) -> None:
    made.append(words(1), Key("adder", 1))
    reverted = made.revert(batches=ADDER)
    view, settings = made.batches.view(), made.batches.settings()
    envelope = OverwriteRows(RowSource(words(50)), None, settings).build(view, Key("remover", 1), settings)
    assert envelope is not None
    made.batches.fold(envelope)
    again = made.revert(version=reverted)
    with pytest.raises(PreconditionError, match=f"version {again} left rows away"):
        made.revert(batches=REMOVER)
    made.revert(version=again)
    made.revert(batches=REMOVER)
    assert ids(made) == [100]


@EACH_KIND
def test_of_two_rows_with_a_key_that_come_back_the_older_one_stays_away(made: Tables) -> None:
    made.append(words(1))
    made.delete("id = 1", Key("remover", 1))
    made.upsert(words(1, word="second"), Key("inserter", 1))
    made.upsert(words(1, word="third"), Key("later", 1))
    both = (*REMOVER, ("later", 1))
    with pytest.raises(RevertConflictError, match=r"id=1 of version \d+: inserted again by inserter:1"):
        made.revert(batches=both, keys=("id",))
    made.revert(batches=both, keys=("id",), keep_later=True)
    assert made.rows() == [(1, "second 1"), (100, "first 100")]
    made.revert(version=made.version)
    made.revert(batches=both, keys=("id",), with_dependents=True)
    assert made.rows() == [(1, "first 1"), (100, "first 100")]


@pytest.mark.parametrize("kind", ["lance", "lance-ids", "delta-vectors", "delta-tracked"])
def test_rows_are_followed_through_an_undone_delete_beside_an_entry_that_is_undone(made: Tables) -> None:
    made.append(words(1, 2), Key("adder", 1))
    view, settings = made.batches.view(), made.batches.settings()
    beside = append_source(RowSource(words(3))).build(view, Key("beside", 1), settings)
    delete = DeleteWhere("id = 1").build(view, Key("remover", 1), settings)
    assert beside is not None
    assert delete is not None
    made.batches.fold(beside, delete)
    made.revert(batches=REMOVER)
    made.upsert(words(1, word="later"), Key("later", 1))
    made.revert(batches=(*ADDER, ("beside", 1)), with_dependents=True)
    assert ids(made) == [100]


@EACH_KIND
def test_a_revert_that_is_had_again_counts_as_before(made: Tables) -> None:
    made.append(words(1, 2), Key("adder", 1))
    made.upsert(words(1, word="second"), Key("changer", 1))
    first = made.revert(batches=(("changer", 1),))
    made.revert(version=made.revert(version=first))
    with pytest.raises(PreconditionError, match=rf"changer:1 was undone before, in version {first}"):
        made.revert(batches=(("changer", 1),))
    made.revert(batches=ADDER)
    assert ids(made) == [100]


@EACH_KIND
def test_a_revert_can_be_undone_as_often_as_it_is_had_again(made: Tables) -> None:
    made.append(words(1), Key("adder", 1))
    first = second = third = made.revert(batches=ADDER)
    for _ in range(2):
        second = made.revert(version=first)
        assert ids(made) == [1, 100]
        third = made.revert(version=second)
        assert ids(made) == [100]
    made.revert(version=first)
    assert ids(made) == [1, 100]
    with pytest.raises(PreconditionError, match=f"was undone before, in version {third}"):
        made.revert(version=second)


@EACH_KIND
def test_a_restore_that_is_undone_leaves_the_reverts_behind_it_standing(made: Tables) -> None:
    made.append(words(1), Key("adder", 1))
    added = made.version
    made.delete("id = 1", Key("remover", 1))
    made.revert(batches=ADDER)
    made.revert(version=made.restore(added))
    made.revert(batches=REMOVER)
    assert ids(made) == [100]


def test_what_a_revert_was_undone_for_is_asked_before_that_is_undone(tmp_path: Path) -> None:
    """A batch counts again since its revert was undone, and rows of it came back with a later one."""
    made = Tables.made("lance", tmp_path / "t")
    made.append(words(1, 2), Key("adder", 1))
    made.delete("id = 1", Key("remover", 1))
    again = made.revert(version=made.revert(batches=ADDER))
    back = made.revert(batches=REMOVER)
    with pytest.raises(PreconditionError, match=f"version {back} was built on the revert in version {again}"):
        made.revert(version=again)
    made.revert(version=back)
    made.revert(version=again)
    assert ids(made) == []
    made.revert(batches=REMOVER)
    assert ids(made) == []


def kept_away(made: Tables) -> int:
    """A row stays away for a later one when its delete is undone; returns that version."""
    made.append(words(1), Key("adder", 1))
    made.delete("id = 1", Key("remover", 1))
    made.upsert(words(1, word="later"), Key("later", 1))
    kept = made.revert(batches=REMOVER, keep_later=True, keys=("id",))
    made.revert(batches=(("later", 1),), keys=("id",))
    assert ids(made) == [1, 100]
    return kept


@EACH_KIND
def test_a_row_that_came_back_later_goes_with_its_batch(made: Tables) -> None:
    kept_away(made)
    made.revert(batches=ADDER)
    assert ids(made) == [100]


@EACH_KIND
def test_a_revert_whose_row_came_back_later_is_not_undone_alone(made: Tables) -> None:
    kept = kept_away(made)
    with pytest.raises(PreconditionError, match=f"was built on the revert in version {kept}"):
        made.revert(version=kept, keys=("id",))


@EACH_KIND
def test_a_revert_is_not_undone_but_for_rows_that_an_older_batch_lost_since(made: Tables) -> None:
    made.append(words(1))
    made.upsert(words(1, word="second"), Key("adder", 1))
    made.upsert(words(1, word="third"), Key("later", 1))
    first = made.revert(batches=(("later", 1),))
    second = made.revert(batches=ADDER)
    with pytest.raises(PreconditionError, match=f"changed by the reverts in versions {second}"):
        made.revert(version=first, keep_later=True)
    made.revert(version=first, with_dependents=True)
    assert made.rows() == [(1, "third 1"), (100, "first 100")]


@EACH_KIND
def test_batches_that_are_undone_as_dependents_are_marked(made: Tables) -> None:
    made.append(words(1, 2))
    made.upsert(words(1, 2, word="second"), Key("adder", 1))
    made.upsert(words(1, word="third"), Key("dependent", 1))
    made.revert(batches=ADDER, with_dependents=True)
    assert made.rows() == [(1, "first 1"), (100, "first 100"), (2, "first 2")]
    folded = made.batches.view().folded(Key("dependent", 1))
    assert folded is not None
    assert folded.rolled_back_by == made.version
    with pytest.raises(PreconditionError, match="dependent:1 was undone before"):
        made.revert(batches=(("dependent", 1),))


@EACH_KIND
def test_what_changes_no_row_is_undone_as_often_as_it_is_had_again(made: Tables) -> None:
    made.append(words(1), Key("adder", 1))
    made.delete("id = 1")
    for _ in range(2):
        made.revert(version=made.revert(batches=ADDER))
    assert ids(made) == [100]


class _Waiting:
    """A log in which proposals of a compaction wait."""

    def __init__(self) -> None:
        self.envelopes: list[Envelope] = []

    def ask(self, envelope: Envelope) -> Outcome:
        self.envelopes.append(envelope)
        raise InterruptedError

    def close(self) -> None:
        """Closes nothing."""


@pytest.mark.parametrize("kind", ["delta", "delta-vectors"])
def test_rows_that_a_compaction_in_the_same_version_moved_are_not_the_batch_s(made: Tables) -> None:
    made.append(words(1, 2))
    log = _Waiting()
    surveyor = Surveyor(open_source(str(made.batches.path), format_name="delta"))
    with pytest.raises(InterruptedError):
        Compaction(surveyor, lambda _: log).run(full=True)
    view, settings = made.batches.view(), made.batches.settings()
    batch = append_source(RowSource(words(3, 4))).build(view, Key("adder", 1), settings)
    assert batch is not None
    results = made.batches.fold(batch, *log.envelopes)
    assert [result.version for result in results if isinstance(result, Committed)] == [made.version] * 2
    made.revert(batches=ADDER)
    assert ids(made) == [1, 100, 2]


@EACH_KIND
def test_a_batch_counts_as_undone_while_reverts_of_reverts_leave_it_out(made: Tables) -> None:
    """Else a repetition is dropped though its rows are gone, or added beside them."""
    made.append(words(1), Key("adder", 1))
    first = version = made.revert(batches=ADDER)
    for turn in range(4):
        assert is_undone(made) == (turn % 2 == 0)
        assert (1 in ids(made)) == (turn % 2 == 1)
        version = made.revert(version=version)
    made.revert(version=first)
    assert not is_undone(made)
    assert 1 in ids(made)


@EACH_KIND
def test_a_batch_counts_as_undone_again_when_a_restore_that_had_it_back_is_undone(made: Tables) -> None:
    """The first revert is in force then, and undoing it has the batch again."""
    added = made.append(words(1), Key("adder", 1))
    first = made.revert(batches=ADDER)
    restore = made.restore(added)
    assert not is_undone(made)
    made.revert(version=restore)
    assert is_undone(made)
    assert 1 not in ids(made)
    made.revert(version=first)
    assert not is_undone(made)
    assert 1 in ids(made)


@EACH_KIND
def test_a_batch_is_back_when_the_restore_of_a_version_without_it_is_undone(made: Tables) -> None:
    """That version's marks say that another version left the batch out."""
    before = made.version
    made.append(words(1), Key("adder", 1))
    first = made.restore(before)
    made.revert(version=first)
    made.revert(version=made.restore(first))
    assert not is_undone(made)
    assert 1 in ids(made)


@FOR_OTHERS
def test_a_batch_is_back_when_a_restore_of_another_client_is_undone(made: Tables) -> None:
    """Such a version has no keys."""
    before = made.version
    made.append(words(1), Key("adder", 1))
    restore = restored_by_others(made, before)
    assert is_undone(made)
    made.revert(version=restore)
    assert not is_undone(made)
    assert 1 in ids(made)


@EACH_KIND
def test_a_batch_goes_whose_row_came_back_in_place_of_an_equal_one(made: Tables) -> None:
    """The row that the revert brought back is the batch's, not the one that the revert took out."""
    made.append(words(1, 2), Key("adder", 1))
    changed = made.upsert(words(1, word="other"))
    made.upsert(words(1))
    made.revert(version=changed, with_dependents=True)
    assert ids(made) == [1, 100, 2]
    made.revert(batches=ADDER)
    assert ids(made) == [100]


@EACH_KIND
def test_a_restore_is_not_undone_under_a_revert_that_would_have_been_refused(made: Tables) -> None:
    made.upsert(words(7, 8, word="first"), Key("a", 1))
    undone = made.revert(batches=(("a", 1),), keys=("id",))
    later = made.upsert(words(8, word="later"), Key("a", 2))
    had_again = made.revert(version=undone, keep_later=True, keys=("id",))
    restore = made.restore(later)
    last = made.revert(batches=(("a", 2),), keys=("id",))
    with pytest.raises(
        PreconditionError, match=f"version {last} was built on the revert in version {had_again}"
    ):
        made.revert(version=restore, with_dependents=True, keys=("id",))
    made.revert(version=last)
    made.revert(version=restore, keys=("id",))
    assert set(ids(made)) == {7, 8, 100}
