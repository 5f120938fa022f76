"""The versions of a Delta table: rows that they changed, and where rows are, by the actions of their commits.

A table without deletion vectors loses rows by new files that have the others. Which rows these are only their
values say, unless the writer of the files has said it (`lakefold.rowsOf`): equal rows are interchangeable.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cached_property, partial
from itertools import islice
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from lakefold_ingest.delta.proposals import MERGE
from lakefold_ingest.merge.read_version import OFFSET_BITS, OFFSET_WIDTH
from lakefold_ingest.revert.delta.proposal import revert_proposal
from lakefold_ingest.revert.row_history import (
    LOST,
    NO_ADDRESSES,
    UNKNOWN_ENTRY,
    Addresses,
    Mask,
    RemovedAndAdded,
    ReplacedContent,
    ReturningRows,
    RowHistory,
    addresses_in,
    by_number,
    indices_in,
    joined,
)
from lakefold_reader.delta.columns import shaped
from lakefold_reader.delta.data_files import DataFile, StoredRows, deleted_rows, live_rows
from lakefold_reader.delta.effect import exact_offsets
from lakefold_reader.delta.row_tracking import kept_columns, row_ids
from lakefold_reader.delta.schema import DeltaSchema, schema_in
from lakefold_reader.delta.versions import content_of, read_state
from lakefold_reader.format.value_numbers import equal_rows, row_numbers
from lakefold_reader.versions.ranges import expired
from lakefold_table.bitmaps import bitmap_of, decode_treemap, live_ranks, numbers_of
from lakefold_table.delta.actions.file_actions import AddFile, DeletionVector, RemoveFile
from lakefold_table.delta.actions.lines import parse_actions
from lakefold_table.delta.record_counts import record_count, statistics_of
from lakefold_table.delta.rows.row_moves import moved_rows
from lakefold_table.delta.sharing import replaces_content
from lakefold_table.errors import DamagedError
from lakefold_table.marks.record import decode_record
from lakefold_table.values import value

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from lakefold_ingest.proposals.key import Key
    from lakefold_ingest.view import View
    from lakefold_ingest.writing.settings import WriteSettings
    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_reader.delta.schema import DeltaColumn
    from lakefold_reader.format.source import Source
    from lakefold_table.delta.rows.row_moves import RowMove
    from lakefold_table.delta.snapshot.snapshot import DeltaSnapshot

    Positions = NDArray[np.int64]

NO_POSITIONS: Final = np.empty(0, np.uint32)
_EQUAL: Final = re.compile(r"target\.(.+) = source\.\1")


@value()
class _FileChanges:
    """The files that a commit added, removed, and left in the table with other deleted rows, by their paths.

    `moves`: where rows of removed files are, as the added files say. `copies`: the added files that say
    nothing and may have rows of removed ones; `copied`: of which. `moves_only`: the commit says that it
    changed no rows.
    """

    added: Mapping[str, AddFile]
    removed: Mapping[str, RemoveFile]
    kept: Mapping[str, AddFile]
    moves: Sequence[RowMove]
    copies: Sequence[AddFile]
    copied: Sequence[str]
    moves_only: bool


class DeltaRowHistory(RowHistory):
    """See `RowHistory`. The files are numbered in the order in which they are met."""

    def __init__(self, source: Source, newest: int) -> None:
        self.source = source
        self.newest = newest
        self._paths: list[str] = []
        self._numbers: dict[str, int] = {}
        self._copies: dict[int, tuple[Addresses, Addresses]] = {}
        self._vectors: dict[tuple[str, str], Positions] = {}
        # The versions after `_read_after` that removed or added each file, the newest first.
        self._read_after = newest
        self._changed_in: dict[str, list[tuple[int, AddFile | None]]] = {}

    def version_rows(self, version: int) -> RemovedAndAdded:
        """See `RowHistory.version_rows`."""
        changes = self._changes(version)
        if changes.moves_only:
            return RemovedAndAdded(joined(()), np.empty(0, np.int64), joined(()))
        removed = joined([self._all_rows(self._file(path, version - 1)) for path in changes.removed])
        added = joined([self._all_rows(file) for file in changes.added.values()])
        # A compaction may share the version with entries that changed rows.
        moved = self._moved_by_tags(removed, changes)
        removed, added = removed[moved == LOST], np.setdiff1d(added, moved)
        old, new = self._copied(changes, version)
        removed, added = np.setdiff1d(removed, old), np.setdiff1d(added, new)
        for path, file in changes.kept.items():
            before, after = self._dead(self._file(path, version - 1)), self._dead(file)
            number = self._number(path)
            removed = joined([removed, addresses_in(number, np.setdiff1d(after, before))])
            added = joined([added, addresses_in(number, np.setdiff1d(before, after))])
        return RemovedAndAdded(added, self._entries(added, list(changes.added.values()), version), removed)

    def _entries(self, added: Addresses, files: Sequence[AddFile], version: int) -> Positions:
        summary = self._summary(version)
        entries = np.full(added.size, UNKNOWN_ENTRY, np.int64)
        record = decode_record(summary.properties, self.source.uri) if summary.own else None
        if record is None:
            return entries
        if len(record.committed) == 1:
            entries[:] = next(iter(record.committed))
            return entries
        offsets = exact_offsets(files, record) or []
        of_file = {self._number(file.path): offset for file, offset in zip(files, offsets, strict=False)}
        for number, _, part in by_number(added):
            entries[part] = of_file.get(number, UNKNOWN_ENTRY)
        return entries

    def pair_columns(self, version: int) -> tuple[str, ...] | None:
        """See `RowHistory.pair_columns`: the keys of a merge."""
        info = content_of(self._summary(version)).info.extra
        operation = info.get("operation")
        if operation != MERGE:
            return () if operation in {"DELETE", "WRITE"} else None
        return self.key_columns(version) or None

    def key_columns(self, version: int) -> tuple[str, ...]:
        """See `RowHistory.key_columns`."""
        parameters = content_of(self._summary(version)).info.extra.get("operationParameters")
        predicate = parameters.get("predicate") if isinstance(parameters, dict) else None
        parts = [_EQUAL.fullmatch(part) for part in str(predicate or "").split(" AND ")]
        names = [part[1] for part in parts if part is not None]
        return tuple(names) if len(names) == len(parts) else ()

    def row_ids(self, addresses: Addresses, version: int) -> Addresses | None:
        """See `RowHistory.row_ids`."""
        kept = kept_columns(self._snapshot(version), self.source.uri)
        if not kept:
            return None
        ids = np.zeros(addresses.size, np.uint64)
        for number, positions, part in by_number(addresses):
            file, at = self._file(self._paths[number], version), positions.astype(np.int64)
            stored = pa.concat_arrays(
                [batch.column(0) for batch in self._read(file, at, kept[:1])] or [pa.nulls(0, pa.int64())]
            )
            ids[part] = row_ids(file, at, stored, self.source.uri).to_numpy(zero_copy_only=False)
        return ids

    def is_live(self, addresses: Addresses, since: int, version: int) -> Mask:
        """See `RowHistory.is_live`. Each commit since is read once, which costs less than some snapshots."""
        while self._read_after > since:
            self._note_changes(self._read_after)
            self._read_after -= 1
        files = None if since <= version else self._snapshot(version).files
        live = np.ones(addresses.size, np.bool_)
        for number, positions, part in by_number(addresses):
            path = self._paths[number]
            changes = (file for at, file in self._changed_in.get(path, ()) if since < at <= version)
            for file in islice(changes, 1) if files is None else (files.get(path),):
                live[part] = False if file is None else ~np.isin(positions, self._dead(file))
        return live

    def _note_changes(self, version: int) -> None:
        """Notes which files a version removed, and added or left with other deleted rows."""
        changes: dict[str, AddFile | None] = {}
        for each in content_of(self._summary(version)).actions:
            if isinstance(each, AddFile):
                changes[each.path] = replace(each, stats=None)
            elif isinstance(each, RemoveFile):
                changes.setdefault(each.path, None)
        for path, file in changes.items():
            self._changed_in.setdefault(path, []).append((version, file))

    def moved(self, addresses: Addresses, version: int) -> Addresses:
        """See `RowHistory.moved`."""
        changes = self._changes(version)
        moved = self._moved_by_tags(addresses, changes)
        if (moved == LOST).any():
            old, new = self._copied(changes, version)
            is_copied, at = indices_in(addresses, old)
            moved[is_copied] = new[at[is_copied]]
        return moved

    def _copied(self, changes: _FileChanges, version: int) -> tuple[Addresses, Addresses]:
        """Returns rows of removed files that a version has in new files, and where, by their values.

        Of all rows of the files, so that each row has one copy, whichever rows are asked about.
        """
        if not (changes.copies and changes.copied):
            return NO_ADDRESSES, NO_ADDRESSES
        if version not in self._copies:
            new = joined([self._all_rows(file) for file in changes.copies])
            old = joined([self._all_rows(self._file(path, version - 1)) for path in changes.copied])
            before = self.rows(old, version - 1)
            index = equal_rows(before, self.rows(new, version))
            numbers = row_numbers([before], old.size)
            # If some of several equal rows are gone, it isn't known which: none of them counts as copied.
            copied = (index >= 0) & ~np.isin(numbers, numbers[index < 0])
            self._copies[version] = old[copied], new[index[copied]]
        return self._copies[version]

    def _moved_by_tags(self, addresses: Addresses, changes: _FileChanges) -> Addresses:
        """Returns where rows are in new files that say which rows they have; `LOST` for the others."""
        moved = np.full(addresses.size, LOST)
        parts = {number: (positions, part) for number, positions, part in by_number(addresses)}
        for move in changes.moves:
            positions, part = parts.get(self._number(move.source), (NO_POSITIONS, slice(0, 0)))
            if not positions.size:
                continue
            dead = bitmap_of(self._vector(move.vector, move.source).astype(np.uint32))
            index = live_ranks(positions, dead)
            inside = (index >= move.first) & (index < move.first + move.count)
            inside &= ~np.isin(positions, numbers_of(dead))
            targets = addresses_in(self._number(move.target), (index - move.first + move.start)[inside])
            moved[part][inside] = targets
        return moved

    def replacements(self, after: int) -> Sequence[ReplacedContent]:
        """See `RowHistory.replacements`. Each commit is read."""
        replacements = []
        for version in range(after + 1, self.newest + 1):
            summary = self._summary(version)
            info = content_of(summary).info
            parameters = info.extra.get("operationParameters")
            given = parameters if isinstance(parameters, dict) else {}
            if summary.restored is not None or replaces_content(info.operation, given):
                replacements.append(ReplacedContent(version, summary.restored))
        return replacements

    @property
    def columns(self) -> Sequence[str]:
        """See `RowHistory.columns`."""
        return self._schema.names

    def rows(self, addresses: Addresses, version: int, columns: Sequence[str] | None = None) -> pa.Table:
        """See `RowHistory.rows`."""
        chosen = self._schema.chosen(columns)
        batches = [
            batch
            for number, positions, _ in by_number(addresses)
            for batch in self._read(
                self._file(self._paths[number], version), positions.astype(np.int64), chosen.columns
            )
        ]
        return pa.Table.from_batches(batches, chosen.arrow)

    def _read(
        self, file: AddFile, positions: Positions, columns: Sequence[DeltaColumn]
    ) -> Iterable[pa.RecordBatch]:
        # A value of a partition may be one of an older type of its column, as in a feed.
        rows = StoredRows(file.path, file.size, dict(file.partition_values))
        return DataFile(self.source, rows, partial(shaped)).at(positions, columns)

    @cached_property
    def _schema(self) -> DeltaSchema:
        return schema_in(self._snapshot(self.newest).metadata, self.source.uri)

    def affected(self, envelope: Envelope) -> tuple[int, Addresses] | None:
        """See `RowHistory.affected`."""
        proposal = envelope.delta
        if not proposal.HasField("read_version"):
            return None
        parts = [
            addresses_in(self._number(path), numbers_of(decode_treemap(data, "rows of a proposal")[0]))
            for path, data in proposal.affected_rows.items()
        ]
        if not parts:
            # Its files are removed as a whole; those of their rows that stay are in files that it adds.
            files = self._snapshot(proposal.read_version).files
            removed = [each for each in parse_actions(proposal.actions) if isinstance(each, RemoveFile)]
            parts = [self._all_rows(files[each.path]) for each in removed if each.path in files]
        return proposal.read_version, joined(parts)

    def numbers_added(self, envelope: Envelope) -> Collection[int]:
        """See `RowHistory.numbers_added`."""
        actions = parse_actions(envelope.delta.actions)
        return {self._number(each.path) for each in actions if isinstance(each, AddFile)}

    def added_after(self, version: int) -> Addresses:
        """See `RowHistory.added_after`."""
        before, now = self._snapshot(version).files, self._snapshot(self.newest).files
        return joined([self._all_rows(file) for path, file in now.items() if path not in before])

    def location(self, address: int) -> str:
        """See `RowHistory.location`."""
        return f"row {address & OFFSET_BITS} of {self._paths[address >> OFFSET_WIDTH]}"

    def proposal(
        self,
        view: View,
        key: Key,
        settings: WriteSettings,
        removed: Addresses,
        returned: ReturningRows,
    ) -> Envelope:
        """See `RowHistory.proposal`."""
        rows = {self._paths[number]: positions for number, positions, _ in by_number(removed)}
        return revert_proposal(view, key, settings, rows, returned)

    def _changes(self, version: int) -> _FileChanges:
        summary = self._summary(version)
        actions = content_of(summary).actions
        adds = {each.path: each for each in actions if isinstance(each, AddFile)}
        removes = {each.path: each for each in actions if isinstance(each, RemoveFile)}
        added = {path: file for path, file in adds.items() if path not in removes}
        removed = {path: file for path, file in removes.items() if path not in adds}
        kept = {path: file for path, file in adds.items() if path in removes}
        moves_only = not any(each.data_change for each in actions if isinstance(each, AddFile | RemoveFile))
        copies = tuple(added.values())
        record = decode_record(summary.properties, self.source.uri) if summary.own else None
        rows = content_of(summary).info.rows_copied
        says_copies = rows or all(file.data_change for file in copies)
        if record is not None and len(record.committed) == 1 and says_copies:
            # Also if it copied none: a revert may bring back rows that equal those it takes out.
            copies = _first_files(copies, rows)
        moves = () if summary.restored is not None else _moves(added.values(), removed)
        tagged = {path for move in moves for path in (move.source, move.target)}
        copies = tuple(file for file in copies if file.path not in tagged)
        copied = tuple(path for path in removed if path not in tagged)
        return _FileChanges(added, removed, kept, moves, copies, copied, moves_only)

    def _snapshot(self, version: int) -> DeltaSnapshot:
        return read_state(self.source, version)[1]

    def _number(self, path: str) -> int:
        if path not in self._numbers:
            self._numbers[path] = len(self._paths)
            self._paths.append(path)
        return self._numbers[path]

    def _file(self, path: str, version: int) -> AddFile:
        file = self._snapshot(version).files.get(path)
        if file is None:
            raise expired(self.source, f"the file {path} is not in version {version}")
        return file

    def _all_rows(self, file: AddFile) -> Addresses:
        stored = statistics_of(file).stored_rows
        count = DataFile(self.source, live_rows(file)).physical_rows if stored is None else stored
        live = np.delete(np.arange(count, dtype=np.uint32), self._dead(file))
        return addresses_in(self._number(file.path), live)

    def _dead(self, file: AddFile) -> Positions:
        return self._vector(file.deletion_vector, file.path)

    def _vector(self, vector: DeletionVector | None, path: str) -> Positions:
        if vector is None:
            return np.zeros(0, np.int64)
        name = path, vector.unique_id
        if name not in self._vectors:
            self._vectors[name] = deleted_rows(self.source, vector, path)
        return self._vectors[name]


def _moves(added: Iterable[AddFile], removed: Mapping[str, RemoveFile]) -> tuple[RowMove, ...]:
    """Returns where rows of removed files are, as far as tags of the added ones say it."""
    moves: list[RowMove] = []
    for file in added:
        try:
            moves += moved_rows(file, removed)
        except DamagedError:
            # A tag of an earlier commit, or another client's.
            continue
    return tuple(moves)


def _first_files(files: Sequence[AddFile], rows: int) -> tuple[AddFile, ...]:
    """Returns the first of these files, which have so many rows together: a writer lists copied rows first.

    Returns all files if no number of them has.
    """
    total = 0
    for number, file in enumerate(files):
        if total == rows:
            return tuple(files[:number])
        total += record_count(file) or 0
    return tuple(files)
