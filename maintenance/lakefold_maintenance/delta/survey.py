"""Reads what a plan for a Delta table is made of: the figures of its logical files, and the policy.

If the table has none of our properties, the policy has Delta's own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from lakefold_maintenance.format import MaintenanceFormat, TableSurvey
from lakefold_maintenance.planning.fragments import FragmentFigures
from lakefold_maintenance.planning.plan import classes_of, weights_of
from lakefold_maintenance.planning.policy import PREFIX, MaintenancePolicy, policy_of
from lakefold_reader.delta.clean_up import keeps_old_versions
from lakefold_reader.delta.versions import FORMAT, read_state
from lakefold_reader.versions.listing import newest_of
from lakefold_table.delta.actions.paths import file_path
from lakefold_table.delta.deletion_vectors.storage import ABSOLUTE
from lakefold_table.delta.record_counts import statistics_of
from lakefold_table.delta.snapshot.snapshot import DeltaSnapshot, DurationProperty, property_ms
from lakefold_table.delta.table_features.table_properties import FILE_SIZE, file_size
from lakefold_table.durations import DAY_MS
from lakefold_table.errors import DamagedError, InvalidError
from lakefold_table.marks.marks import decode_marks

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from lakefold_reader.format.source import Source
    from lakefold_table.delta.actions.file_actions import AddFile

LOG_RETENTION: Final = DurationProperty("delta.logRetentionDuration", 30 * DAY_MS)
_NEVER: Final = "365000d"


class FileNumbers:
    """The numbers of a table's files, by their paths. A file keeps its number while it is in the table."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._next = 0

    def of(self, path: str) -> int:
        """Returns the number of a file. A new file gets a higher number than all files before."""
        number = self._numbers.get(path)
        if number is None:
            number = self._numbers[path] = self._next
            self._next += 1
        return number

    def keep(self, paths: Collection[str]) -> None:
        """Forgets files that are not in the table any more, once there are many of them."""
        if len(self._numbers) > 2 * len(paths) + 1000:
            self._numbers = {path: number for path, number in self._numbers.items() if path in paths}


@dataclass(frozen=True)
class DeltaSurvey(TableSurvey):
    """A version of a Delta table. `snapshot`: the version; `files`: its logical files by their numbers."""

    snapshot: DeltaSnapshot = field(kw_only=True)
    files: Mapping[int, AddFile] = field(kw_only=True)
    numbers: FileNumbers = field(kw_only=True)


@dataclass
class DeltaSurveyor:
    """See `FormatSurveyor`. `settings`: the policy's, as `policy_of` takes them."""

    format: MaintenanceFormat
    source: Source
    settings: Mapping[str, str] = field(default_factory=dict)
    _numbers: FileNumbers = field(default_factory=FileNumbers, init=False, repr=False)

    def survey(self) -> DeltaSurvey:
        """See `FormatSurveyor.survey`. Raises `InvalidError` also if nothing may be committed to it."""
        state, snapshot = read_state(self.source, newest_of(self.source))
        FORMAT.check_writable(state, self.source.uri)
        policy = delta_policy(snapshot.metadata.configuration, self.settings, self.source.uri)
        files = {self._numbers.of(path): file for path, file in snapshot.files.items()}
        self._numbers.keep(snapshot.files.keys())
        figures = _figures(files)
        classes = classes_of(weights_of(figures, policy), policy.growth)
        # Delta gives files no order. Those of a partition that may be joined are put beside each other.
        times = np.fromiter((file.modified_ms for file in files.values()), np.int64, len(files))
        order = np.lexsort((figures.ids, times, classes, figures.coverages))
        columns = (figures.ids, figures.rows, figures.deleted, figures.bytes, figures.coverages)
        marks = decode_marks(state.marks, self.source.uri)
        return DeltaSurvey(
            self.source,
            self.source.uri,
            "",
            self.format,
            state,
            FragmentFigures(*(column[order] for column in columns)),
            policy,
            None if marks is None else marks.position,
            fixed=frozenset(number for number, file in files.items() if _is_fixed(file)),
            dropped=marks is not None and marks.dropped,
            table_id="" if marks is None else marks.full_id,
            snapshot=snapshot,
            files=files,
            numbers=self._numbers,
        )


def _figures(files: Mapping[int, AddFile]) -> FragmentFigures:
    partitions: dict[Sequence[tuple[str, str | None]], int] = {}
    rows = []
    for number, file in files.items():
        deleted = 0 if file.deletion_vector is None else file.deletion_vector.cardinality
        stored = statistics_of(file).stored_rows
        # Without statistics a file counts by its bytes.
        stored = deleted + 1 if stored is None else stored
        partition = tuple(sorted(file.partition_values.items()))
        rows.append((number, stored, deleted, file.size, partitions.setdefault(partition, len(partitions))))
    columns = np.array(rows, np.int64).reshape(-1, 5).T
    return FragmentFigures(*columns)


def _is_fixed(file: AddFile) -> bool:
    """Returns whether a file stays as it is: another client has clustered its rows, or named it otherwise.

    A file or a deletion vector with an absolute path may be outside of the table.
    """
    if file.clustering_provider:
        return True
    vector = file.deletion_vector
    return file_path(file.path).absolute or (vector is not None and vector.storage_type == ABSOLUTE)


def delta_policy(
    configuration: Mapping[str, str | None], settings: Mapping[str, str], where: str
) -> MaintenancePolicy:
    """Returns the policy of a table with these properties. Raises `InvalidError` if one is invalid.

    `delta.logRetentionDuration` is the age from which versions are removed, none are if
    `delta.enableExpiredLogCleanup` is false. `delta.targetFileSize` is the bytes from which a file is large
    enough.
    """
    properties = {name: text for name, text in configuration.items() if text is not None}
    foreign: dict[str, str] = {}
    if LOG_RETENTION.name in properties:
        try:
            foreign["version_age"] = f"{property_ms(properties, LOG_RETENTION)}ms"
        except DamagedError as error:
            raise InvalidError(error.reason, where=where, hint=error.hint) from error
    if keeps_old_versions(configuration):
        foreign["version_age"] = _NEVER
    if FILE_SIZE in properties:
        foreign["target_bytes"] = _bytes(properties[FILE_SIZE], where)
    defaults = {"version_age": f"{LOG_RETENTION.default_ms}ms", **settings}
    return policy_of({**{PREFIX + name: text for name, text in foreign.items()}, **properties}, defaults)


def _bytes(text: str, where: str) -> str:
    size = file_size(text)
    if size is None:
        hint = "set it to bytes, or to a size as in `100mb`"
        raise InvalidError(
            f"the property {FILE_SIZE} is {text!r}, which is not a size", where=where, hint=hint
        )
    return str(size)
