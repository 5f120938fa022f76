"""Deletes and Updates carried over compactions, and compactions over them, by pylance's own operations.

pylance refuses these pairs, so it can't be asked for the result. Its operations are done on copies of one
version and folded in turn; then pylance reads the table, and the rows must be those of a plain
list.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import lance
import pytest

from lakefold_table.entry import Committed, Invalid, Rejected
from lakefold_table.lance.rows.row_order import EMPTIED, KEPT, ROW_ORDER
from lakefold_table.lance.rows.rowids import decode_row_ids, encode_row_ids
from lakefold_table.storage.local import LocalStorage
from lakefold_table.versions.versions import Versions
from tests.folding import FORMAT
from tests.oracle.committing import fold, owned
from tests.oracle.compactions import envelopes_of, rows
from tests.oracle.manifests import manifest_files
from tests.oracle.operations import copy_files, version_of
from tests.oracle.rebasing import built, send

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_table.entry import Result

Run: TypeAlias = "Callable[[lance.LanceDataset], object]"
ROWS, FIRST = 40, {number: number for number in range(40) if number % 4 != 1}
"""The rows that a new table has, `b` by `a`: ten in each of four fragments, some of them deleted."""
LINEAGE = ["_rowid", "_row_created_at_version"]
KINDS = ["plain", "deferred", "stable"]


@dataclass
class Stage:
    """A table, and what writers build on its versions. `kind` says how compactions treat indices."""

    path: Path
    kind: str
    offset: int = 0
    copies: int = 0
    lineage: dict[int, tuple[int, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        stable = self.kind == "stable"
        lance.write_dataset(rows(0, ROWS), str(self.path), max_rows_per_file=10, enable_stable_row_ids=stable)
        self.open().create_scalar_index("a", "BTREE")
        self.open().create_scalar_index("s", "BITMAP")
        self.open().delete("a % 4 = 1")
        self.writer = owned(self.path)
        if stable:
            self.lineage = self.lineage_now()

    def open(self) -> lance.LanceDataset:
        return lance.dataset(str(self.path))

    def restart(self) -> None:
        """Another committer goes on, which knows only what the versions say."""
        self.writer = owned(self.path)

    def compact(self, dataset: lance.LanceDataset, rows_per_fragment: int = 25) -> None:
        dataset.optimize.compact_files(
            target_rows_per_fragment=rows_per_fragment, defer_index_remap=self.kind == "deferred"
        )

    def build(self, act: Run) -> tuple[Envelope, Path]:
        """A Delete or an Update on the newest version, not sent yet."""
        self.copies += 1
        return built(self.path, act, f"built{self.copies}")

    def delete(self, where: str) -> tuple[Envelope, Path]:
        return self.build(lambda dataset: dataset.delete(where))

    def build_compaction(self, run: Run | None = None, *, says: bool = True) -> Envelope:
        """A Rewrite on the newest version; its ids are reserved. `says`: it states its order."""
        self.copies += 1
        copy = self.path.with_name(f"{self.path.name}-compacted{self.copies}")
        first = len(manifest_files(self.path))
        shutil.copytree(self.path, copy)
        (run or self.compact)(lance.dataset(str(copy)))
        copy_files(copy, self.path)
        *before, rewrite = envelopes_of(copy, self.path, first)
        for envelope in before:
            assert isinstance(self.fold(envelope), Committed)
        if says and self.kind == "plain":
            rewrite.lance.transaction_properties[ROW_ORDER] = KEPT
        return rewrite

    def send(self, sent: tuple[Envelope, Path]) -> Result:
        (envelope,) = send(self.path, sent)
        return self.fold(envelope)

    def fold(self, envelope: Envelope) -> Result:
        self.offset += 1
        (result,) = fold(self.writer, [envelope], self.offset)
        return result

    def lineage_now(self) -> dict[int, tuple[int, int]]:
        read = self.open().to_table(columns=["a", *LINEAGE]).to_pylist()
        return {row["a"]: (row["_rowid"], row["_row_created_at_version"]) for row in read}

    def check(self, expected: Mapping[int, int]) -> None:
        """The table has these rows however pylance looks for them, and each has its id and its version."""
        dataset = self.open()
        dataset.validate()
        values = dataset.to_table(columns=["a", "b"]).to_pylist()
        assert dict(sorted((row["a"], row["b"]) for row in values)) == dict(sorted(expected.items()))
        assert len(values) == dataset.count_rows() == len(expected)
        for number in range(ROWS):
            hits = dataset.to_table(columns=["a"], filter=f"a = {number}")["a"].to_pylist()
            assert hits == ([number] if number in expected else [])
        for text in ("s0", "s1", "s2"):
            hits = dataset.to_table(columns=["a"], filter=f"s = '{text}'")["a"].to_pylist()
            assert sorted(hits) == sorted(number for number in expected if f"s{number % 3}" == text)
        taken = dataset.take(list(range(len(expected))), columns=["a", "b"]).to_pylist()
        assert sorted((row["a"], row["b"]) for row in taken) == sorted(expected.items())
        if self.kind == "stable":
            now = self.lineage_now()
            assert now == {number: self.lineage[number] for number in expected}
            ids = dataset._take_rows([now[number][0] for number in expected], columns=["a"])
            assert ids["a"].to_pylist() == list(expected)


@pytest.fixture(params=KINDS)
def stage(tmp_path: Path, request: pytest.FixtureRequest) -> Stage:
    return Stage(tmp_path / "t", str(request.param))


@pytest.fixture
def plain(tmp_path: Path) -> Stage:
    return Stage(tmp_path / "t", "plain")


def without(*numbers: int) -> dict[int, int]:
    return {number: value for number, value in FIRST.items() if number not in numbers}


def updated(dataset: lance.LanceDataset) -> None:
    dataset.update({"b": "b + 100"}, where="a = 3 OR a = 18")


CHANGES: dict[str, tuple[Run, dict[int, int]]] = {
    "rows": (lambda dataset: dataset.delete("a = 3 OR a = 18"), without(3, 18)),
    "a fragment and rows": (lambda dataset: dataset.delete("a >= 10 AND a < 22"), without(*range(10, 22))),
    "all rows": (lambda dataset: dataset.delete("true"), {}),
    "an update": (updated, {**FIRST, 3: 103, 18: 118}),
}


def conflict(result: Result) -> str:
    assert isinstance(result, Rejected)
    assert result.conflict.retryable
    return result.conflict.message


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("others", ["pylance", "the log", "the log, then a restart"])
def test_a_change_is_carried_over_a_compaction(stage: Stage, name: str, others: str) -> None:
    act, expected = CHANGES[name]
    change = stage.build(act)
    if others == "pylance":
        stage.compact(stage.open())
    else:
        assert isinstance(stage.fold(stage.build_compaction()), Committed)
    if "restart" in others:
        stage.restart()
    result = stage.send(change)
    assert isinstance(result, Committed)
    assert result.rebased
    assert result.rows_deleted == len(FIRST) - sum(FIRST[key] == expected.get(key) for key in FIRST)
    stage.check(expected)


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("others", ["pylance", "the log"])
def test_a_compaction_is_carried_over_a_change(stage: Stage, name: str, others: str) -> None:
    act, expected = CHANGES[name]
    rewrite, change = stage.build_compaction(), stage.build(act)
    if others == "pylance":
        act(stage.open())
    else:
        assert isinstance(stage.send(change), Committed)
    result = stage.fold(rewrite)
    assert isinstance(result, Committed)
    assert (result.rows_added, result.rows_deleted) == (0, 0)
    stage.check(expected)
    left = {fragment.id for fragment in version_of(stage.path).manifest.fragments}
    assert not left & {0, 1, 2, 3}


@pytest.mark.parametrize("kind", ["plain", "stable"])
def test_a_change_is_carried_over_one_compaction_after_another(tmp_path: Path, kind: str) -> None:
    stage = Stage(tmp_path / "t", kind)
    first, second = stage.delete("a = 7 OR a = 23"), stage.delete("a = 8 OR a = 38")
    rewrite = stage.build_compaction(lambda dataset: stage.compact(dataset, 12))
    third = stage.delete("a = 3 OR a = 14")
    assert isinstance(stage.send(first), Committed)
    assert isinstance(stage.fold(rewrite), Committed)
    assert isinstance(
        stage.fold(stage.build_compaction(lambda dataset: stage.compact(dataset, 99))), Committed
    )
    assert len(stage.open().get_fragments()) == 1
    stage.restart()
    assert isinstance(stage.send(second), Committed)
    assert isinstance(stage.send(third), Committed)
    stage.check(without(7, 23, 8, 38, 3, 14))


def test_changes_of_a_group_are_carried_together(stage: Stage) -> None:
    changes = [stage.delete(f"a = {number}") for number in (3, 18, 26)]
    stage.compact(stage.open())
    envelopes = send(stage.path, *changes)
    results = fold(stage.writer, envelopes, 1)
    assert [type(result) for result in results] == [Committed] * 3
    assert {result.version for result in results if isinstance(result, Committed)} == {
        lance.dataset(str(stage.path)).version
    }
    stage.check(without(3, 18, 26))


def test_a_change_that_was_built_on_what_the_compaction_was_carried_over(stage: Stage) -> None:
    rewrite = stage.build_compaction()
    assert isinstance(stage.send(stage.delete("a = 3 OR a = 12")), Committed)
    rows_of_it, whole = stage.delete("a = 4 OR a = 14"), stage.delete("a >= 20 AND a < 31")
    for number in whole[0].lance.delete.deleted_fragment_ids:
        del whole[0].affected_rows[number]
    assert whole[0].affected_rows
    assert isinstance(stage.fold(rewrite), Committed)
    assert isinstance(stage.send(rows_of_it), Committed)
    assert isinstance(stage.send(whole), Committed)
    stage.check(without(3, 12, 4, 14, *range(20, 31)))


def test_a_removed_fragment_whose_rows_are_not_named(stage: Stage) -> None:
    """Rows of it that were deleted before the proposal was built are none of its own."""
    rewrite = stage.build_compaction()
    assert isinstance(stage.send(stage.delete("a = 22 OR a = 31")), Committed)
    whole = stage.delete("a >= 20 AND a < 31")
    removed = list(whole[0].lance.delete.deleted_fragment_ids)
    assert removed == [2]
    del whole[0].affected_rows[2]
    assert isinstance(stage.fold(rewrite), Committed)
    result = stage.send(whole)
    assert isinstance(result, Committed)
    assert result.rows_deleted == len([number for number in FIRST if 20 <= number < 31 and number != 22])
    stage.check(without(31, *range(20, 31)))


def test_a_row_that_both_deleted_is_named_by_its_old_address(stage: Stage) -> None:
    before, after, late = stage.delete("a = 7"), stage.delete("a = 12 OR a = 23"), stage.delete("a = 12")
    rewrite = stage.build_compaction()
    assert isinstance(stage.send(before), Committed)
    assert isinstance(stage.fold(rewrite), Committed)
    assert isinstance(stage.send(late), Committed)
    result = stage.send(after)
    assert "deleted or moved" in conflict(result)
    assert isinstance(result, Rejected)
    assert result.conflict.row_addresses == (1 << 32 | 2,)
    assert (result.conflict.other_operation, result.conflict.other_version) == (
        "delete",
        stage.open().version,
    )
    stage.check(without(7, 12))


def test_new_fragments_without_rows_keep_the_places_of_later_ones(stage: Stage) -> None:
    def narrow(dataset: lance.LanceDataset) -> None:
        dataset.optimize.compact_files(
            target_rows_per_fragment=12,
            max_rows_per_group=12,
            defer_index_remap=stage.kind == "deferred",
        )

    change, other = stage.delete("a = 26 OR a = 38"), stage.delete("a < 24")
    rewrite = stage.build_compaction(narrow)
    assert isinstance(stage.send(other), Committed)
    assert isinstance(stage.fold(rewrite), Committed)
    transaction = version_of(stage.path).transaction
    assert transaction is not None
    assert transaction.transaction_properties[EMPTIED]
    stage.restart()
    assert isinstance(stage.send(change), Committed)
    stage.check(without(*range(24), 26, 38))


def test_a_column_written_again_is_not_carried(stage: Stage) -> None:
    rewrite = stage.build_compaction()
    stage.open().merge_insert("a").when_matched_update_all().execute(rows(0, 3).select(["a", "b"]))
    assert "changed values" in conflict(stage.fold(rewrite))


def test_rows_must_be_named(plain: Stage) -> None:
    change = plain.delete("a = 3")
    change[0].affected_rows.clear()
    plain.compact(plain.open())
    assert "doesn't name its rows" in conflict(plain.send(change))


def test_a_rewrite_that_does_not_state_its_order_is_not_trusted(plain: Stage) -> None:
    change, unsaid = plain.delete("a = 3"), plain.build_compaction(says=False)
    assert isinstance(plain.send(plain.delete("a = 7")), Committed)
    assert "without saying that it keeps their order" in conflict(plain.fold(unsaid))
    again = plain.build_compaction(says=False)
    assert isinstance(plain.fold(again), Committed)
    assert "doesn't say that it kept their order" in conflict(plain.send(change))
    plain.check(without(7))


@pytest.mark.parametrize("states", [False, True])
def test_row_ids_show_another_order(tmp_path: Path, states: bool) -> None:  # noqa: FBT001 - a parameter of pytest
    stage = Stage(tmp_path / "t", "stable")
    rewrite, change = stage.build_compaction(), stage.delete("a = 3")
    fragment = rewrite.lance.rewrite.groups[0].new_fragments[0]
    ids = decode_row_ids(fragment.inline_row_ids, fragment.physical_rows)
    fragment.inline_row_ids = encode_row_ids(ids[::-1].copy())
    if states:
        rewrite.lance.transaction_properties[ROW_ORDER] = KEPT
        result = stage.fold(rewrite)
        assert isinstance(result, Invalid)
        assert "have another order" in result.message
        return
    assert isinstance(stage.send(stage.delete("a = 7")), Committed)
    assert "in another order" in conflict(stage.fold(rewrite))
    assert isinstance(stage.send(change), Committed)


def test_a_deletion_file_that_is_gone(stage: Stage) -> None:
    read = list((stage.path / "_deletions").iterdir())
    (envelope,) = send(stage.path, stage.delete("a = 3"))
    stage.compact(stage.open())
    for path in read:
        path.unlink()
    stage.restart()
    assert "that shows where to can't be read" in conflict(stage.fold(envelope))


def versions_of(path: Path) -> Versions:
    return Versions(LocalStorage(path), FORMAT.folder, FORMAT.detect)


class KilledError(Exception):
    """Stands for the end of a committer's process."""


@pytest.mark.parametrize("moment", ["before any file", "before the version", "before the report"])
@pytest.mark.parametrize("over", ["compaction", "delete"])
def test_a_committer_that_dies_while_it_carries(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, moment: str, over: str
) -> None:
    """The next committer folds the same entry again, and finds what the first has stored."""
    change, rewrite = stage.delete("a = 3 OR a = 18"), stage.build_compaction()
    if over == "compaction":
        assert isinstance(stage.fold(rewrite), Committed)
        (entry,) = send(stage.path, change)
    else:
        assert isinstance(stage.send(change), Committed)
        entry = rewrite
    publish, before = Versions._put_version, stage.open().version

    def die(*arguments: Any, **options: Any) -> object:  # noqa: ANN401 - passed on
        if moment == "before the report":
            publish(*arguments, **options)
        raise KilledError

    name = "_publish" if moment == "before any file" else "_put_version"
    with monkeypatch.context() as patch:
        patch.setattr(Versions, name, die)
        with pytest.raises(KilledError):
            stage.fold(entry)
    assert stage.open().version == before + (moment == "before the report")
    stage.check(without(3, 18) if over == "delete" or moment == "before the report" else FIRST)
    stage.restart()
    stage.offset -= 1
    result = stage.fold(entry)
    assert isinstance(result, Committed)
    assert result.version == before + 1
    stage.check(without(3, 18))


def test_compactions_that_overlap_conflict_and_others_do_not(plain: Stage) -> None:
    first = plain.build_compaction()
    second = plain.build_compaction()
    assert isinstance(plain.fold(first), Committed)
    result = plain.fold(second)
    assert "both change the same fragment" in conflict(result)
    assert isinstance(result, Rejected)
    assert result.conflict.fragment_ids == (0, 1, 2, 3)


@pytest.mark.parametrize("stable", [False, True])
def test_a_compaction_keeps_the_order_of_its_rows(tmp_path: Path, stable: bool) -> None:  # noqa: FBT001 - a parameter of pytest
    stage = Stage(tmp_path / "t", "stable" if stable else "plain")
    stage.open().delete("a = 3 OR a = 27")
    before = stage.open().to_table(columns=["a"], with_row_id=stable)
    stage.compact(stage.open(), 12)
    version = version_of(stage.path)
    assert version.manifest.writer_version.library == "lance"
    assert version.transaction is not None
    groups = version.transaction.rewrite.groups
    old = [fragment.id for group in groups for fragment in group.old_fragments]
    assert old == sorted(old)
    assert all(fragment.id for group in groups for fragment in group.new_fragments)
    assert stage.open().to_table(columns=["a"], with_row_id=stable) == before
