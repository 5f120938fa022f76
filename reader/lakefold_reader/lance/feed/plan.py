"""Plans the change feed: which rows of which fragments each version added, removed or changed.

Planning reads manifests and deletion files and no rows, so that other processes can read the rows, part by
part (a Spark source makes a partition of some parts). Of a version that only added fragments the first bytes
of its file are enough, whatever the size of the table. For any other version that changed rows the fragments
before and after are compared.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from lakefold_protos.lance.file_pb2 import Schema
from lakefold_protos.lance.transaction_pb2 import Transaction
from lakefold_reader.format.changes import ChangeType, Rewritten, RewrittenError, rewritten_of
from lakefold_reader.lance.effect import NO_ROWS
from lakefold_reader.lance.feed.columns import FeedVersions, FieldHistory, LastVersion, last_of
from lakefold_reader.lance.feed.difference import Rows, difference
from lakefold_reader.lance.feed.parts import Followed, FragmentPart
from lakefold_reader.lance.feed.sides import sides_of
from lakefold_reader.lance.read_errors import explained
from lakefold_reader.lance.scan.columns import TableSchema, is_direct, schema_in, schema_of
from lakefold_reader.lance.units import counts_rows
from lakefold_reader.lance.versions import head_of, kind_in, read_state, transaction_of
from lakefold_reader.versions.late_versions import expired_late, is_late
from lakefold_reader.versions.ranges import checked_range, expired
from lakefold_reader.versions.times import time_of
from lakefold_table.bitmaps import encode_bitmap
from lakefold_table.errors import DamagedError, VersionExpiredError
from lakefold_table.lance.kinds import Kind
from lakefold_table.lance.manifests.features import has_stable_row_ids
from lakefold_table.lance.rows.rewritten_columns import changed_offsets
from lakefold_table.marks.record import Record, decode_record

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lakefold_protos.lance.table_pb2 import DataFragment
    from lakefold_reader.format.source import Source
    from lakefold_table.bitmaps import Bitmap
    from lakefold_table.format import VersionSummary
    from lakefold_table.lance.state import LanceState

PROJECTS = frozenset({Kind.PROJECT, Kind.PROJECT_KEEPING_NULLABILITY})
REWRITES = frozenset({Kind.OVERWRITE, Kind.RESTORE})


def plan_changes(
    source: Source,
    after: int,
    to: int | None = None,
    *,
    rewritten: Rewritten | str = Rewritten.ROWS,
    shown: LastVersion | None = None,
) -> Iterator[FragmentPart]:
    """Returns what the versions after `after` up to `to` (None: the newest) did, version by version.

    The parts of a version come in this order: removed rows, rows before and after a change, added rows. A
    reader that applies the parts in their order never has a row twice. Nothing is read before it is needed,
    except which versions exist. `shown`: what `last_of` returns for `to`, if the versions are known to exist.

    Raises `InvalidError` for a range that runs backwards, `VersionExpiredError` if a version of it is gone or
    does not exist yet, at once or in its turn; `RewrittenError` if that was chosen; `DamagedError` if a
    version can't be read.
    """
    after, last = checked_range(source, after, to) if shown is None else (after, shown.version)
    plan = _Plan(source, after, last, rewritten_of(rewritten), shown)
    plan.checks_next = True
    return plan.parts(last)


def plan_summaries(
    source: Source,
    summaries: Sequence[VersionSummary],
    shown: LastVersion,
    *,
    rewritten: Rewritten | str = Rewritten.ROWS,
) -> Iterator[FragmentPart]:
    """Returns what `plan_changes` does, for consecutive versions that were read already, as by a tail.

    Rows are shown in the columns of `shown`, the last of them or a later version (`last_of`,
    `last_of_summaries`). None of the versions is read again, except a version that has to be compared with
    the version before.
    """
    after, to = summaries[0].version - 1, summaries[-1].version
    plan = _Plan(source, after, shown.version, rewritten_of(rewritten), shown)
    plan.keep(summaries)
    return plan.parts(to)


def last_of_summaries(summaries: Sequence[VersionSummary], schema: TableSchema) -> LastVersion:
    """Returns the end of a feed at the last of these versions, whose schema is known already."""
    first, last = summaries[0].version, summaries[-1]
    # A version that was read without its manifest keeps the schema of the version before.
    keeps_schema = last.version - first + 1 == len(summaries) and all(
        head_of(summary) is None for summary in summaries
    )
    return LastVersion(last.version, schema, first - 1 if keeps_schema else last.version, last)


def plan_version(
    source: Source, version: int, *, whole: bool = False, to: int | None = None
) -> Iterator[FragmentPart]:
    """Returns what `plan_changes` does, for a version that is known to exist.

    `whole`: all its rows count as inserted, by no entry in particular; a feed may begin with that. `to`: the
    last version of that feed, in whose columns they are shown (None: this version).
    """
    plan = _Plan(source, version - 1, version if to is None else to, Rewritten.ROWS, None)
    return plan.whole(version) if whole else plan.parts(version)


class EntryOffsets:
    """The log entries of a version: which entry each change came with (the column `_log_offset`).

    If entries share a version, its record says how many fragments each of them added. Rows that such a
    version deleted or changed in place are not recorded for an entry. `last`: their offset, the last offset
    in the version; None without entries.
    """

    def __init__(self, summary: VersionSummary, where: str = "") -> None:
        record = decode_record(summary.properties, where) if summary.own else None
        self.last = _last_offset(record)
        adding = (
            []
            if record is None
            else [entry for entry in record.committed.items() if entry[1].num_fragment_ids]
        )
        self._firsts = [answer.first_fragment_id for _, answer in adding]
        self._ends = [answer.first_fragment_id + answer.num_fragment_ids for _, answer in adding]
        self._offsets = [offset for offset, _ in adding]

    def id_at(self, index: int) -> int | None:
        """Returns the id of the added fragment at this index, or None if it was not recorded."""
        return self._firsts[0] + index if self._firsts and self._firsts[0] + index < self._ends[-1] else None

    def added_by(self, fragment_id: int | None) -> int | None:
        """Returns the offset of the entry that added a fragment; `last` if none did."""
        if fragment_id is None:
            return self.last
        index = bisect_right(self._firsts, fragment_id) - 1
        return self._offsets[index] if index >= 0 and fragment_id < self._ends[index] else self.last


def _last_offset(record: Record | None) -> int | None:
    """Returns the offset of the entry if only one entry was folded, else the last offset of the version."""
    if record is None or record.last_offset < record.first_offset:
        return None
    return next(iter(record.committed)) if len(record.committed) == 1 else record.last_offset


class _ChangedRows(NamedTuple):
    """Rows with their kind of change. `number`: their fragment's id in version `at`, if it is known."""

    change_type: ChangeType
    at: int
    rows: Rows
    number: int | None
    log_offset: int | None


class _Plan:
    """A walk over the versions, and what is kept between them."""

    def __init__(
        self, source: Source, after: int, to: int, rewritten: Rewritten, shown: LastVersion | None
    ) -> None:
        self._source = source
        self._after = after
        self._to = to
        self._rewritten = rewritten
        self._shown = shown
        self._schema: TableSchema | None = None
        self._schema_before: TableSchema | None = None
        self._state: LanceState | None = None
        self._described: list[tuple[TableSchema, bytes, Followed]] = []
        self.checks_next = False
        """Whether each version is checked against the next one: the caller has not done that."""

    @cached_property
    def _last(self) -> LastVersion:
        return self._shown or last_of(self._source, self._to)

    @cached_property
    def _versions(self) -> FeedVersions:
        return FeedVersions(self._source, self._last)

    @cached_property
    def _field_history(self) -> FieldHistory:
        return FieldHistory(self._versions, self._after, self._last)

    def keep(self, summaries: Sequence[VersionSummary]) -> None:
        """Uses versions that were read already."""
        for summary in summaries:
            self._versions.keep(summary)

    def parts(self, to: int) -> Iterator[FragmentPart]:
        """Yields the parts of all versions up to this version."""
        if self._last.since <= self._after:
            self._schema = self._last.schema
        for version in range(self._after + 1, to + 1):
            self._field_history  # noqa: B018 - reads the versions before the first one is planned
            summary = self._versions.take(version, whole=self._schema is None)
            if self.checks_next:
                self._check_not_late(summary)
            self._take_schema(summary)
            with explained(self._source, version, *self._compared_with(summary)):
                yield from (self._part(summary, changed) for changed in self._changes_of(summary))

    def whole(self, version: int) -> Iterator[FragmentPart]:
        """Yields all rows of a version as inserts."""
        summary = self._versions.take(version, whole=True)
        self._take_schema(summary)
        with explained(self._source, version):
            for changed in self._compared(summary, EntryOffsets(summary, self._source.uri), first=True):
                yield self._part(summary, changed._replace(log_offset=None))

    def _check_not_late(self, summary: VersionSummary) -> None:
        """Raises `VersionExpiredError` if this version, or the version before the feed, is a late version."""
        if summary.version == self._after + 1 and self._after:
            before = self._versions.peek(self._after)
            if before is not None and is_late(self._source, before, summary):
                raise expired_late(self._source, self._after)
        after = self._versions.peek(summary.version + 1)
        if after is not None and is_late(self._source, summary, after):
            raise expired_late(self._source, summary.version)

    def _take_schema(self, summary: VersionSummary) -> None:
        self._schema_before = self._schema
        schema = schema_in(summary)
        if schema is not None:
            self._schema = self._schema if schema == self._schema else schema

    def _changes_of(self, summary: VersionSummary) -> Iterator[_ChangedRows]:
        """Yields what a version did."""
        kind, first = kind_in(summary), summary.version == 1 or kind_in(summary) is Kind.CLONE
        if not first and (kind in NO_ROWS or (kind in PROJECTS and self._changes_no_value(summary))):
            return
        if kind in REWRITES and not first and self._rewritten is not Rewritten.ROWS:
            if self._rewritten is Rewritten.FAIL:
                raise _rewritten_error(self._source, summary)
            return
        entries = EntryOffsets(summary, self._source.uri)
        plain = _plainly_added(summary)
        if plain is None:
            yield from self._compared(summary, entries, first=first)
            return
        for index, fragment in enumerate(plain):
            number = fragment.id or entries.id_at(index)
            yield _ChangedRows(
                ChangeType.INSERT, summary.version, Rows(fragment), number, entries.added_by(number)
            )

    def _compared_with(self, summary: VersionSummary) -> Sequence[int]:
        """Returns the other version whose files may be read for these changes: the version before."""
        is_first = summary.version == 1 or kind_in(summary) is Kind.CLONE
        return () if is_first or _plainly_added(summary) is not None else (summary.version - 1,)

    def _changes_no_value(self, summary: VersionSummary) -> bool:
        """Returns whether a version only has fields of the version before.

        A column that was dropped isn't shown.

        Unless the feed's last version has it again: then dropping it and restoring it are changes.
        """
        before, after = self._schema_before, self._schema
        if before is None or after is None or self._returning(summary.version):
            return False
        known_ids = {field.id for field in before.fields}
        return all(field.id in known_ids for field in after.fields)

    def _returning(self, version: int) -> frozenset[int]:
        """Returns the fields that this version dropped and a later one restored."""
        before, after = self._schema_before, self._schema
        if before is None or after is None:
            return frozenset()
        return self._field_history.returning(version, before, after)

    def _compared(
        self, summary: VersionSummary, entries: EntryOffsets, *, first: bool
    ) -> Iterator[_ChangedRows]:
        """Yields what a version did, by comparison of its fragments with those of the version before."""
        then, now = summary.version - 1, summary.version
        old = None if first else self._before(summary)
        new = self._state = read_state(self._source, now)
        if old is not None and self._schema_before is None:
            self._schema_before = schema_of(old.head)
        kind = Kind.CLONE if first else kind_in(summary)
        dropped = self._returning(now)
        before, after = sides_of(self._source, old, new, kind, dropped)
        changed = difference(
            before,
            after,
            kind,
            _changed_offsets(summary),
            lineage=has_stable_row_ids(new.head),
            dropped=dropped,
        )
        for change_type, removed in (
            (ChangeType.DELETE, changed.deleted),
            (ChangeType.UPDATE_PREIMAGE, changed.before),
        ):
            yield from (
                _ChangedRows(change_type, then, rows, rows.fragment.id, entries.last) for rows in removed
            )
        for change_type, added in (
            (ChangeType.UPDATE_POSTIMAGE, changed.after),
            (ChangeType.INSERT, changed.inserted),
        ):
            for rows in added:
                number = rows.fragment.id
                yield _ChangedRows(change_type, now, rows, number, entries.added_by(number))

    def _before(self, summary: VersionSummary) -> LanceState:
        """Returns the version before this version."""
        before = summary.version - 1
        if self._state is not None and self._state.version == before:
            return self._state
        try:
            return read_state(self._source, before)
        except VersionExpiredError as error:
            message = f"version {before} is gone, so it is not known what version {summary.version} changed"
            raise expired(self._source, message) from error

    def _part(self, summary: VersionSummary, changed: _ChangedRows) -> FragmentPart:
        schema = self._schema if changed.at == summary.version else self._schema_before
        if schema is None:
            raise AssertionError("the schemas of both versions are known before their rows are compared")
        fields, followed = self._description(changed.at, schema)
        offsets = changed.rows.offsets
        # Raises if a column of times can't hold it.
        time_of(summary.time_us)
        return FragmentPart(
            summary.version,
            summary.time_us,
            changed.change_type,
            changed.log_offset,
            changed.at,
            changed.rows.fragment.SerializeToString(deterministic=True),
            changed.number,
            None if offsets is None else encode_bitmap(offsets, runs=True),
            _count(changed.rows),
            fields,
            followed,
        )

    def _description(self, version: int, schema: TableSchema) -> tuple[bytes, Followed]:
        """Returns a schema encoded, and which of its fields the last version has.

        Made once for each schema.
        """
        for described, fields, followed in self._described:
            if described is schema:
                return fields, followed
        message = Schema(fields=schema.fields, metadata=schema.metadata)
        fields = message.SerializeToString(deterministic=True)
        followed = self._field_history.fields(version, schema)
        self._described = [*self._described[-1:], (schema, fields, followed)]
        return fields, followed


def _plainly_added(summary: VersionSummary) -> Sequence[DataFragment] | None:
    """Returns the fragments of a version that only added them. Returns None if more must be known of them.

    Files under other roots and deleted rows are read by the fragment's own id, which only the version
    contains.
    """
    transaction = transaction_of(summary)
    if transaction is None or kind_in(summary) is not Kind.APPEND:
        return None
    fragments = transaction.append.fragments
    plain = all(
        fragment.physical_rows
        and not fragment.HasField("deletion_file")
        and not fragment.overlays
        and all(is_direct(file) for file in fragment.files)
        for fragment in fragments
    )
    return fragments if plain else None


def _changed_offsets(summary: VersionSummary) -> Mapping[int, Bitmap]:
    """Returns the rows whose values an update of columns says it changed, by fragment."""
    transaction = transaction_of(summary)
    if transaction is None or kind_in(summary) is not Kind.UPDATE:
        return {}
    update = transaction.update
    if update.update_mode != Transaction.REWRITE_COLUMNS:
        return {}
    offsets = changed_offsets(update, {updated.id: updated for updated in update.updated_fragments})
    if isinstance(offsets, dict):
        return offsets
    raise DamagedError(f"version {summary.version} records changed rows that can't exist: {offsets}")


def _count(rows: Rows) -> int | None:
    if rows.offsets is not None:
        return len(rows.offsets)
    fragment = rows.fragment
    return fragment.physical_rows - fragment.deletion_file.num_deleted_rows if counts_rows(fragment) else None


def _rewritten_error(source: Source, summary: VersionSummary) -> RewrittenError:
    return RewrittenError(
        f"version {summary.version} replaced the table's content: {summary.operation}",
        version=summary.version,
        where=source.uri,
        hint="read that version whole and begin the feed after it, or let the feed show or skip it",
    )
