"""The change feed planned: for each version which rows of which fragments it brought, took or changed.

Planning reads manifests and deletion files and no rows, so that whoever reads the rows may do it elsewhere,
part by part (a Spark source makes a partition of a part). A version that only added fragments is told by the
first bytes of its file, whatever the size of the table; for any other that touched rows the fragments before
and after are compared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from lakefold_protos.lance.file_pb2 import Schema
from lakefold_protos.lance.transaction_pb2 import Transaction
from lakefold_reader.columns import is_direct, schema_of
from lakefold_reader.effect import NO_ROWS
from lakefold_reader.feed_columns import Following
from lakefold_reader.feed_difference import Rows, difference
from lakefold_reader.feed_entries import Entries
from lakefold_reader.feed_parts import ChangePart, ChangeType, Rewritten, RewrittenError
from lakefold_reader.feed_sides import sides_of
from lakefold_reader.source import counts_rows, explained, missing, numbers_of, read_state, read_step
from lakefold_table.errors import DamagedError, InvalidError, VersionExpiredError
from lakefold_table.lance.manifests.features import has_stable_row_ids
from lakefold_table.lance.operations import Kind
from lakefold_table.lance.rows.bitmaps import encode_bitmap
from lakefold_table.lance.rows.rewritten_columns import changed_offsets

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lakefold_protos.lance.table_pb2 import DataFragment
    from lakefold_reader.columns import TableSchema
    from lakefold_reader.feed_columns import Names
    from lakefold_reader.source import Source, Step
    from lakefold_table.lance.rows.bitmaps import Bitmap
    from lakefold_table.lance.state import LanceState

NOTHING = NO_ROWS | {Kind.PROJECT, Kind.PROJECT_KEEPING_NULLABILITY}
"""These change no value that is shown: a dropped column isn't, a renamed one has its values still."""
REWRITES = frozenset({Kind.OVERWRITE, Kind.RESTORE})


def plan_changes(
    source: Source, after: int, to: int | None = None, *, rewritten: Rewritten | str = Rewritten.ROWS
) -> Iterator[ChangePart]:
    """What the versions behind `after` up to `to` (None: the newest) did, version by version.

    Of one version what went comes first, then what rows were before and after a change, then what came: who
    applies the parts in their order never has a row twice. Nothing is read before it is asked for, but that
    the versions are there.

    Raises `InvalidError` for a range that runs backwards, `VersionExpiredError` where a version of it is gone
    or not there yet, at once or when it is come to; `RewrittenError` as asked for; `DamagedError` where a
    version can't be read.
    """
    last = checked_range(source, after, to)
    return _Plan(source, last, rewritten_of(rewritten)).parts(after)


def checked_range(source: Source, after: int, to: int | None) -> int:
    """The last version of a feed that begins behind `after`. Raises as `plan_changes`."""
    numbers = numbers_of(source)
    last = numbers[-1] if to is None else to
    if not 0 <= after <= last:
        raise InvalidError(
            f"no version lies behind {after} and up to {last}",
            where=source.uri,
            hint="the first number is that of the version seen last, the second that of the last one to see",
        )
    there = set(numbers)
    for number in range(min(after + 1, last), last + 1):
        if number not in there:
            raise missing(source, number)
    return last


def rewritten_of(text: Rewritten | str) -> Rewritten:
    """The choice that a word names. Raises `InvalidError`."""
    try:
        return Rewritten(text)
    except ValueError as error:
        choices = ", ".join(Rewritten)
        raise InvalidError(
            f"a feed can't treat rewritten content as {text!r}", hint=f"choose one of {choices}"
        ) from error


class _Found(NamedTuple):
    """Some rows and what became of them. `number`: their fragment's id in version `at`, where it is known."""

    change_type: ChangeType
    at: int
    rows: Rows
    number: int | None
    log_offset: int | None


class _Plan:
    """One walk over the versions, and what is kept from one to the next."""

    def __init__(self, source: Source, to: int, rewritten: Rewritten) -> None:
        self._source = source
        self._to = to
        self._rewritten = rewritten
        self._schema: TableSchema | None = None
        self._schema_before: TableSchema | None = None
        self._state: LanceState | None = None
        self._described: list[tuple[TableSchema, bytes, Names]] = []
        self._following: Following | None = None

    def parts(self, after: int) -> Iterator[ChangePart]:
        """The parts of all versions behind this one."""
        for version in range(after + 1, self._to + 1):
            step = read_step(self._source, version, whole=self._schema is None)
            if step is None:
                raise missing(self._source, version)
            self._take_schema(step)
            with explained(self._source, version):
                yield from (self._part(step, found) for found in self._found(step))

    def _take_schema(self, step: Step) -> None:
        self._schema_before = self._schema
        if step.head is not None:
            schema = schema_of(step.head)
            self._schema = self._schema if schema == self._schema else schema

    def _found(self, step: Step) -> Iterator[_Found]:
        """What one version did."""
        kind, first = step.kind, step.version == 1 or step.kind is Kind.CLONE
        if kind in NOTHING and not first:
            return
        if kind in REWRITES and not first and self._rewritten is not Rewritten.ROWS:
            if self._rewritten is Rewritten.FAIL:
                raise _rewritten_error(self._source, step)
            return
        entries = Entries(step, self._source.uri)
        plain = _plainly_added(step)
        if plain is None:
            yield from self._compared(step, entries, first=first)
            return
        for place, fragment in enumerate(plain):
            number = entries.id_at(place)
            yield _Found(ChangeType.INSERT, step.version, Rows(fragment), number, entries.brought(number))

    def _compared(self, step: Step, entries: Entries, *, first: bool) -> Iterator[_Found]:
        """What one version did, by its fragments and those of the version before."""
        then, now = step.version - 1, step.version
        old = None if first else self._before(step)
        new = self._state = read_state(self._source, now)
        if old is not None and self._schema_before is None:
            self._schema_before = schema_of(old.head)
        kind = Kind.CLONE if first else step.kind
        before, after = sides_of(self._source, old, new, kind)
        found = difference(before, after, kind, _told(step), lineage=has_stable_row_ids(new.head))
        for change_type, gone in (
            (ChangeType.DELETE, found.deleted),
            (ChangeType.UPDATE_PREIMAGE, found.before),
        ):
            yield from (_Found(change_type, then, rows, rows.fragment.id, entries.last) for rows in gone)
        for change_type, come in (
            (ChangeType.UPDATE_POSTIMAGE, found.after),
            (ChangeType.INSERT, found.inserted),
        ):
            for rows in come:
                number = rows.fragment.id
                yield _Found(change_type, now, rows, number, entries.brought(number))

    def _before(self, step: Step) -> LanceState:
        """The version before this one."""
        before = step.version - 1
        if self._state is not None and self._state.version == before:
            return self._state
        try:
            return read_state(self._source, before)
        except VersionExpiredError as error:
            raise VersionExpiredError(
                f"what version {step.version} changed shows only beside version {before}, which is gone",
                oldest=error.oldest,
                where=self._source.uri,
                hint=f"the oldest one left is {error.oldest}: read it whole and begin the feed behind it",
            ) from error

    def _part(self, step: Step, found: _Found) -> ChangePart:
        schema = self._schema if found.at == step.version else self._schema_before
        if schema is None:
            raise AssertionError("the schemas of both versions are known before their rows are compared")
        fields, names = self._description(found.at, schema)
        offsets = found.rows.offsets
        return ChangePart(
            step.version,
            step.time_us,
            found.change_type,
            found.log_offset,
            found.at,
            found.rows.fragment.SerializeToString(deterministic=True),
            found.number,
            None if offsets is None else encode_bitmap(offsets),
            _count(found.rows),
            fields,
            names,
        )

    def _description(self, version: int, schema: TableSchema) -> tuple[bytes, Names]:
        """A schema encoded, and which of its columns the feed shows; made once for each schema."""
        for known, fields, names in self._described:
            if known is schema:
                return fields, names
        if self._following is None:
            self._following = Following(self._source, self._to, schema_at(self._source, self._to))
        message = Schema(fields=schema.fields, metadata=schema.metadata)
        fields = message.SerializeToString(deterministic=True)
        names = self._following.names(version, schema)
        self._described = [*self._described[-1:], (schema, fields, names)]
        return fields, names


def schema_at(source: Source, version: int) -> TableSchema:
    """The schema of a version. Raises `VersionExpiredError`, `DamagedError`."""
    step = read_step(source, version, whole=True)
    if step is None or step.head is None:
        raise missing(source, version)
    return schema_of(step.head)


def _plainly_added(step: Step) -> Sequence[DataFragment] | None:
    """The fragments of a version that did nothing but add them; None where more must be known of them.

    Files under other roots and deleted rows are read by the fragment's own id, which only the version tells.
    """
    if step.transaction is None or step.kind is not Kind.APPEND:
        return None
    fragments = step.transaction.append.fragments
    plain = all(
        one.physical_rows
        and not one.HasField("deletion_file")
        and not one.overlays
        and all(is_direct(file) for file in one.files)
        for one in fragments
    )
    return fragments if plain else None


def _told(step: Step) -> Mapping[int, Bitmap]:
    """The rows whose values an update of columns says it changed, by fragment."""
    if step.transaction is None or step.kind is not Kind.UPDATE:
        return {}
    update = step.transaction.update
    if update.update_mode != Transaction.REWRITE_COLUMNS:
        return {}
    told = changed_offsets(update, {one.id: one for one in update.updated_fragments})
    if isinstance(told, dict):
        return told
    raise DamagedError(f"version {step.version} tells of changed rows that can't be: {told}")


def _count(rows: Rows) -> int | None:
    if rows.offsets is not None:
        return len(rows.offsets)
    fragment = rows.fragment
    return fragment.physical_rows - fragment.deletion_file.num_deleted_rows if counts_rows(fragment) else None


def _rewritten_error(source: Source, step: Step) -> RewrittenError:
    return RewrittenError(
        f"version {step.version} put other content in the table's place: {step.operation}",
        version=step.version,
        where=source.uri,
        hint="read that version whole and begin the feed behind it, or let the feed show or skip it",
    )
