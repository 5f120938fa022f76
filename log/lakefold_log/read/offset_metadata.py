"""The metadata of a committed offset: evidence that a committer wrote it, and for which log.

A bare offset is not evidence: any tool can move it, and it outlives the topic that it was meant for. So the
committer records in the offset's metadata what the offset depends on, and an offset without that is ignored.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import TopicPartition

from lakefold_log.client.committed_offsets import settled
from lakefold_log.codec.signing import OutcomesKey
from lakefold_log.read.anchor import Anchor
from lakefold_log.read.report_check import LastReport
from lakefold_table.marks.compact_json import compact
from lakefold_table.marks.owner import Owner

if TYPE_CHECKING:
    from lakefold_log.client.admin import Admin

_OFFSET: Final = "offset"
_REPORT: Final = "report"
_OWNER: Final = "owner"
_ANCHOR: Final = "anchor"
_KEY: Final = "outcomes_key"


@dataclass(frozen=True, slots=True)
class OffsetMetadata:
    """What a committed offset depends on.

    `cluster_id` and `topic_id` name the log. Every entry below `low_watermark` is folded or answered. Reading
    the outcomes partition again must begin at `outcomes_offset`, to know what was answered at or above it.
    `owner` committed it (None: an older release). `anchor` is the last entry that was read, to check that the
    log is still the same (None: an older release wrote it, or no entry was read). `outcomes_key` is the key
    by which committers distinguish their outcomes (None: an older release wrote it); it is not evidence about
    the log, and does not count when two values are compared.
    """

    cluster_id: str
    topic_id: str
    low_watermark: int
    outcomes_offset: int
    owner: Owner | None = None
    anchor: Anchor | None = None
    outcomes_key: OutcomesKey | None = field(default=None, compare=False)

    def metadata(self, offset: int, *, report: str = "") -> str:
        """Returns the text for the committed `offset`.

        It contains the offset, so it is invalid if copied to another offset. `report` identifies the report
        that it belongs to, a `LastReport` as text.
        """
        fields = {_OFFSET: offset, **{name: getattr(self, name) for name in _PLAIN}, _REPORT: report}
        fields[_OWNER] = "" if self.owner is None else self.owner.encode()
        if self.anchor is not None:
            fields[_ANCHOR] = self.anchor.encode()
        if self.outcomes_key is not None:
            fields[_KEY] = self.outcomes_key.encode()
        return compact(fields)

    @classmethod
    def of(cls, metadata: str | None, offset: int) -> OffsetMetadata | None:
        """Returns the metadata of a committed `offset`, or None if there is none for this offset."""
        fields = {_OWNER: "", **_fields(metadata)}
        if fields.keys() - {_ANCHOR, _KEY} != _KINDS.keys():
            return None
        if any(type(fields[name]) is not kind for name, kind in _KINDS.items()):
            return None
        try:
            owner = Owner.decode(fields[_OWNER]) if fields[_OWNER] else None
            anchor = Anchor.decode(fields[_ANCHOR]) if _ANCHOR in fields else None
            key = OutcomesKey.decode(fields[_KEY]) if _KEY in fields else None
        except (TypeError, ValueError):
            return None
        plain = {name: fields[name] for name in _PLAIN}
        offset_metadata = cls(**plain, owner=owner, anchor=anchor, outcomes_key=key)
        return offset_metadata if fields[_OFFSET] == offset else None

    @staticmethod
    def report_of(metadata: str | None) -> LastReport | None:
        """Returns the report that metadata belongs to, or None if no current committer wrote it."""
        text = _fields(metadata).get(_REPORT)
        return LastReport.decode(text) if isinstance(text, str) else None

    @staticmethod
    def committer_of(metadata: str | None) -> str:
        """Returns the name of the committer that took the partition over last; empty if none is recorded.

        A committer reports as soon as it has taken a partition over. This is no evidence that it still runs.
        """
        report = OffsetMetadata.report_of(metadata)
        return "" if report is None else report.committer


def _fields(metadata: str | None) -> dict[str, Any]:
    """Returns the fields of metadata, or no fields if they are not in our form."""
    try:
        fields = json.loads(metadata or "{}")
    except (ValueError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}


_PLAIN: Final = {"cluster_id": str, "topic_id": str, "low_watermark": int, "outcomes_offset": int}
_KINDS: Final = {_OFFSET: int, **_PLAIN, _OWNER: str, _REPORT: str}


def read(admin: Admin, group: str, topic: str, partition: int) -> tuple[int, OffsetMetadata] | None:
    """Returns the group's committed offset for the partition with its metadata, or None without either.

    Waits for a report that is being committed. Create the `Reporter` first to fence the other committers. The
    caller must check whether the metadata is for its log. Raises `RetryError` if no broker answers.
    """
    mark = settled(admin, group, [TopicPartition(topic, partition)])[0]
    offset_metadata = OffsetMetadata.of(mark.metadata, mark.offset)
    return None if offset_metadata is None else (mark.offset, offset_metadata)
