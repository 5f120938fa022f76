"""Version files of Lance tables as a reader reads them.

A version that Lakefold published has its transaction at the very start of its file, so one ranged read shows
what it did, whatever the size of the table. Any other version is read whole, but its fragments are not
decoded.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from google.protobuf.message import DecodeError

from lakefold_protos.lance.transaction_pb2 import Transaction
from lakefold_table.author import Author
from lakefold_table.errors import DamagedError
from lakefold_table.format import VersionSummary
from lakefold_table.lance.format import LanceFormat
from lakefold_table.lance.kinds import Kind, kind_of
from lakefold_table.lance.manifests.codec import decode_head, head_length, head_transaction
from lakefold_table.lance.manifests.features import check_readable
from lakefold_table.lance.manifests.naming import TRANSACTIONS
from lakefold_table.lance.state import MICROS, LanceState
from lakefold_table.lance.version_links import keeps_metadata, restored_by, transaction_uuid
from lakefold_table.marks.record import TABLE_ID, TIME, is_own
from lakefold_table.roots import below
from lakefold_table.versions.heads import HEAD_BYTES, read_head

if TYPE_CHECKING:
    from lakefold_protos.lance.table_pb2 import Manifest
    from lakefold_reader.format.source import Source

KEEPING_SCHEMA = frozenset(
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
"""Operations that keep the schema: of such a version a reader needs no more than the transaction."""
CREATE: Final = "create"
"""The operation of a table's first version."""
MICROSECONDS = re.compile(r"[0-9]{1,20}")


class VersionContent(NamedTuple):
    """The content of a Lance version file that the summary lacks (`VersionSummary.content`).

    `head`: the manifest without its fragments; None if only the first bytes of the file were read.
    """

    transaction: Transaction | None
    head: Manifest | None


def transaction_of(summary: VersionSummary) -> Transaction | None:
    """Returns the transaction that made a version. Returns None if it is not known."""
    return cast("VersionContent", summary.content).transaction


def head_of(summary: VersionSummary) -> Manifest | None:
    """Returns the manifest of a version without its fragments. Returns None if it was not read."""
    return cast("VersionContent", summary.content).head


def kind_in(summary: VersionSummary) -> Kind:
    """Returns the kind of operation that made a version."""
    return kind_of(transaction_of(summary))


def read_summary(
    source: Source, version: int, *, whole: bool = False, first: int | None = None
) -> VersionSummary | None:
    """See `Source.summary`. If the first bytes don't contain all that is needed, there is a second read."""
    path = source.versions.path(version)
    requested_at = time.monotonic()
    try:
        start, complete = (
            (source.storage.get(path), True)
            if whole
            else read_head(source.storage, path, head_length, first or HEAD_BYTES)
        )
        summary = None if whole else _from_start(version, start, requested_at)
        if summary is not None:
            return summary
        return _from_file(source, version, start if complete else source.storage.get(path), requested_at)
    except FileNotFoundError:
        return None


def read_state(source: Source, version: int) -> LanceState:
    """Returns a version with its fragments. Raises `VersionExpiredError`, `DamagedError`, `InvalidError`.

    The last versions are kept: of a version next to them only what differs is decoded.
    """
    kept = source.kept_state(version, LanceState)
    if kept is not None:
        return kept
    like = source.state_like(version, LanceState)
    data = source.versions.read(version)
    state = LanceFormat().decode(source.versions.path(version), data, source.uri, like=like)
    source.keep_state(state)
    return state


def _from_start(version: int, start: bytes, requested_at: float) -> VersionSummary | None:
    """Returns the summary of a committer's version from the first bytes of its file.

    Returns None if these don't suffice.
    """
    transaction = head_transaction(start)
    if transaction is None or not is_own(transaction.transaction_properties, version):
        return None
    properties = transaction.transaction_properties
    if kind_of(transaction) not in KEEPING_SCHEMA or not MICROSECONDS.fullmatch(properties[TIME]):
        return None
    return VersionSummary(
        version,
        _operation(transaction, version),
        properties,
        begins_clone=False,
        footprint=None,
        keeps_metadata=keeps_metadata(transaction),
        uuid=transaction.uuid,
        time_us=int(properties[TIME]),
        table_id=properties[TABLE_ID],
        own=True,
        content=VersionContent(transaction, None),
        size=head_length(start),
        requested_at=requested_at,
    )


def _from_file(source: Source, version: int, data: bytes, requested_at: float) -> VersionSummary:
    """Returns the summary of a version by its whole file."""
    where = below(source.uri, source.versions.path(version))
    head, transaction = decode_head(data, where)
    check_readable(head, where)
    if head.version != version:
        raise DamagedError(f"the manifest says that it is version {head.version}", where=where)
    if transaction is None and head.transaction_file:
        transaction = _transaction_file(source, head.transaction_file)
    properties = {} if transaction is None else transaction.transaction_properties
    own, writer = transaction is not None and is_own(properties, version), head.writer_version
    return VersionSummary(
        version,
        _operation(transaction, version),
        properties,
        begins_clone=kind_of(transaction) is Kind.CLONE,
        footprint=None,
        keeps_metadata=keeps_metadata(transaction),
        restored=restored_by(transaction),
        uuid=transaction_uuid(transaction, head.transaction_file),
        time_us=head.timestamp.seconds * MICROS + head.timestamp.nanos // 1000,
        table_id=head.table_metadata.get(TABLE_ID, ""),
        branch=head.branch,
        own=own,
        metadata=head.table_metadata,
        content=VersionContent(transaction, head),
        author=Author(program=f"{writer.library} {writer.version}") if writer.library and not own else None,
        size=len(data),
        requested_at=requested_at,
    )


def _operation(transaction: Transaction | None, version: int) -> str:
    """Returns Lance's name of the operation, or `unknown` if there is no transaction.

    Lance has none that creates a table: it is an Overwrite, and called `CREATE` here.
    """
    name = None if transaction is None else transaction.WhichOneof("operation")
    if name == Kind.OVERWRITE.value and version == 1:
        return CREATE
    return name or Kind.UNKNOWN.value


def _transaction_file(source: Source, name: str) -> Transaction | None:
    """Returns the transaction in a file of its own, as pylance wrote it before 14.

    None if it was cleaned up.
    """
    path = f"{TRANSACTIONS}/{name}"
    try:
        return Transaction.FromString(source.storage.get(path))
    except FileNotFoundError:
        return None
    except DecodeError as error:
        raise DamagedError(
            f"the transaction can't be decoded: {error}", where=below(source.uri, path)
        ) from error
