"""Arrow files of deleted rows: one batch, one column of row offsets; the committer's only door to Arrow.

Arrow makes as much memory for a packed buffer as the buffer says it needs, and Lance's Arrow as much for a
batch as the footer says; what can't be had ends the process. So before a batch is read, what the file says of
its sizes is held against what it has, in the few places where the Arrow format keeps them.

Nearly all of these files list a handful of rows, and those of one writer are equal but for the numbers
themselves. So what stands around the numbers is remembered of each kind that Arrow has read once.

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
"""The longest array that is read (64 MB). pylance lists fewer than 5000 rows, and makes a bitmap of more."""
MOST_TOLD = 200
PADDING = 64
"""Buffers may be filled up to so many bytes."""
MAGIC = b"ARROW1"
TAIL = 4 + len(MAGIC)
"""What follows the footer: its length, and the magic."""
CONTINUES, RAW = -1, -1
"""What begins a message since Arrow 0.15; the length that a buffer gives where it isn't packed."""
FOOTER_DICTIONARIES, FOOTER_BATCHES = 2, 3
VERSION, V5 = 0, 4
"""Where footer and message keep the version of Arrow's metadata, and the one that must stand there.

Arrow writes it into each footer, whatever version the messages have; pylance wants both to be the same.
"""
MESSAGE_HEADER, MESSAGE_BODY = 2, 3
BATCH_ROWS, BATCH_NODES, BATCH_BUFFERS, BATCH_COMPRESSION, BATCH_COUNTS = 0, 1, 2, 3, 4
BUFFER_BYTES = 16
BLOCK_LENGTH, BLOCK_BODY = 8, 16
"""Where the footer's block has the lengths of the batch's description and of its buffers."""
BUFFERS, RAW_BYTES = 2, 8
"""A column has a buffer that tells nulls and one of numbers; how long the length in front of those is."""
PACKED_FROM = 64
"""Fewer numbers hardly get shorter. Clients read both forms (Lance fact 8.2)."""
LONGEST_KNOWN, MOST_LENGTHS, MOST_ALIKE = 4096, 128, 64
"""What is remembered takes some megabytes at most: files up to so many bytes, of so many lengths, of each so
many layouts, since padding makes files of different numbers equally long."""
HINT = "restore the file, or restore an older version of the table"


def read_column(data: bytes, most_rows: int, where: str = "") -> NDArray[np.uint32]:
    """The row offsets in a file, in the order in which they stand there.

    `most_rows`: how many there may be. Raises `DamagedError` for anything that isn't one batch of one column
    of non-null unsigned 32 bit numbers named `row_id`; packed by zstd or lz4, or not packed. pylance refuses
    the same.
    """
    known = _LAYOUTS.column(data, most_rows)
    if known is not None:
        return known
    column = _read(data, most_rows, where)
    _LAYOUTS.learn(data, column)
    return column


def _read(data: bytes, most_rows: int, where: str) -> NDArray[np.uint32]:
    import pyarrow as pa

    try:
        # A few hundred bytes: handing them to other threads and waiting takes longer than to read them.
        alone = pa.ipc.IpcReadOptions(use_threads=False)
        with pa.ipc.open_file(pa.BufferReader(data), options=alone) as file:
            if file.num_record_batches != 1 or not file.schema.equals(
                pa.schema([_field(pa)]), check_metadata=True
            ):
                found = file.schema.to_string()
                raise damaged(f"{file.num_record_batches} batches of {found[:MOST_TOLD]}", where)
            _check_sizes(_Flat(data, where), min(most_rows, MOST_ROWS))
            batch = file.get_batch(0)
        batch.validate(full=True)
        column = batch.column(0)
        if column.null_count:
            raise damaged("it holds nulls", where)
        return cast("NDArray[np.uint32]", column.to_numpy(zero_copy_only=False))
    except (pa.ArrowException, OSError) as error:
        raise damaged(f"Arrow can't read it: {error}", where) from error


def write_column(offsets: NDArray[np.uint32]) -> bytes:
    """The file that holds these row offsets; packed where that makes it smaller, as pylance does it."""
    import pyarrow as pa

    schema = pa.schema([_field(pa)])
    sink = pa.BufferOutputStream()
    packing = "zstd" if len(offsets) >= PACKED_FROM else None
    with pa.ipc.new_file(sink, schema, options=pa.ipc.IpcWriteOptions(compression=packing)) as file:
        file.write_batch(pa.record_batch([pa.array(offsets, type=pa.uint32())], schema=schema))
    return cast("bytes", sink.getvalue().to_pybytes())


def damaged(message: str, where: str) -> DamagedError:
    """The error for a file that isn't an array of row offsets."""
    return DamagedError(f"this is no array of deleted rows: {message}", where=where, hint=HINT)


def _field(pa: object) -> object:
    return pa.field(COLUMN, pa.uint32(), nullable=False)  # type: ignore[attr-defined]


class _Layout(NamedTuple):
    """A file of so many row offsets that aren't packed: all that stands before them, and after."""

    head: bytes
    tail: bytes
    rows: int


class _Layouts:
    """The layouts of small files that Arrow found sound, by the length of the file.

    A file of the same length that begins and ends alike is the same file with other numbers, and Arrow makes
    nothing of those but to hand them on.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[_Layout, ...]] = {}

    def column(self, data: bytes, most_rows: int) -> NDArray[np.uint32] | None:
        """The numbers in a file of a known layout, None for any other."""
        for one in self._known.get(len(data), ()):
            if one.rows <= most_rows and data.startswith(one.head) and data.endswith(one.tail):
                return np.frombuffer(data, "<u4", one.rows, len(one.head))
        return None

    def learn(self, data: bytes, column: NDArray[np.uint32]) -> None:
        """Remembers the layout of a file that holds these numbers, where they aren't packed."""
        alike = self._known.get(len(data), ())
        if len(data) > LONGEST_KNOWN or len(self._known) >= MOST_LENGTHS or len(alike) >= MOST_ALIKE:
            return
        numbers = column.astype("<u4").tobytes()
        if numbers not in data:
            # Packed, and so as unlike any other as its numbers are.
            return
        start = _place_of_numbers(_Flat(data, ""))
        end = start + column.nbytes
        if start and data[start:end] == numbers:
            self._known[len(data)] = (*alike, _Layout(data[:start], data[end:], column.size))


_LAYOUTS = _Layouts()


class _Flat:
    """The places of a FlatBuffer; every read is checked against the file's bounds."""

    def __init__(self, data: bytes, where: str) -> None:
        self._data = data
        self._size = len(data)
        self._where = where

    def __len__(self) -> int:
        return self._size

    def damaged(self, message: str) -> DamagedError:
        return damaged(message, self._where)

    def number(self, at: int, size: int, *, signed: bool = True) -> int:
        """The number of `size` bytes that stands at a place."""
        end = at + size
        if at < 0 or end > self._size:
            raise self.damaged("it points outside of itself")
        return int.from_bytes(self._data[at:end], "little", signed=signed)

    def follow(self, at: int) -> int:
        """The place that a pointer leads to."""
        return at + self.number(at, 4, signed=False)

    def slot(self, table: int, place: int) -> int | None:
        """Where a table keeps one of its fields; None where it has none."""
        directory = table - self.number(table, 4)
        entry = 4 + 2 * place
        if entry >= self.number(directory, 2, signed=False):
            return None
        offset = self.number(directory + entry, 2, signed=False)
        return table + offset if offset else None

    def check_version(self, table: int) -> None:
        """Raises `DamagedError` where a table says another version of Arrow's metadata than the newest."""
        slot = self.slot(table, VERSION)
        if slot is None or self.number(slot, 2) != V5:
            raise self.damaged("it has another version of Arrow's metadata than V5")

    def vector(self, table: int, place: int) -> tuple[int, int]:
        """How many items a table's list has, and where the first one stands."""
        slot = self.slot(table, place)
        if slot is None:
            return 0, 0
        begin = self.follow(slot)
        return self.number(begin, 4, signed=False), begin + 4


class _Batch(NamedTuple):
    """The only batch: where it is described, where its buffers begin, and how many bytes those have."""

    table: int
    body: int
    size: int


def _check_sizes(file: _Flat, most_rows: int) -> None:
    """Raises `DamagedError` where reading the only batch would make more memory than `most_rows` need.

    Also where it would reach outside of the file, whichever of the lengths that stand twice is believed.
    """
    _check_batch(file, _batch(file), most_rows)


def _batch(file: _Flat) -> _Batch:
    """The only batch. Raises `DamagedError`."""
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
        raise file.damaged(f"a batch of {length} and {size} bytes at {message} reaches beyond its place")
    begin = message + 8 if file.number(message, 4) == CONTINUES else message + 4
    envelope = file.follow(begin)
    file.check_version(envelope)
    header = file.slot(envelope, MESSAGE_HEADER)
    if header is None:
        raise file.damaged("its batch has no header")
    slot = file.slot(envelope, MESSAGE_BODY)
    told = file.number(slot, 8) if slot is not None else 0
    if not 0 <= told <= size:
        raise file.damaged(f"its batch says {told} bytes, the footer {size}")
    return _Batch(file.follow(header), body, told)


def _place_of_numbers(file: _Flat) -> int:
    """Where the numbers of a file begin that Arrow has read; 0 where they are packed."""
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
        raise file.damaged(f"it says {rows} rows, and may have {most_rows}")
    nodes, node = file.vector(batch.table, BATCH_NODES)
    if nodes != 1 or file.number(node, 8) != rows:
        raise file.damaged(f"it says {nodes} columns, or another number of rows in one")
    count, first = file.vector(batch.table, BATCH_BUFFERS)
    if count != BUFFERS or file.vector(batch.table, BATCH_COUNTS)[0]:
        raise file.damaged(f"it says {count} buffers, or that some columns have others")
    packed = file.slot(batch.table, BATCH_COMPRESSION) is not None
    for place in range(first, first + count * BUFFER_BYTES, BUFFER_BYTES):
        start, size = file.number(place, 8), file.number(place + 8, 8)
        if min(start, size) < 0 or start + size > batch.size or (packed and 0 < size < RAW_BYTES):
            raise file.damaged(f"no buffer of {size} bytes can lie at {start} of {batch.size}")
        unpacked = file.number(batch.body + start, RAW_BYTES) if packed and size else RAW
        if not RAW <= unpacked <= 4 * rows + PADDING:
            raise file.damaged(f"a buffer says {unpacked} bytes for {rows} rows")
