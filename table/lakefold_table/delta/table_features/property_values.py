"""The properties of tables whose values Delta's protocol or delta-spark defines, as data.

A value that can't be read has each client take another one, or none: a committer with a checkpoint interval
of 0 would write no checkpoint. delta-spark refuses to set such values as well.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from lakefold_table.durations import UNITS_MS, duration_ms
from lakefold_table.values import value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_NUMBER: Final = re.compile(r"-?[0-9]{1,18}", re.ASCII)
SHOWN: Final = 50
"""How many characters of a value an outcome contains."""
_UNITS: Final = {**UNITS_MS, "microsecond": 0}


@value()
class ValueKind:
    """A kind of values. `wanted`: what they are, for people. `fits`: whether a text is one."""

    wanted: str
    fits: Callable[[str], bool]


def _matches(pattern: str) -> Callable[[str], bool]:
    fullmatch = re.compile(pattern, re.IGNORECASE).fullmatch
    return lambda text: fullmatch(text) is not None


def _is_duration(text: str) -> bool:
    return duration_ms(text.strip().lower().removeprefix("interval").strip(), _UNITS) is not None


SWITCH: Final = ValueKind("true or false", _matches(r"\s*(true|false)\s*"))
COUNT: Final = ValueKind("a number from 1 on", _matches(r"0*[1-9][0-9]{0,8}"))
COLUMNS: Final = ValueKind("a number of columns, or -1 for all", _matches(r"-1|[0-9]{1,9}"))
WHOLE: Final = ValueKind("a whole number", _matches(r"[0-9]{1,19}"))
DURATION: Final = ValueKind("weeks, days or hours, such as `interval 1 week`", _is_duration)
LEVEL: Final = ValueKind(
    "Serializable or WriteSerializable", _matches("(write)?serializable|snapshotisolation")
)
POLICY: Final = ValueKind("classic or v2", _matches("classic|v2"))
PROPERTIES: Final[Mapping[str, ValueKind]] = {
    "delta.appendOnly": SWITCH,
    "delta.autoOptimize.optimizeWrite": SWITCH,
    "delta.checkpoint.writeStatsAsJson": SWITCH,
    "delta.checkpoint.writeStatsAsStruct": SWITCH,
    "delta.checkpointInterval": COUNT,
    "delta.checkpointPolicy": POLICY,
    "delta.checkpointRetentionDuration": DURATION,
    "delta.compatibility.symlinkFormatManifest.enabled": SWITCH,
    "delta.dataSkippingNumIndexedCols": COLUMNS,
    "delta.deletedFileRetentionDuration": DURATION,
    "delta.enableChangeDataFeed": SWITCH,
    "delta.enableDeletionVectors": SWITCH,
    "delta.enableExpiredLogCleanup": SWITCH,
    "delta.enableIcebergCompatV1": SWITCH,
    "delta.enableIcebergCompatV2": SWITCH,
    "delta.enableInCommitTimestamps": SWITCH,
    "delta.enableRowTracking": SWITCH,
    "delta.enableTypeWidening": SWITCH,
    "delta.inCommitTimestampEnablementTimestamp": WHOLE,
    "delta.inCommitTimestampEnablementVersion": WHOLE,
    "delta.isolationLevel": LEVEL,
    "delta.logRetentionDuration": DURATION,
    "delta.randomizeFilePrefixes": SWITCH,
    "delta.randomPrefixLength": COUNT,
    "delta.sampleRetentionDuration": DURATION,
    "delta.setTransactionRetentionDuration": DURATION,
    "delta.tuneFileSizesForRewrites": SWITCH,
}
"""The kinds of the values of properties. Those of other properties are not looked at."""


def number_of(text: str | None) -> int | None:
    """Returns the number that a property is, None if it is none of at most 18 digits."""
    return int(text) if text and _NUMBER.fullmatch(text) else None


def value_faults(configuration: Mapping[str, str | None]) -> Iterator[tuple[str, str]]:
    """Yields which properties have a value that can't be read, each with what to set."""
    for name, text in configuration.items():
        kind = PROPERTIES.get(name)
        if kind is not None and text is not None and not kind.fits(text):
            yield f"the property {name} is {text[:SHOWN]!r}, which can't be read", f"set it to {kind.wanted}"
