"""A table that has what readers stumble over, and what is done to it, with what a reader must get.

It has nested columns, columns added later, renamed and dropped, files of several versions, both kinds of
deletion files, and indices.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import lance
import pyarrow as pa
from lance import LanceOperation as Op
from lance.file import LanceFileWriter
from lance.fragment import DataFile

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.oracle.operations import Act

MANY = 6000
"""Rows of the first fragment: enough for a deletion file of the kind for many rows."""
FEW = 20


def rows(numbers: Sequence[int], text: str = "row") -> pa.Table:
    """Rows of these ids, with a struct and a list."""
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "text": [f"{text} {number}" for number in numbers],
            "s": [{"x": number, "y": f"y{number % 7}"} for number in numbers],
            "l": [[number, number + 1] if number % 3 else None for number in numbers],
        }
    )


def whole_rows(numbers: Sequence[int], text: str = "row") -> pa.Table:
    """The same with the columns that the table got later."""
    count = len(numbers)
    actual = rows(numbers, text).append_column("renamed", pa.array([5] * count, pa.int64()))
    return actual.append_column("empty", pa.nulls(count, pa.int32()))


def altered(path: str, **change: object) -> Any:  # noqa: ANN401 - a typed dictionary of pylance's
    return {"path": path, **change}


def made(path: Path, *, stable: bool) -> Path:
    """Fragments of 6000, 20, 20 and 10 rows; rows of the first three are deleted."""
    uri = str(path)
    lance.write_dataset(rows(range(MANY)), uri, enable_stable_row_ids=stable, data_storage_version="2.1")
    dataset = lance.write_dataset(
        rows(range(MANY, MANY + 2 * FEW)), uri, mode="append", max_rows_per_file=FEW
    )
    dataset.add_columns({"late": "id * 2", "gone": "id + 1"})
    dataset.add_columns(pa.schema([pa.field("empty", pa.int32())]))
    dataset.alter_columns(altered("late", name="renamed"))
    dataset.drop_columns(["gone"])
    added = whole_rows(range(MANY + 2 * FEW, MANY + 2 * FEW + 10))
    lance.write_dataset(added, uri, mode="append", data_storage_version="2.2")
    dataset = lance.dataset(uri)
    dataset.create_scalar_index("id", "BTREE")
    dataset.create_scalar_index("text", "BITMAP")
    dataset.delete(f"id >= 10 AND id < {MANY - 500}")
    dataset.delete(f"id IN (3, {MANY + 1}, {MANY + FEW + 2})")
    return path


def append(dataset: lance.LanceDataset) -> object:
    return lance.write_dataset(whole_rows([10_000, 10_001]), dataset, mode="append")


def upsert(numbers: Sequence[int], *, insert: bool = True, keep: bool = True) -> Act:
    def act(dataset: lance.LanceDataset) -> object:
        merge = dataset.merge_insert("id").when_matched_update_all()
        merge = merge.when_not_matched_insert_all() if insert else merge
        merge = merge if keep else merge.when_not_matched_by_source_delete(f"id >= {MANY + 30}")
        return merge.execute(whole_rows(numbers, "new"))

    return act


def upsert_text(dataset: lance.LanceDataset) -> object:
    new = pa.table({"id": pa.array([1, MANY + 5], pa.int64()), "text": ["new", "new"]})
    return dataset.merge_insert("id").when_matched_update_all().execute(new)


def restore(version: int) -> Act:
    return lambda dataset: lance.dataset(dataset.uri, version=version).restore()


def replace(dataset: lance.LanceDataset) -> object:
    values = pa.table({"empty": pa.array(range(FEW), pa.int32())})
    name = "replaced.lance"
    with LanceFileWriter(f"{dataset.uri}/data/{name}", values.schema, version="2.1") as writer:
        writer.write_batch(values)
    file = DataFile.create(dataset, name)
    operation = Op.DataReplacement([Op.DataReplacementGroup(1, file)])
    return lance.LanceDataset.commit(dataset.uri, operation, read_version=dataset.version)


def overwrite(dataset: lance.LanceDataset) -> object:
    over = pa.table({"id": pa.array([7, 8], pa.int64()), "text": ["over", "again"]})
    return lance.write_dataset(over, dataset.uri, mode="overwrite")


@dataclass(frozen=True)
class Done:
    """What is done, and what a reader gets of it.

    `inserted`: the ids of rows, or that they are known only if rows keep their ids.
    `only`: nothing else happened. `rows` and `files` came and went.
    """

    act: Act
    operation: str
    inserted: Sequence[int] | Literal["where stable"] = ()
    only: bool = False
    rows: tuple[int, int] = (0, 0)
    files: tuple[int, int] = (0, 0)


LEFT = 557
"""Rows of the table that operations are done to."""
ACTS = {
    "append": Done(append, "append", [10_000, 10_001], only=True, rows=(2, 0), files=(1, 0)),
    "delete": Done(lambda ds: ds.delete(f"id IN (1, {MANY + 3})"), "delete", rows=(0, 2)),
    "delete nothing": Done(lambda ds: ds.delete("id = -1"), "delete", only=True),
    "delete a fragment": Done(
        lambda ds: ds.delete(f"id >= {MANY} AND id < {MANY + FEW}"), "delete", rows=(0, FEW - 1), files=(0, 2)
    ),
    "delete many": Done(lambda ds: ds.delete(f"id < {MANY}"), "delete", rows=(0, 509), files=(0, 2)),
    "update": Done(
        lambda ds: ds.update({"text": "'x'"}, where="id = 2"),
        "update",
        "where stable",
        rows=(1, 1),
        files=(1, 0),
    ),
    "upsert": Done(upsert([2, MANY + 4, 20_000]), "update", "where stable", rows=(3, 2), files=(1, 0)),
    "upsert of known rows": Done(
        upsert([2, 4], insert=False), "update", "where stable", rows=(2, 2), files=(1, 0)
    ),
    "upsert of new rows": Done(
        upsert([20_000, 20_001]), "update", [20_000, 20_001], only=True, rows=(2, 0), files=(1, 0)
    ),
    "upsert that deletes": Done(
        upsert([2, 20_000], keep=False), "update", "where stable", rows=(2, 21), files=(1, 1)
    ),
    "upsert of a column": Done(upsert_text, "update", files=(2, 0)),
    "overwrite": Done(overwrite, "overwrite", [7, 8], rows=(2, LEFT), files=(1, 7)),
    "add a column": Done(lambda ds: ds.add_columns({"twice": "id * 2"}), "merge", files=(4, 0)),
    "add an empty column": Done(lambda ds: ds.add_columns(pa.schema([pa.field("n", pa.string())])), "merge"),
    "drop a column": Done(lambda ds: ds.drop_columns(["renamed"]), "project", files=(0, 3)),
    "drop a nested column": Done(lambda ds: ds.drop_columns(["s.x"]), "project"),
    "rename columns": Done(
        lambda ds: ds.alter_columns(altered("s.x", name="x2"), altered("renamed", name="again")),
        "project",
    ),
    "cast a column": Done(
        lambda ds: ds.alter_columns(altered("renamed", data_type=pa.int32())), "merge", files=(4, 3)
    ),
    "restore fewer columns": Done(restore(2), "restore", "where stable", rows=(5493, 10), files=(0, 4)),
    "restore deleted rows": Done(restore(9), "restore", "where stable", rows=(5493, 0)),
    "create an index": Done(lambda ds: ds.create_scalar_index("renamed", "BTREE"), "create_index", only=True),
    "compact, indices later": Done(
        lambda ds: ds.optimize.compact_files(defer_index_remap=not ds.has_stable_row_ids),
        "rewrite",
        only=True,
        files=(1, 7),
    ),
    "drop an index": Done(lambda ds: ds.drop_index("id_idx"), "create_index", only=True),
    "compact": Done(lambda ds: ds.optimize.compact_files(), "rewrite", only=True, files=(1, 7)),
    "replace a column": Done(replace, "data_replacement", files=(1, 0)),
    "set a key": Done(lambda ds: ds.update_config({"k": "v"}), "update_config", only=True),
    "set a field's key": Done(
        lambda ds: ds.update_field_metadata({"text": {"k": "v"}}), "update_config", only=True
    ),
    "add a root": Done(
        lambda ds: ds.add_bases([lance.DatasetBasePath("/elsewhere", "other")]), "update_bases", only=True
    ),
}
