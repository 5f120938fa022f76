"""What a version remembers of the entries folded into it, so that the same answers can be given again.

A committer that dies between publishing and reporting leaves entries without an answer. The version's own
transaction contains the record of them (in base64, as a property), from which the next committer answers.
"""

from __future__ import annotations

import base64
import binascii
from collections import Counter
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError

from lakefold_protos.lakefold.record_pb2 import AppBatches, FoldRecord
from lakefold_table.allocation import check_allocated
from lakefold_table.author import Author
from lakefold_table.entry import Committed, Outcome, Result, Tagged
from lakefold_table.errors import DamagedError
from lakefold_table.marks.outcome_messages import outcome_message, outcome_value
from lakefold_table.marks.promoted_keys import last_of
from lakefold_table.position import LogId, Position

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lakefold_protos.lakefold.log_pb2 import Promotes

VERSION = "lakefold.version"
TABLE_ID = "lakefold.table-id"
TIME = "lakefold.time-us"
FIRST_FRAGMENT_ID = "lakefold.first-fragment-id"
FIRST_ROW_ID = "lakefold.first-row-id"
POSITIONS = "lakefold.positions"
RECORD = "lakefold.record"
MOVE = "lakefold.move"
"""How the table was moved from one position to another, if the version is the first one after the move."""
CLOCK = "lakefold.clock-us"
"""The committer's own clock, if it was used because an entry's log time was too far ahead of it."""
OUTCOMES = "lakefold.outcomes"
"""PARTITION@OFFSET: outcomes of later versions are at or after this offset of the outcomes topic."""
OWNER = "lakefold.owner"
AUTHOR = "lakefold.author"
"""Who sent the entries of the version, for people; the record says it for each entry."""
PARENT = "lakefold.parent"
"""The uuid of the transaction of the version before this one (`lakefold_table.versions.succession`)."""


@dataclass(frozen=True, slots=True)
class Batches:
    """The batches of an app in a version: the lowest and highest id, and how many."""

    app_id: str
    first: int
    last: int
    count: int


@dataclass(frozen=True, slots=True)
class Record:
    """The entries of `log` from `first_offset` to `last_offset` that belong to this table, and their answers.

    `committed` and `refused`: the answers by offset; `refused` has all that are not part of the version, so
    tags that were set too. `base_version`: the version that they were folded on.
    Times are log times in microseconds. `epoch` and `rules` are those of the committer. `operation_of`: the
    operation of each committed entry, by offset, if they differ (see `lakefold_table.format.Accepted`);
    otherwise all have the version's operation, and it is empty. `last_digest`: that of the entry at
    `last_offset` (`lakefold_table.entry.Fingerprint`), empty if no entry was folded, for a file log, and from
    an older release. `author_of`: who sent each committed entry, by offset, if that was said.
    `promotes`: what the only entry has put onto the branch from another one.
    """

    log: LogId
    topic: str
    first_offset: int
    last_offset: int
    committed: Mapping[int, Committed]
    refused: Mapping[int, Outcome]
    base_version: int
    first_time_us: int
    last_time_us: int
    apps: tuple[Batches, ...]
    epoch: int
    rules: int
    operation_of: Mapping[int, str] = field(default_factory=dict)
    last_digest: str = ""
    author_of: Mapping[int, Author] = field(default_factory=dict)
    promotes: Promotes | None = None

    def answer(self, offset: int) -> Result | None:
        """Returns the answer to the entry at this offset, or None if this version contains none."""
        if offset in self.committed:
            return self.committed[offset]
        return self.refused[offset].result if offset in self.refused else None

    def has_promoted(self, app_id: str, batch_id: int) -> bool:
        """Returns whether the version has this batch from another branch."""
        keys = () if self.promotes is None else (*self.promotes.keys, *self.promotes.left_out)
        return any(key.app_id == app_id and key.batch_id <= batch_id <= last_of(key) for key in keys)

    @property
    def refusals(self) -> int:
        """How many entries were refused or are Duplicates."""
        return sum(not isinstance(outcome.result, Tagged) for outcome in self.refused.values())

    def operations(self, operation: str) -> dict[str, int]:
        """Returns how many committed entries had each operation. `operation`: that of the version."""
        if self.operation_of:
            return dict(Counter(self.operation_of.values()))
        return {operation: len(self.committed)} if self.committed else {}


def encode_record(record: Record) -> str:
    """Returns the property's value. The same record always gives the same text."""
    offsets = list(record.committed)
    committed = list(record.committed.values())
    message = FoldRecord(
        cluster_id=record.log.cluster_id,
        topic_id=record.log.topic_id,
        topic=record.topic,
        partition=record.log.partition,
        first_offset=record.first_offset,
        last_offset=record.last_offset,
        committed_offsets=_differences(record.first_offset, offsets),
        num_fragment_ids=[answer.num_fragment_ids for answer in committed],
        rows_added=[answer.rows_added for answer in committed],
        rows_deleted=[answer.rows_deleted for answer in committed],
        rebased=[answer.rebased for answer in committed],
        first_fragment_id=next(
            (answer.first_fragment_id for answer in committed if answer.num_fragment_ids), 0
        ),
        refused=[outcome_message(outcome) for outcome in record.refused.values()],
        base_version=record.base_version,
        first_time_us=record.first_time_us,
        last_time_us=record.last_time_us,
        apps=[
            AppBatches(
                app_id=batches.app_id,
                first_batch=batches.first,
                last_batch=batches.last,
                batches=batches.count,
            )
            for batches in record.apps
        ],
        epoch=record.epoch,
        rules=record.rules,
        operations=list(dict.fromkeys(record.operation_of.values())),
        operation_of=_indices(
            [record.operation_of[offset] for offset in offsets] if record.operation_of else []
        ),
        last_digest=bytes.fromhex(record.last_digest),
        authors=[author.as_message() for author in dict.fromkeys(record.author_of.values())],
        author_of=_author_indices(record.author_of, offsets),
        promotes=record.promotes,
    )
    return base64.b64encode(message.SerializeToString(deterministic=True)).decode()


def decode_record(properties: Mapping[str, str], where: str = "") -> Record | None:
    """Returns the record among a transaction's properties, or None if it has none. Raises `DamagedError`."""
    if RECORD not in properties:
        return None
    try:
        message = FoldRecord.FromString(base64.b64decode(properties[RECORD], validate=True))
        return _record_of(message, int(properties[VERSION]))
    except (DecodeError, binascii.Error, LookupError, ValueError) as error:
        check_allocated(error)
        raise DamagedError(
            f"the version's record of the log can't be read: {error!r}", where=where
        ) from error


def is_own(properties: Mapping[str, str], version: int) -> bool:
    """Returns whether a committer of Lakefold wrote these properties for this very version."""
    return properties.get(VERSION) == str(version) and RECORD in properties


def _record_of(message: FoldRecord, version: int) -> Record:
    log = LogId(message.cluster_id, message.topic_id, message.partition)
    committed = _committed(message, version)
    return Record(
        log,
        message.topic,
        message.first_offset,
        message.last_offset,
        committed,
        {outcome.position.offset: outcome for outcome in map(outcome_value, message.refused)},
        message.base_version,
        message.first_time_us,
        message.last_time_us,
        tuple(Batches(app.app_id, app.first_batch, app.last_batch, app.batches) for app in message.apps),
        message.epoch,
        message.rules,
        _operations(message, committed),
        message.last_digest.hex(),
        _authors(message, committed),
        message.promotes if message.HasField("promotes") else None,
    )


def _committed(message: FoldRecord, version: int) -> dict[int, Committed]:
    offsets = list(accumulate(message.committed_offsets, initial=message.first_offset))[1:]
    counts = list(message.num_fragment_ids)
    firsts = accumulate(counts, initial=message.first_fragment_id)
    parts = zip(
        offsets, message.rebased, message.rows_added, message.rows_deleted, firsts, counts, strict=False
    )
    answers = {
        offset: Committed(version, rebased, added, deleted, first if count else 0, count)
        for offset, rebased, added, deleted, first, count in parts
    }
    if len(answers) != len(offsets):
        raise ValueError("the parallel lists differ in length")
    return answers


def _indices(names: Sequence[str]) -> list[int]:
    """Returns for each name its index among the distinct names."""
    index = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return [index[name] for name in names]


def _operations(message: FoldRecord, offsets: Iterable[int]) -> dict[int, str]:
    if not message.operation_of:
        return {}
    names = list(message.operations)
    return {offset: names[index] for offset, index in zip(offsets, message.operation_of, strict=True)}


def _author_indices(author_of: Mapping[int, Author], offsets: Sequence[int]) -> list[int]:
    if not author_of:
        return []
    index = {author: number for number, author in enumerate(dict.fromkeys(author_of.values()), 1)}
    return [index[author_of[offset]] if offset in author_of else 0 for offset in offsets]


def _authors(message: FoldRecord, offsets: Iterable[int]) -> dict[int, Author]:
    if not message.author_of:
        return {}
    authors = [Author.of(author) for author in message.authors]
    named = zip(offsets, message.author_of, strict=True)
    return {offset: authors[index - 1] for offset, index in named if index}


def _differences(first: int, offsets: Sequence[int]) -> list[int]:
    return [offset - before for before, offset in zip([first, *offsets], offsets, strict=False)]


def position_at(record: Record, offset: int) -> Position:
    """Returns the position of an offset of this record."""
    return Position(record.log, offset, record.topic)
