"""Finds the rows that two versions of a Lance table don't share, by their data files.

The versions may be far apart, or on two branches. A fragment of both is recognised by a data file that it has
in both: its id may be another one's after an Overwrite, and a branch names the files of its parent by a base.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakefold_protos.lance.file_pb2 import Schema
from lakefold_reader.format.changes import ChangeType
from lakefold_reader.format.snapshots import FileTotal
from lakefold_reader.format.source import BranchVersion, VersionDifference
from lakefold_reader.lance.feed.columns import FeedVersions, FieldHistory, last_of, moved_fields
from lakefold_reader.lance.feed.parts import FragmentPart
from lakefold_reader.lance.feed.sides import deleted_rows, unlike
from lakefold_reader.lance.scan.columns import TableSchema, schema_of
from lakefold_reader.lance.units import counts_rows
from lakefold_reader.lance.versions import read_state
from lakefold_table.bitmaps import Bitmap, encode_bitmap
from lakefold_table.errors import InvalidError
from lakefold_table.lance.kinds import Kind
from lakefold_table.lance.manifests.live_files import file_key, prefixes_of
from lakefold_table.lance.manifests.naming import data_path
from lakefold_table.lance.schemas.fragment_files import TOMBSTONED, field_locations
from lakefold_table.lance.schemas.schema import TOP
from lakefold_table.roots import below
from lakefold_table.uri import canonical

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lakefold_protos.lance.table_pb2 import DataFile, DataFragment
    from lakefold_reader.format.source import Source
    from lakefold_reader.lance.feed.columns import LastVersion
    from lakefold_reader.lance.feed.parts import Followed
    from lakefold_table.lance.state import LanceState


def difference_of(before: BranchVersion, after: BranchVersion) -> VersionDifference:
    """See `FeedFormat.difference`."""
    end = last_of(*after)
    old, new = _Side.of(before), _Side.of(after)
    followed = _followed(before, old.schema, after, end)
    is_same = old.source.uri == new.source.uri and all(now == then for now, then in followed)
    shown = {field.id for field in new.schema.fields}
    if is_same and shown == {now for now, _ in followed}:
        fragments = unlike(old.state.fragments, new.state.fragments)
    else:
        # A fragment that is the same in both may have other values in the columns of the later version.
        fragments = _by_id(old.state), _by_id(new.state)
    return _Comparison(old, new, followed, end).difference(*fragments)


def _by_id(state: LanceState) -> dict[int, DataFragment]:
    return {fragment.id: fragment for fragment in state.fragments}


def _followed(before: BranchVersion, schema: TableSchema, after: BranchVersion, end: LastVersion) -> Followed:
    """Returns the fields of the earlier version that the later one has, too.

    On one branch each is followed from version to version. On two branches a field is the same if it has the
    same name, or else the same id and type.
    """
    if before.source.uri == after.source.uri:
        if schema.fields == end.schema.fields:
            return tuple((each.id, each.id) for each in schema.fields)
        history = FieldHistory(FeedVersions(after.source, end), before.version, end)
        return history.fields(before.version, schema)
    moved = moved_fields(schema.fields, end.schema.fields, Kind.UNKNOWN)
    return tuple((now, then) for then, now in moved.items())


@dataclass(frozen=True, slots=True)
class _Side:
    """A version that is compared. `prefixes`: by base what comes before the names of the files in it."""

    source: Source
    state: LanceState
    schema: TableSchema
    prefixes: Mapping[int, str]

    @classmethod
    def of(cls, stored: BranchVersion) -> _Side:
        state = read_state(*stored)
        prefixes = {number: _canonical(text) for number, text in prefixes_of(state.head.base_paths).items()}
        return cls(stored.source, state, schema_of(state.head), prefixes)

    def location(self, file: DataFile) -> str:
        """Returns the URI of a data file, which is the same for each branch that names it."""
        if file.HasField("base_id"):
            return file_key(file, self.prefixes)
        return below(self.source.uri, data_path(file.path))

    def locations(self, fragment: DataFragment) -> dict[int, tuple[str, int]]:
        """Returns the file and the column in it of each field."""
        files = {
            (file.path, file.base_id if file.HasField("base_id") else None): file for file in fragment.files
        }
        return {
            number: (self.location(files[home.path, home.base]), home.column)
            for number, home in field_locations(fragment).items()
        }

    def deleted(self, fragment: DataFragment) -> Bitmap:
        """Returns the rows that a fragment's deletion file lists."""
        if not fragment.HasField("deletion_file"):
            return Bitmap()
        return deleted_rows(self.source, self.state.head, fragment)

    def files(self, fragments: Iterable[DataFragment]) -> dict[str, int | None]:
        """Returns the bytes of each data file of these fragments that has values of a field."""
        return {
            self.location(file): file.file_size_bytes or None
            for fragment in fragments
            for file in fragment.files
            if any(number != TOMBSTONED for number in file.fields)
        }


def _canonical(prefix: str) -> str:
    try:
        return f"{canonical(prefix)}/"
    except InvalidError:
        return prefix


class _Comparison:
    """Two versions, and what was found of their rows. `followed`: the fields that both have."""

    def __init__(self, old: _Side, new: _Side, followed: Followed, end: LastVersion) -> None:
        self._old, self._new, self._end = old, new, end
        self._followed = followed
        kept_ids = {now for now, _ in followed}
        self._added = [field.id for field in new.schema.fields if field.id not in kept_ids]
        own = tuple((field.id, field.id) for field in new.schema.fields)
        self._forms = {id(old): (_encoded(old.schema), followed), id(new): (_encoded(new.schema), own)}
        self._removed: list[FragmentPart] = []
        self._inserted: list[FragmentPart] = []

    def difference(
        self, before: Mapping[int, DataFragment], after: Mapping[int, DataFragment]
    ) -> VersionDifference:
        """Returns the difference of the versions, of which these fragments may differ."""
        old, new = self._old, self._new
        homes = {old.location(file): number for number, each in before.items() for file in each.files}
        rest = dict(before)
        for fragment in after.values():
            shared = (homes.get(new.location(file)) for file in fragment.files)
            number = next((each for each in shared if each in rest), None)
            if number is None:
                self._add(new, fragment)
            else:
                self._compare(rest.pop(number), fragment)
        for fragment in rest.values():
            self._add(old, fragment)
        was, now = old.files(before.values()), new.files(after.values())
        return VersionDifference(
            self._end,
            self._names(),
            old.source.uri == new.source.uri and old.schema.fields == new.schema.fields,
            FileTotal.of(size for file, size in was.items() if file not in now),
            FileTotal.of(size for file, size in now.items() if file not in was),
            self._removed,
            self._inserted,
        )

    def _compare(self, old: DataFragment, new: DataFragment) -> None:
        """Adds the rows of a fragment that the versions have both and that are not the same."""
        if old.physical_rows != new.physical_rows or not self._same_values(old, new):
            self._add(self._old, old)
            self._add(self._new, new)
            return
        is_same_file = old.deletion_file == new.deletion_file and old.id == new.id
        if self._old.source.uri == self._new.source.uri and is_same_file:
            return
        gone, gone_after = self._old.deleted(old), self._new.deleted(new)
        self._add(self._old, old, gone_after - gone)
        self._add(self._new, new, gone - gone_after)

    def _same_values(self, old: DataFragment, new: DataFragment) -> bool:
        """Returns whether all fields that are shown have their values in the same files."""
        if list(old.overlays) != list(new.overlays):
            return False
        was, now = self._old.locations(old), self._new.locations(new)
        return not any(number in now for number in self._added) and all(
            was.get(then) == now.get(number) for number, then in self._followed
        )

    def _add(self, side: _Side, fragment: DataFragment, offsets: Bitmap | None = None) -> None:
        """Adds rows of a fragment (None: all) as removed ones if the earlier version has them."""
        if offsets is not None and not offsets:
            return
        is_old = side is self._old
        rows = None if offsets is None else len(offsets)
        if offsets is None and counts_rows(fragment):
            rows = fragment.physical_rows - fragment.deletion_file.num_deleted_rows
        part = FragmentPart(
            side.state.version,
            side.state.time_us,
            ChangeType.DELETE if is_old else ChangeType.INSERT,
            None,
            side.state.version,
            fragment.SerializeToString(deterministic=True),
            fragment.id,
            None if offsets is None else encode_bitmap(offsets, runs=True),
            rows,
            *self._forms[id(side)],
        )
        (self._removed if is_old else self._inserted).append(part)

    def _names(self) -> dict[str, str]:
        """Returns the names of the columns that both versions have, in the one and in the other."""
        then = {field.id: field.name for field in self._old.schema.fields if field.parent_id == TOP}
        now = {field.id: field.name for field in self._new.schema.fields if field.parent_id == TOP}
        return {then[old]: now[new] for new, old in self._followed if old in then and new in now}


def _encoded(schema: TableSchema) -> bytes:
    message = Schema(fields=schema.fields, metadata=schema.metadata)
    return message.SerializeToString(deterministic=True)
