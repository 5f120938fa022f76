"""The stamp: proof that a consumer group's offset was put there by a committer, and for which log.

A bare offset proves nothing: any tool can move it, and it outlives the topic that it was meant for. So the
committer writes into the offset's metadata what the offset relies on, and an offset without that is ignored.
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
    """What a committed offset relies on.

    `cluster_id` and `topic_id` name the log. Every entry below `low_watermark` is folded or answered.
    `outcomes_offset` is where reading the outcomes partition again must begin, to learn what was answered
    at or above it. `owner` is who committed it (None: by an older release). `anchor`: the last entry that was
    read, by which it is told that the log is still the same (None: an older release wrote it, or none was).
    `outcomes_key`: by which committers tell their outcomes from others' (None: an older release wrote it); it
    proves nothing of the log, and two stamps are equal without it.
    """

    cluster_id: str
    topic_id: str
    low_watermark: int
    outcomes_offset: int
    owner: Owner | None = None
    anchor: Anchor | None = None
    outcomes_key: OutcomesKey | None = field(default=None, compare=False)

    def metadata(self, offset: int, *, report: str = "") -> str:
        """The text that goes with the committed `offset`, and names it: copied to another it is no proof.

        `report` tells the report that it goes with, a `LastReport` as text.
        """
        said = {_OFFSET: offset, **{name: getattr(self, name) for name in _PLAIN}, _REPORT: report}
        said[_OWNER] = "" if self.owner is None else self.owner.encode()
        if self.anchor is not None:
            said[_ANCHOR] = self.anchor.encode()
        if self.outcomes_key is not None:
            said[_KEY] = self.outcomes_key.encode()
        return compact(said)

    @classmethod
    def of(cls, metadata: str | None, offset: int) -> OffsetMetadata | None:
        """The stamp in the metadata of a committed `offset`; None where there is none for this offset."""
        found = {_OWNER: "", **_told(metadata)}
        if found.keys() - {_ANCHOR, _KEY} != _KINDS.keys():
            return None
        if any(type(found[name]) is not kind for name, kind in _KINDS.items()):
            return None
        try:
            owner = Owner.decode(found[_OWNER]) if found[_OWNER] else None
            anchor = Anchor.decode(found[_ANCHOR]) if _ANCHOR in found else None
            key = OutcomesKey.decode(found[_KEY]) if _KEY in found else None
        except (TypeError, ValueError):
            return None
        plain = {name: found[name] for name in _PLAIN}
        stamp = cls(**plain, owner=owner, anchor=anchor, outcomes_key=key)
        return stamp if found[_OFFSET] == offset else None

    @staticmethod
    def report_of(metadata: str | None) -> LastReport | None:
        """The report that metadata came with; None where an older release, or something else, wrote it."""
        text = _told(metadata).get(_REPORT)
        return LastReport.decode(text) if isinstance(text, str) else None


def _told(metadata: str | None) -> dict[str, Any]:
    """What metadata says, whoever wrote it; nothing where it isn't of our form."""
    try:
        found = json.loads(metadata or "{}")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


_PLAIN: Final = {"cluster_id": str, "topic_id": str, "low_watermark": int, "outcomes_offset": int}
_KINDS: Final = {_OFFSET: int, **_PLAIN, _OWNER: str, _REPORT: str}


def read(admin: Admin, group: str, topic: str, partition: int) -> tuple[int, OffsetMetadata] | None:
    """The group's committed offset for the partition with its stamp; None where either is missing.

    Waits for a report that is being committed. To be sure that no other committer reports any more, make the
    `Reporter` first: that fences them. Whether the stamp is for this very log is the caller's question.
    Raises `RetryError` where no broker answers.
    """
    found = settled(admin, group, [TopicPartition(topic, partition)])[0]
    stamp = OffsetMetadata.of(found.metadata, found.offset)
    return None if stamp is None else (found.offset, stamp)
