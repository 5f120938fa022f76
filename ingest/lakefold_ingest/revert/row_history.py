"""The seam between undoing a batch and a table format: which rows a version changed, where they are later.

A row has an address in each version: the upper 32 bits are the number of its fragment or file, which that has
in all versions, the lower ones the row's position in there. Addresses are unsigned 64 bit integers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lakefold_ingest.merge.batch_keys import comparable
from lakefold_ingest.merge.read_version import OFFSET_BITS, OFFSET_WIDTH
from lakefold_reader.versions.ranges import expired
from lakefold_table.values import value

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from lakefold_ingest.proposals.key import Key
    from lakefold_ingest.view import View
    from lakefold_ingest.writing.settings import WriteSettings
    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_reader.format.source import Source
    from lakefold_table.format import VersionSummary

Addresses: TypeAlias = NDArray[np.uint64]
Mask: TypeAlias = NDArray[np.bool_]
LOST: Final = np.uint64(2**64 - 1)
"""Instead of an address: the row isn't in the version."""
NO_ADDRESSES: Final = np.empty(0, np.uint64)
UNKNOWN_ENTRY: Final = -1
"""Instead of an offset in the log: which entry it was is not known, or no entry."""


@value()
class RemovedAndAdded:
    """The rows that a version changed.

    `added`: the addresses, in it, of rows that it has anew; `added_by`: for each the offset of the entry that
    added it, or `UNKNOWN_ENTRY`. `removed`: the addresses, in the version before, of rows that it has no
    more. A row that was changed is among both. Both ascend.
    """

    added: Addresses
    added_by: NDArray[np.int64]
    removed: Addresses


@value()
class ReplacedContent:
    """A version after which the table's content is not the one before: `restored` has it.

    None: it is all new.
    """

    version: int
    restored: int | None


@value()
class ReturningRows:
    """Rows that come back, in the columns of the newest version.

    `row_ids`: ids that the first of them keep, which rows that go have now. `keys`: the columns that identify
    a row; empty if they are not known.
    """

    rows: pa.Table
    row_ids: Addresses
    keys: tuple[str, ...] = ()

    def key_arrays(self, rows: pa.Table, names: Sequence[str]) -> list[pa.Array]:
        """Returns the key columns `names` of these rows as they are written, without rows that lack one."""
        keys = rows.select(names)
        for name in names:
            keys = keys.filter(pc.is_valid(keys.column(name)))
        return [comparable(column) for column in keys.columns if len(column)]


class RowHistory(ABC):
    """The versions of a table up to one of them, `newest`, in whose columns rows are given.

    Every call raises `VersionExpiredError` if a version was cleaned up, `DamagedError` if a file can't be
    read, `RetryError` if the store can't be reached.
    """

    source: Source
    newest: int

    @property
    @abstractmethod
    def columns(self) -> Sequence[str]:
        """The names of the columns of the newest version."""

    def column_names(self, version: int) -> Sequence[str] | None:
        """Returns the names of the columns of a version; None if it is gone or doesn't say them."""
        summary = self.source.summary(version, whole=True)
        schema = None if summary is None else self.source.format.schema(summary)
        return None if schema is None else schema.names

    @abstractmethod
    def version_rows(self, version: int) -> RemovedAndAdded:
        """Returns the rows that a version changed, by comparison with the version before.

        New columns, and values that were written again in another type, are no change.
        """

    @abstractmethod
    def pair_columns(self, version: int) -> tuple[str, ...] | None:
        """Returns columns in which a changed row equals the row that took its place, and no other row.

        Empty: the version changed no row, it only removed and added some. None: it may have changed rows, and
        what they have in common isn't known.
        """

    @abstractmethod
    def key_columns(self, version: int) -> tuple[str, ...]:
        """Returns the columns that identify a row, as the version or the table says it; else none."""

    @abstractmethod
    def row_ids(self, addresses: Addresses, version: int) -> Addresses | None:
        """Returns the ids of rows of a version, which they keep for life. None: rows have none."""

    @abstractmethod
    def is_live(self, addresses: Addresses, since: int, version: int) -> Mask:
        """Returns which rows of version `since` are in another version at their address, unchanged."""

    @abstractmethod
    def moved(self, addresses: Addresses, version: int) -> Addresses:
        """Returns where a version has rows of the version before; `LOST` for one that it removed or changed.

        They ascend, and none is live there at its address.
        """

    @abstractmethod
    def replacements(self, after: int) -> Sequence[ReplacedContent]:
        """Returns the versions after this one that replaced the whole content, oldest first."""

    @abstractmethod
    def rows(self, addresses: Addresses, version: int, columns: Sequence[str] | None = None) -> pa.Table:
        """Returns rows of a version, whose addresses ascend, in these columns of the newest (None: all)."""

    @abstractmethod
    def affected(self, envelope: Envelope) -> tuple[int, Addresses] | None:
        """Returns the version that a proposal was built on, and the rows of it that it removed or changed.

        None: it doesn't say which.
        """

    @abstractmethod
    def numbers_added(self, envelope: Envelope) -> Collection[int]:
        """Returns the numbers of the fragments or files that a proposal adds, as far as it names them."""

    @abstractmethod
    def added_after(self, version: int) -> Addresses:
        """Returns the rows of the newest version whose fragment or file an older version lacks."""

    @abstractmethod
    def location(self, address: int) -> str:
        """Returns an address in words."""

    @abstractmethod
    def proposal(
        self,
        view: View,
        key: Key,
        settings: WriteSettings,
        removed: Addresses,
        returned: ReturningRows,
    ) -> Envelope:
        """Returns the proposal that removes rows of the newest version and adds others.

        It conflicts with rows that others add meanwhile under a key of a row that comes back. Writes files;
        if it fails, it removes those. Raises `InvalidError` if the table can't have such a change.
        """

    def _summary(self, version: int) -> VersionSummary:
        summary = self.source.summary(version)
        if summary is None:
            raise expired(self.source, f"version {version} is gone: it was cleaned up")
        return summary


def by_number(addresses: Addresses) -> Iterator[tuple[int, NDArray[np.uint32], slice]]:
    """Yields the number of each fragment or file, the positions in it, and which of the addresses they are.

    The addresses ascend.
    """
    numbers, starts = np.unique(addresses >> np.uint64(OFFSET_WIDTH), return_index=True)
    ends = [*starts.tolist(), addresses.size][1:]
    positions = (addresses & np.uint64(OFFSET_BITS)).astype(np.uint32)
    for number, start, end in zip(numbers.tolist(), starts.tolist(), ends, strict=True):
        part = slice(start, end)
        yield int(number), positions[part], part


def addresses_in(number: int, positions: NDArray[np.integer]) -> Addresses:
    """Returns the addresses of these positions in a fragment or file."""
    return (np.uint64(number) << np.uint64(OFFSET_WIDTH)) + positions.astype(np.uint64)


def joined(parts: Sequence[Addresses]) -> Addresses:
    """Returns the addresses of all parts, ascending."""
    return np.sort(np.concatenate([NO_ADDRESSES, *parts]))


def indices_in(sought: Addresses, among: Addresses) -> tuple[Mask, NDArray[np.int64]]:
    """Returns which addresses are among others, which ascend, and at which index."""
    at = np.minimum(np.searchsorted(among, sought), max(among.size - 1, 0))
    return (among[at] == sought) if among.size else np.zeros(sought.size, np.bool_), at
