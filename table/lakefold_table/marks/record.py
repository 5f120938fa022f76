"""What one version remembers of the entries folded into it, so that the same answers can be given again.

A committer that dies between publishing and reporting leaves entries without an answer. The version's own
transaction carries the record of them (in base64, a property), and whoever comes next answers from it.
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
from lakefold_table.entry import Committed, Outcome, Result
from lakefold_table.errors import DamagedError
from lakefold_table.marks.outcome_messages import outcome_message, outcome_value
from lakefold_table.position import LogId, Position

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

VERSION = "lakefold.version"
TABLE_ID = "lakefold.table-id"
TIME = "lakefold.time-us"
FIRST_FRAGMENT_ID = "lakefold.first-fragment-id"
FIRST_ROW_ID = "lakefold.first-row-id"
POSITIONS = "lakefold.positions"
RECORD = "lakefold.record"
MOVE = "lakefold.move"
"""How the table came from one position to another, where the version is the first one that knows it."""
CLOCK = "lakefold.clock-us"
"""The committer's own clock, if an entry's log time was so far ahead of it that this took its place."""
OUTCOMES = "lakefold.outcomes"
"""PARTITION@OFFSET: outcomes of later versions stand at or behind this offset of the outcomes topic."""
OWNER = "lakefold.owner"
PARENT = "lakefold.parent"
"""The uuid of the transaction of the version before this one (`lakefold_table.versions.succession`)."""


@dataclass(frozen=True, slots=True)
class Batches:
    """The batches of one app in a version: the lowest and highest id, and how many."""

    app_id: str
    first: int
    last: int
    count: int


@dataclass(frozen=True, slots=True)
class Record:
    """The entries of `log` from `first_offset` to `last_offset` that belong to this table, and their answers.

    `committed` and `refused` hold the answers by offset; `base_version` is the version they were folded on.
    Times are log times in microseconds. `epoch` and `rules` are those of the committer. `deeds`: what each
    committed entry did, by offset, where they did several things (see `lakefold_table.format.Accepted`);
    otherwise it is what the version did, and `deeds` is empty. `last_digest`: that of the entry at
    `last_offset` (`lakefold_table.entry.Fingerprint`), empty where no entry was folded, from a file log, and
    from an older release.
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
    deeds: Mapping[int, str] = field(default_factory=dict)
    last_digest: str = ""

    def answer(self, offset: int) -> Result | None:
        """What became of the entry at this offset, None where this version says nothing of it."""
        if offset in self.committed:
            return self.committed[offset]
        return self.refused[offset].result if offset in self.refused else None

    def operations(self, operation: str) -> dict[str, int]:
        """What the committed entries did, and how many did that; `operation`: what the version did."""
        if self.deeds:
            return dict(Counter(self.deeds.values()))
        return {operation: len(self.committed)} if self.committed else {}


def encode_record(record: Record) -> str:
    """The property's value: the same record gives the same text."""
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
        num_fragment_ids=[one.num_fragment_ids for one in committed],
        rows_added=[one.rows_added for one in committed],
        rows_deleted=[one.rows_deleted for one in committed],
        rebased=[one.rebased for one in committed],
        first_fragment_id=next((one.first_fragment_id for one in committed if one.num_fragment_ids), 0),
        refused=[outcome_message(outcome) for outcome in record.refused.values()],
        base_version=record.base_version,
        first_time_us=record.first_time_us,
        last_time_us=record.last_time_us,
        apps=[
            AppBatches(app_id=one.app_id, first_batch=one.first, last_batch=one.last, batches=one.count)
            for one in record.apps
        ],
        epoch=record.epoch,
        rules=record.rules,
        deeds=list(dict.fromkeys(record.deeds.values())),
        deed_of=_places([record.deeds[offset] for offset in offsets] if record.deeds else []),
        last_digest=bytes.fromhex(record.last_digest),
    )
    return base64.b64encode(message.SerializeToString(deterministic=True)).decode()


def decode_record(properties: Mapping[str, str], where: str = "") -> Record | None:
    """The record among a transaction's properties, None where there is none. Raises `DamagedError`."""
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
    """Whether these are the properties that a committer gave to this very version."""
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
        tuple(Batches(one.app_id, one.first_batch, one.last_batch, one.batches) for one in message.apps),
        message.epoch,
        message.rules,
        _deeds(message, committed),
        message.last_digest.hex(),
    )


def _committed(message: FoldRecord, version: int) -> dict[int, Committed]:
    offsets = list(accumulate(message.committed_offsets, initial=message.first_offset))[1:]
    counts = list(message.num_fragment_ids)
    firsts = accumulate(counts, initial=message.first_fragment_id)
    parts = zip(
        offsets, message.rebased, message.rows_added, message.rows_deleted, firsts, counts, strict=False
    )
    found = {
        offset: Committed(version, rebased, added, deleted, first if count else 0, count)
        for offset, rebased, added, deleted, first, count in parts
    }
    if len(found) != len(offsets):
        raise ValueError("the parallel lists differ in length")
    return found


def _places(names: Sequence[str]) -> list[int]:
    """For each name its place among all, each counted once."""
    place = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return [place[name] for name in names]


def _deeds(message: FoldRecord, offsets: Iterable[int]) -> dict[int, str]:
    if not message.deed_of:
        return {}
    names = list(message.deeds)
    return {offset: names[place] for offset, place in zip(offsets, message.deed_of, strict=True)}


def _differences(first: int, offsets: Sequence[int]) -> list[int]:
    return [offset - before for before, offset in zip([first, *offsets], offsets, strict=False)]


def position_at(record: Record, offset: int) -> Position:
    """The position of an offset of this record."""
    return Position(record.log, offset, record.topic)
