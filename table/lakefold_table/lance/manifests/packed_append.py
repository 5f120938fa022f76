"""The fragments of a large Append as its writer encoded them, never all decoded at once.

A million fragments take a hundred megabytes as bytes and thirty times as much as messages. So they stay
bytes, in portions, and each portion is decoded, checked and dropped in turn. Nearly all fragments of an
Append are equal but for the names, sizes and row counts of their files, so everything else is checked once
for each kind of fragment.

Only proposals that need nothing else are kept like this: new fragments in files of the table itself, whose
names, rows and bytes are sound in themselves. Any other proposal is decoded completely, and checked like
every small Append.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from google.protobuf.message import DecodeError

from lakefold_protos.lance.table_pb2 import DataFragment
from lakefold_protos.lance.transaction_pb2 import Transaction
from lakefold_protos.lance.views_pb2 import AppendView
from lakefold_table.allocation import check_allocated
from lakefold_table.expansion import check_expansion
from lakefold_table.lance.manifests.naming import are_data_names, data_path
from lakefold_table.wire import DELIMITED, TYPE_BITS, field_at, runs, varint

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

M = TypeVar("M", Transaction, Transaction.Append)

PORTION_BYTES = 256 * 1024
"""How much is decoded at once: whatever is in so few bytes, it takes little memory."""
MOST_KINDS = 64
"""How many different kinds of fragments a proposal may have, as each is remembered."""
MAX_ROWS = 2**32 - 1
APPEND = Transaction.APPEND_FIELD_NUMBER
FRAGMENTS = Transaction.Append.FRAGMENTS_FIELD_NUMBER


@dataclass(frozen=True, slots=True, eq=False)
class Packed:
    """The new fragments of an Append, in its order: without ids, each in files of the table itself.

    `portions`: their records as in `Append.fragments`, in the form that every client writes. `kinds`: one
    fragment of each kind, without its row count and the names and sizes of its files. `rows`: the physical
    rows of each fragment. `sizes`: the size of each file in bytes as the proposal says, 0 if it doesn't.
    `hashes`: of the files' names, in the same order.
    """

    portions: Sequence[bytes] = field(repr=False)
    kinds: Sequence[DataFragment]
    rows: array[int] = field(repr=False)
    sizes: array[int] = field(repr=False)
    hashes: array[int] = field(repr=False)

    @property
    def count(self) -> int:
        """The number of fragments."""
        return len(self.rows)

    def fragments(self) -> Iterator[Sequence[DataFragment]]:
        """Yields the fragments as messages, portion by portion. The caller must not keep them."""
        for portion in self.portions:
            yield Transaction.Append.FromString(portion).fragments

    def records(self) -> Iterator[Sequence[bytes]]:
        """Yields the fragments, still encoded, portion by portion."""
        for portion in self.portions:
            yield AppendView.FromString(portion).fragments

    def paths(self) -> Iterator[Sequence[str]]:
        """Yields the paths of all files below the table's root, by portion, in the order of `sizes`."""
        for fragments in self.fragments():
            yield [data_path(file.path) for fragment in fragments for file in fragment.files]

    def with_sizes(self, sizes: Sequence[int]) -> Packed:
        """Returns the same fragments with all file sizes filled in; `sizes`: of all files, in their order."""
        complete = array("Q", [given or size for given, size in zip(self.sizes, sizes, strict=True)])
        portions, at = [], 0
        for portion in self.portions:
            message = Transaction.Append.FromString(portion)
            for file in (file for fragment in message.fragments for file in fragment.files):
                file.file_size_bytes = complete[at]
                at += 1
            portions.append(message.SerializeToString(deterministic=True))
        return replace(self, portions=portions, sizes=complete)

    def name(self, index: int) -> str:
        """Returns the name of the file at this index of `sizes`. Decodes all files before it."""
        return next(islice(self.names(), index, None))

    def names(self) -> Iterator[str]:
        """Yields the names of all files, in the order of `sizes`. Decodes portion by portion."""
        return (file.path for fragment in self._each() for file in fragment.files)

    def files_of_fragments(self) -> NDArray[np.int64]:
        """Returns for each file the index of its fragment."""
        if len(self.hashes) == self.count:
            return np.arange(self.count)
        return np.repeat(np.arange(self.count), [len(fragment.files) for fragment in self._each()])

    def _each(self) -> Iterator[DataFragment]:
        return chain.from_iterable(self.fragments())

    def sample_of(self, transaction: Transaction) -> Transaction:
        """Returns the transaction with a fragment of each kind, which has all that it says of fields."""
        message = Transaction()
        message.CopyFrom(transaction)
        message.append.fragments.extend(self.kinds)
        return message

    def whole(self, transaction: Transaction) -> Transaction:
        """Returns the transaction with all the fragments, as messages."""
        whole = Transaction()
        whole.CopyFrom(transaction)
        for portion in self.portions:
            whole.append.MergeFromString(portion)
        return whole

    def section(self, transaction: Transaction) -> list[bytes]:
        """Returns the encoded transaction with these fragments, in parts; `transaction` has none of them."""
        encoded = transaction.SerializeToString(deterministic=True)
        at = 0
        while True:
            number, start, after = field_at(encoded, at, len(encoded))
            if number == APPEND:
                break
            at = after
        others = encoded[start:after]
        size = sum(map(len, self.portions)) + len(others)
        begin = encoded[:at] + varint(APPEND << TYPE_BITS | DELIMITED) + varint(size)
        return [begin, *self.portions, others + encoded[after:]]


def packed_transaction(data: bytes, span: range) -> tuple[Transaction, Packed] | None:
    """Returns the Append in these bytes without its fragments, and these, or None to decode it completely.

    That is so for another operation, for an Append that is not sound in itself, and for one whose fragments
    have ids, are stored under another base, have more than `MOST_KINDS` kinds or fields that no release
    knows.
    """
    try:
        parts = _append_apart(data, span)
        if parts is None:
            return None
        transaction, within = parts
        packing = _Packing()
        for run in runs(data, FRAGMENTS, PORTION_BYTES, within):
            if not run.wanted or not packing.take(data[run.start : run.end]):
                return None
    except DecodeError as error:
        check_allocated(error)
        return None
    transaction.append.SetInParent()
    return (transaction, packing.packed()) if packing.is_plain() else None


def _append_apart(data: bytes, span: range) -> tuple[Transaction, range] | None:
    """Returns the transaction without its Append, and the Append's range, or None if there is more."""
    rest, within = without(data, span, APPEND)
    if within is None:
        return None
    transaction = _message(Transaction, rest)
    return (transaction, within) if transaction.WhichOneof("operation") is None else None


def beside_fragments(data: bytes, span: range) -> bytes | None:
    """Returns the transaction in these bytes without its Append, or None. Raises `DecodeError`."""
    rest, within = without(data, span, APPEND)
    return None if within is None else rest


def without_fragments(data: bytes, span: range) -> Transaction | None:
    """Returns the Append in these bytes without its fragments (which must be sound), or None.

    For callers that need what a version did, but not its new fragments. Raises `DecodeError`.
    """
    parts = _append_apart(data, span)
    if parts is None:
        return None
    transaction, within = parts
    others = bytearray()
    for run in runs(data, FRAGMENTS, PORTION_BYTES, within):
        part = data[run.start : run.end]
        _message(Transaction.Append, part)
        if not run.wanted:
            others += part
    transaction.append.ParseFromString(bytes(others))
    return transaction


def without(data: bytes, span: range, number: int) -> tuple[bytes, range | None]:
    """Returns a message without its field of this number, and the range of that field's content.

    Returns no bytes and None unless the field occurs exactly once, with a length. Raises `DecodeError`.
    """
    content: range | None = None
    begin = at = end = span.start
    while at < span.stop:
        which, start, after = field_at(data, at, span.stop)
        if which == number and start >= 0:
            if content is not None:
                return b"", None
            content, begin, end = range(start, after), at, after
        at = after
    return (b"", None) if content is None else (data[span.start : begin] + data[end : span.stop], content)


@dataclass(slots=True)
class _Packing:
    """Collects fragments while they are read, for `Packed`."""

    portions: list[bytes] = field(default_factory=list)
    kinds: set[bytes] = field(default_factory=set)
    rows: array[int] = field(default_factory=lambda: array("Q"))
    sizes: array[int] = field(default_factory=lambda: array("Q"))
    hashes: array[int] = field(default_factory=lambda: array("q"))

    def take(self, portion: bytes) -> bool:
        """Adds the next fragments. Returns False if some of them are unusual. Raises `DecodeError`."""
        message = _message(Transaction.Append, portion)
        self.portions.append(message.SerializeToString(deterministic=True))
        rows, sizes, names, kinds = self.rows.append, self.sizes.append, list[str](), self.kinds.add
        for fragment in message.fragments:
            rows(fragment.physical_rows)
            fragment.physical_rows = 0
            for file in fragment.files:
                names.append(file.path)
                sizes(file.file_size_bytes)
                file.path, file.file_size_bytes = "", 0
            kinds(fragment.SerializeToString())
        self.hashes.extend(map(hash, names))
        return len(self.kinds) <= MOST_KINDS and are_data_names(names)

    def is_plain(self) -> bool:
        """Returns whether all fragments are sound, as far as this can be checked without a table."""
        if not self.rows or min(self.rows) < 1 or max(self.rows) > MAX_ROWS:
            return False
        # Equal names have equal hashes. Where two others have, which is next to never, all is decoded whole.
        if np.unique(np.frombuffer(self.hashes, np.int64)).size < len(self.hashes):
            return False
        return all(map(_is_new, map(DataFragment.FromString, self.kinds)))

    def packed(self) -> Packed:
        """Returns all fragments added."""
        kinds = tuple(map(DataFragment.FromString, sorted(self.kinds)))
        return Packed(tuple(self.portions), kinds, self.rows, self.sizes, self.hashes)


def _is_new(kind: DataFragment) -> bool:
    """Returns whether fragments of this kind have no id yet and nothing but files of the table itself."""
    plain = DataFragment(files=kind.files)
    plain.DiscardUnknownFields()
    return plain.ByteSize() == kind.ByteSize() and not any(file.HasField("base_id") for file in kind.files)


def _message(kind: type[M], data: bytes) -> M:
    check_expansion(data, kind)
    return kind.FromString(data)
