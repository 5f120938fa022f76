"""What clients do to a table, by pylance, each with what it must come to in the model.

An act is done to the table itself (another client's commit), or to a copy of an older version: then pylance's
transaction becomes a proposal in our log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import lance
import pyarrow as pa
from lance.file import LanceFileWriter
from lance.fragment import DataFile
from pyroaring import BitMap

from tests.properties.model import FIRST_COLUMNS, Effect, Snapshot, Values, key_of

Run = Callable[[lance.LanceDataset], object]
FEW_ROWS, MANY_ROWS = 4, 1000


@dataclass(frozen=True)
class Act:
    """`run` does it to an open dataset; `effect` is its result. `rebases`: pylance does, by itself."""

    run: Run
    effect: Effect
    rebases: bool = False


@dataclass(frozen=True)
class Choice:
    """What an act may choose by: the version that it sees, its rows, drawn numbers, and fresh keys."""

    rows: Snapshot
    picks: Sequence[int]
    keys: Iterator[int]
    dataset: lance.LanceDataset

    def of_one_fragment(self) -> dict[int, int]:
        """The keys of the rows of a fragment, with their offsets in it; the fragment's id under -1."""
        rows = self.dataset.to_table(columns=["k"], with_row_address=True)
        addresses = dict(zip(rows["k"].to_pylist(), rows["_rowaddr"].to_pylist(), strict=True))
        if not addresses:
            return {}
        ids = sorted({address >> 32 for address in addresses.values()})
        number = ids[self.picks[0] % len(ids)]
        offsets = {key: address & 0xFFFFFFFF for key, address in addresses.items() if address >> 32 == number}
        return {-1: number, **offsets}

    def some_keys(self) -> list[int]:
        """Some of the rows that are there."""
        numbers = sorted(self.rows.rows)
        return sorted({numbers[pick % len(numbers)] for pick in self.picks}) if numbers else []

    def extra(self) -> str | None:
        """A column that comes and goes."""
        names = [name for name in self.rows.names if name not in FIRST_COLUMNS]
        return names[self.picks[0] % len(names)] if names else None


Make = Callable[[Choice], Act | None]
NAMES = count()
SCHEMA = pa.schema([pa.field("k", pa.int64(), nullable=False), ("a", pa.int64()), ("s", pa.string())])
KINDS: Sequence[Any] = ("BTREE", "BITMAP")


def values_of(key: int, names: Sequence[str]) -> Values:
    """A new row."""
    known: dict[str, object] = {"k": key, "a": key % 5, "s": f"s{key % 3}"}
    return {name: known.get(name, key * 3) for name in names}


def table_of(rows: Sequence[Values], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_pylist([dict(row) for row in rows], schema=schema)


def _in(keys: Sequence[int]) -> str:
    return f"k in ({', '.join(map(str, keys))})"


def append(choice: Choice) -> Act:
    rows = [values_of(next(choice.keys), choice.rows.names) for _ in choice.picks]

    def run(dataset: lance.LanceDataset) -> object:
        table = table_of(rows, dataset.schema)
        return lance.write_dataset(table, dataset, mode="append", max_rows_per_file=FEW_ROWS)

    return Act(run, Effect("append", adds=tuple(rows)), rebases=True)


def delete(choice: Choice) -> Act | None:
    keys = choice.some_keys()
    if not keys:
        return None
    return Act(lambda ds: ds.delete(_in(keys)), Effect("delete", deletes=frozenset(keys)), rebases=True)


def delete_neighbours(choice: Choice) -> Act | None:
    """Of rows that came together, so that whole fragments go."""
    numbers = sorted(choice.rows.rows)
    first = choice.picks[0] % len(numbers) if numbers else 0
    keys = numbers[first : first + 5]
    if not keys:
        return None
    return Act(lambda ds: ds.delete(_in(keys)), Effect("delete", deletes=frozenset(keys)), rebases=True)


def update(choice: Choice) -> Act | None:
    keys = choice.some_keys()
    if not keys:
        return None

    def new(values: Values) -> Values:
        old = values["a"]
        return {"a": old + 10 if isinstance(old, int) else None}

    effect = Effect("update", changes=dict.fromkeys(keys, new))
    return Act(lambda ds: ds.update({"a": "a + 10"}, where=_in(keys)), effect, rebases=True)


def upsert(choice: Choice) -> Act | None:
    keys = choice.some_keys()
    added = [next(choice.keys)] if choice.picks[0] % 2 else []
    rows = [{**values_of(key, choice.rows.names), "s": "upserted"} for key in (*keys, *added)]
    if not rows:
        return None

    def run(dataset: lance.LanceDataset) -> object:
        merge = dataset.merge_insert("k").when_matched_update_all().when_not_matched_insert_all()
        return merge.execute(table_of(rows, dataset.schema))

    by_key = {row["k"]: row for row in rows}
    changes = {key: _constant(by_key[key]) for key in keys}
    return Act(run, Effect("update", adds=tuple(by_key[key] for key in added), changes=changes))


def _constant(values: Values) -> Callable[[Values], Values]:
    return lambda _: values


def add_column(_choice: Choice) -> Act:
    name = f"c{next(NAMES)}"
    effect = Effect("columns", column=(name, lambda values: key_of(values) * 2), rewrites=True)
    return Act(lambda ds: ds.add_columns({name: "k * 2"}), effect)


def add_null_column(_choice: Choice) -> Act:
    name = f"c{next(NAMES)}"
    effect = Effect("columns", column=(name, lambda _: None), rewrites=None)
    return Act(lambda ds: ds.add_columns(pa.field(name, pa.int64())), effect)


def drop_column(choice: Choice) -> Act | None:
    name = choice.extra()
    if name is None:
        return None
    return Act(lambda ds: ds.drop_columns([name]), Effect("columns", renames={name: None}))


def rename_column(choice: Choice) -> Act | None:
    name, new = choice.extra(), f"c{next(NAMES)}"
    if name is None:
        return None
    change: Any = {"path": name, "name": new}
    return Act(lambda ds: ds.alter_columns(change), Effect("columns", renames={name: new}))


def cast_column(choice: Choice) -> Act | None:
    name = choice.extra()
    if name is None:
        return None
    kind = (pa.int32(), pa.int64())[choice.picks[0] % 2]
    change: Any = {"path": name, "data_type": kind}
    return Act(lambda ds: ds.alter_columns(change), Effect("columns", rewrites=None))


def index(choice: Choice) -> Act:
    pick = choice.picks[0]
    column, kind = ("a", "s")[pick % 2], KINDS[pick // 2 % 2]
    return Act(lambda ds: ds.create_scalar_index(column, kind), Effect("index"))


def drop_index(_choice: Choice) -> Act:
    """Not the fragment-reuse index: without it searches find nothing, in pylance too (Lance fact 10.7)."""

    def run(dataset: lance.LanceDataset) -> object:
        names = [
            description.name
            for description in dataset.describe_indices()
            if not description.name.startswith("__")
        ]
        for name in names[:1]:
            dataset.drop_index(name)
        return None

    return Act(run, Effect("index"))


def compact(choice: Choice) -> Act | None:
    """Not where indices wait to be remapped: with an Update between, pylance's scans lose rows."""
    if _waits_for_remap(choice.dataset):
        return None
    rows = (2 * FEW_ROWS, MANY_ROWS)[choice.picks[0] % 2]
    return Act(lambda ds: ds.optimize.compact_files(target_rows_per_fragment=rows), Effect("compact"))


def _waits_for_remap(dataset: lance.LanceDataset) -> bool:
    return any(description.name == "__lance_frag_reuse" for description in dataset.describe_indices())


def config(choice: Choice) -> Act:
    name, pick = f"key{next(NAMES)}", choice.picks[0] % 3
    runs: Sequence[Run] = (
        lambda ds: ds.update_config({name: "1"}),
        lambda ds: ds.update_metadata({name: "1"}),
        lambda ds: ds.update_config({name: "2"}),
    )
    return Act(runs[pick], Effect("config"))


def describe(choice: Choice) -> Act:
    """Metadata of the schema, or of a field."""
    name, pick = f"key{next(NAMES)}", choice.picks[0] % 2
    runs: Sequence[Run] = (
        lambda ds: ds.update_schema_metadata({name: "1"}),
        lambda ds: ds.update_field_metadata({"s": {name: "1"}}),
    )
    return Act(runs[pick], Effect("describe"))


def allow_or_forbid_nulls(choice: Choice) -> Act:
    """No value of `a` is null, whichever client wrote it."""
    nullable = not choice.dataset.schema.field("a").nullable
    change: Any = {"path": "a", "nullable": nullable}
    return Act(lambda ds: ds.alter_columns(change), Effect("columns"))


def compact_and_remap_later(choice: Choice) -> Act | None:
    """Indices stay as they are, and a fragment-reuse index says where the rows went."""
    if choice.dataset.has_stable_row_ids or _waits_for_remap(choice.dataset):
        return None
    return Act(
        lambda ds: ds.optimize.compact_files(target_rows_per_fragment=MANY_ROWS, defer_index_remap=True),
        Effect("compact"),
    )


def restore(choice: Choice) -> Act:
    version = choice.picks[0] % choice.dataset.version + 1

    def run(dataset: lance.LanceDataset) -> object:
        return lance.dataset(dataset.uri, version=version).restore()

    return Act(run, Effect("restore", restores=version))


def overwrite(choice: Choice) -> Act:
    rows = [values_of(next(choice.keys), FIRST_COLUMNS) for _ in choice.picks]

    def run(dataset: lance.LanceDataset) -> object:
        schema = pa.schema([dataset.schema.field(name) for name in FIRST_COLUMNS])
        return lance.write_dataset(
            table_of(rows, schema), dataset.uri, mode="overwrite", max_rows_per_file=FEW_ROWS
        )

    return Act(run, Effect("overwrite", adds=tuple(rows), replaces=True))


def replace_column(choice: Choice) -> Act | None:
    """Another file for a column of a fragment: of all its rows, deleted rows too."""
    keys = choice.of_one_fragment()
    if not keys:
        return None
    number, name = keys.pop(-1), f"replacement{next(NAMES)}.lance"
    fragment = choice.dataset.get_fragment(number)
    assert fragment is not None
    values = pa.table({"a": pa.array(range(100, 100 + fragment.physical_rows), pa.int64())})
    operations = lance.LanceOperation

    def run(dataset: lance.LanceDataset) -> object:
        with LanceFileWriter(f"{dataset.uri}/data/{name}", values.schema, version="2.2") as writer:
            writer.write_batch(values)
        group = operations.DataReplacementGroup(number, DataFile.create(dataset, name))
        operation = operations.DataReplacement([group])
        return lance.LanceDataset.commit(dataset.uri, operation, read_version=dataset.version)

    changes = {key: _constant({"a": 100 + offset}) for key, offset in keys.items()}
    return Act(run, Effect("values", changes=changes))


def update_columns(choice: Choice) -> Act | None:
    """Other values of a column in some rows of a fragment; whether it says in which, is drawn."""
    keys = choice.of_one_fragment()
    if not keys:
        return None
    number, is_known = keys.pop(-1), choice.picks[0] % 3 > 0
    chosen = {key: offset for key, offset in keys.items() if offset in {pick % 4 for pick in choice.picks}}
    if not chosen:
        return None
    source = pa.table({"k": pa.array(chosen, pa.int64()), "a": pa.array([7] * len(chosen), pa.int64())})

    def run(dataset: lance.LanceDataset) -> object:
        actual = dataset.get_fragment(number)
        assert actual is not None
        fragment, fields = actual.update_columns(source, left_on="k", right_on="k")
        operation = lance.LanceOperation.Update(
            removed_fragment_ids=[],
            updated_fragments=[fragment],
            new_fragments=[],
            fields_modified=fields,
            fields_for_preserving_frag_bitmap=[],
            update_mode="rewrite_columns",
            updated_fragment_offsets={number: BitMap(chosen.values()).serialize()} if is_known else None,
        )
        return lance.LanceDataset.commit(dataset.uri, operation, read_version=dataset.version)

    return Act(run, Effect("values", changes=dict.fromkeys(chosen, _constant({"a": 7})), bumps=is_known))


ACTS: Mapping[str, Make] = {
    "append": append,
    "delete": delete,
    "delete_neighbours": delete_neighbours,
    "update": update,
    "upsert": upsert,
    "add_column": add_column,
    "add_null_column": add_null_column,
    "drop_column": drop_column,
    "rename_column": rename_column,
    "cast_column": cast_column,
    "index": index,
    "drop_index": drop_index,
    "compact": compact,
    "compact_and_remap_later": compact_and_remap_later,
    "config": config,
    "describe": describe,
    "allow_or_forbid_nulls": allow_or_forbid_nulls,
    "restore": restore,
    "overwrite": overwrite,
    "replace_column": replace_column,
    "update_columns": update_columns,
}
