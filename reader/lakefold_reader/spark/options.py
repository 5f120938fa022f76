"""The options of reads by `format("lakefold")`: a line each, and what a user gave of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from lakefold_reader.format.changes import Misfits, misfits_of
from lakefold_reader.spark.option_kinds import COUNT, FLAG, NAMES, SIZE, WORD, OptionKind
from lakefold_reader.spark.option_table import Option, OptionTable, refuse_together
from lakefold_reader.spark.partitions import MAX_PARTITION_BYTES
from lakefold_reader.versions.start import EARLIEST
from lakefold_reader.versions.times import micros_of
from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    from collections.abc import Mapping

LATEST: Final = "latest"


class Use(StrEnum):
    """A kind of read for which an option is made. An option may have several."""

    ROWS = "read"
    CHANGES = "read of changes"
    STREAM = "readStream"


def _version(text: str) -> int:
    if not text.strip().isdecimal():
        raise ValueError("a version's number")
    return int(text)


def _start(text: str) -> int | str:
    word = text.strip().lower()
    return word if word in {EARLIEST, LATEST} else _version(word)


_ROWS: Final = frozenset({Use.ROWS})
_CHANGES: Final = frozenset({Use.CHANGES})
_STREAM: Final = frozenset({Use.STREAM})
_EVERY_CHANGE: Final = _CHANGES | _STREAM
_VERSION: Final = OptionKind(_version)
_TIME: Final = OptionKind(micros_of)

OPTIONS: Final = (
    Option("path", WORD, "the table's URI or path; the same as `load(path)`"),
    Option("branch", WORD, "the branch to read; `main` is the main branch"),
    Option(
        "columns",
        NAMES,
        "the columns to read, with commas between them: others are not read from the files. No release "
        "of Spark passes a Python source the columns that a query needs",
        default_text="all",
    ),
    Option("versionAsOf", _VERSION, "the version to read", _ROWS, default_text="the newest"),
    Option(
        "timestampAsOf",
        _TIME,
        "read the version that was the newest at this time; ISO 8601, UTC if it names no zone",
        _ROWS,
    ),
    Option("tag", WORD, "read the version that the tag names", _ROWS),
    Option(
        "readChangeFeed",
        FLAG,
        "true: rows of the change feed (inserts, deletes, both images of updates) with `_change_type`, "
        "`_commit_version`, `_commit_timestamp` and `_log_offset`",
        default=False,
    ),
    Option(
        "startingVersion",
        OptionKind(_start),
        "the first version whose changes are read, itself included; `earliest`: the whole content of the "
        "oldest version after which none is missing, then what came after; `latest`: only what comes after "
        "the start",
        _EVERY_CHANGE,
        default_text="stream: the whole content of the newest version, then what comes after",
    ),
    Option(
        "startingTimestamp",
        _TIME,
        "as startingVersion with the first version of this time or later",
        _EVERY_CHANGE,
    ),
    Option(
        "endingVersion",
        _VERSION,
        "the last version whose changes are read, itself included",
        _CHANGES,
        default_text="the newest",
    ),
    Option(
        "endingTimestamp", _TIME, "as endingVersion with the last version of this time or earlier", _CHANGES
    ),
    # A batch should not take hours.
    Option("maxVersionsPerTrigger", COUNT, "the most versions in a batch", _STREAM, default=1000),
    Option(
        "maxRowsPerTrigger",
        COUNT,
        "a batch ends before the version with which it would have more rows, but takes at least one version",
        _STREAM,
        default_text="no limit",
    ),
    Option(
        "maxBytesPerTrigger",
        SIZE,
        "the same as maxRowsPerTrigger, but for bytes of data files instead of rows",
        _STREAM,
        default_text="no limit",
    ),
    Option(
        "ignoreDeletes",
        FLAG,
        "without the change feed: ignore deletes; rows that others appended in such a version are read",
        _STREAM,
        default=False,
    ),
    Option(
        "skipChangeCommits",
        FLAG,
        "without the change feed: of versions that delete, change or replace rows, read only what other "
        "entries appended in them",
        _STREAM,
        default=False,
    ),
    Option(
        "ignoreChanges",
        FLAG,
        "without the change feed: of versions that change or replace rows, read the rows as they are after "
        "the change: a changed row is read again",
        _STREAM,
        default=False,
    ),
    Option(
        "failOnDataLoss",
        FLAG,
        "false: if versions that weren't read yet were cleaned up, continue after the oldest one left "
        "instead of failing",
        _STREAM,
        default=True,
    ),
    Option(
        "misfits",
        OptionKind(misfits_of),
        "what to do about a value of an older version that doesn't fit the column's present type: `fail` the "
        "query, or `null`, and the task logs the version, the column and how many values it concerns",
        _EVERY_CHANGE,
        default=Misfits.FAIL,
    ),
    Option(
        "consumer",
        WORD,
        "the name under which the table knows the query: what it hasn't read is kept when old versions are "
        "cleaned up. The query continues where its own checkpoint says",
        _STREAM,
    ),
    Option(
        "maxPartitionBytes",
        SIZE,
        "how many bytes of data files one partition takes; a fragment is never split",
        default=MAX_PARTITION_BYTES,
        default_text="128m",
    ),
    Option(
        "minPartitions",
        COUNT,
        "make at least this many partitions if the table has as many fragments",
        default=1,
    ),
)
"""Every option, in the order of the documents. Those of the store are added, by their prefix."""

_TABLE: Final = OptionTable(OPTIONS, "there is no such option", "and storage.* for the store")
_ONE_OF: Final = (
    ("versionAsOf", "timestampAsOf", "tag"),
    ("startingVersion", "startingTimestamp"),
    ("endingVersion", "endingTimestamp"),
    ("tag", "branch"),
    ("ignoreChanges", "skipChangeCommits"),
    ("ignoreChanges", "ignoreDeletes"),
)
"""Groups of options of which a user may set only one."""


@dataclass(frozen=True, slots=True)
class Given:
    """The options that a user set: `value` by an option's name, `storage` for the store."""

    values: Mapping[str, Any]
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)

    def value(self, name: str) -> Any:  # noqa: ANN401 - each option has a type of its own
        """Returns the value of an option: its default if it is not set."""
        return self.values.get(name, _TABLE.known(name).default)

    def first(self, *names: str) -> Any:  # noqa: ANN401 - as `value`
        """Returns the value of the first of these options that is set, or None if none is."""
        return next((value for value in map(self.value, names) if value is not None), None)

    @property
    def path(self) -> str:
        """The table."""
        return str(self.values["path"])

    def check(self, use: Use) -> None:
        """Raises `InvalidError` for options that have no meaning for this use."""
        strange = [name for name in self.values if not _TABLE.known(name).is_for(use)]
        if strange:
            hint = f"options of {use}: {', '.join(sorted(each.name for each in _TABLE.of(use)))}"
            if use is Use.ROWS and all(_TABLE.known(name).is_for(Use.CHANGES) for name in strange):
                hint = f'add .option("readChangeFeed", True) to read changes. {hint[:1].upper()}{hint[1:]}'
            raise InvalidError(f"no option of {use}", where=", ".join(strange), hint=hint)


def read_options(texts: Mapping[str, str]) -> Given:
    """Reads the options that Spark passes. Raises `InvalidError` for an unknown name or a wrong value."""
    values, storage = _TABLE.read(texts)
    if "path" not in values:
        raise InvalidError("no table is named", where="path", hint='.load("s3://lake/flights") names it')
    for names in _ONE_OF:
        refuse_together(values, *names)
    first, last = values.get("startingVersion"), values.get("endingVersion")
    if isinstance(first, int) and last is not None and first > last:
        raise InvalidError(f"startingVersion {first} is after endingVersion {last}", where="startingVersion")
    return Given(values, storage)
