"""What an entry costs the committer's processor, without a broker: decoded, folded, its answer encoded.

The wall clock says little on a machine with other work; the processor's time of a thread does.
Each kind of entry is folded several times on the same table, in groups as large as a busy log fills them,
and the fastest round counts: what makes a round slower comes from outside.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.files import Mould, append_of, appends
from benchmarks.mixed import proposals
from benchmarks.versions import in_child
from lakefold_committer.fold.grouping import Limits, first_group
from lakefold_committer.observability.gc_tuning import collect_seldom
from lakefold_committer.tables.previews import Previews
from lakefold_committer.tables.table_writer import TableWriter
from lakefold_log.codec.envelope import decode, encode
from lakefold_table.entry import Committed, Entry
from lakefold_table.formats import BUILT_IN
from lakefold_table.lance.format import LanceFormat
from lakefold_table.marks.outcome_messages import outcome_message
from lakefold_table.position import LogId, Position
from lakefold_table.storage.local import LocalStorage
from lakefold_table.versions.stored_table import StoredTable
from lakefold_table.versions.versions import Versions
from tests.proposals import append, creation, rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_table.entry import Outcome

LANCE = LanceFormat()
LOG = LogId("cluster", "topic-id", 0)
LIMITS = Limits(max_entries=4096, max_bytes=4 << 20)
START_US = 1_700_000_000_000_000
FRAGMENTS, ROWS = 10_000, 100
PRODUCERS = 8
ROUNDS = 5
READ_VERSION = 2
MICROS = 1_000_000


@dataclass(frozen=True)
class Cost:
    """Seconds of CPU for all entries of a round."""

    decoding: float
    folding: float
    answering: float


def measure(root: Path, share: int = 1) -> dict[str, float]:
    """µs of CPU for each entry of a log of Appends, and of a log of Appends, Deletes and Updates."""
    return in_child(_measure, root, 20_000 // share, 5_000 // share, FRAGMENTS // share)


def _measure(root: Path, plain: int, mixed: int, fragments: int) -> dict[str, float]:
    collect_seldom()
    mould = _table(root / "table", fragments)
    one_row = Mould.of(append(mould.uri, rows([0]), READ_VERSION))
    makers: dict[str, tuple[int, Callable[[int, int], list[Envelope]]]] = {
        "appends": (plain, lambda number, each: appends(mould, READ_VERSION, f"producer-{number}", each)),
        "mixed": (mixed, partial(proposals, root / "table", mould, one_row)),
    }
    figures: dict[str, float] = {}
    for name, (count, make) in makers.items():
        each = count // PRODUCERS
        shares = [make(number, each) for number in range(PRODUCERS)]
        messages = [encode(envelope) for envelope in _interleaved(shares)]
        costs = [_round(root / "table", mould.uri, messages) for _ in range(ROUNDS)]
        parts = {
            "decoded": min(cost.decoding for cost in costs),
            "folded": min(cost.folding for cost in costs),
            "answer encoded": min(cost.answering for cost in costs),
        }
        parts["in all"] = sum(parts.values())
        figures |= {f"{name}: {part}, µs": cost / len(messages) * MICROS for part, cost in parts.items()}
    return figures


def _interleaved(shares: Sequence[list[Envelope]]) -> Iterator[Envelope]:
    """What producers send at the same time, each in its own order."""
    order = [number for number, share in enumerate(shares) for _ in share]
    random.Random(1).shuffle(order)
    rest = [iter(share) for share in shares]
    return (next(rest[number]) for number in order)


def _round(path: Path, uri: str, messages: Sequence[bytes]) -> Cost:
    """All of it once, on the same version of the table."""
    table, first, key, previews = _opened(path), READ_VERSION, uri.encode(), Previews()
    begun = time.thread_time()
    positions = (Position(LOG, first + number, "transactions") for number in range(len(messages)))
    read = [decode(data, key, position, START_US) for data, position in zip(messages, positions, strict=True)]
    decoded = time.thread_time()
    outcomes: list[Outcome] = []
    waiting = [entry for entry in read if isinstance(entry, Entry)]
    while len(outcomes) < len(waiting):
        start = len(outcomes)
        group = first_group(waiting[start : start + LIMITS.max_entries], LANCE, LIMITS, table.ahead.state)
        outcomes += table.preview(group, previews).outcomes
    folded = time.thread_time()
    for outcome in outcomes:
        outcome_message(outcome).SerializeToString()
    answered = time.thread_time()
    refused = [outcome for outcome in outcomes if not isinstance(outcome.result, Committed)]
    if refused or len(outcomes) != len(messages):
        raise AssertionError(f"{len(outcomes)} answers to {len(messages)}, refused: {refused[:3]}")
    return Cost(decoded - begun, folded - decoded, answered - folded)


def _table(path: Path, fragments: int) -> Mould:
    """A table, at version 2, of so many fragments."""
    storage = LocalStorage(path)
    created = creation(storage.uri)
    _fold(path, created, 0)
    mould = Mould.of(append(storage.uri, rows(range(ROWS)), 1))
    _fold(path, append_of(storage.uri, mould.cast(fragments), 1), 1)
    return mould


def _fold(path: Path, envelope: Envelope, offset: int) -> None:
    position = Position(LOG, offset, "transactions")
    _opened(path).fold(
        [Entry(position, START_US, envelope, envelope.ByteSize(), BUILT_IN.proposal(envelope))]
    )


def _opened(path: Path) -> TableWriter:
    return TableWriter(StoredTable(LANCE, Versions(LocalStorage(path), LANCE.folder, LANCE.detect)))
