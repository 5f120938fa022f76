"""After any history of a table, each version reads as pylance reads it: schema, rows, counts, ids.

Tables of random columns go through random changes by pylance: every version of data files, with and without
row ids for life, with columns added, dropped, renamed and cast, deletions as arrays and bitmaps, updates,
compactions, indices, clones and branches.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any, Literal

import lance
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakefold
from lakefold_reader.lance.scan.scan import LEGACY
from lakefold_table.errors import DamagedError, InvalidError
from tests.oracle.arrays import rows
from tests.oracle.test_rows_of_files import COLUMNS, SIMPLEST

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lakefold_reader.snapshot.snapshot import Table

ID = pa.field("id", pa.int64(), nullable=False)
FileVersion = Literal["legacy", "2.0", "2.1", "2.2", "2.3"]
VERSIONS: list[FileVersion] = ["legacy", "2.0", "2.1", "2.2", "2.3"]
RICH = {"2.2", "2.3"}
"""Versions of data files that can hold every kind of column."""
MANY = 6000
"""Enough deleted rows of a fragment for a bitmap."""


@dataclass
class History:
    """A table under change. `line`: the location of the branch or clone that is changed."""

    uri: str
    line: str
    schema: pa.Schema
    random: Random

    @property
    def dataset(self) -> Any:  # noqa: ANN401 - pylance is published without types
        """The newest version."""
        return lance.dataset(self.line)

    def more(self, count: int) -> pa.Table:
        """Rows of the schema that the table began with."""
        return rows(self.schema, count, self.random.randrange(100))

    def named(self) -> str:
        """A column other than the id, if the table has another."""
        names: list[str] = self.dataset.schema.names
        return self.random.choice(names[1:] or ["none"])


def append(history: History) -> None:
    if history.dataset.schema.names == history.schema.names:
        lance.write_dataset(history.more(30), history.line, mode="append", max_rows_per_file=20)


def delete(history: History) -> None:
    history.dataset.delete(f"id % {history.random.randrange(2, 6)} = 0")


def update(history: History) -> None:
    history.dataset.update({"id": "id + 1"}, where=f"id % {history.random.randrange(2, 6)} = 1")


def add_column(history: History) -> None:
    name = f"added {history.dataset.version}"
    history.dataset.add_columns({name: "id * 2"})


def add_nulls(history: History) -> None:
    history.dataset.add_columns([pa.field(f"null.{history.dataset.version}", pa.list_(pa.int8()))])


def drop_column(history: History) -> None:
    if len(history.dataset.schema.names) > 2:
        history.dataset.drop_columns([history.named()])


def rename(history: History) -> None:
    history.dataset.alter_columns({"path": history.named(), "name": f"renamed{history.dataset.version}"})


def cast_id(history: History) -> None:
    history.dataset.alter_columns({"path": "id", "data_type": pa.int32()})


def rewrite_id(history: History) -> None:
    """New values of a column in a file of their own; the old file is listed no more (-2).

    An update of legacy files after that ends pylance's process (tried).
    """
    if history.dataset.data_storage_version == LEGACY:
        return
    first = history.dataset.get_fragments()[0]
    actual = first.to_table(columns=["id"], with_row_id=True).slice(1, 3)
    kind = actual.schema.field("id").type
    values = pa.array([history.random.randrange(99) for _ in range(actual.num_rows)], kind)
    new = pa.table({"_rowid": actual["_rowid"], "id": values})
    changed, fields = first.update_columns(new, left_on="_rowid", right_on="_rowid")
    operation = lance.LanceOperation.Update([], [changed], [], fields, [], update_mode="rewrite_columns")
    lance.LanceDataset.commit(history.line, operation, read_version=history.dataset.version)


def compact(history: History) -> None:
    history.dataset.optimize.compact_files(target_rows_per_fragment=40)


def index(history: History) -> None:
    history.dataset.create_scalar_index("id", "BTREE", replace=True)


def describe(history: History) -> None:
    history.dataset.update_schema_metadata({"k": str(history.dataset.version)})
    history.dataset.update_field_metadata({"id": {"unit": "one"}})


def clone(history: History) -> None:
    """Continues in a clone, whose files are under another root."""
    text = f"{history.uri}-clone{history.random.randrange(10**9)}"
    history.dataset.shallow_clone(text, history.dataset.version)
    history.line = text


def branch(history: History) -> None:
    if "-clone" not in history.line and "/tree/" not in history.line:
        history.line = history.dataset.create_branch("side", history.dataset.version).uri


ACTS = [
    append,
    delete,
    update,
    add_column,
    add_nulls,
    drop_column,
    rename,
    cast_id,
    rewrite_id,
    compact,
    index,
    describe,
    clone,
    branch,
]


def same(ours: Table, theirs: Any, random: Random) -> None:  # noqa: ANN401 - as above
    """Each request for a version has pylance's answer, or is refused if pylance refuses it."""
    assert ours.schema.equals(theirs.schema, check_metadata=True)
    assert ours.count_rows() == theirs.count_rows()
    assert ours.fragment_count == len(theirs.get_fragments())
    alike(ours.to_arrow, theirs.to_table)
    names = random.sample(ours.schema.names, k=random.randrange(1, len(ours.schema.names) + 1))
    chosen = [f"`{name}`" if " " in name or "." in name else name for name in names]
    text = f"id % {random.randrange(2, 5)} = 1"
    alike(lambda: ours.to_arrow(chosen, text), lambda: theirs.to_table(columns=chosen, filter=text))
    columns, limit, offset = ["_rowid", *chosen, "_rowaddr"], random.randrange(50), random.randrange(30)
    alike(
        lambda: ours.to_arrow(columns, limit=limit, offset=offset),
        lambda: theirs.to_table(columns=columns, limit=limit, offset=offset),
    )
    ids = theirs.to_table(columns=["_rowid"])["_rowid"].to_pylist()
    asked = random.sample(ids, k=min(len(ids), 9))
    # Out of order pylance loses the schema's metadata (tried).
    alike(
        lambda: ours.take(asked),
        lambda: theirs._take_rows(asked).replace_schema_metadata(theirs.schema.metadata),
    )


def alike(ours: Callable[[], pa.Table], theirs: Callable[[], pa.Table]) -> None:
    """Both return the same rows, or neither returns any."""
    try:
        expected = theirs()
    except (OSError, ValueError, NotImplementedError):
        with pytest.raises((InvalidError, DamagedError)):
            ours()
    else:
        equal(ours(), expected)


def equal(ours: pa.Table, theirs: pa.Table) -> None:
    """The same rows in the same columns; dictionaries may be in another order."""
    assert ours.schema.equals(theirs.schema, check_metadata=True)
    assert ours.num_rows == theirs.num_rows
    for mine, other in zip(ours.columns, theirs.columns, strict=True):
        assert mine.equals(other) or mine.to_pylist() == other.to_pylist()


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    version=st.sampled_from(VERSIONS),
    stable=st.booleans(),
    acts=st.lists(st.sampled_from(ACTS), max_size=7),
)
def test_every_version_of_any_table(
    tmp_path_factory: pytest.TempPathFactory,
    seed: int,
    version: FileVersion,
    *,
    stable: bool,
    acts: list[Callable[[History], None]],
) -> None:
    history = begun(tmp_path_factory.mktemp("equal"), seed, version, stable=stable)
    for act in acts:
        # What pylance refuses (a cast that doesn't fit, an index on such rows) doesn't happen.
        with suppress(OSError, ValueError, KeyError, NotImplementedError):
            act(history)
    for line in {history.uri, history.line}:
        for number in [version["version"] for version in lance.dataset(line).versions()]:
            same(lakefold.open(line, number), lance.dataset(line, version=number), Random(seed))


def begun(folder: Path, seed: int, version: FileVersion, *, stable: bool) -> History:
    random = Random(seed)
    kinds = COLUMNS if version in RICH else [pa.field("", kind) for kind in SIMPLEST]
    if version == "legacy":
        kinds = [kind for kind in kinds if not pa.types.is_dictionary(kind.type)]
    chosen = random.sample(kinds, k=random.randrange(5))
    schema = pa.schema(
        [ID, *[field.with_name(f"c{number}") for number, field in enumerate(chosen)]], {"s": "1"}
    )
    uri = str(folder / "t")
    lance.write_dataset(
        rows(schema, 45, seed),
        uri,
        schema=schema,
        data_storage_version=version,
        max_rows_per_file=20,
        enable_stable_row_ids=stable and version != "legacy",
    )
    return History(uri, uri, schema, random)


@pytest.mark.parametrize("stable", [True, False])
def test_deletions_as_a_bitmap(tmp_path: Path, *, stable: bool) -> None:
    uri = str(tmp_path / "t")
    table = pa.table({"id": range(2 * MANY)})
    lance.write_dataset(table, uri, enable_stable_row_ids=stable, max_rows_per_file=MANY + 1000)
    lance.dataset(uri).delete(f"id < {MANY - 1} or id % 7 = 0")
    assert {path.suffix for path in (tmp_path / "t/_deletions").iterdir()} == {".bin", ".arrow"}
    same(lakefold.open(uri), lance.dataset(uri), Random(1))
