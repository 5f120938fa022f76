"""The deleted rows of a fragment: the two kinds of deletion file, their names and their bytes.

An array file is an Arrow IPC file with one column, a bitmap file a Roaring bitmap. pylance reads both without
checking whether they fit the fragment, and then scans and counts disagree silently. Here that is checked.

Source: Lance facts 8.1 and 8.4. Arrow is only loaded if an array file occurs.
"""

from __future__ import annotations

import hashlib

from lakefold_protos.lance.table_pb2 import DeletionFile
from lakefold_table.bitmaps import Bitmap, bitmap_of, decode_bitmap, encode_bitmap, numbers_of
from lakefold_table.errors import DamagedError
from lakefold_table.lance.rows.deletion_arrays import HINT, read_column, write_column

ARRAY, BITMAP = DeletionFile.ARROW_ARRAY, DeletionFile.BITMAP
FOLDER = "_deletions"
SUFFIXES = {ARRAY: "arrow", BITMAP: "bin"}
HASH_BYTES = 8


def decode_deletions(file: DeletionFile, data: bytes, physical_rows: int, where: str = "") -> Bitmap:
    """Returns the offsets of the deleted rows of a fragment of `physical_rows` rows.

    `file`: the fragment's entry for the file; `data`: its bytes. Raises `DamagedError` if the bytes are of
    another kind or malformed, if an offset is outside of the fragment or listed twice, or if their number
    differs from that in `file` (0 there means unknown).
    """
    if file.file_type == BITMAP:
        rows = decode_bitmap(data, where, physical_rows)
    elif file.file_type == ARRAY:
        rows = _decode_array(data, physical_rows, where)
    else:
        raise DamagedError(
            f"the kind {file.file_type} of the deletion file is unknown", where=where, hint=HINT
        )
    if file.num_deleted_rows not in {0, len(rows)}:
        raise DamagedError(
            f"the file has {len(rows)} deleted rows, its fragment claims {file.num_deleted_rows}",
            where=where,
            hint=HINT,
        )
    return rows


def encode_deletions(rows: Bitmap, kind: DeletionFile.DeletionFileType.ValueType) -> bytes:
    """Returns the bytes of a deletion file of this kind."""
    return encode_bitmap(rows) if kind == BITMAP else write_column(numbers_of(rows))


def deletion_path(fragment_id: int, file: DeletionFile) -> str:
    """Returns the file's path relative to its base or to the table's root. Raises `DamagedError`."""
    suffix = SUFFIXES.get(file.file_type)
    if suffix is None:
        raise DamagedError(
            f"fragment {fragment_id}: the kind {file.file_type} of the deletion file is unknown"
        )
    return f"{FOLDER}/{fragment_id}-{file.read_version}-{file.id}.{suffix}"


def content_id(fragment_id: int, base_version: int, rows: Bitmap) -> int:
    """Returns the id of a merged file, 64 bits; the same rows on the same base give the same id.

    So a committer that is late can't replace a file by other content.
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
            f"row {rows.max()} is marked as deleted, the fragment has {physical_rows} rows",
            where=where,
            hint=HINT,
        )
    return rows
