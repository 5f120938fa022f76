"""Delta tables: transactions of one file each, made visible by the committer and by delta-rs on its own.

A full log is folded into tables of many files, proposals come at a steady pace, and 32 processes of delta-rs
race on a copy. delta-rs opens each table afterwards and counts its files.
"""

from __future__ import annotations

import json
import tracemalloc
import uuid
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from benchmarks.commits import BACKLOG, copied, fold_backlog
from benchmarks.ground import (
    await_answers,
    await_start,
    committer,
    not_committed,
    outcomes_of,
    versions_of,
)
from benchmarks.latency import WARM_UP, Watch, percentiles, send_at_pace
from benchmarks.peers import race_delta
from benchmarks.versions import in_child
from lakefold_log.write.producer import Proposer
from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_table.delta.actions.lines import parse_actions
from lakefold_table.delta.log_segment.names import commit_path
from lakefold_table.delta.snapshot.reconciliation import Reconciliation
from lakefold_table.uri import canonical, local_path
from tests.delta_logs.actions import PROTOCOL, Members, metadata, text

if TYPE_CHECKING:
    from benchmarks.ground import Ground

PRODUCERS, RACERS = 32, 32
FILES_AT_ONCE = 1_500
ROWS = 3
MOST_FILES = 100_000
SCHEMA = json.dumps(
    {
        "type": "struct",
        "fields": [
            {"name": "id", "type": "long", "nullable": True, "metadata": {}},
            {"name": "text", "type": "string", "nullable": True, "metadata": {}},
        ],
    }
)


def measure(ground: Ground, transactions: int, share: int = 1) -> dict[str, float]:
    """Folds `transactions` appends into tables of 10,000 and of 100,000 files, after delta-rs has raced."""
    figures: dict[str, float] = {}
    root = ground.root
    for files in (10_000 // share, MOST_FILES // share):
        name = f"files-{files}"
        uri = make_table(ground, name, files)
        if not figures:
            raced = copied(root / name, root / "raced")
            figures["delta-rs 32 processes, commits/s"], figures["delta-rs 32 processes, failed"] = (
                race_delta(raced, RACERS)
            )
        before = len(outcomes_of(ground))
        makers = [
            partial(appends, uri, f"{name}-{number}", transactions // PRODUCERS)
            for number in range(PRODUCERS)
        ]
        rate = fold_backlog(ground, root / name, makers)[BACKLOG]
        outcomes = outcomes_of(ground)[before:]
        sent = transactions // PRODUCERS * PRODUCERS
        figures[f"{files:,} files: transactions/s"] = rate
        figures[f"{files:,} files: not committed"] = not_committed(outcomes) + abs(sent - len(outcomes))
        check(root / name, files + sent)
    slowest = max(figures["delta-rs 32 processes, commits/s"], 0.01)
    figures["ratio to delta-rs's 32 processes"] = (
        figures[f"{10_000 // share:,} files: transactions/s"] / slowest
    )
    figures |= _latency(ground, transactions // 40, 10_000 // share)
    return figures | in_child(_memory, MOST_FILES // share)


def make_table(ground: Ground, name: str, files: int) -> str:
    """Has a committer make a table of this many files. Returns its URI."""
    path = ground.root / name
    path.mkdir()
    uri = canonical(path)
    with committer(ground), Proposer(ground.config, ground.topics) as proposer:
        created = Envelope(table=uri)
        created.delta.actions = text([PROTOCOL, metadata(SCHEMA)])
        proposer.send_wait(created)
        left = files
        while left:
            count = min(left, FILES_AT_ONCE)
            envelope = Envelope(table=uri)
            envelope.delta.actions = text([new_file(path) for _ in range(count)])
            proposer.send_wait(envelope)
            left -= count
        await_answers(ground)
    check(path, files)
    return uri


def appends(uri: str, app: str, count: int) -> list[Envelope]:
    """Returns appends of a new file each, under batch ids from 0 on."""
    path = Path(local_path(uri))
    envelopes = []
    for batch in range(count):
        envelope = Envelope(table=uri, app_id=app, batch_id=batch)
        envelope.delta.actions = text([new_file(path)])
        envelopes.append(envelope)
    return envelopes


def new_file(path: Path) -> Members:
    """Writes a data file of three rows. Returns its add action, with statistics as Spark writes them."""
    name = f"part-{uuid.uuid4()}.c000.snappy.parquet"
    (path / name).write_bytes(content())
    return add_action(name, len(content()))


@cache
def content() -> bytes:
    """The content of every data file."""
    rows = pa.table({"id": range(ROWS), "text": [f"row {number}" for number in range(ROWS)]})
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink)
    return bytes(sink.getvalue())


def add_action(name: str, size: int) -> Members:
    """The add action of a file."""
    statistics = {
        "numRecords": ROWS,
        "minValues": {"id": 0, "text": "row 0"},
        "maxValues": {"id": ROWS - 1, "text": f"row {ROWS - 1}"},
        "nullCount": {"id": 0, "text": 0},
    }
    return {
        "add": {
            "path": name,
            "partitionValues": {},
            "size": size,
            "modificationTime": 1_790_000_000_000,
            "dataChange": True,
            "stats": json.dumps(statistics),
        }
    }


def check(path: Path, files: int) -> None:
    """Has delta-rs open the table and count its files. Raises `AssertionError` if it finds others."""
    count = len(DeltaTable(path).file_uris())
    if count != files:
        raise AssertionError(f"{path} has {count} files, not {files}")


def _latency(ground: Ground, proposals: int, files: int) -> dict[str, float]:
    """How long a proposal takes to become visible at a steady pace, while checkpoints are written."""
    uri = make_table(ground, "steady", files)
    path = ground.root / "steady"
    first, before = versions_of(path), len(outcomes_of(ground))
    envelopes = appends(uri, "steady", WARM_UP + proposals)
    with (
        committer(ground),
        Watch(path, first, commit_path) as watch,
        Proposer(ground.config, ground.topics) as proposer,
    ):
        await_start(ground)
        sent = send_at_pace(proposer, envelopes)
        await_answers(ground)
    outcomes = outcomes_of(ground)[before:]
    if len(outcomes) != len(envelopes) or not_committed(outcomes):
        raise AssertionError(f"{len(outcomes)} answers, {not_committed(outcomes):.0f} of them no versions")
    check(path, files + len(envelopes))
    checkpoints = sum(1 for _ in (path / "_delta_log").glob("*.checkpoint.parquet"))
    return {**percentiles(watch, sent, outcomes), "checkpoints of that table": float(checkpoints)}


def _memory(files: int) -> dict[str, float]:
    """How many bytes of memory a version takes for each of its files."""
    actions = [PROTOCOL, metadata(SCHEMA)]
    actions += [add_action(f"part-{uuid.uuid4()}.c000.snappy.parquet", 900 + each) for each in range(files)]
    data = text(actions)
    del actions
    tracemalloc.start()
    reconciliation = Reconciliation()
    reconciliation.add_commit(parse_actions(data))
    snapshot = reconciliation.snapshot(0)
    del reconciliation
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return {"bytes an active file": taken / len(snapshot.files)}
