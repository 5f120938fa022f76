"""The manifest file, byte by byte (Lance facts 2.1 and 2.2): sections, manifest, a footer of 16 bytes.

A version that we publish begins with its transaction section, so that a single read of the file's head shows
what changed, whatever the size of the table. Other clients put the section elsewhere; reading uses the
offsets in the manifest.

A version may also have its transaction as another client sent it, without marks (`Envelope.as_version`). Then
the manifest names both sections: the client's by field 23, by which Lance clients read it, and ours by the
older field 21, which none that writes 23 sets (Lance fact 2.3).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from google.protobuf.message import DecodeError, Message

from lakefold_protos.lance.table_pb2 import IndexSection, Manifest
from lakefold_protos.lance.transaction_pb2 import Transaction
from lakefold_table.allocation import check_allocated
from lakefold_table.errors import DamagedError, InvalidError
from lakefold_table.expansion import check_expansion, most_parts
from lakefold_table.lance.manifests.chunk_reuse import ChunkReuse
from lakefold_table.lance.manifests.chunks import CHUNK_BYTES, Chunk
from lakefold_table.lance.manifests.fragments import FragmentListReader, Fragments
from lakefold_table.lance.manifests.packed_append import Packed, without_fragments
from lakefold_table.wire import Run, runs

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakefold_table.storage.base import Buffer

M = TypeVar("M", bound=Message)

MAGIC = b"LANC"
MAJOR, MINOR = 0, 2
FOOTER = struct.Struct("<QHH4s")
LENGTH = struct.Struct("<I")
MAX_SECTION = 2**31 - 1


@dataclass(frozen=True, slots=True)
class ManifestFile:
    """A manifest file taken apart.

    `head` is the Manifest message without its fragments; `fragments` holds those. `index_section` is the
    encoded IndexSection message (empty if the table has no index). `transaction` is what made the version,
    None if the file doesn't contain it (then `head.transaction_file` may name it).
    """

    head: Manifest
    fragments: Fragments
    index_section: bytes
    transaction: Transaction | None


def decode_file(
    data: bytes, where: str = "", *, whole: bool = True, like: Fragments | None = None
) -> ManifestFile:
    """Takes a whole manifest file apart. Raises `DamagedError` naming `where` and what is wrong.

    `whole`: False leaves the fragments of an Append out of its transaction. `like`: the fragments of another
    version of the table; chunks of them that are in this file too are shared, and not decoded again.
    """
    head, fragments = _decoded(data, _manifest_span(data, where), where, like)
    index = index_section(data, head, where)
    _parsed(IndexSection(), index, where, "index section")
    return ManifestFile(head, fragments, index, _transaction(data, head, where, whole=whole))


def decode_head(data: bytes, where: str = "") -> tuple[Manifest, Transaction | None]:
    """Returns the manifest without its fragments, and the transaction, of a whole file.

    Raises `DamagedError`. For following versions, or reading old ones: what a version changed is in its
    transaction. The fragments are not decoded, which makes it many times cheaper than `decode_file`.
    """
    span = _manifest_span(data, where)
    rest = bytearray()
    for run in _runs(data, span, len(span), where):
        if isinstance(run, Run) and not run.wanted:
            rest += data[run.start : run.end]
    head = _parsed(Manifest(), bytes(rest), where, "manifest")
    return head, _transaction(data, head, where)


def index_section(data: bytes, head: Manifest, where: str = "") -> bytes:
    """Returns the encoded index section of a whole file, empty if it has none. Raises `DamagedError`."""
    if not head.HasField("index_section"):
        return b""
    span = _section_span(data, head.index_section, where, "index section")
    return data[span.start : span.stop]


def transaction_of(data: bytes | None) -> Transaction | None:
    """Returns the transaction in a file of its own, as older clients wrote it beside the manifest.

    Returns None if the file doesn't exist or can't be read: the table is sound without it, only what the
    version changed is no longer known.
    """
    if data is None:
        return None
    try:
        check_expansion(data, Transaction)
        return Transaction.FromString(data)
    except DecodeError as error:
        check_allocated(error)
        return None


def head_transaction(start: bytes) -> Transaction | None:
    """Returns the transaction at the start of a manifest file that we wrote, or None if it isn't there whole.

    Bytes of another client's file may decode by chance: the caller checks that the properties name the
    version that it expects.
    """
    if len(start) < LENGTH.size:
        return None
    (length,) = LENGTH.unpack_from(start)
    if not 0 < length <= len(start) - LENGTH.size:
        return None
    try:
        return Transaction.FromString(start[LENGTH.size : LENGTH.size + length])
    except DecodeError as error:
        check_allocated(error)
        return None


def head_length(start: bytes) -> int:
    """Returns how many bytes the transaction section takes, if the file starts with one."""
    return LENGTH.size + LENGTH.unpack_from(start)[0] if len(start) >= LENGTH.size else 0


def encode_transaction(transaction: Transaction, packed: Packed | None = None) -> list[bytes]:
    """Returns the encoded transaction, in parts. `packed`: fragments of it that it doesn't list.

    With `packed` the first part is all that comes before the fragments, including the properties, which name
    the version.
    """
    if packed is not None:
        return packed.section(transaction)
    return [transaction.SerializeToString(deterministic=True)]


def assemble_file(
    head: Manifest,
    fragments: Fragments,
    index_section: bytes,
    encoded: Sequence[bytes],
    as_sent: bytes = b"",
) -> list[Buffer]:
    """Returns the buffers of a manifest file; the first is the transaction section. Changes `head`'s offsets.

    `encoded`: the transaction, as `encode_transaction` returns it. `as_sent`: the transaction that other
    clients see instead of it, encoded; empty if they see this one. Raises `InvalidError` if a section is
    larger than a protobuf message may be.
    """
    size = sum(map(len, encoded))
    sections: list[Buffer] = [_length(size, "transaction") + encoded[0], *encoded[1:]]
    offset = LENGTH.size + size
    head.transaction_section = 0
    if as_sent:
        head.transaction_section_before_14, head.transaction_section = 0, offset
        sections += [_length(len(as_sent), "transaction"), as_sent]
        offset += LENGTH.size + len(as_sent)
    head.ClearField("index_section")
    if index_section:
        head.index_section = offset
        sections += [_length(len(index_section), "index section"), index_section]
        offset += LENGTH.size + len(index_section)
    head_bytes = head.SerializeToString(deterministic=True)
    footer = FOOTER.pack(offset, MAJOR, MINOR, MAGIC)
    length = _length(len(head_bytes) + fragments.size, "manifest")
    return [*sections, length, head_bytes, *fragments.buffers(), footer]


def _length(size: int, what: str) -> bytes:
    """Returns the length prefix of a section."""
    if size > MAX_SECTION:
        raise InvalidError(
            f"the {what} of {size} bytes is larger than {MAX_SECTION}, which no client can read",
            hint="compact the table: fewer fragments make a smaller manifest",
        )
    return LENGTH.pack(size)


def _manifest_span(data: bytes, where: str) -> range:
    """Returns where the Manifest message is in the file. It is not copied, as it may be very large."""
    span = _section_span(data, _manifest_offset(data, where), where, "manifest")
    if span.stop + FOOTER.size != len(data):
        raise DamagedError("the manifest message doesn't end where the footer starts", where=where)
    return span


def _decoded(
    data: bytes, span: range, where: str, like: Fragments | None = None
) -> tuple[Manifest, Fragments]:
    rest, fragments = bytearray(), FragmentListReader()
    try:
        for run in _runs(data, span, CHUNK_BYTES, where, like):
            if isinstance(run, Chunk):
                fragments.share(run)
            elif run.wanted:
                check_expansion(data, Manifest, range(run.start, run.end))
                fragments.add(data[run.start : run.end])
            else:
                rest += data[run.start : run.end]
        return _parsed(Manifest(), bytes(rest), where, "manifest"), fragments.finish()
    except DecodeError as error:
        check_allocated(error)
        raise DamagedError(f"a fragment can't be decoded: {error}", where=where) from error
    except ValueError as error:
        raise DamagedError(str(error), where=where) from error


def _runs(
    data: bytes, span: range, longest: int, where: str, like: Fragments | None = None
) -> Iterator[Run | Chunk]:
    """Yields the fragments of a Manifest message and its other fields; chunks of `like` if they are in it."""
    most = most_parts(len(span))
    number = Manifest.FRAGMENTS_FIELD_NUMBER
    try:
        others = 0
        for run in (
            runs(data, number, longest, span)
            if like is None or not like.chunks
            else ChunkReuse(like, number).parts(data, longest, span)
        ):
            others += isinstance(run, Run) and not run.wanted
            if others > most:
                break
            yield run
        else:
            return
    except DecodeError as error:
        check_allocated(error)
        raise DamagedError(f"the manifest can't be decoded: {error}", where=where) from error
    raise DamagedError(f"the manifest has over {most} fields besides its fragments", where=where)


def _manifest_offset(data: bytes, where: str) -> int:
    if len(data) < FOOTER.size + LENGTH.size:
        raise DamagedError(f"a manifest file of {len(data)} bytes is too short", where=where)
    # The two version numbers mean nothing (Lance fact 2.4).
    offset, _, _, magic = FOOTER.unpack_from(data, len(data) - FOOTER.size)
    if magic != MAGIC:
        raise DamagedError("the file doesn't end with LANC: it is truncated or not a manifest", where=where)
    return int(offset)


def _section_span(data: bytes, offset: int, where: str, what: str) -> range:
    end_of_sections = len(data) - FOOTER.size
    if offset + LENGTH.size > end_of_sections:
        raise DamagedError(f"the {what} starts at byte {offset} of {len(data)}", where=where)
    (length,) = LENGTH.unpack_from(data, offset)
    start = offset + LENGTH.size
    if start + length > end_of_sections:
        raise DamagedError(f"the {what} of {length} bytes at {offset} reaches beyond the file", where=where)
    return range(start, start + length)


def _parsed(message: M, data: bytes, where: str, what: str) -> M:
    try:
        check_expansion(data, type(message))
        message.ParseFromString(data)
    except DecodeError as error:
        check_allocated(error)
        raise DamagedError(f"the {what} can't be decoded: {error}", where=where) from error
    return message


def _transaction(data: bytes, head: Manifest, where: str, *, whole: bool = True) -> Transaction | None:
    """Returns the transaction inside the file: field 21, or field 23 alone, as clients since 14 write it."""
    if head.HasField("transaction_section_before_14"):
        offset = head.transaction_section_before_14
    elif head.HasField("transaction_section"):
        offset = head.transaction_section
    else:
        return None
    span = _section_span(data, offset, where, "transaction section")
    if not span:
        raise DamagedError("the transaction section is empty", where=where)
    if not whole:
        try:
            transaction = without_fragments(data, span)
        except DecodeError as error:
            check_allocated(error)
            raise DamagedError(f"the transaction section can't be decoded: {error}", where=where) from error
        if transaction is not None:
            return transaction
    return _parsed(Transaction(), data[span.start : span.stop], where, "transaction section")
