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
from lakefold_reader.feed.columns import Following, Last, Steps, expired, last_of
from lakefold_reader.feed.difference import Rows, difference
from lakefold_reader.feed.log_offsets import Entries
from lakefold_reader.feed.parts import ChangePart, ChangeType, Rewritten, RewrittenError
from lakefold_reader.feed.sides import sides_of
from lakefold_reader.scan.columns import is_direct, schema_of
from lakefold_reader.versions.effect import NO_ROWS
from lakefold_reader.versions.read_errors import explained
from lakefold_reader.versions.source import counts_rows, numbers_of, read_state, time_of
from lakefold_reader.versions.stray_files import expired_behind, is_stray, missing
from lakefold_table.errors import DamagedError, InvalidError, VersionExpiredError
from lakefold_table.lance.manifests.features import has_stable_row_ids
from lakefold_table.lance.operations import Kind
from lakefold_table.lance.rows.bitmaps import encode_bitmap
from lakefold_table.lance.rows.rewritten_columns import changed_offsets
from lakefold_table.whole import integer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lakefold_protos.lance.table_pb2 import DataFragment
    from lakefold_reader.feed.columns import Followed
    from lakefold_reader.scan.columns import TableSchema
    from lakefold_reader.versions.source import Source, Step
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
    shown: Last | None = None,
) -> Iterator[ChangePart]:
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


def plan_steps(
    source: Source, steps: Sequence[Step], shown: Last, *, rewritten: Rewritten | str = Rewritten.ROWS
) -> Iterator[ChangePart]:
    """As `plan_changes` for versions that were read already, one behind the other, as a tail has them.

    Rows are shown in the columns of `shown`, the last of them or a later one (`last_of`, `last_step`). None
    of the versions is read again, but for one that has to be compared with the one before.
    """
    after, to = steps[0].version - 1, steps[-1].version
    plan = _Plan(source, after, shown.version, rewritten_of(rewritten), shown)
    plan.keep(steps)
    return plan.parts(to)


def last_step(steps: Sequence[Step], schema: TableSchema) -> Last:
    """What a feed shows that ends with the last of these versions, whose schema is known already."""
    first, last = steps[0].version, steps[-1]
    # A version that is told without its manifest keeps the schema of the one before.
    known = last.version - first + 1 == len(steps) and all(step.head is None for step in steps)
    return Last(last.version, schema, first - 1 if known else last.version, last)


def plan_version(
    source: Source, version: int, *, whole: bool = False, to: int | None = None
) -> Iterator[ChangePart]:
    """As `plan_changes` for one version that is known to be there.

    `whole`: all its rows count as inserted, whatever was there before, by no entry in particular; what a feed
    may begin with. `to`: the last version of that feed, in whose columns they are shown (None: this one).
    """
    plan = _Plan(source, version - 1, version if to is None else to, Rewritten.ROWS, None)
    return plan.whole(version) if whole else plan.parts(version)


def _number(given: object) -> int:
    number = integer(given)
    if number is None:
        raise InvalidError(
            f"{str(given)!r} is no version's number",
            hint="a feed begins and ends with numbers; of a cursor that is its `version`",
        )
    return number


def checked_range(source: Source, after: int, to: int | None) -> tuple[int, int]:
    """The version that a feed begins behind and its last one, as `int`. Raises as `plan_changes`."""
    after, to = _number(after), None if to is None else _number(to)
    numbers = numbers_of(source)
    last = numbers[-1] if to is None else to
    if not 0 <= after <= last:
        raise InvalidError(
            f"no version lies behind {after} and up to {last}",
            where=source.uri,
            hint="the first number is that of the version seen last, the second that of the last one to see",
        )
    there = set(numbers)
    gone = [number for number in range(min(after + 1, last), last + 1) if number not in there]
    if last > numbers[-1]:
        raise missing(source, last)
    if gone:
        raise expired(source, f"version {gone[0]} is gone: it was cleaned up")
    return after, last


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

    def __init__(self, source: Source, after: int, to: int, rewritten: Rewritten, shown: Last | None) -> None:
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
    def _last(self) -> Last:
        return self._shown or last_of(self._source, self._to)

    @cached_property
    def _steps(self) -> Steps:
        return Steps(self._source, self._last)

    @cached_property
    def _following(self) -> Following:
        return Following(self._steps, self._after, self._last)

    def keep(self, steps: Sequence[Step]) -> None:
        """Have versions that were read already."""
        for step in steps:
            self._steps.keep(step)

    def parts(self, to: int) -> Iterator[ChangePart]:
        """The parts of all versions up to this one."""
        if self._last.since <= self._after:
            self._schema = self._last.schema
        for version in range(self._after + 1, to + 1):
            self._following  # noqa: B018 - looks through the versions before the first one's turn
            step = self._steps.take(version, whole=self._schema is None)
            if self.looks_behind:
                self._check_in_line(step)
            self._take_schema(step)
            with explained(self._source, version, *self._compared_with(step)):
                yield from (self._part(step, found) for found in self._found(step))

    def whole(self, version: int) -> Iterator[ChangePart]:
        """All rows of a version."""
        step = self._steps.take(version, whole=True)
        self._take_schema(step)
        with explained(self._source, version):
            for found in self._compared(step, Entries(step, self._source.uri), first=True):
                yield self._part(step, found._replace(log_offset=None))

    def _check_in_line(self, step: Step) -> None:
        """Raises `VersionExpiredError` if this, or what the feed begins behind, is the file of no version."""
        if step.version == self._after + 1 and self._after:
            before = self._steps.look(self._after)
            if before is not None and is_stray(self._source, before, step):
                raise expired_behind(self._source, self._after)
        after = self._steps.look(step.version + 1)
        if after is not None and is_stray(self._source, step, after):
            raise expired_behind(self._source, step.version)

    def _take_schema(self, step: Step) -> None:
        self._schema_before = self._schema
        if step.head is not None:
            schema = schema_of(step.head)
            self._schema = self._schema if schema == self._schema else schema

    def _found(self, step: Step) -> Iterator[_Found]:
        """What one version did."""
        kind, first = step.kind, step.version == 1 or step.kind is Kind.CLONE
        if not first and (kind in NO_ROWS or (kind in PROJECTS and self._changes_no_value(step))):
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
            number = fragment.id or entries.id_at(place)
            yield _Found(ChangeType.INSERT, step.version, Rows(fragment), number, entries.brought(number))

    def _compared_with(self, step: Step) -> Sequence[int]:
        """The version whose files may be read for this one's changes, too: the one before."""
        is_first = step.version == 1 or step.kind is Kind.CLONE
        return () if is_first or _plainly_added(step) is not None else (step.version - 1,)

    def _changes_no_value(self, step: Step) -> bool:
        """Whether a version has only fields of the one before: a column that went isn't shown.

        Unless the last version has it again: then its values went, and come back later.
        """
        before, after = self._schema_before, self._schema
        if before is None or after is None or self._returning(step.version):
            return False
        known = {one.id for one in before.fields}
        return all(one.id in known for one in after.fields)

    def _returning(self, version: int) -> frozenset[int]:
        """The fields that went with this version and come back with a later one."""
        before, after = self._schema_before, self._schema
        if before is None or after is None:
            return frozenset()
        return self._following.returning(version, before, after)

    def _compared(self, step: Step, entries: Entries, *, first: bool) -> Iterator[_Found]:
        """What one version did, by its fragments and those of the version before."""
        then, now = step.version - 1, step.version
        old = None if first else self._before(step)
        new = self._state = read_state(self._source, now)
        if old is not None and self._schema_before is None:
            self._schema_before = schema_of(old.head)
        kind = Kind.CLONE if first else step.kind
        went = self._returning(now)
        before, after = sides_of(self._source, old, new, kind, went)
        found = difference(before, after, kind, _told(step), lineage=has_stable_row_ids(new.head), went=went)
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
            message = f"what version {step.version} changed shows only beside version {before}, which is gone"
            raise expired(self._source, message) from error

    def _part(self, step: Step, found: _Found) -> ChangePart:
        schema = self._schema if found.at == step.version else self._schema_before
        if schema is None:
            raise AssertionError("the schemas of both versions are known before their rows are compared")
        fields, followed = self._description(found.at, schema)
        offsets = found.rows.offsets
        # Raises where no column of times can hold it.
        time_of(step.time_us)
        return ChangePart(
            step.version,
            step.time_us,
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
        followed = self._following.fields(version, schema)
        self._described = [*self._described[-1:], (schema, fields, followed)]
        return fields, followed


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
