"""One table as a reader sees it: its versions, and what each of them says about itself.

A version that Lakefold published names itself at the very start of its file, so one ranged read tells what it
did, whatever the size of the table. Any other version is read whole, but its fragments are not decoded.
"""

from __future__ import annotations

import re
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError

from lakefold_protos.lance.transaction_pb2 import Transaction
from lakefold_table.errors import DamagedError, NotATableError
from lakefold_table.lance.format import LanceFormat
from lakefold_table.lance.manifests.codec import decode_head, head_length, head_transaction
from lakefold_table.lance.manifests.features import check_readable
from lakefold_table.lance.operations import Kind, kind_of
from lakefold_table.lance.state import MICROS
from lakefold_table.marks.record import TABLE_ID, TIME, is_own
from lakefold_table.roots import below, folder_and_name
from lakefold_table.storage import open_storage
from lakefold_table.uri import canonical
from lakefold_table.versions.heads import HEAD_BYTES, read_head
from lakefold_table.versions.versions import Versions

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from lakefold_protos.lance.table_pb2 import DataFragment, Manifest
    from lakefold_table.lance.state import LanceState
    from lakefold_table.storage.base import Storage

TRANSACTIONS = "_transactions"
TOLD_BY_HEAD = frozenset(
    {
        Kind.APPEND,
        Kind.CREATE_INDEX,
        Kind.DATA_REPLACEMENT,
        Kind.DELETE,
        Kind.RESERVE_FRAGMENTS,
        Kind.REWRITE,
        Kind.UPDATE,
        Kind.UPDATE_BASES,
        Kind.UPDATE_MEM_WAL_STATE,
    }
)
"""What keeps the schema, so that such a version needs no more than its transaction."""
MARK_DIGITS = 16
KEPT = 3
"""So many versions that were read whole are kept: who goes backwards in pairs meets each of them twice."""
MICROSECONDS = re.compile(r"[0-9]{1,20}")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Source:
    """Where a table is read from. `options`, which may be secret, are what pylance is given to reach it."""

    storage: Storage
    versions: Versions
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    _held: list[LanceState] = field(default_factory=list, repr=False, compare=False)
    """The versions that were read whole last, the last one first (`read_state`)."""

    def held(self, version: int) -> LanceState | None:
        """A version that was read whole: this one, else the last one that was."""
        return next((one for one in self._held if one.version == version), next(iter(self._held), None))

    def hold(self, state: LanceState) -> None:
        """Keep this one, and those before that share most of their fragments with it."""
        self._held[:] = [state, *self._held[: KEPT - 1]]

    @property
    def uri(self) -> str:
        """The table's canonical URI."""
        return self.storage.uri

    def content(self, path: str) -> bytes:
        """The bytes of a file: by its path in the table, or by its whole URI where it lies elsewhere.

        Raises `FileNotFoundError`, and `PlaceError` for a path that no store takes.
        """
        if "://" not in path and not path.startswith("/"):
            return self.storage.get(path)
        folder, name = folder_and_name(path)
        return open_storage(folder, self.options).get(name)


@dataclass(frozen=True, slots=True)
class Step:
    """What one version says of itself.

    `own`: a committer published it, and `transaction` bears the record of the log. `head` is its manifest
    without fragments, None where the version was told by its first bytes. `table_id` and `branch` are empty
    where the version names none; a version told by its first bytes doesn't name its branch (None). `size`:
    how many of the file's first bytes tell all this; those of the whole file where nothing less does.
    `asked_at`: when the file was asked for, in seconds of `time.monotonic`.
    """

    version: int
    time_us: int
    table_id: str
    branch: str | None
    transaction: Transaction | None
    own: bool
    head: Manifest | None
    size: int = 0
    asked_at: float = field(default=0.0, compare=False)

    @property
    def mark(self) -> str:
        """Tells the version from any other of its number: a digest of its transaction's uuid.

        Of its time where there is none. It is the same whether the version is told by its first bytes or
        read whole, and whether the file of its transaction is still there.
        """
        uuid = "" if self.transaction is None else self.transaction.uuid
        if self.transaction is None and self.head is not None:
            # READ_VERSION-UUID.txn
            uuid = self.head.transaction_file.partition("-")[2].removesuffix(".txn")
        return sha256((uuid or str(self.time_us)).encode()).hexdigest()[:MARK_DIGITS]

    @property
    def kind(self) -> Kind:
        """The kind of operation that made the version."""
        return kind_of(self.transaction)

    @property
    def operation(self) -> str:
        """Lance's name for what made the version; `unknown` where there is no transaction."""
        name = None if self.transaction is None else self.transaction.WhichOneof("operation")
        return name or Kind.UNKNOWN.value

    @property
    def properties(self) -> Mapping[str, str]:
        """The properties of its transaction."""
        return {} if self.transaction is None else self.transaction.transaction_properties


def open_source(uri: str | os.PathLike[str], storage_options: Mapping[str, str] | None = None) -> Source:
    """The table at `uri`; nothing is read yet."""
    return source_on(open_storage(canonical(uri), storage_options), storage_options)


def source_on(storage: Storage, storage_options: Mapping[str, str] | None = None) -> Source:
    """The table at the root of a store."""
    lance = LanceFormat()
    return Source(storage, Versions(storage, lance.folder, lance.detect), dict(storage_options or {}))


def numbers_of(source: Source) -> list[int]:
    """The versions that are there, ascending; lists them. Raises `NotATableError` where there are none."""
    numbers = source.versions.numbers()
    if numbers:
        return numbers
    there = "no version of a table" if source.storage.anything_at_root() else "nothing"
    raise NotATableError(
        f"there is {there} at this place",
        where=source.uri,
        hint="name the table's own root: the folder of _versions/",
    )


def unbroken_from(numbers: Sequence[int]) -> int:
    """The oldest of these versions, ascending, behind which none is missing.

    A tag keeps its version when those around it are cleaned up: nothing can go on from there.
    """
    first = numbers[-1]
    for number in reversed(numbers[:-1]):
        if number + 1 != first:
            break
        first = number
    return first


def left(numbers: Sequence[int]) -> str:
    """What is said of the versions that are there, to somebody who wants to go on from one of them."""
    oldest = unbroken_from(numbers)
    if oldest == numbers[0]:
        return f"the oldest one left is {oldest}"
    return f"none is missing from {oldest} on"


def newest_of(source: Source) -> int:
    """The newest version. Raises `NotATableError` where there is none.

    Where the store names the newest first it is one request, however many versions there are.
    """
    with suppress(NotATableError):
        if newest := source.versions.latest():
            return newest
    return numbers_of(source)[-1]


def read_state(source: Source, version: int) -> LanceState:
    """One version whole, with its fragments. Raises `VersionExpiredError`, `DamagedError`, `InvalidError`.

    The last ones are kept: of a neighbouring version only what differs is decoded.
    """
    held = source.held(version)
    if held is not None and held.version == version:
        return held
    data = source.versions.read(version)
    state = LanceFormat().decode(source.versions.path(version), data, source.uri, like=held)
    source.hold(state)
    return state


def read_step(source: Source, version: int, *, whole: bool = False, first: int = HEAD_BYTES) -> Step | None:
    """What a version says of itself, None where it isn't there. Lists nothing once the naming is known.

    `whole`: its manifest is wanted too, whoever made it. `first`: so many bytes are read at first; what they
    don't tell costs another read.
    """
    path = source.versions.path(version)
    asked_at = time.monotonic()
    try:
        start, complete = (
            (source.storage.get(path), True) if whole else read_head(source.storage, path, first)
        )
        step = None if whole else _own_step(version, start)
        step = step or _step(source, version, start if complete else source.storage.get(path))
        return replace(step, asked_at=asked_at)
    except FileNotFoundError:
        return None


def counts_rows(fragment: DataFragment) -> bool:
    """Whether a fragment says how many rows it has and how many of them are deleted."""
    deletions_known = not fragment.HasField("deletion_file") or fragment.deletion_file.num_deleted_rows > 0
    return fragment.physical_rows > 0 and deletions_known


def time_of(time_us: int) -> datetime:
    """Microseconds since 1970 as a time in UTC. Raises `DamagedError` beyond the years 1 to 9999."""
    try:
        return EPOCH + timedelta(microseconds=time_us)
    except OverflowError as error:
        raise DamagedError(f"the version's time is none: {time_us} µs since 1970") from error


def _own_step(version: int, start: bytes) -> Step | None:
    transaction = head_transaction(start)
    if transaction is None or not is_own(transaction.transaction_properties, version):
        return None
    properties = transaction.transaction_properties
    if kind_of(transaction) not in TOLD_BY_HEAD or not MICROSECONDS.fullmatch(properties[TIME]):
        return None
    return Step(
        version,
        int(properties[TIME]),
        properties[TABLE_ID],
        None,
        transaction,
        own=True,
        head=None,
        size=head_length(start),
    )


def _step(source: Source, version: int, data: bytes) -> Step:
    where = below(source.uri, source.versions.path(version))
    head, transaction = decode_head(data, where)
    check_readable(head, where)
    if head.version != version:
        raise DamagedError(f"the manifest says that it is version {head.version}", where=where)
    if transaction is None and head.transaction_file:
        transaction = _transaction_file(source, head.transaction_file)
    time_us = head.timestamp.seconds * MICROS + head.timestamp.nanos // 1000
    own = transaction is not None and is_own(transaction.transaction_properties, version)
    table_id = head.table_metadata.get(TABLE_ID, "")
    return Step(version, time_us, table_id, head.branch, transaction, own, head, size=len(data))


def _transaction_file(source: Source, name: str) -> Transaction | None:
    """The transaction in a file of its own, as pylance wrote it before 14; None where it was cleaned up."""
    path = f"{TRANSACTIONS}/{name}"
    try:
        return Transaction.FromString(source.storage.get(path))
    except FileNotFoundError:
        return None
    except DecodeError as error:
        raise DamagedError(
            f"the transaction can't be decoded: {error}", where=below(source.uri, path)
        ) from error
