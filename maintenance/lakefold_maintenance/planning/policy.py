"""The maintenance policy of a table, as data: how large fragments should be, how long versions stay.

A table has its policy in its configuration, under keys that begin with `lakefold.maintenance.`. Values that a
table lacks are taken from the settings of the process, then from the defaults here. Lance's own keys for
cleaning up (`lance.auto_cleanup.*`) count as the table's if it has none of ours for the same thing. A value
that is invalid is refused when it is read, and the error names its key.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, fields
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from lakefold_table.durations import DAY_MS, UNITS_MS, duration_ms
from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

PREFIX: Final = "lakefold.maintenance."
"""The beginning of the keys of a table's configuration that hold its policy."""

LANCE_KEYS: Final = {
    "version_age": "lance.auto_cleanup.older_than",
    "min_versions": "lance.auto_cleanup.retain_versions",
}
"""Lance's keys with the meaning of one of ours."""

_MOST: Final = 2**62
_HOURS: Final = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]):([0-5]\d)")
_DAY: Final = 24 * 60
_POLICY_UNITS_MS: Final = {
    **UNITS_MS,
    "ms": 1,
    **dict.fromkeys(("s", "sec"), 1_000),
    **dict.fromkeys(("m", "min"), 60_000),
    **dict.fromkeys(("h", "hr"), DAY_MS // 24),
    "d": DAY_MS,
    "w": 7 * DAY_MS,
    **dict.fromkeys(("M", "month"), 2_630_016_000),
    **dict.fromkeys(("y", "year"), 31_557_600_000),
}
"""The units of our keys (`14d`) and of Lance's own (`2 weeks`, `1 month`)."""


@dataclass(frozen=True, slots=True)
class QuietHours:
    """A part of each day, in minutes since midnight (UTC). It may pass midnight."""

    begin: int
    end: int

    def contain(self, minute: int) -> bool:
        """Returns whether this minute of the day is in the quiet hours."""
        return (minute - self.begin) % _DAY < (self.end - self.begin) % _DAY


def _whole(least: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not re.fullmatch(r"\d{1,19}", text) or not least <= int(text) <= _MOST:
            raise ValueError(f"it must be a whole number from {least} on")
        return int(text)

    return parse


def _share(text: str) -> float:
    share = _number(text)
    if not 0 < share <= 1:
        raise ValueError("it must be above 0 and at most 1, as 0.1 for a tenth")
    return share


def _share_or_none(text: str) -> float | None:
    return None if text.lower() == "none" else _share(text)


def _positive(text: str) -> float:
    number = _number(text)
    if number <= 0:
        raise ValueError("it must be above 0")
    return number


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError("it is not a number")
    return number


def _switch(text: str) -> bool:
    if text.lower() not in {"true", "false"}:
        raise ValueError("it must be true or false")
    return text.lower() == "true"


def _quiet(text: str) -> QuietHours:
    match = _HOURS.fullmatch(text)
    if match is None or match.group(1, 2) == match.group(3, 4):
        raise ValueError("write it as 08:00-18:00 (UTC)")
    begin, end = (int(hours) * 60 + int(minutes) for hours, minutes in (match.group(1, 2), match.group(3, 4)))
    return QuietHours(begin, end)


def _duration(text: str) -> timedelta:
    milliseconds = duration_ms(text, _POLICY_UNITS_MS)
    if milliseconds is None:
        raise ValueError("it is not a duration; write it as 14d, 12h, 30m or 0s")
    try:
        return timedelta(milliseconds=milliseconds)
    except OverflowError as error:
        raise ValueError("it is too long") from error


def _age_from(least: timedelta) -> Callable[[str], timedelta]:
    def parse(text: str) -> timedelta:
        age = _duration(text)
        if age < least:
            raise ValueError(f"it must be at least {least.total_seconds():.0f}s")
        return age

    return parse


def _key(parse: Callable[[str], object], text: str) -> dict[str, object]:
    return {"parse": parse, "text": text}


@dataclass(frozen=True, slots=True)
class MaintenancePolicy:
    """What maintenance a table gets. Each field is also the end of a key (`PREFIX`)."""

    compaction: bool = field(default=True, metadata=_key(_switch, "whether fragments are compacted"))
    target_rows: int = field(
        default=1024 * 1024, metadata=_key(_whole(1), "a fragment with this many rows is large enough")
    )
    target_bytes: int = field(
        default=512 * 1024**2,
        metadata=_key(_whole(1), "a fragment with this many bytes of data files is large enough"),
    )
    growth: int = field(
        default=8,
        metadata=_key(
            _whole(2), "a rewritten row is afterwards in a fragment of a size class this many times larger"
        ),
    )
    deleted_share: float = field(
        default=0.1,
        metadata=_key(_share, "a fragment is rewritten if this share of its rows is deleted"),
    )
    bytes_per_second: int = field(
        default=0,
        metadata=_key(_whole(0), "rewrite at most this many bytes of data files per second; 0: no limit"),
    )
    quiet_hours: QuietHours | None = field(
        default=None, metadata=_key(_quiet, "hours (UTC) in which nothing is rewritten, as 08:00-18:00")
    )
    quiet_load: float | None = field(
        default=None,
        metadata=_key(_positive, "nothing is rewritten if the maintainer's machine has this load per core"),
    )
    unindexed_share: float | None = field(
        default=0.2,
        metadata=_key(
            _share_or_none,
            "the indices are brought up to date if one of them lacks this share of the rows; none: never",
        ),
    )
    cleanup: bool = field(default=True, metadata=_key(_switch, "whether old versions are removed"))
    version_age: timedelta = field(
        default=timedelta(days=14), metadata=_key(_duration, "a version of this age is removed")
    )
    min_versions: int = field(
        default=1, metadata=_key(_whole(1), "keep this many of the newest versions, whatever their age")
    )
    conflict_files: timedelta = field(
        default=timedelta(0),
        metadata=_key(
            _duration, "how long after its conflict with a version the files of a proposal are removed"
        ),
    )
    refused_files: timedelta = field(
        default=timedelta(days=7),
        metadata=_key(
            _duration,
            "how long after its last refusal for another reason the files of a proposal are removed",
        ),
    )
    unnamed_files: timedelta = field(
        default=timedelta(days=7),
        metadata=_key(
            _age_from(timedelta(hours=1)), "how long data files stay that no version and no proposal names"
        ),
    )


NAMES: Final = tuple(each.name for each in fields(MaintenancePolicy))
"""The names of all keys, without the prefix."""


def policy_of(config: Mapping[str, str], defaults: Mapping[str, str] | None = None) -> MaintenancePolicy:
    """Returns the policy of a table with this configuration.

    `defaults`: the settings of the process, by the names of the keys without the prefix. Raises
    `InvalidError`, which names the key, if a value is invalid or a key with our prefix is not known.
    """
    values: dict[str, object] = {}
    for name, text in (defaults or {}).items():
        values[name] = _parsed(name, text, f"maintenance.{name}")
    for name, key in LANCE_KEYS.items():
        if key in config:
            # Lance keeps the newest version if it is asked to retain none.
            text = "1" if name == "min_versions" and config[key] == "0" else config[key]
            values[name] = _parsed(name, text, key)
    for key, text in config.items():
        if key.startswith(PREFIX):
            name = key.removeprefix(PREFIX)
            values[name] = _parsed(name, text, key)
    return MaintenancePolicy(**values)  # type: ignore[arg-type] # its parser gave it its type


def _parsed(name: str, text: str, key: str) -> object:
    known = next((each for each in fields(MaintenancePolicy) if each.name == name), None)
    if known is None:
        raise InvalidError(
            f"{key} is not a key of the maintenance policy",
            where=key,
            hint=f"the keys are: {', '.join(NAMES)}",
        )
    try:
        value: object = known.metadata["parse"](text.strip())
    except ValueError as error:
        hint = f"{known.metadata['text']}; the default is {_shown(known.default)}"
        raise InvalidError(f"{key} is {text!r}: {error}", where=key, hint=hint) from error
    return value


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, timedelta):
        return f"{value.days}d"
    return "none" if value is None else str(value)
