"""Feature flags of a table: which we know, how they follow from the manifest (format facts, section 8)."""

from __future__ import annotations

from enum import IntFlag
from typing import TYPE_CHECKING

from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    from lakefold_protos.lance.table_pb2 import Manifest


class Flag(IntFlag):
    """The bits of `reader_feature_flags` and `writer_feature_flags` that this release knows."""

    DELETION_FILES = 1
    STABLE_ROW_IDS = 2
    V2_FORMAT = 4
    TABLE_CONFIG = 8
    BASE_PATHS = 16
    NO_TRANSACTION_FILE = 32
    MIXED_FILE_VERSIONS = 256


READABLE = sum(Flag)
WRITABLE = READABLE


def check_readable(head: Manifest, where: str = "") -> None:
    """Raises `InvalidError` where the table uses a feature that a reader must know and we don't."""
    _refuse(head.reader_feature_flags & ~READABLE, "read", where)


def check_writable(head: Manifest, where: str = "") -> None:
    """Raises `InvalidError` where the table uses a feature that a writer must know and we don't."""
    check_readable(head, where)
    _refuse(head.writer_feature_flags & ~WRITABLE, "written", where)


def set_flag(head: Manifest, flag: Flag) -> None:
    """Sets a flag that readers and writers must know."""
    head.reader_feature_flags |= flag
    head.writer_feature_flags |= flag


def has_stable_row_ids(head: Manifest) -> bool:
    """Whether rows keep their id for life (flag 2)."""
    return bool(head.reader_feature_flags & Flag.STABLE_ROW_IDS)


def _refuse(unknown: int, verb: str, where: str) -> None:
    if unknown:
        bits = ", ".join(str(1 << bit) for bit in range(64) if unknown >> bit & 1)
        raise InvalidError(
            f"the table can't be {verb}: it uses feature flags that this release doesn't know ({bits})",
            where=where,
            hint="use a newer release",
        )
