"""Appends as nearly all writers send them, as a few plain values: one new fragment, in one new file.

A busy log holds thousands of them a second, and they differ in nothing but the names, sizes and rows of their
files. So each is taken apart once, when its message is decoded, and these values are used from then on
instead of the message: an entry takes 35 µs of the processor instead of 120 (`benchmarks --only folding`).
Its length shows that the message contains nothing else: it is exactly the sum of the parts. Any other
proposal, and any that is unusual in itself, is checked by its message.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from lakefold_protos.lance.table_pb2 import DataFile, DataFragment
from lakefold_protos.lance.transaction_pb2 import Transaction
from lakefold_table.lance.manifests.naming import data_path, is_usual_name
from lakefold_table.wire import varint

if TYPE_CHECKING:
    from lakefold_protos.lakefold.log_pb2 import Envelope

FileShape = tuple[int, int, tuple[int, ...], tuple[int, ...]]
"""The parts of a data file that many share: the major and minor version, the field ids, the column of each.
"""
Shape = tuple[FileShape, ...]
"""The shapes of a fragment's files."""

MAX_ROWS = 2**32 - 1
MAX_UUID_LENGTH = 64
MOST_FIELDS = 10_000
"""A file that lists more fields is unusual."""
SHAPES = 1024
"""How many shapes are remembered, for all tables together."""
_SIZES = tuple(max(1, (bits + 6) // 7) for bits in range(65))
"""By the number of bits of a number how many bytes it takes as a varint."""


def _tag(number: int) -> int:
    """Returns how many bytes a field's tag takes."""
    return len(varint(number << 3))


_READ_VERSION, _UUID = _tag(Transaction.READ_VERSION_FIELD_NUMBER), _tag(Transaction.UUID_FIELD_NUMBER)
_APPEND, _FRAGMENT = _tag(Transaction.APPEND_FIELD_NUMBER), _tag(Transaction.Append.FRAGMENTS_FIELD_NUMBER)
_FILE, _ROWS = _tag(DataFragment.FILES_FIELD_NUMBER), _tag(DataFragment.PHYSICAL_ROWS_FIELD_NUMBER)
_PATH, _SIZE = _tag(DataFile.PATH_FIELD_NUMBER), _tag(DataFile.FILE_SIZE_BYTES_FIELD_NUMBER)


class Plain(NamedTuple):
    """The content of a usual Append: its transaction has nothing else but the uuid.

    `path`: of the new file, below the table's root; `key`: what distinguishes it from others (`file_key`).
    `rows`: its physical rows, at least one. `size`: the file's size in bytes as the proposal says, 0 if it
    doesn't. `shape`: the rest of what it says of the file. `record`: the fragment as it was proposed,
    encoded.
    """

    read_version: int
    path: str
    key: str
    rows: int
    size: int
    shape: Shape
    record: bytes


def plain_of(envelope: Envelope) -> Plain | None:
    """Returns the content of a usual Append, or None for anything else."""
    transaction = envelope.lance
    fragments = transaction.append.fragments
    if len(fragments) != 1 or len(fragments[0].files) != 1:
        return None
    fragment = fragments[0]
    file = fragment.files[0]
    if len(file.fields) > MOST_FIELDS or len(file.column_indices) > MOST_FIELDS:
        return None
    path, rows, size, read, uuid = (
        file.path,
        fragment.physical_rows,
        file.file_size_bytes,
        transaction.read_version,
        transaction.uuid,
    )
    usual = 0 < rows <= MAX_ROWS and len(uuid) <= MAX_UUID_LENGTH and uuid.isascii() and is_usual_name(path)
    if not usual or envelope.HasField("create") or envelope.HasField("fragment_reuse_index"):
        return None
    shape, length = _shape_of(
        (file.file_major_version, file.file_minor_version, tuple(file.fields), tuple(file.column_indices))
    )
    length += _PATH + _length(len(path)) + (_SIZE + _SIZES[size.bit_length()] if size else 0)
    length = _FILE + _length(length) + _ROWS + _SIZES[rows.bit_length()]
    length = _APPEND + _length(_FRAGMENT + _length(length))
    length += _READ_VERSION + _SIZES[read.bit_length()] if read else 0
    length += _UUID + _length(len(uuid)) if uuid else 0
    if length != transaction.ByteSize() or envelope.affected_rows:
        return None
    record = fragment.SerializeToString(deterministic=True)
    return Plain(read, data_path(path), path, rows, size, shape, record)


def _length(size: int) -> int:
    """Returns how many bytes a field of this size takes with its length before it."""
    return _SIZES[size.bit_length()] + size


@lru_cache(maxsize=SHAPES)
def _shape_of(shape: FileShape) -> tuple[Shape, int]:
    """Returns the shape of a fragment with just this file, and its share of the file's message in bytes."""
    major, minor, fields, indices = shape
    file = DataFile(file_major_version=major, file_minor_version=minor, fields=fields, column_indices=indices)
    return (shape,), file.ByteSize()
