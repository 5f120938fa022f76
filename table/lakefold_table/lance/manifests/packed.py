"""The fragments of a large Append as its writer encoded them, never all decoded at once.

A million fragments take a hundred megabytes as bytes and thirty times as much as messages. So they stay
bytes, in portions; one portion after the other is decoded, looked at and dropped. Nearly all fragments of an
Append are alike but for the names, sizes and row counts of their files: what is to be asked of the rest is
asked once for each kind of fragment.

Only what needs nothing else is kept so: new fragments in files of the table itself, whose names, rows and
bytes are sound in themselves. Any other proposal is decoded whole, and judged as every small one is.
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
"""How much is decoded at once: whatever stands in so few bytes, it takes no memory to speak of."""
MOST_KINDS = 64
"""In how many ways the fragments of one proposal may differ, for each to be remembered."""
MAX_ROWS = 2**32 - 1
APPEND = Transaction.APPEND_FIELD_NUMBER
FRAGMENTS = Transaction.Append.FRAGMENTS_FIELD_NUMBER


@dataclass(frozen=True, slots=True, eq=False)
class Packed:
    """The new fragments of an Append, in its order: without ids, each in files of the table itself.

    `portions`: their records as `Append.fragments` holds them, in the one way that every client writes them.
    `kinds`: one fragment of each kind, without its row count and the names and sizes of its files. `rows`:
    the physical rows of each fragment. `sizes`: what each file is said to have, in bytes, 0 where it isn't.
    `hashes`: of the files' names, in the same order.
    """

    portions: Sequence[bytes] = field(repr=False)
    kinds: Sequence[DataFragment]
    rows: array[int] = field(repr=False)
    sizes: array[int] = field(repr=False)
    hashes: array[int] = field(repr=False)

    @property
    def count(self) -> int:
        """How many fragments there are."""
        return len(self.rows)

    def fragments(self) -> Iterator[Sequence[DataFragment]]:
        """The fragments as messages, portion by portion: not to be kept."""
        for portion in self.portions:
            yield Transaction.Append.FromString(portion).fragments

    def records(self) -> Iterator[Sequence[bytes]]:
        """The fragments one by one, still encoded, portion by portion."""
        for portion in self.portions:
            yield AppendView.FromString(portion).fragments

    def paths(self) -> Iterator[Sequence[str]]:
        """The paths of all files below the table's root, portion by portion, in the order of `sizes`."""
        for fragments in self.fragments():
            yield [data_path(file.path) for one in fragments for file in one.files]

    def with_sizes(self, sizes: Sequence[int]) -> Packed:
        """The same with the sizes of files that didn't say theirs; `sizes`: of all, in their order."""
        complete = array("Q", [said or size for said, size in zip(self.sizes, sizes, strict=True)])
        portions, at = [], 0
        for portion in self.portions:
            message = Transaction.Append.FromString(portion)
            for file in (file for one in message.fragments for file in one.files):
                file.file_size_bytes = complete[at]
                at += 1
            portions.append(message.SerializeToString(deterministic=True))
        return replace(self, portions=portions, sizes=complete)

    def name(self, index: int) -> str:
        """The name of one of the files, by its place in `sizes`; decodes what stands in front of it."""
        return next(islice(self.names(), index, None))

    def names(self) -> Iterator[str]:
        """The names of all files, in the order of `sizes`; decodes portion by portion."""
        return (file.path for one in self._each() for file in one.files)

    def files_of_fragments(self) -> NDArray[np.int64]:
        """For each file which of the fragments has it."""
        if len(self.hashes) == self.count:
            return np.arange(self.count)
        return np.repeat(np.arange(self.count), [len(one.files) for one in self._each()])

    def _each(self) -> Iterator[DataFragment]:
        return chain.from_iterable(self.fragments())

    def told(self, transaction: Transaction) -> Transaction:
        """The transaction with one fragment of each kind: all that it says of the table's fields."""
        sample = Transaction()
        sample.CopyFrom(transaction)
        sample.append.fragments.extend(self.kinds)
        return sample

    def whole(self, transaction: Transaction) -> Transaction:
        """The transaction with all the fragments, as messages."""
        whole = Transaction()
        whole.CopyFrom(transaction)
        for portion in self.portions:
            whole.append.MergeFromString(portion)
        return whole

    def section(self, transaction: Transaction) -> list[bytes]:
        """The encoded transaction with these fragments, in parts; `transaction` has none of them."""
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
    """The Append in these bytes without its fragments, and those; None where it is to be decoded whole.

    That is so for another operation, for an Append that is no good in itself, and for one whose fragments
    bring ids, lie under another base, differ in more than `MOST_KINDS` ways or hold what no release knows.
    """
    try:
        found = _append_apart(data, span)
        if found is None:
            return None
        transaction, within = found
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
    """The transaction without its Append, and where that lies; None where it is no Append alone."""
    rest, within = without(data, span, APPEND)
    if within is None:
        return None
    transaction = _message(Transaction, rest)
    return (transaction, within) if transaction.WhichOneof("operation") is None else None


def beside_fragments(data: bytes, span: range) -> bytes | None:
    """The transaction in these bytes without its Append; None if it has none. Raises `DecodeError`."""
    rest, within = without(data, span, APPEND)
    return None if within is None else rest


def without_fragments(data: bytes, span: range) -> Transaction | None:
    """The Append in these bytes without its fragments, which must be sound; None where it is no Append.

    For who asks what a version did, and not which fragments it brought. Raises `DecodeError`.
    """
    found = _append_apart(data, span)
    if found is None:
        return None
    transaction, within = found
    others = bytearray()
    for run in runs(data, FRAGMENTS, PORTION_BYTES, within):
        part = data[run.start : run.end]
        _message(Transaction.Append, part)
        if not run.wanted:
            others += part
    transaction.append.ParseFromString(bytes(others))
    return transaction


def without(data: bytes, span: range, number: int) -> tuple[bytes, range | None]:
    """A message without its field of this number, and where that one's content lies in the bytes.

    None, and no bytes, if the field isn't there exactly once, with a length. Raises `DecodeError`.
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
    """Fragments while they are read: what `Packed` says of them, and the hashes of their files' names."""

    portions: list[bytes] = field(default_factory=list)
    kinds: set[bytes] = field(default_factory=set)
    rows: array[int] = field(default_factory=lambda: array("Q"))
    sizes: array[int] = field(default_factory=lambda: array("Q"))
    hashes: array[int] = field(default_factory=lambda: array("q"))

    def take(self, portion: bytes) -> bool:
        """Takes the next fragments; False where one of them isn't plain. Raises `DecodeError`."""
        message = _message(Transaction.Append, portion)
        self.portions.append(message.SerializeToString(deterministic=True))
        rows, sizes, names, kinds = self.rows.append, self.sizes.append, list[str](), self.kinds.add
        for one in message.fragments:
            rows(one.physical_rows)
            one.physical_rows = 0
            for file in one.files:
                names.append(file.path)
                sizes(file.file_size_bytes)
                file.path, file.file_size_bytes = "", 0
            kinds(one.SerializeToString())
        self.hashes.extend(map(hash, names))
        return len(self.kinds) <= MOST_KINDS and are_data_names(names)

    def is_plain(self) -> bool:
        """Whether all of them are sound in themselves, as far as can be told without a table."""
        if not self.rows or min(self.rows) < 1 or max(self.rows) > MAX_ROWS:
            return False
        # Equal names have equal hashes. Where two others have, which is next to never, all is decoded whole.
        if np.unique(np.frombuffer(self.hashes, np.int64)).size < len(self.hashes):
            return False
        return all(map(_is_new, map(DataFragment.FromString, self.kinds)))

    def packed(self) -> Packed:
        """All of it."""
        kinds = tuple(map(DataFragment.FromString, sorted(self.kinds)))
        return Packed(tuple(self.portions), kinds, self.rows, self.sizes, self.hashes)


def _is_new(kind: DataFragment) -> bool:
    """Whether fragments of this kind have no id yet and nothing but files of the table itself."""
    plain = DataFragment(files=kind.files)
    plain.DiscardUnknownFields()
    return plain.ByteSize() == kind.ByteSize() and not any(file.HasField("base_id") for file in kind.files)


def _message(kind: type[M], data: bytes) -> M:
    check_expansion(data, kind)
    return kind.FromString(data)
