"""The fields of an older version that the last one of a change feed has, too.

A feed shows all its rows in one schema, that of its last version. In between columns, and fields below
them, may have been renamed, cast, dropped, added, or given the id of one that was dropped before. So each is
followed from version to version: by its id where the operation keeps ids, by its name where it gives them
anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakefold_reader.columns import schema_of
from lakefold_reader.source import left, numbers_of, read_step, unbroken_from
from lakefold_table.errors import VersionExpiredError
from lakefold_table.lance.operations import Kind
from lakefold_table.lance.schemas.schema import TOP, children
from lakefold_table.lance.state import history_in

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakefold_protos.lance.file_pb2 import Field
    from lakefold_reader.columns import TableSchema
    from lakefold_reader.source import Source, Step

Followed = tuple[tuple[int, int], ...]
"""The id of a field in the last version, and its id in an older one."""
MOST_KEPT = 64
"""How many versions that were looked at ahead are kept until their turn."""
IDS_ANEW = frozenset({Kind.CLONE, Kind.OVERWRITE})
"""These number the fields of their schema from the start."""
IDS_OLD = frozenset({Kind.RESTORE, Kind.UNKNOWN})
"""After these an id may mean what it meant long ago, so the name goes first."""


class Steps:
    """The versions of a feed, each read once where they are few: one looked at ahead is kept for its turn."""

    def __init__(self, source: Source, last: Last) -> None:
        self._source = source
        self._ahead: dict[int, Step] = {} if last.step is None else {last.version: last.step}

    def keep(self, step: Step) -> None:
        """Have a version that was read already in its turn."""
        self._ahead[step.version] = step

    def look(self, version: int, *, whole: bool = False) -> Step | None:
        """A version before its turn, None where it is gone; `whole`: its schema is wanted, too.

        Raises `DamagedError`.
        """
        step = self._ahead.get(version)
        if step is None or (whole and step.head is None):
            step = read_step(self._source, version, whole=whole)
        if step is not None and (version in self._ahead or len(self._ahead) < MOST_KEPT):
            self._ahead[version] = step
        return step

    def take(self, version: int, *, whole: bool) -> Step:
        """A version in its turn. Raises `VersionExpiredError` where it is gone, else as `look`."""
        step = self.look(version, whole=whole)
        self._ahead.pop(version, None)
        if step is None:
            raise expired(self._source, f"version {version} is gone: it was cleaned up")
        return step

    def behind(self, version: int) -> int:
        """The first version behind this one that is there; the next number where none is."""
        return min((one for one in numbers_of(self._source) if one > version), default=version + 1)


@dataclass(frozen=True, slots=True)
class Last:
    """The last version of a feed: its schema, and the version since which nothing has changed that.

    `step`: what the version says of itself; None where it is gone by now.
    """

    version: int
    schema: TableSchema
    since: int
    step: Step | None


def last_of(source: Source, version: int) -> Last:
    """What a feed up to this version shows. Raises `VersionExpiredError`, `DamagedError`."""
    step = read_step(source, version, whole=True)
    if step is None or step.head is None:
        raise expired(source, f"version {version} is gone: it was cleaned up")
    return Last(version, schema_of(step.head), history_in(step.head).schema_since, step)


def expired(source: Source, message: str) -> VersionExpiredError:
    """The error for a version that a feed needs and that is gone."""
    numbers = numbers_of(source)
    hint = f"{left(numbers)}: read it whole, then begin the feed behind it"
    return VersionExpiredError(message, oldest=unbroken_from(numbers), where=source.uri, hint=hint)


class Following:
    """Which fields of older versions are in the last one.

    A column that went in between is another one when it comes again, as by two restores. So where the last
    version's marks don't tell that its schema is that of the whole feed, the versions are looked through.
    What versions that are gone did to the columns can't be told: over them a name counts for more than an id.
    """

    def __init__(self, steps: Steps, after: int, last: Last) -> None:
        self._changes = [] if last.since <= after else list(_schemas(steps, after, last))

    def fields(self, version: int, schema: TableSchema) -> Followed:
        """The fields of `version`, whose schema this is, that the last version has, too."""
        found = {one.id: one.id for one in schema.fields}
        for number, kind, after in self._changes:
            if number > version:
                moved = _moved(schema.fields, after.fields, kind)
                found = {then: moved[now] for then, now in found.items() if now in moved}
                schema = after
        return tuple((now, then) for then, now in found.items())


def _schemas(steps: Steps, after: int, last: Last) -> Iterator[tuple[int, Kind, TableSchema]]:
    """The versions behind this one that brought a schema, or stand behind a gap, and what made them."""
    before: TableSchema | None = None
    gap = False
    version = after + 1
    while version <= last.version:
        step = steps.look(version, whole=gap)
        if step is None:
            version, gap = steps.behind(version), True
            continue
        if step.head is not None:
            schema = schema_of(step.head)
            if gap or before is None or schema.fields != before.fields:
                yield version, Kind.UNKNOWN if gap else step.kind, schema
            before, gap = schema, False
        version += 1
    if gap:
        yield last.version, Kind.UNKNOWN, last.schema


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
