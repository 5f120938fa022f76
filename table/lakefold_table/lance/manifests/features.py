"""Feature flags of a table: what each means, which this release knows, and how they follow from the content.

A number alone doesn't say what a table needs, so each known and each refused bit has its meaning here. Flags
are not copied from version to version: like other Lance clients, we compute them from what the version
contains, apart from the two that nothing else in the manifest shows (Lance facts 9.1 and 9.2).
"""

from __future__ import annotations

from enum import IntFlag
from types import MappingProxyType
from typing import TYPE_CHECKING

from lakefold_table.errors import DamagedError, InvalidError

if TYPE_CHECKING:
    from collections.abc import Mapping

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

# As plain numbers: every version computes its flags, and an enum's `&` is slower than everything else here.
_DELETIONS, _STABLE, _CONFIG = int(Flag.DELETION_FILES), int(Flag.STABLE_ROW_IDS), int(Flag.TABLE_CONFIG)
_BASES, _MIXED = int(Flag.BASE_PATHS), int(Flag.MIXED_FILE_VERSIONS)

MEANINGS: Mapping[int, str] = MappingProxyType(
    {
        1: "some rows are deleted by deletion files",
        2: "rows keep their id for life",
        4: "data files of version 2 (an older sign)",
        8: "the table has a configuration",
        16: "files may be stored under other roots",
        32: "versions have no transaction file",
        64: "data overlay files",
        128: "covering indices",
        256: "data files of several versions",
        512: "a fragment-reuse index on a table with stable row ids",
        1024: "a fragment-reuse index with tags",
        2048: "row ids and versions are stored in data files",
        4096: "a feature that Lance 14 doesn't know either, perhaps a tree of fragments",
        8192: "a feature that Lance 14 doesn't know either, perhaps a tree of fragments",
        16384: "managed blobs",
        32768: "field ids are never used again",
        65536: "zone write seeds",
    }
)
"""The meaning of each bit, also of those that this release refuses. pylance's errors name 16384 and 65536 if
they are set on one side only (Lance fact 9.3)."""

BITS = 64


def bits_of(flags: int) -> tuple[int, ...]:
    """Returns the single flags that are set, ascending."""
    return tuple(1 << bit for bit in range(BITS) if flags >> bit & 1)


def meaning(flag: int) -> str:
    """Returns the meaning of a single flag."""
    return MEANINGS.get(flag, "a feature of a newer Lance")


def check_readable(head: Manifest, where: str = "") -> None:
    """Raises `InvalidError` if the table uses a feature that a reader must know and we don't.

    Raises `DamagedError` if flag 256 is set on one side only: this has no defined meaning, and pylance opens
    no such table either (Lance fact 9.3).
    """
    _refuse(head.reader_feature_flags & ~READABLE, "read", where)
    if (head.reader_feature_flags ^ head.writer_feature_flags) & Flag.MIXED_FILE_VERSIONS:
        message = "feature flag 256 (data files of several versions) is set for readers or for writers only"
        raise DamagedError(message, where=where, hint="a client wrote it wrongly: restore an older version")


def check_writable(head: Manifest, where: str = "") -> None:
    """Raises `InvalidError` if the table uses a feature that a writer must know and we don't."""
    check_readable(head, where)
    _refuse(head.writer_feature_flags & ~WRITABLE, "written", where)


def flags_of(head: Manifest, *, deletions: bool) -> tuple[int, int]:
    """Returns the flags of a version for readers and for writers, as its content requires.

    `head` is its manifest (without its fragments), `deletions` says whether any fragment has a deletion file.
    Stable row ids and mixed file versions are taken from the flags that `head` has: once set, they stay
    (Lance facts 9.2 and 9.4). Flags 4 and 32 are no longer set, as in pylance 14.
    """
    both = head.reader_feature_flags & _STABLE | head.writer_feature_flags & _MIXED
    if deletions:
        both |= _DELETIONS
    if head.base_paths:
        both |= _BASES
    return both, both | _CONFIG if head.config else both


def set_flag(head: Manifest, flag: Flag) -> None:
    """Sets a flag that readers and writers must know."""
    head.reader_feature_flags |= flag
    head.writer_feature_flags |= flag


def has_stable_row_ids(head: Manifest) -> bool:
    """Returns whether rows keep their id for life (flag 2)."""
    return head.reader_feature_flags & _STABLE != 0


def _refuse(unknown: int, verb: str, where: str) -> None:
    if unknown:
        names = ", ".join(f"{flag} ({meaning(flag)})" for flag in bits_of(unknown))
        raise InvalidError(
            f"the table can't be {verb}: it uses feature flags that this release doesn't know: {names}",
            where=where,
            hint="use a newer release",
        )
