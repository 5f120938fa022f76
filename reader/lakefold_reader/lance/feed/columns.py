"""Finds the fields of an older version that the last version of a change feed has, too.

A feed shows all its rows in the schema of its last version. In between columns, and fields below them,
may have been renamed, cast, dropped, added, or given the id of a dropped column. So each is
followed from version to version: by its id if the operation keeps ids, by its name if it assigns new ids.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace
from itertools import count
from operator import attrgetter
from typing import TYPE_CHECKING

from lakefold_reader.format.source import FeedEnd, Source
from lakefold_reader.lance.scan.columns import TableSchema, schema_in, schema_of
from lakefold_reader.lance.versions import head_of, kind_in
from lakefold_reader.versions.listing import numbers_of
from lakefold_reader.versions.ranges import expired
from lakefold_table.lance.kinds import Kind
from lakefold_table.lance.schemas.schema import TOP, children
from lakefold_table.lance.state import history_in

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lakefold_protos.lance.file_pb2 import Field
    from lakefold_reader.lance.feed.parts import Followed
    from lakefold_table.format import VersionSummary

MOST_KEPT = 64
"""How many versions that were read ahead are kept until their turn."""
IDS_ANEW = frozenset({Kind.CLONE, Kind.OVERWRITE})
"""Operations that number the fields of their schema from the start."""
IDS_OLD = frozenset({Kind.RESTORE, Kind.UNKNOWN})
"""Operations after which an id may mean what it meant in an older version: names are compared first."""


class FeedVersions:
    """The versions of a feed. A version that was read ahead is kept for its turn, if there are few."""

    def __init__(self, source: Source, last: LastVersion) -> None:
        self._source = source
        self._ahead: dict[int, VersionSummary] = {} if last.summary is None else {last.version: last.summary}

    def keep(self, summary: VersionSummary) -> None:
        """Keeps a version that was read already for its turn."""
        self._ahead[summary.version] = summary

    def peek(self, version: int, *, whole: bool = False) -> VersionSummary | None:
        """Returns a version before its turn, or None if it is gone. `whole`: its schema is needed, too.

        Raises `DamagedError`.
        """
        summary = self._ahead.get(version)
        if summary is None or (whole and head_of(summary) is None):
            summary = self._source.summary(version, whole=whole)
        if summary is not None and (version in self._ahead or len(self._ahead) < MOST_KEPT):
            self._ahead[version] = summary
        return summary

    def take(self, version: int, *, whole: bool) -> VersionSummary:
        """Returns a version in its turn.

        Raises `VersionExpiredError` if it is gone, and the errors of `look`.
        """
        summary = self.peek(version, whole=whole)
        self._ahead.pop(version, None)
        if summary is None:
            raise expired(self._source, f"version {version} is gone: it was cleaned up")
        return summary

    def next_existing(self, version: int) -> int:
        """Returns the first existing version after this version; the next number if none exists."""
        return min((number for number in numbers_of(self._source) if number > version), default=version + 1)


@dataclass(frozen=True, slots=True)
class LastVersion(FeedEnd):
    """The last version of a feed, and the version since which nothing has changed its schema.

    `summary`: what the version's file says of it, or None if the file was removed.
    """

    schema: TableSchema
    since: int
    summary: VersionSummary | None


def last_of(source: Source, version: int) -> LastVersion:
    """Returns the end of a feed at this version. Raises `VersionExpiredError`, `DamagedError`."""
    summary = source.summary(version, whole=True)
    head = None if summary is None else head_of(summary)
    if head is None:
        raise expired(source, f"version {version} is gone: it was cleaned up")
    return LastVersion(version, schema_of(head), history_in(head).schema_since, summary)


@dataclass(frozen=True, slots=True)
class _Stage:
    """A schema from a version on, and what made it. `restored`: the version that a Restore went back to."""

    version: int
    kind: Kind
    schema: TableSchema
    restored: int | None = None


class FieldHistory:
    """Returns which fields of older versions are in the last version.

    If the last version's marks don't show that its schema is that of the whole feed, the versions are read,
    and each field gets a mark that it keeps as long as it is the same column. A column that was dropped and
    made again is another column; a column that a Restore adds again is the same column. It isn't known what
    versions that are gone did to the columns: across them a name counts for more than an id.
    """

    def __init__(self, versions: FeedVersions, after: int, last: LastVersion) -> None:
        stages = [] if last.since <= after else _stages(versions, after, last)
        self._stages = stages
        self._marks = _marked(stages)

    def fields(self, version: int, schema: TableSchema) -> Followed:
        """Returns the fields of `version`, whose schema this is, that the last version has, too."""
        if not self._stages:
            return tuple((field.id, field.id) for field in schema.fields)
        marks = self._marks_at(version, schema)
        last = {mark: number for number, mark in self._marks[-1].items()}
        return tuple((last[mark], number) for number, mark in marks.items() if mark in last)

    def returning(self, version: int, before: TableSchema, schema: TableSchema) -> frozenset[int]:
        """Returns the fields that this version dropped and the last one has again, by earlier ids."""
        if not self._stages or before.fields == schema.fields:
            return frozenset()
        kept_ids = {now for now, _ in self.fields(version, schema)}
        return frozenset(then for now, then in self.fields(version - 1, before) if now not in kept_ids)

    def _marks_at(self, version: int, schema: TableSchema) -> Mapping[int, int]:
        stages, marks = self._stages, self._marks
        index = _stage_index(stages, version)
        if index >= 0:
            return marks[index]
        moved = moved_fields(schema.fields, stages[0].schema.fields, stages[0].kind)
        return {then: marks[0][now] for then, now in moved.items()}


def _marked(stages: Sequence[_Stage]) -> list[dict[int, int]]:
    """Returns, for each stage, the marks of its fields by their ids."""
    fresh = count()
    marks: list[dict[int, int]] = []
    for number, stage in enumerate(stages):
        known_marks = _known(stages[: number + 1], marks)
        marks.append({field.id: known_marks.get(field.id, next(fresh)) for field in stage.schema.fields})
    return marks


def _known(stages: Sequence[_Stage], marks: Sequence[Mapping[int, int]]) -> dict[int, int]:
    """Returns the marks that the last of these stages has from the stages before it."""
    *before, stage = stages
    if not before:
        return {}
    if stage.restored is not None:
        index = _stage_index(before, stage.restored)
        if index >= 0 and before[index].schema.fields == stage.schema.fields:
            return dict(marks[index])
    moved = moved_fields(before[-1].schema.fields, stage.schema.fields, stage.kind)
    marks_by_id = {now: marks[-1][then] for then, now in moved.items()}
    return (
        {**_restored_marks(stages, marks, marks_by_id), **marks_by_id}
        if stage.kind in IDS_OLD
        else marks_by_id
    )


def _restored_marks(
    stages: Sequence[_Stage], marks: Sequence[Mapping[int, int]], known_marks: Mapping[int, int]
) -> dict[int, int]:
    """Returns the marks of fields that an older stage had with the same id, parent, name and type."""
    *before, stage = stages
    used = set(known_marks.values())
    restored: dict[int, int] = {}
    for older, marked in reversed(list(zip(before, marks, strict=True))):
        present = {_identity(field) for field in older.schema.fields}
        for field in stage.schema.fields:
            if field.id in known_marks or field.id in restored or _identity(field) not in present:
                continue
            if marked[field.id] not in used:
                restored[field.id] = marked[field.id]
                used.add(marked[field.id])
    return restored


def _identity(field: Field) -> tuple[int, int, str, str]:
    return field.id, field.parent_id, field.name, field.logical_type


def _stage_index(stages: Sequence[_Stage], version: int) -> int:
    """Returns the index of the stage that a version belongs to, -1 before the first stage."""
    return bisect_right(stages, version, key=attrgetter("version")) - 1


def _stages(versions: FeedVersions, after: int, last: LastVersion) -> list[_Stage]:
    """Returns the later versions that changed the schema or come after a gap, and what made them.

    A Restore may go back to a version before the range: then the stages begin with that version.
    """
    walk, first, whole = _Walk(versions, last), after + 1, False
    while True:
        stages = list(walk.stages(first, whole=whole))
        restored = [stage.restored for stage in stages if stage.restored]
        oldest = min([first, *restored])
        if not restored or (whole and oldest == first):
            return stages
        first, whole = oldest, True


class _Walk:
    """A walk over the versions up to the last version of a feed, from any version on; each is read once."""

    def __init__(self, versions: FeedVersions, last: LastVersion) -> None:
        self._versions = versions
        self._last = last
        self._known: dict[int, _Stage | None] = {}
        self._schema = last.schema

    def stages(self, first: int, *, whole: bool) -> Iterator[_Stage]:
        """As `_stages`, from version `first` on; `whole`: with the schema of that version."""
        before: TableSchema | None = None
        gap = False
        version = first
        while version <= self._last.version:
            if not self._exists(version, whole=gap or (whole and version == first)):
                version, gap = self._versions.next_existing(version), True
                continue
            stage = self._known[version]
            if stage is not None:
                if gap or before is None or stage.schema.fields != before.fields:
                    yield replace(stage, kind=Kind.UNKNOWN, restored=None) if gap else stage
                before, gap = stage.schema, False
            version += 1
        if gap:
            yield _Stage(self._last.version, Kind.UNKNOWN, self._last.schema)

    def _exists(self, version: int, *, whole: bool) -> bool:
        """Returns whether a version exists. If it is read whole, it is a stage, even of the same schema."""
        if version in self._known and not (whole and self._known[version] is None):
            return True
        summary = self._versions.peek(version, whole=whole)
        if summary is None:
            return False
        self._known[version] = None
        schema = schema_in(summary)
        if schema is not None:
            back = summary.restored if kind_in(summary) is Kind.RESTORE else None
            self._schema = self._schema if self._schema == schema else schema
            self._known[version] = _Stage(version, kind_in(summary), self._schema, back)
        return True


def moved_fields(before: Sequence[Field], after: Sequence[Field], kind: Kind) -> dict[int, int]:
    """Returns the fields of a version that the next version has, too: their ids in both."""
    was, now = children(before), children(after)
    moved = {TOP: TOP}
    parents = [TOP]
    for parent in parents:
        pairs = _siblings(was.get(parent, ()), now.get(moved[parent], ()), kind)
        moved.update(pairs)
        parents += pairs
    del moved[TOP]
    return moved


def _siblings(before: Sequence[Field], after: Sequence[Field], kind: Kind) -> dict[int, int]:
    """Returns the ids, in both versions, of the fields below a parent that the next version has, too."""
    names = {field.name: field.id for field in after}
    by_name = {field.id: names[field.name] for field in before if field.name in names}
    if kind in IDS_ANEW:
        return by_name
    types = {field.id: field.logical_type for field in after}
    by_id = {field.id: field.id for field in before if types.get(field.id) == field.logical_type}
    sure, rest = (by_name, by_id) if kind in IDS_OLD else (by_id, by_name)
    used = set(sure.values())
    return {**{then: later for then, later in rest.items() if later not in used}, **sure}
