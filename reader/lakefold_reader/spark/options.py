"""The options of `format("lakefold")` in Spark, and how the text of each is read.

Their names are those that users of Delta and Kafka know. Spark passes every option as text and compares names
without regard to case, so a name that isn't known can only be a mistake, and is reported as a mistake.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from lakefold_reader.format.changes import misfits_of
from lakefold_reader.spark.option_values import (
    STORAGE_PREFIXES,
    column_names,
    count,
    flag,
    read_value,
    refuse_catalog,
    size,
    without_prefix,
    word,
)
from lakefold_reader.versions.start import EARLIEST
from lakefold_reader.versions.times import micros_of
from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

LATEST: Final = "latest"


class Use(StrEnum):
    """A kind of read for which an option is made. An option may have several."""

    ROWS = "read"
    CHANGES = "read of changes"
    STREAM = "readStream"


ALL: Final = frozenset(Use)


@dataclass(frozen=True, slots=True)
class Option:
    """An option: its name as users write it, how its text is read, for which uses it is, what it means."""

    name: str
    read: Callable[[str], Any]
    uses: frozenset[Use]
    meaning: str
    default: str = ""


def _version(text: str) -> int:
    if not text.strip().isdecimal():
        raise ValueError("a version's number")
    return int(text)


def _start(text: str) -> int | str:
    word = text.strip().lower()
    return word if word in {EARLIEST, LATEST} else _version(word)


OPTIONS: Final = (
    Option("path", word, ALL, "the table's URI or path; the same as `load(path)`"),
    Option("branch", word, ALL, "the branch to read; `main` is the main branch"),
    Option(
        "columns",
        column_names,
        ALL,
        "the columns to read, with commas between them: others are not read from the files. No release "
        "of Spark passes a Python source the columns that a query needs",
        "all",
    ),
    Option("versionAsOf", _version, frozenset({Use.ROWS}), "the version to read", "the newest"),
    Option(
        "timestampAsOf",
        micros_of,
        frozenset({Use.ROWS}),
        "read the version that was the newest at this time; ISO 8601, UTC if it names no zone",
    ),
    Option("tag", word, frozenset({Use.ROWS}), "read the version that the tag names"),
    Option(
        "readChangeFeed",
        flag,
        ALL,
        "true: rows of the change feed (inserts, deletes, both images of updates) with `_change_type`, "
        "`_commit_version`, `_commit_timestamp` and `_log_offset`",
        "false",
    ),
    Option(
        "startingVersion",
        _start,
        frozenset({Use.CHANGES, Use.STREAM}),
        "the first version whose changes are read, itself included; `earliest`: the whole content of the "
        "oldest version after which none is missing, then what came after; `latest`: only what comes after "
        "the start",
        "stream: the whole content of the newest version, then what comes after",
    ),
    Option(
        "startingTimestamp",
        micros_of,
        frozenset({Use.CHANGES, Use.STREAM}),
        "as startingVersion with the first version of this time or later",
    ),
    Option(
        "endingVersion",
        _version,
        frozenset({Use.CHANGES}),
        "the last version whose changes are read, itself included",
        "the newest",
    ),
    Option(
        "endingTimestamp",
        micros_of,
        frozenset({Use.CHANGES}),
        "as endingVersion with the last version of this time or earlier",
    ),
    Option(
        "maxVersionsPerTrigger",
        count,
        frozenset({Use.STREAM}),
        "the most versions in a batch",
        "1000",
    ),
    Option(
        "maxRowsPerTrigger",
        count,
        frozenset({Use.STREAM}),
        "a batch ends before the version with which it would have more rows, but takes at least one version",
        "no limit",
    ),
    Option(
        "maxBytesPerTrigger",
        size,
        frozenset({Use.STREAM}),
        "the same as maxRowsPerTrigger, but for bytes of data files instead of rows",
        "no limit",
    ),
    Option(
        "ignoreDeletes",
        flag,
        frozenset({Use.STREAM}),
        "without the change feed: ignore deletes; rows that others appended in such a version are read",
        "false",
    ),
    Option(
        "skipChangeCommits",
        flag,
        frozenset({Use.STREAM}),
        "without the change feed: of versions that delete, change or replace rows, read only what other "
        "entries appended in them",
        "false",
    ),
    Option(
        "ignoreChanges",
        flag,
        frozenset({Use.STREAM}),
        "without the change feed: of versions that change or replace rows, read the rows as they are after "
        "the change: a changed row is read again",
        "false",
    ),
    Option(
        "failOnDataLoss",
        flag,
        frozenset({Use.STREAM}),
        "false: if versions that weren't read yet were cleaned up, continue after the oldest one left "
        "instead of failing",
        "true",
    ),
    Option(
        "misfits",
        misfits_of,
        frozenset({Use.CHANGES, Use.STREAM}),
        "what to do about a value of an older version that doesn't fit the column's present type: `fail` the "
        "query, or `null`, and the task logs the version, the column and how many values it concerns",
        "fail",
    ),
    Option(
        "consumer",
        word,
        frozenset({Use.STREAM}),
        "the name under which the table knows the query: what it hasn't read is kept when old versions are "
        "cleaned up. The query continues where its own checkpoint says",
    ),
    Option(
        "maxPartitionBytes",
        size,
        ALL,
        "how many bytes of data files one partition takes; a fragment is never split",
        "128m",
    ),
    Option(
        "minPartitions",
        count,
        ALL,
        "make at least this many partitions if the table has as many fragments",
        "1",
    ),
)
"""Every option, in the order of the documents. Those of the store are added, by their prefix."""

_BY_NAME: Final = {option.name.lower(): option for option in OPTIONS}
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
        """Returns the value of an option, or None if it is not set."""
        return self.values.get(_known(name).name)

    def first(self, *names: str) -> Any:  # noqa: ANN401 - as `value`
        """Returns the value of the first of these options that is set, or None if none is."""
        return next((value for value in map(self.value, names) if value is not None), None)

    def says(self, name: str) -> bool:
        """Returns whether a flag is set."""
        return self.value(name) is True

    @property
    def path(self) -> str:
        """The table."""
        return str(self.values["path"])

    def check(self, use: Use) -> None:
        """Raises `InvalidError` for options that have no meaning for this use."""
        strange = [name for name in self.values if use not in _known(name).uses]
        if strange:
            hint = f"options of {use}: {', '.join(sorted(_names_for(use)))}"
            if use is Use.ROWS and all(Use.CHANGES in _known(name).uses for name in strange):
                hint = f'add .option("readChangeFeed", True) to read changes. {hint[:1].upper()}{hint[1:]}'
            raise InvalidError(f"no option of {use}", where=", ".join(strange), hint=hint)


def read_options(texts: Mapping[str, str]) -> Given:
    """Reads the options that Spark passes. Raises `InvalidError` for an unknown name or a wrong value."""
    refuse_catalog(texts)
    values: dict[str, Any] = {}
    storage: dict[str, str] = {}
    for name, text in texts.items():
        store_option = without_prefix(name, STORAGE_PREFIXES)
        if store_option is not None:
            storage[store_option] = text
        else:
            option = _known(name)
            values[option.name] = read_value(option.name, option.read, text)
    if "path" not in values:
        raise InvalidError("no table is named", where="path", hint='.load("s3://lake/flights") names it')
    _check_together(values)
    return Given(values, storage)


def _check_together(values: Mapping[str, Any]) -> None:
    for names in _ONE_OF:
        given = [name for name in names if values.get(name, False) is not False]
        if len(given) > 1:
            raise InvalidError(
                "only one of these options may be given", where=" and ".join(given), hint="leave one out"
            )
    first, last = values.get("startingVersion"), values.get("endingVersion")
    if isinstance(first, int) and last is not None and first > last:
        raise InvalidError(f"startingVersion {first} is after endingVersion {last}", where="startingVersion")


def _known(name: str) -> Option:
    option = _BY_NAME.get(name.lower())
    if option is None:
        hint = (
            f"the options are {', '.join(sorted(each.name for each in OPTIONS))}, and storage.* for the store"
        )
        raise InvalidError("there is no such option", where=name, hint=hint)
    return option


def _names_for(use: Use) -> list[str]:
    return [option.name for option in OPTIONS if use in option.uses]
