"""Undoing single batches: their rows go, what they removed comes back, everything else stays.

Promise: a-revert-is-exact (docs/operations/promises.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import lance
import pyarrow as pa
import pytest
from deltalake import DeltaTable

import lakefold
from lakefold_ingest.merge.delta import deletions
from lakefold_ingest.operations.append import append_source
from lakefold_ingest.operations.delete import DeleteWhere
from lakefold_ingest.proposals.key import Key
from lakefold_ingest.revert.conflicts import RevertConflictError
from lakefold_ingest.rows.row_source import RowSource
from lakefold_reader.formats import open_source
from lakefold_reader.snapshot.history import UndoneBatches
from lakefold_table.entry import Committed, Duplicate
from lakefold_table.errors import InvalidError, PreconditionError, VersionExpiredError
from tests.delta_merging import FEED, VECTORS
from tests.merging import row_ids
from tests.reverting import KINDS, SCHEMA, DeltaBatches, LanceBatches, Tables, words

if TYPE_CHECKING:
    from pathlib import Path

    from lakefold_ingest.writing.operation import Operation
    from lakefold_table.entry import Result

EACH_KIND = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture
def made(tmp_path: Path, kind: str) -> Tables:
    """A table with ten rows in two files."""
    table = Tables.made(kind, tmp_path / "t")
    table.append(words(0, 1, 2, 3, 4))
    table.append(words(5, 6, 7, 8, 9))
    return table


def rows(*ids: int, word: str = "first") -> list[tuple[object, ...]]:
    return in_order([(n, f"{word} {n}") for n in ids])


def in_order(some: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
    return sorted(some, key=repr)


@EACH_KIND
def test_rows_that_were_appended_go(made: Tables) -> None:
    made.append(words(20, 21, word="bad"), Key("loader", 7))
    made.append(words(30))
    made.revert(batches=(("loader", 7),))
    assert made.rows() == rows(*range(10), 30)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "delta-feed"])
def test_columns_with_names_of_the_change_feed_are_no_obstacle(tmp_path: Path, kind: str) -> None:
    schema = SCHEMA.append(pa.field("_change_type", pa.string()))
    table = Tables.made(kind, tmp_path / "t", schema)
    plain = words(0, 1).append_column("_change_type", pa.array(["a", "b"]))
    table.append(plain)
    table.upsert(plain.set_column(2, "_change_type", pa.array(["bad", "bad"])), Key("loader", 7))
    table.delete("id = 1", Key("loader", 8))
    table.revert(batches=(("loader", 7), ("loader", 8)))
    assert table.rows() == [(0, "first 0", "a"), (1, "first 1", "b")]


@EACH_KIND
def test_they_go_after_compactions_as_well(made: Tables) -> None:
    made.append(words(20, 21, word="bad"), Key("loader", 7))
    made.delete("id = 20")
    made.compact()
    made.append(words(30))
    made.delete("id = 3")
    made.compact()
    made.append(words(31))
    made.revert(batches=(("loader", 7),))
    assert made.rows() == rows(0, 1, 2, *range(4, 10), 30, 31)


@EACH_KIND
def test_rows_that_were_deleted_come_back(made: Tables) -> None:
    made.delete("id > 3 and id < 8", Key("loader", 7))
    made.append(words(30))
    made.compact()
    made.revert(batches=(("loader", 7),))
    assert made.rows() == rows(*range(10), 30)


@EACH_KIND
def test_rows_that_were_updated_get_their_earlier_values(made: Tables) -> None:
    made.upsert(words(3, 4, 5, 40, word="bad"), Key("loader", 7))
    made.upsert(words(6, word="good"))
    made.compact()
    made.delete("id = 7")
    made.revert(batches=(("loader", 7),))
    assert made.rows() == in_order([*rows(0, 1, 2, 3, 4, 5, 8, 9), *rows(6, word="good")])


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "delta-tracked"])
def test_compactions_of_others_are_followed(made: Tables) -> None:
    made.upsert(words(3, 4, 40, word="bad"), Key("loader", 7))
    made.compact_by_others()
    made.append(words(30))
    made.compact_by_others()
    made.revert(batches=(("loader", 7),))
    assert made.rows() == rows(*range(10), 30)


def conflicts(table: Tables, **request: object) -> list[str]:
    """The conflicts of undoing what the request names, which is refused."""
    operation = table.operation(**request)
    with pytest.raises(RevertConflictError) as refused:
        table.batches.build(operation)
    return [f"{each.row}: {each.change} by {each.later_entry}" for each in refused.value.conflicts]


@EACH_KIND
def test_rows_that_were_changed_later_are_named_and_refused(made: Tables) -> None:
    made.upsert(words(3, 4, 40, word="bad"), Key("loader", 7))
    made.upsert(words(4, word="good"), Key("other", 1))
    made.compact()
    named = (("loader", 7),)
    assert conflicts(made, batches=named, keys=("id",)) == ["id=4: changed by other:1"]
    made.revert(batches=named, keep_later=True)
    assert made.rows() == in_order([*rows(*(n for n in range(10) if n != 4)), *rows(4, word="good")])


@EACH_KIND
def test_what_was_built_on_the_rows_goes_too(made: Tables) -> None:
    made.upsert(words(3, 4, 40, word="bad"), Key("loader", 7))
    made.upsert(words(4, 8, word="other"), Key("other", 1))
    made.upsert(words(8, word="third"), Key("third", 1))
    made.append(words(50))
    made.revert(batches=(("loader", 7),), with_dependents=True)
    assert made.rows() == rows(*range(10), 50)


@EACH_KIND
def test_a_row_that_was_only_added_and_deleted_later_is_no_conflict(made: Tables) -> None:
    made.append(words(20, 21, word="bad"), Key("loader", 7))
    made.delete("id = 20")
    made.revert(batches=(("loader", 7),))
    assert made.rows() == rows(*range(10))


@EACH_KIND
def test_an_updated_row_that_was_deleted_later_is_a_conflict(made: Tables) -> None:
    made.upsert(words(3, 4, word="bad"), Key("loader", 7))
    made.delete("id = 4", Key("gdpr", 1))
    named = (("loader", 7),)
    assert conflicts(made, batches=named, keys=("id",)) == ["id=4: deleted by gdpr:1"]
    made.revert(batches=named, keep_later=True)
    assert made.rows() == rows(*(n for n in range(10) if n != 4))


@EACH_KIND
def test_a_deleted_row_whose_key_was_inserted_again_is_a_conflict(made: Tables) -> None:
    made.delete("id = 4 or id = 5", Key("loader", 7))
    made.upsert(words(4, 60, word="again"), Key("other", 1))
    named = (("loader", 7),)
    assert conflicts(made, batches=named, keys=("id",)) == ["id=4: inserted again by other:1"]
    made.revert(batches=named, keys=("id",), keep_later=True)
    expected = [*rows(*(n for n in range(10) if n != 4)), *rows(4, 60, word="again")]
    assert made.rows() == in_order(expected)


@EACH_KIND
def test_all_batches_of_a_chain_are_undone_together(made: Tables) -> None:
    made.upsert(words(3, 20, word="one"), Key("loader", 7))
    made.upsert(words(3, 20, word="two"), Key("loader", 8))
    made.compact()
    made.delete("id = 20", Key("loader", 9))
    made.revert(batches=(("loader", 7), ("loader", 8), ("loader", 9)))
    assert made.rows() == rows(*range(10))


@EACH_KIND
def test_a_version_that_changed_only_columns_names_what_changes_them_back(made: Tables) -> None:
    evolved = made.evolve()
    with pytest.raises(
        PreconditionError, match="changed columns and no row: id, word became id, word, more"
    ) as raised:
        made.revert(version=evolved)
    assert "lakefold alter" in raised.value.hint
    assert made.version == evolved


@EACH_KIND
def test_a_revert_is_undone_by_its_version(made: Tables) -> None:
    made.upsert(words(3, 20, word="one"), Key("loader", 7))
    before = made.rows()
    version = made.revert(batches=(("loader", 7),))
    assert made.rows() == rows(*range(10))
    made.revert(version=version)
    assert made.rows() == before


@EACH_KIND
def test_a_restore_in_between_counts(made: Tables) -> None:
    """What it brought back is followed; what it took back isn't undone again."""
    made.append(words(20, 21, word="bad"), Key("loader", 7))
    version = made.version
    made.delete("id >= 20")
    made.append(words(30), Key("loader", 8))
    made.restore(version)
    made.compact()
    assert made.operation(batches=(("loader", 7),)).planned(made.batches.view(), {})[1].removed.size == 2
    made.revert(batches=(("loader", 7),))
    assert made.rows() == rows(*range(10))


@EACH_KIND
def test_a_batch_that_was_undone_says_so(made: Tables) -> None:
    """So does a committer that was started again, and one that folds the batch once more."""
    key = Key("loader", 7)
    made.append(words(20, 21, word="bad"), key)
    made.append(words(22, word="bad"), Key("loader", 8))
    version = made.revert(batches=(("loader", 7), ("loader", 8)))
    again = made.batches.build(append_source(RowSource(words(20))), key)
    assert again is not None
    (result,) = made.batches.fold(again)
    assert isinstance(result, Duplicate)
    assert result.rolled_back_by == version
    with pytest.raises(PreconditionError, match=rf"loader:7 was undone before, in version {version}"):
        made.revert(batches=(("loader", 7),))
    marks = lakefold.open(made.batches.path).marks
    assert marks is not None
    assert marks.apps["loader"].rolled_back == ((7, 8, version),)
    undone = {row.version: row.undone for row in lakefold.open(made.batches.path).history() if row.undone}
    assert undone == {
        version - 2: (UndoneBatches("loader", 7, 7, version),),
        version - 1: (UndoneBatches("loader", 8, 8, version),),
    }
    undoing = made.revert(version=version)
    assert made.rows() == in_order([*rows(*range(10)), *rows(20, 21, 22, word="bad")])
    undone_later = [each for row in lakefold.open(made.batches.path).history() for each in row.undone]
    assert [(each.app_id, each.by) for each in undone_later] == [("app", undoing)]
    made.revert(batches=(("loader", 7),))
    assert made.rows() == in_order([*rows(*range(10)), *rows(22, word="bad")])


@EACH_KIND
def test_a_later_change_that_was_undone_is_no_conflict(made: Tables) -> None:
    made.upsert(words(3, 20, word="bad"), Key("loader", 7))
    made.upsert(words(3, word="other"), Key("other", 1))
    made.revert(batches=(("other", 1),))
    made.compact()
    made.revert(batches=(("loader", 7),))
    assert made.rows() == rows(*range(10))


@EACH_KIND
def test_entries_that_share_a_version_are_undone_apart(made: Tables) -> None:
    """By the log, if several of them removed rows."""
    view, settings = made.batches.view(), made.batches.settings()
    operations: list[Operation] = [
        DeleteWhere("id = 1"),
        DeleteWhere("id = 6"),
        append_source(RowSource(words(30))),
    ]
    built = [each.build(view, Key("shared", number), settings) for number, each in enumerate(operations)]
    results = made.batches.fold(*(each for each in built if each is not None))
    # An append shares no version with entries that have change data files.
    versions = {result.version for result in results[:2] if isinstance(result, Committed)}
    assert len(results) == len(operations)
    assert len(versions) == 1
    made.compact()
    made.revert(batches=(("shared", 1),))
    assert made.rows() == in_order([*rows(*(n for n in range(10) if n != 1)), *rows(30)])
    made.log.by_position.clear()
    with pytest.raises(PreconditionError, match="entries share version"):
        made.revert(batches=(("shared", 0),))


@EACH_KIND
def test_what_cannot_be_undone_is_named(made: Tables) -> None:
    key = Key("loader", 7)
    made.append(words(20), key)
    for request, expected in (
        ({"batches": (("loader", 8),)}, "the batch loader:8 was not folded into this table"),
        ({"version": 99}, "version 99 does not exist"),
        ({}, "name what is to be undone in one way"),
        ({"batches": (("loader", 7),), "version": 3}, "name what is to be undone in one way"),
        ({"version": 3, "keep_later": True, "with_dependents": True}, "either stay as they are, or"),
    ):
        with pytest.raises(InvalidError, match=expected):
            made.revert(**request)


@EACH_KIND
def test_a_version_that_was_cleaned_up_is_named(made: Tables) -> None:
    made.append(words(20), Key("loader", 7))
    version = made.version
    made.append(words(30))
    made.append(words(31))
    source = open_source(str(made.batches.path), format_name=made.kind.partition("-")[0])
    for number in range(version):
        source.storage.delete(source.versions.path(number))
    with pytest.raises(
        VersionExpiredError, match=rf"loader:7 can't be undone: version {version - 1} was cleaned up"
    ):
        made.revert(batches=(("loader", 7),))


@EACH_KIND
def test_rows_come_back_in_the_columns_of_now(made: Tables) -> None:
    made.delete("id = 3", Key("loader", 7))
    made.evolve()
    made.append(words(30).append_column("more", [["x"]]))
    made.revert(batches=(("loader", 7),))
    assert made.rows() == in_order([*((n, f"first {n}", None) for n in range(10)), (30, "first 30", "x")])


@EACH_KIND
def test_it_is_planned_again_if_others_changed_the_rows_meanwhile(made: Tables) -> None:
    made.upsert(words(3, 4, word="bad"), Key("loader", 7))
    operation = made.operation(batches=(("loader", 7),))
    envelope = made.batches.build(operation)
    made.compact()
    made.upsert(words(4, word="good"))
    made.batches.refused(envelope)
    with pytest.raises(RevertConflictError):
        made.batches.build(operation)


def test_row_ids_are_kept_by_rows_that_get_their_earlier_values(tmp_path: Path) -> None:
    made = Tables.made("lance-ids", tmp_path / "t")
    made.append(words(0, 1, 2))
    before = row_ids(made.batches.path)
    made.upsert(words(1, 2, word="bad"), Key("loader", 7))
    made.revert(batches=(("loader", 7),))
    assert made.rows() == rows(0, 1, 2)
    assert row_ids(made.batches.path) == before


@pytest.mark.parametrize("kind", ["lance", "lance-ids"])
def test_values_that_a_later_client_wrote_in_place_are_a_conflict(made: Tables) -> None:
    made.append(words(20, 21, word="bad"), Key("loader", 7))
    dataset = lance.dataset(str(made.batches.path))
    dataset.update({"word": "'changed'"}, where="id = 20")
    named = (("loader", 7),)
    (conflict,) = conflicts(made, batches=named)
    assert ": changed by " in conflict
    made.revert(batches=named, keep_later=True)
    assert made.rows() == in_order([*rows(*range(10)), (20, "changed")])


@pytest.mark.parametrize("kind", ["lance", "lance-ids"])
def test_columns_that_a_later_client_wrote_in_place_are_a_conflict(made: Tables) -> None:
    """Rows of the fragment that it left alone are none, and neither are columns that were added."""
    made.append(words(20, 21, 22, word="bad"), Key("loader", 7))
    made.evolve()
    some = pa.table({"id": [20], "word": ["changed"]}, schema=SCHEMA)
    dataset = lance.dataset(str(made.batches.path))
    dataset.merge_insert("id").when_matched_update_all().execute(some)
    named = (("loader", 7),)
    (conflict,) = conflicts(made, batches=named, keys=("id",))
    assert conflict == "id=20: changed by "
    made.revert(batches=named, keep_later=True)
    expected = [(n, f"first {n}", None) for n in range(10)]
    assert made.rows() == in_order([*expected, (20, "changed", None)])


def test_an_update_of_another_client_that_says_no_keys_is_not_guessed(tmp_path: Path) -> None:
    made = Tables.made("delta", tmp_path / "t")
    made.append(words(0, 1, 2))
    DeltaTable(str(made.batches.path)).update({"word": "'bad'"}, predicate="id > 0")
    version = made.version
    made.delete("id = 2")
    assert conflicts(made, version=version)
    with pytest.raises(
        PreconditionError, match="which removed rows of version 2 were changed later isn't known"
    ):
        made.revert(version=version, keep_later=True)
    made.revert(version=version, with_dependents=True)
    assert made.rows() == rows(0, 1, 2)


def test_a_branch_has_its_own_batches(tmp_path: Path) -> None:
    main = Tables.made("lance", tmp_path / "t")
    main.append(words(0, 1), Key("loader", 7))
    lance.dataset(str(main.batches.path)).create_branch("audit")
    batches = LanceBatches(main.batches.path / "tree" / "audit", offset=main.batches.offset)
    branch = Tables(batches, "lance", batches.log)
    branch.append(words(2), Key("loader", 8))
    with pytest.raises(InvalidError, match="the batch loader:8 was not folded into this table"):
        main.revert(batches=(("loader", 8),))
    branch.revert(batches=(("loader", 8),))
    assert sorted(lakefold.open(batches.path).to_arrow()["id"].to_pylist()) == [0, 1]


def test_a_new_branch_can_undo_what_led_to_its_first_version(tmp_path: Path) -> None:
    main = Tables.made("lance", tmp_path / "t")
    main.append(words(0, 1), Key("loader", 7))
    main.append(words(2), Key("loader", 8))
    main.compact()
    lance.dataset(str(main.batches.path)).create_branch("audit")
    batches = LanceBatches(main.batches.path / "tree" / "audit", offset=main.batches.offset)
    main.append(words(3), Key("loader", 9))
    main.revert(batches=(("loader", 8),))
    branch = Tables(batches, "lance", main.log)
    with pytest.raises(InvalidError, match="the batch loader:9 was not folded into this table"):
        branch.revert(batches=(("loader", 9),))
    branch.revert(batches=(("loader", 8),))
    assert sorted(lakefold.open(batches.path).to_arrow()["id"].to_pylist()) == [0, 1]
    assert sorted(lakefold.open(main.batches.path).to_arrow()["id"].to_pylist()) == [0, 1, 3]
    with pytest.raises(InvalidError, match="older than what was written to the branch"):
        branch.revert(version=2)


@EACH_KIND
def test_a_corrected_batch_is_added_under_its_key_if_that_is_asked_for(made: Tables) -> None:
    """It is added once, and can be undone as the first one was."""
    key = Key("loader", 7)
    made.append(words(20, word="bad"), key)
    made.append(words(21), Key("loader", 8))
    made.revert(batches=(("loader", 7),))

    def sent(*, again: bool) -> Result:
        envelope = made.batches.build(append_source(RowSource(words(20, 22))), key)
        assert envelope is not None
        envelope.after_revert = again
        (result,) = made.batches.fold(envelope)
        return result

    assert isinstance(sent(again=False), Duplicate)
    first = sent(again=True)
    assert isinstance(first, Committed)
    assert sent(again=True) == Duplicate(first.version)
    assert made.rows() == rows(*range(10), 20, 21, 22)
    made.revert(batches=(("loader", 7),))
    assert made.rows() == rows(*range(10), 21)


@EACH_KIND
def test_a_batch_is_found_of_which_the_marks_know_no_version(made: Tables) -> None:
    """The marks know the versions of the newest 16 batches of an app."""
    for number in range(20):
        made.append(words(100 + number), Key("loader", number))
    made.revert(batches=(("loader", 1), ("loader", 19)))
    assert made.rows() == rows(*range(10), 100, *range(102, 119))


def test_entries_are_named_by_positions(tmp_path: Path) -> None:
    made = Tables.made("lance", tmp_path / "t")
    made.append(words(1))
    first = made.batches.offset
    made.append(words(2))
    made.upsert(words(1, 3, word="bad"))
    made.append(words(4))
    with pytest.raises(InvalidError, match="are not among those that were folded"):
        made.revert(positions=(first, first + 90))
    made.revert(positions=(first, first + 1))
    assert made.rows() == rows(1, 4)


@pytest.mark.parametrize("properties", [{}, VECTORS, FEED], ids=["copies", "vectors", "feed"])
def test_partitions_of_delta_tables_are_kept(tmp_path: Path, properties: dict[str, str]) -> None:
    batches = DeltaBatches(tmp_path / "t")
    batches.create(SCHEMA, properties, partition_by=("word",))
    made = Tables(batches, "delta", batches.log)
    made.append(words(1, 2, 3, word="a"))
    made.append(words(4, 5, word="b"))
    made.upsert(words(2, 4, 6, word="bad"), Key("loader", 7))
    made.delete("id = 1", Key("loader", 8))
    made.compact()
    made.revert(batches=(("loader", 7),))
    assert made.rows() == in_order([*rows(2, 3, word="a"), *rows(4, 5, word="b")])
    made.revert(batches=(("loader", 8),))
    assert made.rows() == in_order([*rows(1, 2, 3, word="a"), *rows(4, 5, word="b")])


@EACH_KIND
def test_a_key_that_others_insert_meanwhile_refuses_the_rows_that_come_back(made: Tables) -> None:
    made.delete("id = 4", Key("loader", 7))
    operation = made.operation(batches=(("loader", 7),), keys=("id",))
    envelope = made.batches.build(operation)
    version = made.upsert(words(4, word="again"))
    made.batches.refused(envelope)
    with pytest.raises(RevertConflictError, match="inserted again"):
        made.batches.build(operation)
    other = made.batches.build(made.operation(version=version))
    made.append(words(50))
    assert other is not None
    assert isinstance(made.batches.fold(other)[0], Committed)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "delta-tracked"])
def test_equal_rows_of_several_batches_are_undone_each_once(made: Tables) -> None:
    """As of a job that ran twice, with other keys."""
    for number in range(3):
        made.append(words(20, 21), Key("loader", number))
    made.compact_by_others()
    made.delete("id = 3")
    made.compact_by_others()
    made.revert(batches=(("loader", 0), ("loader", 2)))
    assert made.rows() == rows(0, 1, 2, *range(4, 10), 20, 21)


@EACH_KIND
def test_batches_are_undone_one_after_another(made: Tables) -> None:
    for number in range(3):
        made.append(words(20 + number, 30 + number), Key("loader", number))
    made.compact()
    for number in (1, 0, 2):
        made.revert(batches=(("loader", number),))
    assert made.rows() == rows(*range(10))


@EACH_KIND
@pytest.mark.parametrize("says_copies", [True, False])
def test_equal_rows_are_undone_one_after_another_or_it_is_refused(
    made: Tables, monkeypatch: pytest.MonkeyPatch, *, says_copies: bool
) -> None:
    """If a writer doesn't say which rows it copied, nothing shows which of equal rows the first has left."""
    if not says_copies:
        monkeypatch.setattr(deletions, "with_copied_rows", lambda written, _: written)
    for number in range(3):
        made.append(words(20, 21), Key("loader", number))
    made.compact()
    made.revert(batches=(("loader", 0),))
    if made.kind in {"delta", "delta-feed"} and not says_copies:
        assert len(conflicts(made, batches=(("loader", 2),))) == 2
        return
    made.revert(batches=(("loader", 2),))
    assert made.rows() == rows(*range(10), 20, 21)
