"""How much one step of a reader may take, told before any data is read.

Who reads in steps (a micro-batch, a job every minute) bounds what one of them may cost. What a version brings
stands in its transaction: the rows and bytes of the fragments that it adds, and the rows it deleted where a
committer noted them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lakefold_table.errors import InvalidError
from lakefold_table.whole import integer

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lakefold_protos.lance.table_pb2 import DataFragment
    from lakefold_protos.lance.transaction_pb2 import Transaction

LONGEST: Final = 10_000
"""No step takes more versions, so that what it holds in memory is bounded where no limit was set."""


@dataclass(frozen=True, slots=True)
class Weight:
    """What a version brings: rows to read or to tell, and bytes of data files."""

    rows: int
    bytes: int

    def __add__(self, other: Weight) -> Weight:
        return Weight(self.rows + other.rows, self.bytes + other.bytes)


NOTHING: Final = Weight(0, 0)


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that one step takes: versions, rows, bytes of data files; None: no limit of that kind.

    A step takes at least one version, however large, so that a reader always gets on.
    """

    max_versions: int | None = None
    max_rows: int | None = None
    max_bytes: int | None = None

    def __post_init__(self) -> None:
        for name in ("max_versions", "max_rows", "max_bytes"):
            value = getattr(self, name)
            number = integer(value)
            if value is not None and (number is None or number < 1):
                hint = "it is a whole number from 1 on; leave it out for no limit"
                raise InvalidError(f"{name} is {value!r}", hint=hint)
            object.__setattr__(self, name, number)

    @property
    def weighs(self) -> bool:
        """Whether rows or bytes are limited, so that versions have to be weighed."""
        return self.max_rows is not None or self.max_bytes is not None

    def admit(self, versions: int, weight: Weight) -> bool:
        """Whether so many versions of this weight together are within the limits."""
        return (
            versions <= min(LONGEST, self.max_versions or LONGEST)
            and (self.max_rows is None or weight.rows <= self.max_rows)
            and (self.max_bytes is None or weight.bytes <= self.max_bytes)
        )


def weight_of(transaction: Transaction | None, deleted: int = 0) -> Weight:
    """What a version of this transaction brings; `deleted`: the rows it is known to have deleted.

    What a transaction doesn't say of its fragments weighs nothing.
    """
    return NOTHING if transaction is None else weight_of_fragments(_brought(transaction)) + Weight(deleted, 0)


def weight_of_fragments(fragments: Iterable[DataFragment]) -> Weight:
    """The rows that these fragments hold, without deleted ones, and the bytes of their files."""
    rows = size = 0
    for fragment in fragments:
        rows += max(0, fragment.physical_rows - fragment.deletion_file.num_deleted_rows)
        size += sum(file.file_size_bytes for file in fragment.files)
    return Weight(rows, size)


def _brought(transaction: Transaction) -> Sequence[DataFragment]:
    """The fragments with rows that the version before didn't have, as far as the transaction tells them."""
    operation = transaction.WhichOneof("operation")
    if operation == "append":
        return transaction.append.fragments
    if operation == "overwrite":
        return transaction.overwrite.fragments
    return transaction.update.new_fragments if operation == "update" else ()
