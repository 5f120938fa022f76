"""An upsert whose keys are divided between tasks changes the same rows as one that has them all."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import lance
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lakefold_ingest.merge.batch_keys import BadKeysError
from lakefold_ingest.merge.clauses import MatchedDelete, MatchedUpdate, Merge, NotMatchedInsert
from lakefold_ingest.merge.lance import format as lance_format
from lakefold_ingest.operations.keyed_parts import KeyedParts
from lakefold_ingest.operations.upsert import UpsertRows
from lakefold_table.errors import InvalidError
from tests.merging import Folding, people, row_ids

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lakefold_ingest.operations.keyed_parts import MergedPart, MergeTask

TASKS = 3
MERGES = {
    "upsert": Merge(("id",)),
    "update": Merge(("id",), clauses=(MatchedUpdate(["n"], "source.id > 5"),)),
    "delete": Merge(("id",), clauses=(MatchedDelete(),)),
    "all": Merge(
        ("id",),
        clauses=(MatchedDelete("target.n = 30"), MatchedUpdate(), NotMatchedInsert("source.id < 105")),
    ),
}


@pytest.fixture(params=[False, True], ids=["addresses", "stable"])
def folding(tmp_path: Path, request: pytest.FixtureRequest) -> Folding:
    """40 rows in fragments of 10."""
    data = people(list(range(40)))
    lance.write_dataset(data, str(tmp_path / "t"), max_rows_per_file=10, enable_stable_row_ids=request.param)
    return Folding(tmp_path / "t")


def in_tasks(rows: pa.Table, merge: Merge, part_of: Callable[[int], int] = lambda n: n % TASKS) -> KeyedParts:
    parts = pa.array([part_of(number) for number in rows["id"].to_pylist()])

    def run(task: MergeTask) -> list[MergedPart]:
        return [task.run(rows.filter(pc.equal(parts, number))) for number in range(TASKS)]

    return KeyedParts(UpsertRows(rows.schema.empty_table(), merge), run)


@pytest.mark.parametrize("merge", MERGES.values(), ids=MERGES)
@pytest.mark.parametrize("ids", [[3, 4, 15, *range(100, 110)], list(range(9, 21)), [100], [3]], ids=len)
def test_tasks_change_what_one_writer_changes(folding: Folding, merge: Merge, ids: list[int]) -> None:
    alone = Folding(folding.path.with_name("alone"))
    shutil.copytree(folding.path, alone.path)
    before, batch = row_ids(folding.path), people(ids, "second")
    done, expected = folding.put(in_tasks(batch, merge)), alone.put(UpsertRows(batch, merge))
    assert folding.rows() == alone.rows()
    if done is None or expected is None:
        assert done is expected
        return
    assert (done.rows_added, done.rows_deleted) == (expected.rows_added, expected.rows_deleted)
    if lance.dataset(str(folding.path)).has_stable_row_ids:
        assert {key: n for key, n in row_ids(folding.path).items() if key in before}.items() <= before.items()


def test_upserts_in_tasks_name_all_keys_that_they_insert(folding: Folding) -> None:
    first = folding.build(in_tasks(people([100, 101, 102, 3]), Merge(("id",))))
    other = folding.build(UpsertRows(people([200, 101]), Merge(("id",))))
    assert first is not None
    assert other is not None
    assert len(first.lance.update.inserted_rows.exact.key_hashes) == 3
    folding.fold(other)
    assert folding.refused(first).conflict.field_ids == (0,)


def test_a_task_with_bad_keys_fails_the_batch_and_leaves_no_files(folding: Folding) -> None:
    files = set((folding.path / "data").iterdir())
    bad = in_tasks(people([100, 101, 102, 101, 104, 104]), Merge(("id",)))
    with pytest.raises(BadKeysError, match=r"id=10[14]") as caught:
        folding.build(bad)
    assert (caught.value.rows, caught.value.columns) == (4, ("id",))
    assert set((folding.path / "data").iterdir()) == files


def test_tasks_that_share_a_key_are_an_error(folding: Folding) -> None:
    files, parts = set((folding.path / "data").iterdir()), iter(range(TASKS))
    shared = in_tasks(people([3, 3]), Merge(("id",), clauses=(MatchedUpdate(),)), lambda _: next(parts))
    with pytest.raises(InvalidError, match="rows of fragment 0 have a key that two parts of the batch had"):
        folding.build(shared)
    assert set((folding.path / "data").iterdir()) == files


def test_a_task_with_another_release_of_pylance_writes_nothing(
    folding: Folding, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such an executor may be added while a query runs."""
    files = set((folding.path / "data").iterdir())
    monkeypatch.setattr(lance_format, "pylance_release", lambda: "1.2.3")
    with pytest.raises(InvalidError, match=r"has pylance .*, but the driver has 1\.2\.3"):
        folding.build(in_tasks(people([3, 100]), Merge(("id",))))
    assert set((folding.path / "data").iterdir()) == files
