"""A fragment as the unit that a task reads, and what it says of its rows, bytes and files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakefold_protos.lance.table_pb2 import DataFragment
    from lakefold_protos.lance.transaction_pb2 import Transaction

ROW_BYTES: Final = 64
"""The estimated bytes of a row if the files don't record their sizes."""


@dataclass(frozen=True, slots=True)
class FragmentUnit:
    """A fragment that a task reads: `fragment` encoded, `bytes` of its data files.

    `by_index`: whether filters may be evaluated through the indices of the version.
    """

    fragment: bytes
    bytes: int
    by_index: bool

    @classmethod
    def of(cls, fragment: DataFragment, *, by_index: bool) -> FragmentUnit:
        """Returns the unit that contains one fragment."""
        return cls(fragment.SerializeToString(), bytes_of(fragment), by_index)


def counts_rows(fragment: DataFragment) -> bool:
    """Returns whether a fragment says how many rows it has and how many of them are deleted."""
    deletions_known = not fragment.HasField("deletion_file") or fragment.deletion_file.num_deleted_rows > 0
    return fragment.physical_rows > 0 and deletions_known


def bytes_of(fragment: DataFragment) -> int:
    """Returns the bytes of a fragment's data files, estimated from its rows if a file's size isn't known."""
    sizes = [file.file_size_bytes for file in fragment.files]
    return sum(sizes) if all(sizes) else fragment.physical_rows * ROW_BYTES


def first_file(fragment: DataFragment) -> tuple[int, str]:
    """Returns the first file of a fragment, which no other fragment has. Base -1 is the table itself."""
    file = fragment.files[0]
    return (file.base_id if file.HasField("base_id") else -1), file.path


def added_fragments(transaction: Transaction) -> Sequence[DataFragment]:
    """Returns the fragments with rows that the version before didn't have, if the transaction lists them."""
    operation = transaction.WhichOneof("operation")
    if operation == "append":
        return transaction.append.fragments
    if operation == "overwrite":
        return transaction.overwrite.fragments
    return transaction.update.new_fragments if operation == "update" else ()
