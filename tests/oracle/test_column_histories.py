"""Random histories of a table's columns: each step both ways, the next on what we made of the last."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import lance
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from lance.file import LanceFileWriter
from lance.fragment import DataFile

from lakefold_table.entry import Committed
from tests.oracle.operations import both_ways

if TYPE_CHECKING:
    from collections.abc import Callable

    Act = Callable[[lance.LanceDataset], object]
    Step = tuple[Callable[..., object], int]

STEPS, ROWS = 6, 12


def names(dataset: lance.LanceDataset) -> list[str]:
    return list(dataset.schema.names)


def a_column(dataset: lance.LanceDataset, choice: int) -> str:
    return names(dataset)[choice % len(names(dataset))]


def unused(dataset: lance.LanceDataset) -> str:
    return next(name for name in (f"c{number}" for number in range(100)) if name not in names(dataset))


def add(dataset: lance.LanceDataset, choice: int) -> object:
    return dataset.add_columns({unused(dataset): f"{a_column(dataset, choice)} + {choice}"})


def add_nulls(dataset: lance.LanceDataset, choice: int) -> object:
    return dataset.add_columns([pa.field(unused(dataset), pa.int64(), metadata={"n": str(choice)})])


def drop(dataset: lance.LanceDataset, choice: int) -> object:
    files = [file for fragment in dataset.get_fragments() for file in fragment.data_files()]
    with_files = {number for file in files for number in file.fields}
    ids = {field.name(): field.id() for field in dataset.lance_schema.fields()}
    dropped = a_column(dataset, choice)
    if with_files.isdisjoint({ids[name] for name in names(dataset) if name != dropped}):
        return append(dataset, choice)
    return dataset.drop_columns([dropped])


def rename(dataset: lance.LanceDataset, choice: int) -> object:
    column = {"path": a_column(dataset, choice), "name": unused(dataset)}
    return dataset.alter_columns(column)  # type: ignore[arg-type]  # its hint is of a list


def append(dataset: lance.LanceDataset, choice: int) -> object:
    columns = {name: pa.array([choice] * 3, pa.int64()) for name in names(dataset)}
    return lance.write_dataset(pa.table(columns), dataset, mode="append")


def delete(dataset: lance.LanceDataset, choice: int) -> object:
    """Some existing rows, or an Append if none exists."""
    column, rows = a_column(dataset, choice), dataset.count_rows()
    if not rows:
        return append(dataset, choice)
    value = dataset.to_table(columns=[column])[column][choice % rows].as_py()
    return dataset.delete(f"{column} is null" if value is None else f"{column} = {value}")


def replace(dataset: lance.LanceDataset, choice: int) -> object:
    """New values for a column of a fragment."""
    fragments = dataset.get_fragments()
    if not fragments:
        return append(dataset, choice)
    fragment = fragments[choice % len(fragments)]
    rows = fragment.physical_rows
    values = pa.table({a_column(dataset, choice): pa.array(range(rows), pa.int64())})
    name = f"replaced-{dataset.version}.lance"
    with LanceFileWriter(f"{dataset.uri}/data/{name}", values.schema, version="2.2") as writer:
        writer.write_batch(values)
    group = lance.LanceOperation.DataReplacementGroup(fragment.fragment_id, DataFile.create(dataset, name))
    operation = lance.LanceOperation.DataReplacement([group])
    return lance.LanceDataset.commit(dataset.uri, operation, read_version=dataset.version)


def index(dataset: lance.LanceDataset, choice: int) -> None:
    dataset.create_scalar_index(a_column(dataset, choice), "BTREE", replace=True)


def overwrite(dataset: lance.LanceDataset, choice: int) -> object:
    table = pa.table(
        {"a": pa.array(range(choice + 1), pa.int64()), "b": pa.array([0] * (choice + 1), pa.int64())}
    )
    return lance.write_dataset(table, dataset, mode="overwrite")


def restore(dataset: lance.LanceDataset, choice: int) -> object:
    return dataset.checkout_version(1 + choice % dataset.version).restore()


ACTS = (add, add_nulls, drop, rename, append, delete, replace, index, overwrite, restore)
CHOICES = st.tuples(st.sampled_from(ACTS), st.integers(0, 9))


@given(steps=st.lists(CHOICES, min_size=STEPS, max_size=STEPS), stable=st.booleans())
@settings(max_examples=12, deadline=None)
def test_each_step_is_the_same_both_ways(steps: list[Step], *, stable: bool) -> None:
    values = pa.array(range(ROWS), pa.int64())
    rows = pa.table({"a": values, "b": values})
    with TemporaryDirectory() as folder:
        table = Path(folder, "0")
        lance.write_dataset(rows, str(table), max_rows_per_file=5, enable_stable_row_ids=stable)
        for number, (act, choice) in enumerate(steps, 1):
            table = step(table, partial(act, choice=choice), number)


def step(table: Path, act: Act, number: int) -> Path:
    """An operation both ways; the table that we made."""
    both = both_ways(table, act, offset=number)
    assert isinstance(both.result, Committed), both.result
    assert both.differences == {}
    theirs, ours = lance.dataset(str(both.theirs)), lance.dataset(str(both.ours))
    ours.validate()
    assert ours.to_table(with_row_id=True).equals(theirs.to_table(with_row_id=True))
    return both.ours.rename(table.with_name(str(number)))
