"""Pairs of transactions as pylance judges them: theirs is version 3, ours was built on version 2.

A table has four fragments of ten rows with the columns a (field 0) and s (field 1), and one key of its
configuration. Each operation is built on version 2 once; its files are there in each copy of the table.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any
from uuid import NAMESPACE_URL, uuid5

import lance
import pyarrow as pa
from lance import LanceOperation as Op
from lance.commit import CommitConflictError
from lance.dataset import Index
from lance.fragment import DataFile, FragmentMetadata, RowIdSequence, write_fragments
from lance.schema import LanceSchema
from pyroaring import BitMap

from lakefold_protos.lance.table_pb2 import Manifest
from lakefold_protos.lance.transaction_pb2 import Transaction
from tests.foreign import file_as_others_write
from tests.oracle.manifests import manifest_files, read_sections

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

SCHEMA = pa.schema([pa.field("a", pa.int64()), pa.field("s", pa.string())])
FRAGMENTS, ROWS = 4, 10
Operation = Any
"""What pylance commits: an operation of its own, a transaction by hand, or a function of the table's path."""
Verdict = str
"""`compatible`, `retryable`, `incompatible`, or `invalid` where pylance refuses for another reason."""


def rows(first: int, count: int = ROWS) -> pa.Table:
    """Rows whose numbers are in sequence."""
    numbers = list(range(first, first + count))
    return pa.table({"a": pa.array(numbers, pa.int64()), "s": [f"row {n}" for n in numbers]}, schema=SCHEMA)


class Base:
    """The table at version 2, and what is needed to build operations on it."""

    def __init__(self, path: Path, *, stable: bool) -> None:
        self.path = path
        self.stable = stable
        lance.write_dataset(
            rows(0, FRAGMENTS * ROWS), str(path), max_rows_per_file=ROWS, enable_stable_row_ids=stable
        )
        self.dataset = lance.dataset(str(path))
        self.dataset.update_config({"k": "before"})
        self.dataset = lance.dataset(str(path))
        assert self.dataset.version == 2

    @cached_property
    def fragments(self) -> list[FragmentMetadata]:
        """The fragments of version 2."""
        return [fragment.metadata for fragment in self.dataset.get_fragments()]

    def new(self, first: int = 100, count: int = ROWS) -> FragmentMetadata:
        """A new fragment, not yet numbered."""
        (fragment,) = write_fragments(rows(first, count), self.dataset, mode="append")
        return fragment

    def without(self, fragment: int, offsets: Iterable[int] = (0,)) -> FragmentMetadata:
        """A fragment of version 2 with rows deleted."""
        numbers = ", ".join(str(fragment * ROWS + offset) for offset in offsets)
        found = self.dataset.get_fragment(fragment)
        assert found is not None
        left = found.delete(f"a in ({numbers})")
        assert left is not None
        return left

    def file(self, column: str, fragment: int) -> DataFile:
        """A data file of one column, with values for each row of a fragment."""
        (made,) = write_fragments(rows(1000 + fragment * ROWS).select([column]), self.dataset, mode="append")
        return made.files[0]

    def rewritten_column(self, fragment: int, column: str = "s") -> FragmentMetadata:
        """A fragment of version 2 with one column in a new file."""
        form = self.fragments[fragment].to_json()
        number = SCHEMA.get_field_index(column)
        form["files"][0]["fields"] = [-2 if each == number else each for each in form["files"][0]["fields"]]
        with_file = FragmentMetadata.from_json(json.dumps(form))
        with_file.files.append(self.file(column, fragment))
        return with_file

    def with_ids(self, fragment: FragmentMetadata, ids: Sequence[int], number: int = 0) -> FragmentMetadata:
        """The new fragment as one that holds rows of before: with their ids, where rows have stable ones."""
        form = fragment.to_json()
        form["id"] = number
        made = FragmentMetadata.from_json(json.dumps(form))
        if self.stable:
            made.row_id_meta = RowIdSequence(list(ids)).to_inline_metadata()
        return made


def index(name: str, field: int, fragments: Iterable[int], uuid: str = "") -> Index:
    """The entry of an index of which nothing is there but the name."""
    return Index(
        uuid=uuid or str(uuid5(NAMESPACE_URL, f"{name}-{field}-{fragments}")),
        name=name,
        fields=[field],
        dataset_version=2,
        fragment_ids=BitMap(fragments),  # type: ignore[arg-type] # the type of older releases
        index_version=0,
        index_details=("/lance.table.BTreeIndexDetails", b""),
    )


def created(*added: Index, removed: Sequence[Index] = ()) -> Op.CreateIndex:
    """A CreateIndex."""
    return Op.CreateIndex(new_indices=list(added), removed_indices=list(removed))


def rewrite(base: Base, *groups: tuple[int, ...]) -> Op.Rewrite:
    """Groups of fragments, each made into one."""
    made = []
    for number, group in enumerate(groups):
        ids = [fragment * ROWS + row for fragment in group for row in range(ROWS)]
        new = base.with_ids(base.new(3000, len(ids)), ids, 10 + number if base.stable else 0)
        made.append(Op.RewriteGroup([base.fragments[one] for one in group], [new]))
    return Op.Rewrite(groups=made, rewritten_indices=[])


def update_rows(base: Base, fragment: int, offset: int = 0) -> Op.Update:
    """One row moved to a new fragment."""
    new = base.with_ids(base.new(4000, 1), [fragment * ROWS + offset])
    return Op.Update(
        updated_fragments=[base.without(fragment, [offset])], new_fragments=[new], update_mode="rewrite_rows"
    )


def update_column(base: Base, fragment: int, column: str = "s") -> Op.Update:
    """One column of a fragment in a new file."""
    return Op.Update(
        updated_fragments=[base.rewritten_column(fragment, column)],
        fields_modified=[SCHEMA.get_field_index(column)],
        update_mode="rewrite_columns",
    )


def replacement(base: Base, fragment: int, column: str = "s") -> Op.DataReplacement:
    """One column of a fragment replaced."""
    return Op.DataReplacement([Op.DataReplacementGroup(fragment, base.file(column, fragment))])


def overlay(base: Base, fragment: int, offsets: Sequence[int] = (3,), column: str = "s") -> Op.DataOverlay:
    """New values of one column for some rows."""
    (made,) = write_fragments(rows(7000, len(offsets)).select([column]), base.dataset, mode="append")
    return Op.DataOverlay([Op.DataOverlayGroup(fragment, [Op.DataOverlayFile(made.files[0], list(offsets))])])


def keys(replace: bool = False, **values: str | None) -> Op.UpdateMap:  # noqa: FBT001, FBT002 - as in the message
    """Changes of a map of keys; None deletes one."""
    return Op.UpdateMap(values, replace=replace)


def merge(base: Base, *, keeps: bool) -> Op.Merge:
    """The table's own fragments under a schema with one more column."""
    schema = LanceSchema.from_pyarrow(SCHEMA.append(pa.field("x", pa.int64())))
    return Op.Merge(base.fragments, schema, preserves_nullability=keeps)


def project(*names: str, keeps: bool) -> Op.Project:
    """Only these columns are left."""
    schema = pa.schema([SCHEMA.field(name) for name in names])
    return Op.Project(LanceSchema.from_pyarrow(schema), preserves_nullability=keeps)


def by_hand(operation: str, **content: object) -> Transaction:
    """A transaction that pylance's Python can't build."""
    made = Transaction(read_version=2, uuid=str(uuid5(NAMESPACE_URL, f"{operation} {content}")))
    getattr(made, operation).SetInParent()
    getattr(made, operation).MergeFrom(type(getattr(made, operation))(**content))
    return made


def restrict(operations: Mapping[str, Operation], names: Iterable[str]) -> dict[str, Operation]:
    """Some of the operations."""
    return {name: operations[name] for name in names}


@dataclass(frozen=True)
class Theirs:
    """A table on which one operation was committed as version 3."""

    path: Path
    transaction: Transaction

    def verdict_on(self, operation: Operation) -> Verdict:
        """What pylance says of an operation built on version 2; the table is as it was afterwards."""
        try:
            if callable(operation):
                operation(str(self.path))
            else:
                lance.LanceDataset.commit(str(self.path), operation, read_version=2, max_retries=1)
        except CommitConflictError as error:
            return "retryable" if error.retryable else "incompatible"
        except OSError as error:
            return f"invalid: {error}"
        finally:
            for path in manifest_files(self.path)[3:]:
                path.unlink()
            (self.path / "_versions" / "latest_version_hint.json").unlink(missing_ok=True)
        return "compatible"


def committed(base: Base, path: Path, operation: Operation) -> Theirs:
    """A copy of the table with the operation as its version 3."""
    shutil.copytree(base.path, path, copy_function=os.link)
    if isinstance(operation, Transaction):
        head = Manifest.FromString(read_sections(manifest_files(path)[-1]).manifest)
        head.version = 3
        head.ClearField("transaction_file")
        name = f"{2**64 - 1 - 3:020}.manifest"
        (path / "_versions" / name).write_bytes(file_as_others_write(head, operation))
        return Theirs(path, operation)
    if callable(operation):
        operation(str(path))
    else:
        lance.LanceDataset.commit(str(path), operation, read_version=2)
    section = read_sections(manifest_files(path)[2]).transaction
    assert section is not None
    return Theirs(path, Transaction.FromString(section))


def transaction_of(base: Base, operation: Operation) -> Transaction:
    """The transaction that pylance makes of an operation, from a detached version."""
    dataset = lance.LanceDataset.commit(str(base.path), operation, read_version=2, detached=True)
    path = base.path / "_versions" / f"d{dataset.version}.manifest"
    section = read_sections(path).transaction
    path.unlink()
    assert section is not None
    return Transaction.FromString(section)
