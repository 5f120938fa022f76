"""A committer in a process of its own, and a flood of large proposals: what they take in memory together.

`python -m tests.faults.large_flood FOLDER KIND` prints it as JSON.
"""

from __future__ import annotations

import json
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from structlog.testing import capture_logs

from lakefold_committer.fold.grouping import Limits
from lakefold_committer.loop.partition import PartitionCommitter
from lakefold_committer.loop.ports import LoopLimits, Tables
from lakefold_committer.observability.metrics import Metrics
from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_table.uri import canonical
from tests.folding import FORMATS, add_fragment, append, creation
from tests.properties.hostile import forget_peak, peak
from tests.unit.test_partition import Log, Reports, at, messages, opened

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.unit.test_partition import Message

COUNT, FRAGMENTS = 16, 5_000
LIMITS = Limits(4096, 2 << 20)


class Bounded(Log):
    """Gives no more messages again than were asked for."""

    def read_again(self, offsets: Sequence[int], max_bytes: int) -> Sequence[Message]:
        values: list[Message] = []
        for message in super().read_again(offsets, max_bytes):
            values.append(message)
            if sum(len(message.value) for message in values) >= max_bytes:
                break
        return values


def appends(uri: str) -> Iterator[Envelope]:
    """Appends that are refused: their files are for no column."""
    for number in range(COUNT):
        envelope = Envelope(table=uri)
        envelope.lance.uuid, envelope.lance.read_version = str(number), 1
        for index in range(4 * FRAGMENTS):
            file = envelope.lance.append.fragments.add(physical_rows=1).files.add()
            file.path = f"{number:x}-{index:x}.lance"
        yield envelope


def updates(uri: str) -> Iterator[Envelope]:
    """Updates that only add rows."""
    for number in range(COUNT):
        envelope = Envelope(table=uri)
        envelope.lance.uuid, envelope.lance.read_version = str(number), 1
        for index in range(FRAGMENTS):
            add_fragment(envelope.lance.update.new_fragments.add(), f"{number:x}-{index:x}")
        yield envelope


KINDS = {"appends": appends, "updates": updates}


def flooded(folder: Path, kind: str) -> Mapping[str, object]:
    """What became of the flood, and what it took."""
    uri = canonical(folder / "t")
    begin = [creation(), append("first", fragments=FRAGMENTS)]
    begun = [at(uri, envelope) for envelope in begin]
    log = messages(begun, [*KINDS[kind](uri)])
    log = Bounded(log.polls)
    reports = Reports()
    with capture_logs():
        before = forget_peak()
        parts = Tables(FORMATS, lambda _: None, opened)
        committer = PartitionCommitter(log, reports, parts, LoopLimits(LIMITS, 0.0), Metrics())  # type: ignore[arg-type]
        committer.run(threading.Event(), log.end_offset())
    sent = [outcome for outcome in reports.outcomes if outcome.position.offset >= len(begun)]
    kinds = Counter(type(outcome.result).__name__ for outcome in sent)
    return {"took": peak() - before, "kinds": kinds}


def main(folder: str, kind: str) -> None:
    """Prints it."""
    sys.stdout.write(json.dumps(flooded(Path(folder), kind)) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
