"""The properties that a table may be created with: their values, and what this release does with them.

docs/reference/delta-features.md is written from this table. Tables of other clients may have others, which
are kept as they are.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

from lakefold_table.delta.table_features.features import BY_NAME
from lakefold_table.delta.table_features.metadata_rules import CONSTRAINTS
from lakefold_table.durations import UNITS_MS, duration_ms
from lakefold_table.errors import InvalidError
from lakefold_table.values import value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

PREFIX: Final = "delta."
FEATURE_PREFIX: Final = "delta.feature."
FILE_SIZE: Final = "delta.targetFileSize"
_SIZE: Final = re.compile(r"(\d{1,18})\s*(k|m|g|)b?", re.IGNORECASE)
_UNITS: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_KNOWN_FEATURE: Final = ("supported", "enabled")
_NOT_SET: Final = {
    "delta.minReaderVersion": "leave it out: the table gets the protocol that its features need",
    "delta.minWriterVersion": "leave it out: the table gets the protocol that its features need",
    "delta.columnMapping.maxColumnId": "leave it out: it is set with delta.columnMapping.mode",
    "delta.universalFormat.enabledFormats": "leave it out: nothing here writes for Iceberg",
    "delta.rowTracking.materializedRowIdColumnName": "leave it out: it is set with delta.enableRowTracking",
    "delta.rowTracking.materializedRowCommitVersionColumnName": "leave it out: it is set with "
    "delta.enableRowTracking",
}
"""Properties of Delta's that no user sets here, with what to do."""


@value()
class TableProperty:
    """A property. `values`: what may be given, in words; `fits`: whether a text is that.

    `effect`: what this release does with it, empty if it keeps it for other clients alone.
    """

    name: str
    values: str
    fits: Callable[[str], bool]
    effect: str = ""


def file_size(text: str) -> int | None:
    """Returns the bytes of a size as in `100mb`, None if the text is none."""
    match = _SIZE.fullmatch(text.strip())
    return int(match[1]) * _UNITS[match[2].lower()] if match is not None and int(match[1]) else None


def _is_duration(text: str) -> bool:
    return duration_ms(text.strip().lower().removeprefix("interval").strip(), UNITS_MS) is not None


def _choice(*words: str) -> tuple[str, Callable[[str], bool]]:
    return " or ".join(words), lambda text: text.lower() in {word.lower() for word in words}


def _number(least: int) -> tuple[str, Callable[[str], bool]]:
    def fits(text: str) -> bool:
        return re.fullmatch(r"-?[0-9]{1,9}", text) is not None and int(text) >= least

    return f"a whole number from {least}", fits


_FLAG: Final = _choice("true", "false")
_DURATION: Final = ("a duration such as `interval 7 days`", _is_duration)
PROPERTIES: Final = (
    TableProperty("delta.appendOnly", *_FLAG, "with true, rows are only added"),
    TableProperty("delta.autoOptimize", *_FLAG),
    TableProperty("delta.autoOptimize.autoCompact", *_choice("true", "false", "auto", "legacy")),
    TableProperty("delta.autoOptimize.optimizeWrite", *_FLAG),
    TableProperty(
        "delta.checkpoint.writeStatsAsJson", *_FLAG, "with false, checkpoints have no statistics as texts"
    ),
    TableProperty(
        "delta.checkpoint.writeStatsAsStruct",
        *_FLAG,
        "with true, checkpoints have statistics and partition values as columns",
    ),
    TableProperty("delta.checkpointRetentionDuration", *_DURATION),
    TableProperty("delta.checkpointInterval", *_number(1), "the versions from a checkpoint to the next"),
    TableProperty("delta.checkpointPolicy", *_choice("classic", "v2"), "the kind of the checkpoints"),
    TableProperty(
        "delta.columnMapping.mode",
        *_choice("none", "name", "id"),
        "with name or id, files have columns by other names than the table, so columns may be renamed",
    ),
    TableProperty(
        "delta.dataSkippingNumIndexedCols",
        *_number(-1),
        "of how many columns files get statistics, -1: of all",
    ),
    TableProperty(
        "delta.dataSkippingStatsColumns",
        "names of columns with commas between them",
        lambda text: all(name.strip() for name in text.split(",")),
        "of which columns files get statistics",
    ),
    TableProperty("delta.dataSkippingStringPrefixLength", *_number(0)),
    TableProperty(
        "delta.deletedFileRetentionDuration", *_DURATION, "after which `lakefold maintain` removes files"
    ),
    TableProperty("delta.enableChangeDataFeed", *_FLAG, "with true, changes of rows write `cdc` files"),
    TableProperty(
        "delta.enableDeletionVectors",
        *_FLAG,
        "with true, deleted rows are marked, and writers change different rows of one file at a time",
    ),
    TableProperty("delta.enableExpiredLogCleanup", *_FLAG, "with false, all versions are kept"),
    TableProperty("delta.enableFullRetentionRollback", *_FLAG),
    TableProperty("delta.enableInCommitTimestamps", *_FLAG, "with true, commits say their times"),
    TableProperty("delta.enableRowTracking", *_FLAG, "with true, rows keep their ids when they are moved"),
    TableProperty("delta.enableTypeWidening", *_FLAG, "with true, columns may get wider types"),
    TableProperty(
        "delta.isolationLevel",
        *_choice("Serializable", "WriteSerializable"),
        "[which proposals conflict](delta-conflicts.md)",
    ),
    TableProperty(
        "delta.logRetentionDuration", *_DURATION, "after which `lakefold maintain` removes versions"
    ),
    TableProperty(
        "delta.parquet.compression.codec",
        *_choice("snappy", "zstd", "gzip", "lz4", "brotli", "none", "uncompressed"),
        "the compression of data files",
    ),
    TableProperty(
        "delta.randomizeFilePrefixes",
        *_FLAG,
        "with true, writers put each file into a folder with a random name instead of its partition's",
    ),
    TableProperty("delta.randomPrefixLength", *_number(1), "the letters of such a name, 2 if it is not set"),
    TableProperty("delta.setTransactionRetentionDuration", *_DURATION),
    TableProperty(
        FILE_SIZE,
        "bytes, or a size as in `100mb`",
        lambda text: file_size(text) is not None,
        "`lakefold maintain` joins smaller files, and a writer ends a file that has this size in the store",
    ),
    TableProperty("delta.tuneFileSizesForRewrites", *_FLAG),
)
"""Every property that a creation may set, by name."""
_BY_NAME: Final = {each.name: each for each in PROPERTIES}


def checked_properties(given: Mapping[str, str]) -> dict[str, str]:
    """Returns properties by the names that Delta gives them; case doesn't count.

    Names that don't begin with `delta.` are the user's own. Raises `InvalidError` that names a property which
    is unknown, with the nearest, or whose value is malformed.
    """
    return dict(_checked(name.strip(), text.strip()) for name, text in given.items())


def added_features(properties: Mapping[str, str]) -> frozenset[str]:
    """Returns the features that are named by `delta.feature.NAME`, which adds one without enabling it."""
    return frozenset(
        BY_NAME[name.removeprefix(FEATURE_PREFIX)].name
        for name in properties
        if name.startswith(FEATURE_PREFIX)
    )


def _checked(name: str, text: str) -> tuple[str, str]:
    lowered = name.lower()
    if not lowered.startswith(PREFIX):
        return name, text
    if lowered.startswith(FEATURE_PREFIX):
        feature = _known(name, (FEATURE_PREFIX + each for each in BY_NAME), FEATURE_PREFIX)
        if text.lower() not in _KNOWN_FEATURE:
            raise InvalidError(f"{text!r} is none of its values", where=name, hint="give supported")
        return feature, text
    if lowered.startswith(CONSTRAINTS):
        return CONSTRAINTS + lowered.removeprefix(CONSTRAINTS), text
    for fixed, hint in _NOT_SET.items():
        if lowered == fixed.lower():
            raise InvalidError("a writer does not set this property", where=name, hint=hint)
    rule = _BY_NAME[_known(name, (each.name for each in PROPERTIES), PREFIX)]
    if not rule.fits(text):
        raise InvalidError(f"{text!r} is none of its values", where=name, hint=f"give {rule.values}")
    return rule.name, text


def _known(name: str, names: Iterable[str], prefix: str) -> str:
    """Returns the one of the names that this is, in any case. Raises `InvalidError` with the nearest."""
    by_lower = {each.removeprefix(prefix).lower(): each for each in names}
    lowered = name[len(prefix) :].lower()
    if lowered in by_lower:
        return by_lower[lowered]
    near = get_close_matches(lowered, by_lower, n=1)
    hint = (
        f"do you mean {by_lower[near[0]]}?" if near else f"the known ones are {', '.join(by_lower.values())}"
    )
    raise InvalidError("Delta tables have no such property", where=name, hint=hint)
