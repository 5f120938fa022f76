"""A committer in a process of its own that may take only so much memory: a large claim, then another table.

`python -m tests.faults.short_of_memory FOLDER KIND MEGABYTES SPARE [MOST]` writes a claim of that size, lets
the process take `SPARE` more megabytes of address space, and folds. If the claim's table is parked, the limit
is taken away once the other table was answered, and the claim's outcome is waited for, unless `MOST` is
given: that is `claim_memory`, in megabytes. Prints what became of the claim, as JSON. With a kind that ends
in `unasked` the memory that is left is not checked.
"""

from __future__ import annotations

import json
import resource
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from structlog.testing import capture_logs

from lakefold_committer.claims.claim_check import CLAIM_BYTES, Claims
from lakefold_committer.claims.memory_budget import memory_left
from lakefold_committer.fold.grouping import Limits
from lakefold_committer.loop.partition import PartitionCommitter
from lakefold_committer.loop.ports import LoopLimits, Tables
from lakefold_committer.observability.metrics import Metrics
from lakefold_committer.tables.table_writer import TableWriter
from lakefold_log.codec.claims import put_claim
from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_protos.lance.transaction_pb2 import Transaction
from lakefold_table.delta.format import DeltaFormat
from lakefold_table.formats import BUILT_IN
from lakefold_table.storage import open_storage
from lakefold_table.uri import canonical
from lakefold_table.versions.stored_table import StoredTable
from lakefold_table.versions.versions import Versions
from lakefold_table.wire import varint
from tests.delta_logs.actions import PROTOCOL, add, metadata, text
from tests.folding import add_fragment, append, creation
from tests.properties.hostile import forget_peak, peak
from tests.unit.test_partition import Reports, at, messages, opened
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from lakefold_table.entry import Outcome

MEGABYTE = 1_000_000
DELTA = DeltaFormat()
NAME = "0" * 50


def delimited(number: int, *parts: bytes) -> bytes:
    """A field of this number that holds these bytes."""
    return varint(number << 3 | 2) + varint(sum(map(len, parts))) + b"".join(parts)


def fragments(number: int, size: int) -> bytes:
    """About so many bytes of new fragments, each with another name, as a field of this number."""
    single = Transaction.Append()
    add_fragment(single.fragments.add(), NAME)
    before, after = single.fragments[0].SerializeToString().split(NAME.encode())
    head = varint(number << 3 | 2) + varint(len(before) + len(NAME) + len(after)) + before
    count = size // (len(head) + len(NAME) + len(after))
    return b"".join(b"%b%050d%b" % (head, name, after) for name in range(count))


def large(kind: str, uri: str, size: int) -> bytes:
    """An envelope of about so many bytes: an Append or an Update that brings new rows only, or Delta's."""
    begun = Envelope(table=uri)
    if kind == DELTA.name:
        line = text([add(NAME, stats='{"numRecords":3}')])
        before, after = line.split(NAME.encode())
        begun.delta.actions = b"".join(
            b"%b%050d%b" % (before, name, after) for name in range(size // len(line))
        )
        return begun.SerializeToString()
    head = Transaction(read_version=1, uuid=kind)
    if kind == "update":
        operation = delimited(Transaction.UPDATE_FIELD_NUMBER, fragments(3, size))
    else:
        operation = delimited(Transaction.APPEND_FIELD_NUMBER, fragments(1, size))
    lance = delimited(Envelope.LANCE_FIELD_NUMBER, head.SerializeToString(), operation)
    return begun.SerializeToString() + lance


def may_take(more: int | None) -> None:
    """Lets this process take so many more bytes of address space; None: as many as there are."""
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    status = Path("/proc/self/status").read_text()
    now = int(next(line for line in status.splitlines() if line.startswith("VmSize:")).split()[1]) * 1024
    resource.setrlimit(resource.RLIMIT_AS, (hard if more is None else now + more, hard))


def parked(lines: list[Any]) -> Iterator[str]:
    """Why the tables were left alone, in the order of the log lines."""
    return (str(line["error"]) for line in lines if line["event"] == "parked")


def created_delta() -> Envelope:
    """Creates a Delta table."""
    envelope = Envelope()
    envelope.delta.actions = text([PROTOCOL, metadata()])
    return envelope


def opened_as(kind: str, mine: str) -> Callable[[str, str], TableWriter]:
    """Opens tables, whose data files are not checked; `mine` as one of Delta if that is the kind."""

    def open_table(uri: str, branch: str) -> TableWriter:
        if kind != DELTA.name or uri != mine:
            return opened(uri, branch)
        return TableWriter(StoredTable(DELTA, Versions.of(open_storage(uri), DELTA)), check_sizes=False)

    return open_table


def folded(folder: Path, kind: str, size: int, spare: int, most: int) -> Mapping[str, object]:
    """What became of the claim, and what it took."""
    mine, other = canonical(folder / "mine"), canonical(folder / "other")
    small = put_claim(open_storage(mine), Envelope(table=mine), large(kind, mine, size), 1)
    first = at(mine, created_delta() if kind == DELTA.name else creation())
    begun = [first, at(other, creation()), at(other, append("first"))]
    log = messages(begun, [small, at(other, append("second"))])
    waits, log.polls = log.polls.pop(), log.polls[:1]
    reports, stop = Reports(), threading.Event()
    left = (lambda: None) if kind.endswith("unasked") else memory_left
    tables = Tables(
        BUILT_IN, lambda _: None, opened_as(kind, mine), Claims(most_bytes=most, free_memory=left)
    )
    committer = PartitionCommitter(log, reports, tables, LoopLimits(Limits(100, 1 << 20), 0.0), Metrics())  # type: ignore[arg-type]

    def answer(offset: int) -> Outcome | None:
        return next((outcome for outcome in reports.outcomes if outcome.position.offset == offset), None)

    with capture_logs() as lines:
        thread = threading.Thread(target=committer.run, args=(stop,))
        thread.start()
        until(lambda: answer(2), "the first outcomes")
        before = forget_peak()
        may_take(spare)
        log.polls.append(waits)
        until(lambda: answer(4), "the other table's outcome")
        until(lambda: answer(3) or any(parked(lines)), "what becomes of the claim", seconds=100)
        reasons = [*parked(lines)]
        may_take(None)
        if not reasons or most == CLAIM_BYTES:
            until(lambda: answer(3), "the claim's outcome", seconds=100)
        stop.set()
        thread.join()
    result = answer(3)
    return {
        "claim": small.claim.size,
        "took": peak() - before,
        "parked": reasons,
        "kind": "parked" if result is None else type(result.result).__name__,
        "result": "" if result is None else str(result.result),
    }


def main(folder: str, kind: str, size: str, spare: str, most: str = "") -> None:
    """Prints it."""
    limit = int(most) * MEGABYTE if most else CLAIM_BYTES
    mapping = folded(Path(folder), kind, int(size) * MEGABYTE, int(spare) * MEGABYTE, limit)
    sys.stdout.write(json.dumps(mapping) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
