"""Deletion files in Arrow format: one batch, one column of row offsets.

The only module of the committer that imports Arrow. Arrow allocates as much memory for a compressed buffer as
the buffer claims to need, and Lance's Arrow as much for a batch as the footer claims; an allocation that
fails ends the process. So before a batch is read, the sizes that the file claims are compared with its actual
size.

Nearly all of these files list a few rows, and files of the same writer differ only in the numbers. So the
bytes around the numbers are remembered for each layout that Arrow has accepted once.

Source: Lance facts 8.2 and 8.5; Arrow's columnar format, "IPC File Format" and its FlatBuffers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from lakefold_table.errors import DamagedError

if TYPE_CHECKING:
    from numpy.typing import NDArray

COLUMN = "row_id"
MOST_ROWS = 2**24
"""The longest array that is read (64 MB). pylance writes a bitmap from 5,000 rows on (Lance fact 8.1)."""
MOST_SHOWN = 200
PADDING = 64
"""How many bytes of padding a buffer may have."""
MAGIC = b"ARROW1"
TAIL = 4 + len(MAGIC)
"""The size of what follows the footer: its length, and the magic bytes."""
CONTINUES, RAW = -1, -1
"""What begins a message since Arrow 0.15; the length that an uncompressed buffer states."""
FOOTER_DICTIONARIES, FOOTER_BATCHES = 2, 3
VERSION, V5 = 0, 4
"""The field of footer and message that states the version of Arrow's metadata, and its required value.

Arrow writes it into each footer, whatever version the messages have; pylance requires both to be the same."""
MESSAGE_HEADER, MESSAGE_BODY = 2, 3
BATCH_ROWS, BATCH_NODES, BATCH_BUFFERS, BATCH_COMPRESSION, BATCH_COUNTS = 0, 1, 2, 3, 4
BUFFER_BYTES = 16
BLOCK_LENGTH, BLOCK_BODY = 8, 16
"""The offsets in the footer's block of the length of the batch's metadata and of its buffers."""
BUFFERS, RAW_BYTES = 2, 8
"""A column has a buffer for nulls and a buffer for numbers; the size of the length in front of each."""
PACKED_FROM = 64
"""Fewer numbers than this hardly get shorter. Clients read both forms (Lance fact 8.2)."""
LONGEST_KNOWN, MOST_LENGTHS, MOST_ALIKE = 4096, 128, 64
"""The size of the largest file whose layout is remembered, how many such sizes, and how many layouts of each:
padding gives files with different numbers of rows the same size. All layouts take a few megabytes."""
HINT = "restore the file, or restore an older version of the table"


def read_column(data: bytes, most_rows: int, where: str = "") -> NDArray[np.uint32]:
    """Returns the row offsets in a file, in their stored order.

    `most_rows`: how many there may be. Raises `DamagedError` unless the file is one batch with one column of
    non-null unsigned 32-bit numbers named `row_id`, compressed by zstd or lz4 or not at all. pylance refuses
    the same files.
    """
    remembered = _LAYOUTS.column(data, most_rows)
    if remembered is not None:
        return remembered
    column = _read(data, most_rows, where)
    _LAYOUTS.learn(data, column)
    return column


def _read(data: bytes, most_rows: int, where: str) -> NDArray[np.uint32]:
    import pyarrow as pa

    try:
        # Reading a few hundred bytes takes less time than handing them to another thread.
        options = pa.ipc.IpcReadOptions(use_threads=False)
        with pa.ipc.open_file(pa.BufferReader(data), options=options) as file:
            if file.num_record_batches != 1 or not file.schema.equals(
                pa.schema([_field()]), check_metadata=True
            ):
                schema = file.schema.to_string()
                raise damaged(
                    f"{file.num_record_batches} batches with the schema {schema[:MOST_SHOWN]}", where
                )
            _check_sizes(_Flat(data, where), min(most_rows, MOST_ROWS))
            batch = file.get_batch(0)
        batch.validate(full=True)
        column = batch.column(0)
        if column.null_count:
            raise damaged("it has nulls", where)
        return cast("NDArray[np.uint32]", column.to_numpy(zero_copy_only=False))
    except (pa.ArrowException, OSError) as error:
        raise damaged(f"Arrow can't read it: {error}", where) from error


def write_column(offsets: NDArray[np.uint32]) -> bytes:
    """Returns the bytes of a file with these row offsets; compressed if that is smaller, as in pylance."""
    import pyarrow as pa

    schema = pa.schema([_field()])
    sink = pa.BufferOutputStream()
    packing = "zstd" if len(offsets) >= PACKED_FROM else None
    with pa.ipc.new_file(sink, schema, options=pa.ipc.IpcWriteOptions(compression=packing)) as file:
        file.write_batch(pa.record_batch([pa.array(offsets, type=pa.uint32())], schema=schema))
    return cast("bytes", sink.getvalue().to_pybytes())


def damaged(message: str, where: str) -> DamagedError:
    """Returns the error for a file that isn't an array of row offsets."""
    return DamagedError(f"not an array of deleted rows: {message}", where=where, hint=HINT)


def _field() -> object:
    import pyarrow as pa

    return pa.field(COLUMN, pa.uint32(), nullable=False)


class _Layout(NamedTuple):
    """A file with a number of uncompressed row offsets: all bytes before them, and all after them."""

    head: bytes
    tail: bytes
    rows: int


class _Layouts:
    """The layouts of small files that Arrow has accepted, by file size.

    A file of the same size with the same beginning and end differs only in its numbers, and Arrow returns
    these as they are.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[_Layout, ...]] = {}

    def column(self, data: bytes, most_rows: int) -> NDArray[np.uint32] | None:
        """Returns the numbers in a file of a known layout, None for any other file."""
        for layout in self._known.get(len(data), ()):
            if layout.rows <= most_rows and data.startswith(layout.head) and data.endswith(layout.tail):
                return np.frombuffer(data, "<u4", layout.rows, len(layout.head))
        return None

    def learn(self, data: bytes, column: NDArray[np.uint32]) -> None:
        """Remembers the layout of a file with these numbers, if it isn't compressed and there is room."""
        alike = self._known.get(len(data), ())
        if len(data) > LONGEST_KNOWN or len(self._known) >= MOST_LENGTHS or len(alike) >= MOST_ALIKE:
            return
        numbers = column.astype("<u4").tobytes()
        if numbers not in data:
            # The file is compressed, so its bytes depend on the numbers everywhere.
            return
        start = _numbers_offset(_Flat(data, ""))
        end = start + column.nbytes
        if start and data[start:end] == numbers:
            self._known[len(data)] = (*alike, _Layout(data[:start], data[end:], column.size))


_LAYOUTS = _Layouts()


class _Flat:
    """A FlatBuffer that is read by offsets; every read is checked against the file's bounds."""

    def __init__(self, data: bytes, where: str) -> None:
        self._data = data
        self._size = len(data)
        self._where = where

    def __len__(self) -> int:
        return self._size

    def damaged(self, message: str) -> DamagedError:
        return damaged(message, self._where)

    def number(self, at: int, size: int, *, signed: bool = True) -> int:
        """Returns the number of `size` bytes at an offset. Raises `DamagedError` if that is outside."""
        end = at + size
        if at < 0 or end > self._size:
            raise self.damaged("it points outside of itself")
        return int.from_bytes(self._data[at:end], "little", signed=signed)

    def follow(self, at: int) -> int:
        """Returns the offset that a pointer leads to."""
        return at + self.number(at, 4, signed=False)

    def slot(self, table: int, field: int) -> int | None:
        """Returns the offset of a table's field, None if the table doesn't have it."""
        directory = table - self.number(table, 4)
        entry = 4 + 2 * field
        if entry >= self.number(directory, 2, signed=False):
            return None
        offset = self.number(directory + entry, 2, signed=False)
        return table + offset if offset else None

    def check_version(self, table: int) -> None:
        """Raises `DamagedError` if a table states another version of Arrow's metadata than V5."""
        slot = self.slot(table, VERSION)
        if slot is None or self.number(slot, 2) != V5:
            raise self.damaged("it has another version of Arrow's metadata than V5")

    def vector(self, table: int, field: int) -> tuple[int, int]:
        """Returns the number of items in a table's vector, and the offset of the first."""
        slot = self.slot(table, field)
        if slot is None:
            return 0, 0
        begin = self.follow(slot)
        return self.number(begin, 4, signed=False), begin + 4


class _Batch(NamedTuple):
    """The only batch: the offset of its metadata, the offset of its buffers, and their size in bytes."""

    table: int
    body: int
    size: int


def _check_sizes(file: _Flat, most_rows: int) -> None:
    """Raises `DamagedError` if reading the only batch would take more memory than `most_rows` need.

    Also raises it if the batch would end outside of the file, by either of the two lengths that state its
    size.
    """
    _check_batch(file, _batch(file), most_rows)


def _batch(file: _Flat) -> _Batch:
    """Returns the only batch. Raises `DamagedError`."""
    footer_end = len(file) - TAIL
    footer_begin = footer_end - file.number(footer_end, 4)
    footer = file.follow(footer_begin)
    file.check_version(footer)
    blocks, block = file.vector(footer, FOOTER_BATCHES)
    if blocks != 1 or file.vector(footer, FOOTER_DICTIONARIES)[0]:
        raise file.damaged(f"it has {blocks} batches, or dictionaries")
    message, length = file.number(block, 8), file.number(block + BLOCK_LENGTH, 4)
    size = file.number(block + BLOCK_BODY, 8)
    body = message + length
    if min(message, length, size) < 0 or body + size > footer_begin:
        raise file.damaged(f"a batch of {length} and {size} bytes at {message} reaches beyond the footer")
    begin = message + 8 if file.number(message, 4) == CONTINUES else message + 4
    envelope = file.follow(begin)
    file.check_version(envelope)
    header = file.slot(envelope, MESSAGE_HEADER)
    if header is None:
        raise file.damaged("its batch has no header")
    slot = file.slot(envelope, MESSAGE_BODY)
    stated = file.number(slot, 8) if slot is not None else 0
    if not 0 <= stated <= size:
        raise file.damaged(f"its batch claims {stated} bytes, the footer {size}")
    return _Batch(file.follow(header), body, stated)


def _numbers_offset(file: _Flat) -> int:
    """Returns the offset of the numbers in a file that Arrow has read; 0 if they are compressed."""
    batch = _batch(file)
    _, first = file.vector(batch.table, BATCH_BUFFERS)
    start = batch.body + file.number(first + BUFFER_BYTES, 8)
    if file.slot(batch.table, BATCH_COMPRESSION) is None:
        return start
    return start + RAW_BYTES if file.number(start, RAW_BYTES) == RAW else 0


def _check_batch(file: _Flat, batch: _Batch, most_rows: int) -> None:
    slot = file.slot(batch.table, BATCH_ROWS)
    rows = file.number(slot, 8) if slot is not None else 0
    if not 0 <= rows <= most_rows:
        raise file.damaged(f"it claims {rows} rows, but may have at most {most_rows}")
    nodes, node = file.vector(batch.table, BATCH_NODES)
    if nodes != 1 or file.number(node, 8) != rows:
        raise file.damaged(f"it claims {nodes} columns, or another number of rows in a column")
    count, first = file.vector(batch.table, BATCH_BUFFERS)
    if count != BUFFERS or file.vector(batch.table, BATCH_COUNTS)[0]:
        raise file.damaged(f"it claims {count} buffers, or a variable number of them")
    packed = file.slot(batch.table, BATCH_COMPRESSION) is not None
    for entry in range(first, first + count * BUFFER_BYTES, BUFFER_BYTES):
        start, size = file.number(entry, 8), file.number(entry + 8, 8)
        if min(start, size) < 0 or start + size > batch.size or (packed and 0 < size < RAW_BYTES):
            raise file.damaged(f"a buffer of {size} bytes can't begin at {start} of {batch.size}")
        unpacked = file.number(batch.body + start, RAW_BYTES) if packed and size else RAW
        if not RAW <= unpacked <= 4 * rows + PADDING:
            raise file.damaged(f"a buffer claims {unpacked} bytes for {rows} rows")
