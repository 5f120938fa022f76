"""The change feed planned: for each version which rows of which fragments it brought, took or changed.

Planning reads manifests and deletion files and no rows, so that whoever reads the rows may do it elsewhere,
part by part (a Spark source makes a partition of a part). A version that only added fragments is told by the
first bytes of its file, whatever the size of the table; for any other that touched rows the fragments before
and after are compared.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from lakefold_protos.lance.file_pb2 import Schema
from lakefold_protos.lance.transaction_pb2 import Transaction
from lakefold_reader.format.changes import ChangeType, Rewritten, RewrittenError, rewritten_of
from lakefold_reader.lance.effect import NO_ROWS
from lakefold_reader.lance.feed.columns import FeedVersions, FieldHistory, LastVersion, last_of
from lakefold_reader.lance.feed.difference import Rows, difference
from lakefold_reader.lance.feed.log_offsets import EntryOffsets
from lakefold_reader.lance.feed.parts import FragmentPart
from lakefold_reader.lance.feed.sides import sides_of
from lakefold_reader.lance.fragments import counts_rows
from lakefold_reader.lance.read_errors import explained
from lakefold_reader.lance.scan.columns import is_direct, schema_in, schema_of
from lakefold_reader.lance.versions import head_of, kind_in, read_state, transaction_of
from lakefold_reader.versions.ranges import checked_range, expired
from lakefold_reader.versions.stray_files import expired_stray, is_stray
from lakefold_reader.versions.times import time_of
from lakefold_table.errors import DamagedError, VersionExpiredError
from lakefold_table.lance.manifests.features import has_stable_row_ids
from lakefold_table.lance.operations import Kind
from lakefold_table.lance.rows.bitmaps import encode_bitmap
from lakefold_table.lance.rows.rewritten_columns import changed_offsets

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lakefold_protos.lance.table_pb2 import DataFragment
    from lakefold_reader.format.source import Source
    from lakefold_reader.lance.feed.parts import Followed
    from lakefold_reader.lance.scan.columns import TableSchema
    from lakefold_table.format import VersionSummary
    from lakefold_table.lance.rows.bitmaps import Bitmap
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
    """What the versions behind `after` up to `to` (None: the newest) did, version by version.

    Of one version what went comes first, then what rows were before and after a change, then what came: who
    applies the parts in their order never has a row twice. Nothing is read before it is asked for, but that
    the versions are there. `shown`: what `last_of` gives for `to`, where the versions are known to be
    there already.

    Raises `InvalidError` for a range that runs backwards, `VersionExpiredError` where a version of it is gone
    or not there yet, at once or when it is come to; `RewrittenError` as asked for; `DamagedError` where a
    version can't be read.
    """
    after, last = checked_range(source, after, to) if shown is None else (after, shown.version)
    plan = _Plan(source, after, last, rewritten_of(rewritten), shown)
    plan.looks_behind = True
    return plan.parts(last)


def plan_summaries(
    source: Source,
    summaries: Sequence[VersionSummary],
    shown: LastVersion,
    *,
    rewritten: Rewritten | str = Rewritten.ROWS,
) -> Iterator[FragmentPart]:
    """As `plan_changes` for versions that were read already, one behind the other, as a tail has them.

    Rows are shown in the columns of `shown`, the last of them or a later one (`last_of`, `last_step`). None
    of the versions is read again, but for one that has to be compared with the one before.
    """
    after, to = summaries[0].version - 1, summaries[-1].version
    plan = _Plan(source, after, shown.version, rewritten_of(rewritten), shown)
    plan.keep(summaries)
    return plan.parts(to)


def last_of_summaries(summaries: Sequence[VersionSummary], schema: TableSchema) -> LastVersion:
    """What a feed shows that ends with the last of these versions, whose schema is known already."""
    first, last = summaries[0].version, summaries[-1]
    # A version that is told without its manifest keeps the schema of the one before.
    known = last.version - first + 1 == len(summaries) and all(
        head_of(summary) is None for summary in summaries
    )
    return LastVersion(last.version, schema, first - 1 if known else last.version, last)


def plan_version(
    source: Source, version: int, *, whole: bool = False, to: int | None = None
) -> Iterator[FragmentPart]:
    """As `plan_changes` for one version that is known to be there.

    `whole`: all its rows count as inserted, whatever was there before, by no entry in particular; what a feed
    may begin with. `to`: the last version of that feed, in whose columns they are shown (None: this one).
    """
    plan = _Plan(source, version - 1, version if to is None else to, Rewritten.ROWS, None)
    return plan.whole(version) if whole else plan.parts(version)


class _Found(NamedTuple):
    """Some rows and what became of them. `number`: their fragment's id in version `at`, where it is known."""

    change_type: ChangeType
    at: int
    rows: Rows
    number: int | None
    log_offset: int | None


class _Plan:
    """One walk over the versions, and what is kept from one to the next."""

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
        self.looks_behind = False
        """Whether each version is held against the one behind it: nobody has looked yet."""

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
        """Have versions that were read already."""
        for summary in summaries:
            self._versions.keep(summary)

    def parts(self, to: int) -> Iterator[FragmentPart]:
        """The parts of all versions up to this one."""
        if self._last.since <= self._after:
            self._schema = self._last.schema
        for version in range(self._after + 1, to + 1):
            self._field_history  # noqa: B018 - looks through the versions before the first one's turn
            summary = self._versions.take(version, whole=self._schema is None)
            if self.looks_behind:
                self._check_in_line(summary)
            self._take_schema(summary)
            with explained(self._source, version, *self._compared_with(summary)):
                yield from (self._part(summary, found) for found in self._found(summary))

    def whole(self, version: int) -> Iterator[FragmentPart]:
        """All rows of a version."""
        summary = self._versions.take(version, whole=True)
        self._take_schema(summary)
        with explained(self._source, version):
            for found in self._compared(summary, EntryOffsets(summary, self._source.uri), first=True):
                yield self._part(summary, found._replace(log_offset=None))

    def _check_in_line(self, summary: VersionSummary) -> None:
        """Raises `VersionExpiredError` if this, or what the feed begins behind, is the file of no version."""
        if summary.version == self._after + 1 and self._after:
            before = self._versions.look(self._after)
            if before is not None and is_stray(self._source, before, summary):
                raise expired_stray(self._source, self._after)
        after = self._versions.look(summary.version + 1)
        if after is not None and is_stray(self._source, summary, after):
            raise expired_stray(self._source, summary.version)

    def _take_schema(self, summary: VersionSummary) -> None:
        self._schema_before = self._schema
        schema = schema_in(summary)
        if schema is not None:
            self._schema = self._schema if schema == self._schema else schema

    def _found(self, summary: VersionSummary) -> Iterator[_Found]:
        """What one version did."""
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
        for place, fragment in enumerate(plain):
            number = fragment.id or entries.id_at(place)
            yield _Found(ChangeType.INSERT, summary.version, Rows(fragment), number, entries.brought(number))

    def _compared_with(self, summary: VersionSummary) -> Sequence[int]:
        """The version whose files may be read for this one's changes, too: the one before."""
        is_first = summary.version == 1 or kind_in(summary) is Kind.CLONE
        return () if is_first or _plainly_added(summary) is not None else (summary.version - 1,)

    def _changes_no_value(self, summary: VersionSummary) -> bool:
        """Whether a version has only fields of the one before: a column that went isn't shown.

        Unless the last version has it again: then its values went, and come back later.
        """
        before, after = self._schema_before, self._schema
        if before is None or after is None or self._returning(summary.version):
            return False
        known = {one.id for one in before.fields}
        return all(one.id in known for one in after.fields)

    def _returning(self, version: int) -> frozenset[int]:
        """The fields that went with this version and come back with a later one."""
        before, after = self._schema_before, self._schema
        if before is None or after is None:
            return frozenset()
        return self._field_history.returning(version, before, after)

    def _compared(self, summary: VersionSummary, entries: EntryOffsets, *, first: bool) -> Iterator[_Found]:
        """What one version did, by its fragments and those of the version before."""
        then, now = summary.version - 1, summary.version
        old = None if first else self._before(summary)
        new = self._state = read_state(self._source, now)
        if old is not None and self._schema_before is None:
            self._schema_before = schema_of(old.head)
        kind = Kind.CLONE if first else kind_in(summary)
        went = self._returning(now)
        before, after = sides_of(self._source, old, new, kind, went)
        found = difference(
            before, after, kind, _told(summary), lineage=has_stable_row_ids(new.head), went=went
        )
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

    def _before(self, summary: VersionSummary) -> LanceState:
        """The version before this one."""
        before = summary.version - 1
        if self._state is not None and self._state.version == before:
            return self._state
        try:
            return read_state(self._source, before)
        except VersionExpiredError as error:
            message = (
                f"what version {summary.version} changed shows only beside version {before}, which is gone"
            )
            raise expired(self._source, message) from error

    def _part(self, summary: VersionSummary, found: _Found) -> FragmentPart:
        schema = self._schema if found.at == summary.version else self._schema_before
        if schema is None:
            raise AssertionError("the schemas of both versions are known before their rows are compared")
        fields, followed = self._description(found.at, schema)
        offsets = found.rows.offsets
        # Raises where no column of times can hold it.
        time_of(summary.time_us)
        return FragmentPart(
            summary.version,
            summary.time_us,
            found.change_type,
            found.log_offset,
            found.at,
            found.rows.fragment.SerializeToString(deterministic=True),
            found.number,
            None if offsets is None else encode_bitmap(offsets, runs=True),
            _count(found.rows),
            fields,
            followed,
        )

    def _description(self, version: int, schema: TableSchema) -> tuple[bytes, Followed]:
        """A schema encoded, and which of its fields the last version has; made once for each schema."""
        for known, fields, followed in self._described:
            if known is schema:
                return fields, followed
        message = Schema(fields=schema.fields, metadata=schema.metadata)
        fields = message.SerializeToString(deterministic=True)
        followed = self._field_history.fields(version, schema)
        self._described = [*self._described[-1:], (schema, fields, followed)]
        return fields, followed


def _plainly_added(summary: VersionSummary) -> Sequence[DataFragment] | None:
    """The fragments of a version that did nothing but add them; None where more must be known of them.

    Files under other roots and deleted rows are read by the fragment's own id, which only the version tells.
    """
    transaction = transaction_of(summary)
    if transaction is None or kind_in(summary) is not Kind.APPEND:
        return None
    fragments = transaction.append.fragments
    plain = all(
        one.physical_rows
        and not one.HasField("deletion_file")
        and not one.overlays
        and all(is_direct(file) for file in one.files)
        for one in fragments
    )
    return fragments if plain else None


def _told(summary: VersionSummary) -> Mapping[int, Bitmap]:
    """The rows whose values an update of columns says it changed, by fragment."""
    transaction = transaction_of(summary)
    if transaction is None or kind_in(summary) is not Kind.UPDATE:
        return {}
    update = transaction.update
    if update.update_mode != Transaction.REWRITE_COLUMNS:
        return {}
    told = changed_offsets(update, {one.id: one for one in update.updated_fragments})
    if isinstance(told, dict):
        return told
    raise DamagedError(f"version {summary.version} tells of changed rows that can't be: {told}")


def _count(rows: Rows) -> int | None:
    if rows.offsets is not None:
        return len(rows.offsets)
    fragment = rows.fragment
    return fragment.physical_rows - fragment.deletion_file.num_deleted_rows if counts_rows(fragment) else None


def _rewritten_error(source: Source, summary: VersionSummary) -> RewrittenError:
    return RewrittenError(
        f"version {summary.version} put other content in the table's place: {summary.operation}",
        version=summary.version,
        where=source.uri,
        hint="read that version whole and begin the feed behind it, or let the feed show or skip it",
    )
