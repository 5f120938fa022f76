"""A Lance table at one version, in memory: what the next version is built on. Never changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakefold_table.lance.columns import Columns, columns_of
from lakefold_table.lance.conflicts import History
from lakefold_table.lance.features import check_readable
from lakefold_table.lance.operations import Kind, kind_of
from lakefold_table.marks import decode_marks

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakefold_protos.lance.file_pb2 import Field
    from lakefold_protos.lance.table_pb2 import Manifest
    from lakefold_protos.lance.transaction_pb2 import Transaction
    from lakefold_table.lance.codec import ManifestFile
    from lakefold_table.lance.fragments import Fragments
    from lakefold_table.lance.naming import Scheme

MICROS = 1_000_000


@dataclass(frozen=True, slots=True)
class LanceState:
    """One version of the table.

    `head` is the manifest without fragments (not to be changed); `index_section` its index section.
    `transaction` is what made this version, None where the manifest file doesn't hold it. `scheme` is how the
    table names its versions.
    """

    head: Manifest
    fragments: Fragments
    index_section: bytes
    transaction: Transaction | None
    history: History
    columns: Columns
    scheme: Scheme

    @property
    def version(self) -> int:
        """The version's number."""
        return self.head.version

    @property
    def time_us(self) -> int:
        """The version's time in microseconds since 1970."""
        return self.head.timestamp.seconds * MICROS + self.head.timestamp.nanos // 1000

    @property
    def metadata(self) -> Mapping[str, str]:
        """The table's metadata, marks included."""
        return self.head.table_metadata

    @property
    def properties(self) -> Mapping[str, str]:
        """The properties of the version's own transaction; empty where it has none."""
        return {} if self.transaction is None else self.transaction.transaction_properties

    @property
    def told_since(self) -> int:
        """The version since which it is known what each version did."""
        return self.history.since

    @property
    def is_clone(self) -> bool:
        """Whether this version begins a clone or a branch, whose marks are those of another table."""
        return kind_of(self.transaction) is Kind.CLONE

    @property
    def schema(self) -> Sequence[Field]:
        """The flattened fields, parents before their children."""
        return self.head.fields

    @property
    def rows(self) -> int:
        """The rows that can be seen."""
        return self.fragments.physical_rows - self.fragments.deleted_rows

    @property
    def base_ids(self) -> frozenset[int]:
        """The ids of the other roots that files may lie under."""
        return frozenset(base.id for base in self.head.base_paths)


def state_of(file: ManifestFile, scheme: Scheme, where: str = "") -> LanceState:
    """The state that a manifest file holds. Raises `InvalidError` for features of readers we don't know.

    The history of operations is taken from the marks where they were made for this very version; else it
    begins here.
    """
    check_readable(file.head, where)
    marks = decode_marks(file.head.table_metadata, where)
    history = History(file.head.version, {})
    if marks is not None and marks.version == file.head.version:
        known = {Kind(kind): version for kind, version in marks.operations.items() if kind in set(Kind)}
        history = History(marks.operations_since, known)
    return LanceState(
        file.head,
        file.fragments,
        file.index_section,
        file.transaction,
        history,
        columns_of(file.head.fields, file.head.data_format.version),
        scheme,
    )
