"""The fields of an older version that the last one of a change feed has, too.

A feed shows all its rows in one schema, that of its last version. In between columns, and fields below
them, may have been renamed, cast, dropped, added, or given the id of one that was dropped before. So each is
followed from version to version: by its id where the operation keeps ids, by its name where it gives them
anew.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace
from itertools import count
from operator import attrgetter
from typing import TYPE_CHECKING

from lakefold_reader.lance.scan.columns import schema_in, schema_of
from lakefold_reader.lance.versions import head_of, kind_in
from lakefold_reader.versions.listing import numbers_of
from lakefold_reader.versions.ranges import expired
from lakefold_table.lance.operations import Kind
from lakefold_table.lance.schemas.schema import TOP, children
from lakefold_table.lance.state import history_in

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lakefold_protos.lance.file_pb2 import Field
    from lakefold_reader.format.source import Source
    from lakefold_reader.lance.feed.parts import Followed
    from lakefold_reader.lance.scan.columns import TableSchema
    from lakefold_table.format import VersionSummary

MOST_KEPT = 64
"""How many versions that were looked at ahead are kept until their turn."""
IDS_ANEW = frozenset({Kind.CLONE, Kind.OVERWRITE})
"""These number the fields of their schema from the start."""
IDS_OLD = frozenset({Kind.RESTORE, Kind.UNKNOWN})
"""After these an id may mean what it meant long ago, so the name goes first."""


class FeedVersions:
    """The versions of a feed, each read once where they are few: one looked at ahead is kept for its turn."""

    def __init__(self, source: Source, last: LastVersion) -> None:
        self._source = source
        self._ahead: dict[int, VersionSummary] = {} if last.summary is None else {last.version: last.summary}

    def keep(self, summary: VersionSummary) -> None:
        """Have a version that was read already in its turn."""
        self._ahead[summary.version] = summary

    def look(self, version: int, *, whole: bool = False) -> VersionSummary | None:
        """A version before its turn, None where it is gone; `whole`: its schema is wanted, too.

        Raises `DamagedError`.
        """
        summary = self._ahead.get(version)
        if summary is None or (whole and head_of(summary) is None):
            summary = self._source.summary(version, whole=whole)
        if summary is not None and (version in self._ahead or len(self._ahead) < MOST_KEPT):
            self._ahead[version] = summary
        return summary

    def take(self, version: int, *, whole: bool) -> VersionSummary:
        """A version in its turn. Raises `VersionExpiredError` where it is gone, else as `look`."""
        summary = self.look(version, whole=whole)
        self._ahead.pop(version, None)
        if summary is None:
            raise expired(self._source, f"version {version} is gone: it was cleaned up")
        return summary

    def behind(self, version: int) -> int:
        """The first version behind this one that is there; the next number where none is."""
        return min((one for one in numbers_of(self._source) if one > version), default=version + 1)


@dataclass(frozen=True, slots=True)
class LastVersion:
    """The last version of a feed: its schema, and the version since which nothing has changed that.

    `summary`: what the version says of itself; None where it is gone by now.
    """

    version: int
    schema: TableSchema
    since: int
    summary: VersionSummary | None


def last_of(source: Source, version: int) -> LastVersion:
    """What a feed up to this version shows. Raises `VersionExpiredError`, `DamagedError`."""
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
    """Which fields of older versions are in the last one.

    Where the last version's marks don't tell that its schema is that of the whole feed, the versions are
    looked through, and each field gets a mark that it keeps as long as it is the same column. A column that
    was dropped and made again is another one; one that a Restore brings back is the one that it was. What
    versions that are gone did to the columns isn't known: over them a name counts for more than an id.
    """

    def __init__(self, versions: FeedVersions, after: int, last: LastVersion) -> None:
        stages = [] if last.since <= after else _stages(versions, after, last)
        self._stages = stages
        self._marks = _marked(stages)

    def fields(self, version: int, schema: TableSchema) -> Followed:
        """The fields of `version`, whose schema this is, that the last version has, too."""
        if not self._stages:
            return tuple((one.id, one.id) for one in schema.fields)
        marks = self._marks_at(version, schema)
        last = {mark: number for number, mark in self._marks[-1].items()}
        return tuple((last[mark], number) for number, mark in marks.items() if mark in last)

    def returning(self, version: int, before: TableSchema, schema: TableSchema) -> frozenset[int]:
        """The fields that went with this version and that the last one has again, by their ids before it."""
        if not self._stages or before.fields == schema.fields:
            return frozenset()
        kept = {now for now, _ in self.fields(version, schema)}
        return frozenset(then for now, then in self.fields(version - 1, before) if now not in kept)

    def _marks_at(self, version: int, schema: TableSchema) -> Mapping[int, int]:
        stages, marks = self._stages, self._marks
        place = _place(stages, version)
        if place >= 0:
            return marks[place]
        moved = _moved(schema.fields, stages[0].schema.fields, stages[0].kind)
        return {then: marks[0][now] for then, now in moved.items()}


def _marked(stages: Sequence[_Stage]) -> list[dict[int, int]]:
    """For each stage the marks of its fields, by their ids."""
    fresh = count()
    found: list[dict[int, int]] = []
    for number, stage in enumerate(stages):
        known = _known(stages[: number + 1], found)
        found.append({one.id: known.get(one.id, next(fresh)) for one in stage.schema.fields})
    return found


def _known(stages: Sequence[_Stage], marks: Sequence[Mapping[int, int]]) -> dict[int, int]:
    """The marks that the last of these stages takes over from those before it."""
    *before, stage = stages
    if not before:
        return {}
    if stage.restored is not None:
        place = _place(before, stage.restored)
        if place >= 0 and before[place].schema.fields == stage.schema.fields:
            return dict(marks[place])
    moved = _moved(before[-1].schema.fields, stage.schema.fields, stage.kind)
    known = {now: marks[-1][then] for then, now in moved.items()}
    return {**_brought_back(stages, marks, known), **known} if stage.kind in IDS_OLD else known


def _brought_back(
    stages: Sequence[_Stage], marks: Sequence[Mapping[int, int]], known: Mapping[int, int]
) -> dict[int, int]:
    """The marks of fields that an older stage had so: with this id, parent, name and type."""
    *before, stage = stages
    taken = set(known.values())
    found: dict[int, int] = {}
    for older, marked in reversed(list(zip(before, marks, strict=True))):
        there = {_told(one) for one in older.schema.fields}
        for one in stage.schema.fields:
            if one.id in known or one.id in found or _told(one) not in there:
                continue
            if marked[one.id] not in taken:
                found[one.id] = marked[one.id]
                taken.add(marked[one.id])
    return found


def _told(field: Field) -> tuple[int, int, str, str]:
    return field.id, field.parent_id, field.name, field.logical_type


def _place(stages: Sequence[_Stage], version: int) -> int:
    """The stage that a version belongs to, -1 for one before the first."""
    return bisect_right(stages, version, key=attrgetter("version")) - 1


def _stages(versions: FeedVersions, after: int, last: LastVersion) -> list[_Stage]:
    """The versions behind this one that brought a schema, or stand behind a gap, and what made them.

    A Restore may go back to a version before the range: then the stages begin with that one.
    """
    walk, first, whole = _Walk(versions, last), after + 1, False
    while True:
        found = list(walk.stages(first, whole=whole))
        restored = [one.restored for one in found if one.restored]
        oldest = min([first, *restored])
        if not restored or (whole and oldest == first):
            return found
        first, whole = oldest, True


class _Walk:
    """The versions up to the last one of a feed, gone through from one or another; each is read once."""

    def __init__(self, versions: FeedVersions, last: LastVersion) -> None:
        self._versions = versions
        self._last = last
        self._known: dict[int, _Stage | None] = {}
        self._schema = last.schema

    def stages(self, first: int, *, whole: bool) -> Iterator[_Stage]:
        """As `_stages`, from version `first` on; `whole`: with the schema of that one."""
        before: TableSchema | None = None
        gap = False
        version = first
        while version <= self._last.version:
            if not self._look(version, whole=gap or (whole and version == first)):
                version, gap = self._versions.behind(version), True
                continue
            stage = self._known[version]
            if stage is not None:
                if gap or before is None or stage.schema.fields != before.fields:
                    yield replace(stage, kind=Kind.UNKNOWN, restored=None) if gap else stage
                before, gap = stage.schema, False
            version += 1
        if gap:
            yield _Stage(self._last.version, Kind.UNKNOWN, self._last.schema)

    def _look(self, version: int, *, whole: bool) -> bool:
        """Whether a version is there. It is a stage, if only of the same schema, where it is read whole."""
        if version in self._known and not (whole and self._known[version] is None):
            return True
        summary = self._versions.look(version, whole=whole)
        if summary is None:
            return False
        self._known[version] = None
        schema = schema_in(summary)
        if schema is not None:
            back = summary.restored if kind_in(summary) is Kind.RESTORE else None
            self._schema = self._schema if self._schema == schema else schema
            self._known[version] = _Stage(version, kind_in(summary), self._schema, back)
        return True


def _moved(before: Sequence[Field], after: Sequence[Field], kind: Kind) -> dict[int, int]:
    """The fields of a version that the next one has, too, by id, with the ids they have there."""
    was, now = children(before), children(after)
    found = {TOP: TOP}
    parents = [TOP]
    for parent in parents:
        pairs = _siblings(was.get(parent, ()), now.get(found[parent], ()), kind)
        found.update(pairs)
        parents += pairs
    del found[TOP]
    return found


def _siblings(before: Sequence[Field], after: Sequence[Field], kind: Kind) -> dict[int, int]:
    """The same for the fields below one parent."""
    names = {one.name: one.id for one in after}
    by_name = {one.id: names[one.name] for one in before if one.name in names}
    if kind in IDS_ANEW:
        return by_name
    types = {one.id: one.logical_type for one in after}
    by_id = {one.id: one.id for one in before if types.get(one.id) == one.logical_type}
    sure, rest = (by_name, by_id) if kind in IDS_OLD else (by_id, by_name)
    taken = set(sure.values())
    return {**{then: later for then, later in rest.items() if later not in taken}, **sure}
