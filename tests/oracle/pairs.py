"""Pairs of transactions as pylance judges them: theirs is version 3, ours was built on version 2.

A table has four fragments of ten rows with the columns a (field 0) and s (field 1), and one key of its
configuration. Each operation is built on version 2 once; its files are there in each copy of the table.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
from lance.commit import CommitConflictError
from lance.fragment import DataFile, FragmentMetadata, RowIdSequence, write_fragments

from lakefold_protos.lance.table_pb2 import Manifest
from lakefold_protos.lance.transaction_pb2 import Transaction
from lakefold_table.entry import Conflict
from lakefold_table.lance.conflicts import History, footprint_of
from lakefold_table.lance.proposal_footprint import carries_reuse
from tests.foreign import file_as_others_write
from tests.oracle.manifests import manifest_files, read_sections

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from lakefold_table.bitmaps import Bitmap

SCHEMA = pa.schema([pa.field("a", pa.int64()), pa.field("s", pa.string())])
FRAGMENTS, ROWS = 4, 10
Operation = Any
"""What pylance commits: an operation of its own, a transaction by hand, or a function of the table's path."""
Second = Callable[[lance.LanceDataset], object]
Verdict = str
"""`compatible`, `retryable`, `incompatible`, or `invalid` where pylance refuses for another reason."""

TEXTS = {
    "Too many concurrent writers": "retryable",
    "Retryable commit conflict": "retryable",
    "is incompatible with concurrent transaction": "incompatible",
}
"""What pylance's own calls say where `commit` has an error of its own kind."""


def rows(first: int, count: int = ROWS) -> pa.Table:
    """Rows whose numbers are in sequence."""
    numbers = list(range(first, first + count))
    return pa.table({"a": pa.array(numbers, pa.int64()), "s": [f"row {n}" for n in numbers]}, schema=SCHEMA)


def _configured(table: lance.LanceDataset) -> None:
    table.update_config({"k": "before"})


class Base:
    """The table at version 2, and what is needed to build operations on it.

    `stable`: its rows have stable ids. `second`: what version 2 does, by default to set a key.
    """

    def __init__(
        self,
        path: Path,
        *,
        stable: bool = False,
        schema: pa.Schema = SCHEMA,
        second: Second = _configured,
    ) -> None:
        self.path = path
        self.stable = stable
        first = rows(0, FRAGMENTS * ROWS).cast(schema)
        lance.write_dataset(first, str(path), max_rows_per_file=ROWS, enable_stable_row_ids=stable)
        self.dataset = lance.dataset(str(path))
        second(self.dataset)
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
        actual = self.dataset.get_fragment(fragment)
        assert actual is not None
        left = actual.delete(f"a in ({numbers})")
        assert left is not None
        return left

    def file(self, column: str, fragment: int) -> DataFile:
        """A data file of a column, with values for each row of a fragment."""
        (made,) = write_fragments(rows(1000 + fragment * ROWS).select([column]), self.dataset, mode="append")
        return made.files[0]

    def rewritten_column(self, fragment: int, column: str = "s") -> FragmentMetadata:
        """A fragment of version 2 with a single column in a new file."""
        form = self.fragments[fragment].to_json()
        number = SCHEMA.get_field_index(column)
        form["files"][0]["fields"] = [-2 if each == number else each for each in form["files"][0]["fields"]]
        with_file = FragmentMetadata.from_json(json.dumps(form))
        with_file.files.append(self.file(column, fragment))
        return with_file

    def with_ids(self, fragment: FragmentMetadata, ids: Sequence[int], number: int = 0) -> FragmentMetadata:
        """The new fragment with rows of before: with their ids, if rows have stable ids."""
        form = fragment.to_json()
        form["id"] = number
        made = FragmentMetadata.from_json(json.dumps(form))
        if self.stable:
            made.row_id_meta = RowIdSequence(list(ids)).to_inline_metadata()
        return made


@dataclass(frozen=True)
class Theirs:
    """A table on which others committed after version 2, unless the history says otherwise."""

    path: Path
    history: History

    def verdict_of_pylance(self, operation: Operation) -> Verdict:
        """What pylance says of an operation built before; the table is as it was afterwards."""
        versions = len(manifest_files(self.path))
        try:
            if callable(operation):
                operation(str(self.path))
            else:
                lance.LanceDataset.commit(
                    str(self.path), operation, read_version=self.history.since, max_retries=1
                )
        except CommitConflictError as error:
            return "retryable" if error.retryable else "incompatible"
        except OSError as error:
            return next(
                (verdict for text, verdict in TEXTS.items() if text in str(error)), f"invalid: {error}"
            )
        finally:
            for path in manifest_files(self.path)[versions:]:
                path.unlink()
            (self.path / "_versions" / "latest_version_hint.json").unlink(missing_ok=True)
        return "compatible"

    def followed_by(self, operation: Operation) -> Theirs:
        """The table with another version, if pylance puts the operation there."""
        with suppress(OSError):
            lance.LanceDataset.commit(str(self.path), operation, read_version=2, max_retries=1)
        return Theirs(self.path, history_of(self.path))

    def our_verdict(
        self,
        transaction: Transaction,
        rows: Mapping[int, Bitmap] | None = None,
        *,
        carries_reuse: bool = False,
    ) -> Verdict:
        """What our rules say of it, a rebase being as good as none."""
        ours = footprint_of(transaction, affected_rows=rows, carries_reuse=carries_reuse)
        verdict = self.history.verdict(ours, self.history.since)
        if not isinstance(verdict, Conflict):
            return "compatible"
        return "retryable" if verdict.retryable else "incompatible"


def committed(base: Base, path: Path, *operations: Operation) -> Theirs:
    """A copy of the table with these operations as its next versions."""
    shutil.copytree(base.path, path, copy_function=os.link)
    for operation in operations:
        if isinstance(operation, Transaction):
            _put(path, operation)
        elif callable(operation):
            operation(str(path))
        else:
            lance.LanceDataset.commit(str(path), operation, read_version=2)
    return Theirs(path, history_of(path))


def history_of(path: Path, since: int = 2) -> History:
    """What is known of the versions after a version, as their files say."""
    files = [read_sections(file) for file in manifest_files(path)[since:]]
    history = History(since, {})
    for number, file in enumerate(files, since + 1):
        transaction = None if file.transaction is None else Transaction.FromString(file.transaction)
        reuse = carries_reuse(transaction, file.index or b"")
        history = history.extended(number, footprint_of(transaction, carries_reuse=reuse))
    return history


def transaction_of(base: Base, operation: Operation) -> Transaction:
    """The transaction that pylance makes of an operation, from a detached version."""
    dataset = lance.LanceDataset.commit(str(base.path), operation, read_version=2, detached=True)
    path = base.path / "_versions" / f"d{dataset.version}.manifest"
    section = read_sections(path).transaction
    path.unlink()
    assert section is not None
    return Transaction.FromString(section)


def _put(path: Path, transaction: Transaction) -> None:
    """A version like the one before, as if the operation had changed nothing; an empty one is left out."""
    head = Manifest.FromString(read_sections(manifest_files(path)[-1]).manifest)
    head.version += 1
    head.ClearField("transaction_file")
    name = f"{2**64 - 1 - head.version:020}.manifest"
    answer = transaction if transaction.WhichOneof("operation") else None
    (path / "_versions" / name).write_bytes(file_as_others_write(head, answer))


def at_version_2(act: Callable[[lance.LanceDataset], object]) -> Callable[[str], object]:
    """What a client does that opened the table at version 2 and doesn't try again."""
    return lambda path: act(lance.dataset(path, version=2))


def last_transaction(path: Path) -> Transaction:
    """That of the newest version."""
    section = read_sections(manifest_files(path)[-1]).transaction
    assert section is not None
    return Transaction.FromString(section)
