"""Which rows of a fragment are deleted: the two kinds of deletion file, their names and their bytes.

An array file is an Arrow IPC file with one column, a bitmap file a Roaring bitmap. pylance reads both without
checking that what they say fits the fragment; scans and counts then disagree silently. Here it is checked.

Source: Lance facts 8.1 and 8.4. Arrow is loaded only if an array file is met.
"""

from __future__ import annotations

import hashlib

from lakefold_protos.lance.table_pb2 import DeletionFile
from lakefold_table.errors import DamagedError
from lakefold_table.lance.rows.bitmaps import Bitmap, bitmap_of, decode_bitmap, encode_bitmap, numbers_of
from lakefold_table.lance.rows.deletion_arrays import read_column, write_column

ARRAY, BITMAP = DeletionFile.ARROW_ARRAY, DeletionFile.BITMAP
FOLDER = "_deletions"
SUFFIXES = {ARRAY: "arrow", BITMAP: "bin"}
BITMAP_FROM = 5000
"""From so many deleted rows on pylance writes a bitmap."""
HINT = "restore the file, or restore an older version of the table"
HASH_BYTES = 8


def decode_deletions(file: DeletionFile, data: bytes, physical_rows: int, where: str = "") -> Bitmap:
    """The offsets of the deleted rows of a fragment of `physical_rows` rows.

    `file`: what the fragment says of it, `data`: its bytes. Raises `DamagedError` where the bytes are of
    another kind or form, an offset lies outside of the fragment or stands twice, or their number is another
    than `file` says (where it says 0 the number is unknown).
    """
    if file.file_type == BITMAP:
        rows = decode_bitmap(data, where, physical_rows)
    elif file.file_type == ARRAY:
        rows = _decode_array(data, physical_rows, where)
    else:
        raise DamagedError(f"no kind {file.file_type} of deletion file is known", where=where, hint=HINT)
    if file.num_deleted_rows not in {0, len(rows)}:
        raise DamagedError(
            f"{len(rows)} rows are deleted, the fragment says {file.num_deleted_rows}", where=where, hint=HINT
        )
    return rows


def encode_deletions(rows: Bitmap, kind: DeletionFile.DeletionFileType.ValueType) -> bytes:
    """The bytes of a deletion file of this kind."""
    return encode_bitmap(rows) if kind == BITMAP else write_column(numbers_of(rows))


def kind_for(rows: Bitmap, *, merged: bool = False) -> DeletionFile.DeletionFileType.ValueType:
    """The kind that pylance would choose; what was merged of several is always a bitmap."""
    return BITMAP if merged or len(rows) >= BITMAP_FROM else ARRAY


def deletion_path(fragment_id: int, file: DeletionFile) -> str:
    """Where the file lies, relative to its base or to the table's root. Raises `DamagedError`."""
    suffix = SUFFIXES.get(file.file_type)
    if suffix is None:
        raise DamagedError(f"fragment {fragment_id}: no kind {file.file_type} of deletion file is known")
    return f"{FOLDER}/{fragment_id}-{file.read_version}-{file.id}.{suffix}"


def content_id(fragment_id: int, base_version: int, rows: Bitmap) -> int:
    """The id of a merged file, 64 bits: the same rows on the same base give the same file.

    So a committer that is late can't put other bytes in the place of a file that another one made.
    """
    digest = hashlib.blake2b(digest_size=HASH_BYTES)
    digest.update(fragment_id.to_bytes(8, "little") + base_version.to_bytes(8, "little"))
    digest.update(encode_bitmap(rows))
    return int.from_bytes(digest.digest(), "little")


def _decode_array(data: bytes, physical_rows: int, where: str) -> Bitmap:
    offsets = read_column(data, physical_rows, where)
    rows = bitmap_of(offsets)
    if len(rows) != offsets.size:
        raise DamagedError("a deleted row is listed twice", where=where, hint=HINT)
    if rows and rows.max() >= physical_rows:
        raise DamagedError(
            f"row {rows.max()} is deleted, the fragment has {physical_rows}", where=where, hint=HINT
        )
    return rows
