"""ARCHITECTURE.md describes the paths that calls take: it names the modules in the order of their calls.

The first paragraph of a section is the path. Modules that need Spark or a broker are not called here. A path
returns if it names a module of a folder that it has left before: the fewer returns, the easier it is to
follow in the folders.
"""

from __future__ import annotations

import re
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import lance
import pyarrow as pa
import pytest
from deltalake import write_deltalake

import lakefold
from lakefold_committer.fold.grouping import Limits
from lakefold_committer.loop.partition import PartitionCommitter
from lakefold_committer.loop.ports import LoopLimits, Tables
from lakefold_committer.observability.metrics import Metrics
from lakefold_committer.tables.branches import open_branch
from lakefold_ingest.operations.append import AppendRows
from lakefold_ingest.proposals.key import Key
from lakefold_ingest.rows.task_files import collect_files, write_task
from lakefold_ingest.writing import batch
from lakefold_ingest.writing.log_client import Answer
from lakefold_ingest.writing.sending_query import Sender
from lakefold_table.entry import Committed, Duplicate, Outcome
from lakefold_table.position import LogId, Position
from lakefold_table.uri import canonical
from lakefold_table.versions.table_address import TableAddress
from tests.delta_merging import DeltaFolding
from tests.folding import FORMATS, creation
from tests.merging import Folding
from tests.oracle.test_killed_batches import FoldedLog, FoldedProposal
from tests.unit.test_partition import Reports, at, messages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import FrameType

    from lakefold_committer.loop.ports import Stop
    from lakefold_ingest.rows.target import Target, WrittenFile
    from lakefold_log.read.consumer import Headers
    from lakefold_protos.lakefold.log_pb2 import Envelope

PAGE: Final = Path(__file__).parents[2] / "ARCHITECTURE.md"
MODULE: Final = re.compile(r"`([\w/]+)\.py`")
ANY: Final = ""
"""Any function of a module."""
BATCH: Final = {
    "lakefold_ingest/writing/batch": ANY,
    "lakefold_ingest/formats": "read_view",
    "lakefold_ingest/lance/view": ANY,
    "lakefold_ingest/delta/view": ANY,
    "lakefold_ingest/operations/append": "build",
    "lakefold_ingest/rows/fitting": "fit",
    "lakefold_ingest/rows/task_files": "write_task",
    "lakefold_ingest/rows/row_writer": "write",
    "lakefold_ingest/lance/data_files": "write",
    "lakefold_ingest/delta/data_files": "write",
    "lakefold_ingest/lance/proposals": "append",
    "lakefold_ingest/delta/proposals": ANY,
    "lakefold_table/versions/versions": "publish",
}
"""The functions that do the steps of a batch, by their modules."""
ENTRY: Final = {
    "lakefold_committer/loop/partition": "run",
    "lakefold_log/codec/envelope": "decode",
    "lakefold_committer/loop/table_queue": "take",
    "lakefold_committer/loop/table_scheduler": "advance",
    "lakefold_committer/fold/grouping": "first_group",
    "lakefold_committer/tables/table_writer": "prepare",
    "lakefold_committer/tables/requirements": "fetch",
    "lakefold_committer/tables/prefetcher": ANY,
    "lakefold_committer/fold/fold": "fold",
    "lakefold_committer/fold/keys": "seen",
    "lakefold_table/versions/versions": "publish",
    "lakefold_committer/loop/reporting": "add",
}
"""The functions that do the steps of an entry, by their modules."""
BESIDE_AN_ENTRY: Final = {
    "lakefold_committer/loop/admission": "begin",
    "lakefold_committer/tables/branches": "open_branch",
    "lakefold_committer/recovery/open_table": "open_table",
    "lakefold_committer/claims/claim_check": "fetch",
}
NEEDS_SPARK_OR_A_BROKER: Final = {
    "lakefold_ingest/spark/sink",
    "lakefold_ingest/spark/small_batches",
    "lakefold_ingest/writing/log_client",
    "lakefold_committer/process/daemon",
    "lakefold_committer/process/partition_thread",
    "lakefold_committer/recovery/start_offset",
    "lakefold_log/read/consumer",
    "lakefold_log/read/outcomes",
    "lakefold_log/write/producer",
    "lakefold_log/write/reporter",
}
VERSION: Final = {
    "lakefold_reader/tail/tail": "tail",
    "lakefold_reader/formats": "on_branch",
    "lakefold_reader/consumers/consumers": "find",
    "lakefold_reader/versions/start": "start_of",
    "lakefold_reader/versions/prefetch": "take",
    "lakefold_reader/lance/versions": "read_summary",
    "lakefold_reader/delta/versions": "read_summary",
    "lakefold_reader/tail/change": "inserted",
    "lakefold_reader/lance/changed_rows": "inserted",
    "lakefold_reader/delta/changed_rows": "inserted",
    "lakefold_reader/lance/effect": "effect_of",
    "lakefold_reader/delta/effect": "effect_of",
    "lakefold_reader/lance/scan/scan": "rows_of_fragments",
    "lakefold_reader/delta/data_files": ANY,
    "lakefold_reader/lance/feed/plan": ANY,
    "lakefold_reader/lance/feed/rows": "feed_of",
    "lakefold_reader/delta/feed/rows": "feed_of",
}
"""The functions that do the steps of a version, by their modules."""
MARK: Final = ("lakefold_table/version_mark", "mark_of")
"""The function that gives a cursor the mark of a version, and compares it if the tail begins there."""
OF_A_BATCH: Final = "The path of a batch, from `foreachBatch` to visible"
OF_AN_ENTRY: Final = "The path of an entry, from poll to answer"
OF_A_VERSION: Final = "The path of a version, from its name to rows"
FORMATS_BUT: Final = {"lance": "/delta/", "delta": "/lance/"}
"""What the paths of the modules of the other format contain."""


class AtOnce:
    """A `Runtime` that runs each task when it is started, so that all calls are on one thread."""

    def __init__(self) -> None:
        self.running = 0
        self._ended: list[tuple[Callable[[Any], None], object]] = []

    def now(self) -> float:
        return time.monotonic()

    def wall(self) -> float:
        return time.time()

    def pause(self, seconds: float, stop: Stop) -> None:
        del seconds, stop

    def start(self, work: Callable[[], Any], ended: Callable[[Any], None]) -> None:
        self.running += 1
        self._ended.append((ended, work()))

    def wait(self, timeout_s: float) -> bool:
        del timeout_s
        values, self._ended = self._ended, []
        self.running -= len(values)
        for ended, result in values:
            ended(result)
        return bool(values)

    def close(self) -> None:
        pass


@contextmanager
def calls() -> Iterator[list[tuple[str, str]]]:
    """Yields the calls of our packages' functions in here: modules, as paths, and names."""
    made: list[tuple[str, str]] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        name = frame.f_globals.get("__name__", "")
        if event == "call" and name.startswith("lakefold_"):
            made.append((name.replace(".", "/"), frame.f_code.co_name))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield made
    finally:
        sys.setprofile(before)


def described(heading: str, package: str, paragraph: int = 0) -> list[str]:
    """The modules that a paragraph of a section names, in its order; paths without a package are in this."""
    section = PAGE.read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    assert section, heading
    return [
        path.partition("/")[2] if "/lakefold_" in path else f"{package}/{path}"
        for path in MODULE.findall(section.strip().split("\n\n")[paragraph])
    ]


def called(modules: list[str], table_format: str) -> list[str]:
    """Those of the modules that are called in here for a table of this format."""
    return [
        module
        for module in modules
        if module not in NEEDS_SPARK_OR_A_BROKER and FORMATS_BUT[table_format] not in module
    ]


def assert_called_in_order(made: list[tuple[str, str]], steps: list[tuple[str, str]]) -> None:
    rest = iter(made)
    for module, name in steps:
        assert any(each == module and name in {ANY, function} for each, function in rest), f"{module} {name}"


def in_tasks(rows: pa.Table) -> AppendRows:
    """The operation that appends rows as a sink does: tasks write them."""

    def write(target: Target) -> list[WrittenFile]:
        return collect_files(target, [write_task(target, rows.to_batches())])

    return AppendRows(rows.schema, write, count=lambda: rows.num_rows)


@dataclass
class DeltaLog:
    """A log whose entries are folded into a Delta table when they are sent."""

    folding: DeltaFolding

    def check_binding(self, bound: Position | None, table: str) -> None:
        del bound, table

    def await_turn(self, *_: object) -> float:
        return 0.0

    def propose(
        self,
        envelope: Envelope,
        partition: int | None,
        timeout_s: float,
        *,
        headers: Headers = (),
        storage_options: Mapping[str, str],
    ) -> FoldedProposal:
        del partition, timeout_s, headers, storage_options
        (result,) = self.folding.fold(envelope)
        position = Position(LogId("cluster", "topic", 0), self.folding.offset)
        return FoldedProposal(envelope, Answer(position, Outcome(position, envelope.table, result), 0, 0))


@pytest.mark.parametrize("table_format", FORMATS_BUT)
def test_a_batch_follows_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table_format: str) -> None:
    rows, log = pa.table({"n": [1]}), FoldedLog()
    if table_format == "delta":
        delta = DeltaFolding(tmp_path / "t")
        delta.create(rows.schema, {}, features=())
        monkeypatch.setattr(batch, "open_client", lambda *_: DeltaLog(delta))
        settings = delta.settings()
    else:
        lance.write_dataset(rows.schema.empty_table(), str(tmp_path / "t"), mode="create")
        monkeypatch.setattr(batch, "open_client", lambda *_: log)
        settings = Folding(tmp_path / "t").settings()
    with calls() as made:
        report = batch.put_batch(settings, Key("app", 1), in_tasks(rows), Sender(in_order=True))
    assert isinstance(report.result, Committed)
    modules = described(OF_A_BATCH, "lakefold_ingest")
    assert set(modules) - NEEDS_SPARK_OR_A_BROKER == set(BATCH)
    assert_called_in_order(made, [(module, BATCH[module]) for module in called(modules, table_format)])
    with calls() as made:
        report = batch.put_batch(settings, Key("app", 1), in_tasks(rows), Sender(in_order=True))
    assert isinstance(report.result, Duplicate)
    functions = {f"{module} {name}" for module, name in made}
    assert "lakefold_ingest/formats read_view" in functions
    assert "lakefold_ingest/rows/task_files write_task" not in functions, "a known key is answered before"


def test_an_entry_follows_the_page(tmp_path: Path) -> None:
    uri, reports = canonical(tmp_path / "t"), Reports()
    log = messages([at(uri, creation())])
    tables = Tables(FORMATS, lambda _: None, lambda uri, branch: open_branch(TableAddress(uri), branch))
    pace = LoopLimits(Limits(10, 1 << 20), 0.0)
    committer = PartitionCommitter(log, reports, tables, pace, Metrics(), runtime=AtOnce())  # type: ignore[arg-type]
    with calls() as made:
        committer.run(threading.Event(), log.end_offset())
    assert [type(outcome.result) for outcome in reports.outcomes] == [Committed]
    modules = called(described(OF_AN_ENTRY, "lakefold_committer"), "lance")
    assert set(modules) == set(ENTRY)
    assert_called_in_order(made, [(module, ENTRY[module]) for module in modules])
    beside = called(described(OF_AN_ENTRY, "lakefold_committer", 1), "lance")
    assert set(beside) == set(BESIDE_AN_ENTRY)
    assert set(BESIDE_AN_ENTRY.items()) <= set(made)


@pytest.mark.parametrize("table_format", FORMATS_BUT)
def test_a_version_follows_the_page(tmp_path: Path, table_format: str) -> None:
    uri = str(tmp_path / "t")
    for number in range(2):
        rows = pa.table({"n": [number]})
        if table_format == "delta":
            write_deltalake(uri, rows, mode="append")
        else:
            lance.write_dataset(rows, uri, mode="append")
    consumer = "reader" if table_format == "lance" else None
    with calls() as made:
        changes = list(lakefold.tail(uri, 1 if table_format == "lance" else 0, consumer=consumer))
        read = [(change.inserted(), change.feed().read_all()) for change in changes]
    assert [[rows["n"].to_pylist() for rows in each] for each in read] == [[[1], [1]]]
    modules = described(OF_A_VERSION, "lakefold_reader")
    assert set(modules) == set(VERSION)
    named = called(modules, table_format)
    if consumer is None:
        named.remove("lakefold_reader/consumers/consumers")
    assert_called_in_order(made, [(module, VERSION[module]) for module in named])
    assert MARK[0] in described(OF_A_VERSION, "lakefold_reader", 1)
    head = f"lakefold_reader/{table_format}/versions"
    assert_called_in_order(made, [(head, "read_summary"), MARK, ("lakefold_reader/tail/change", "inserted")])
    with calls() as made:
        assert list(lakefold.tail(uri, changes[-1].cursor)) == []
    assert_called_in_order(made, [("lakefold_reader/versions/start", "check_same"), MARK])


@pytest.mark.parametrize(
    ("heading", "package", "most_folders", "most_returns"),
    [
        (OF_A_BATCH, "lakefold_ingest", 9, 4),
        (OF_AN_ENTRY, "lakefold_committer", 7, 3),
        (OF_A_VERSION, "lakefold_reader", 7, 4),
    ],
)
@pytest.mark.parametrize("table_format", FORMATS_BUT)
def test_a_path_seldom_returns_to_a_folder(
    heading: str, package: str, most_folders: int, most_returns: int, table_format: str
) -> None:
    """An entry's path had 14 folders with 13 returns once, a version's 17 with 28: at most half are left."""
    modules = described(heading, package)
    ours = [module for module in modules if FORMATS_BUT[table_format] not in module]
    folders = [folder for folder, _ in groupby(module.rpartition("/")[0] for module in ours)]
    assert len(set(folders)) <= most_folders
    assert len(folders) - len(set(folders)) <= most_returns
