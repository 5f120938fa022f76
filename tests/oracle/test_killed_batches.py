"""A writer that is killed at any step of a batch: run again, each row is in its table once, by pylance.

Promise: what docs/reference/spark-writes.md says of drivers that die. The table of points below names each
step after which something exists that did not exist before. Nothing that would run after the kill runs: what
cleans up after an error is killed as well.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import lance
import pyarrow as pa
import pytest

from lakefold_ingest import formats
from lakefold_ingest.lance import data_files
from lakefold_ingest.lance.view import LanceView
from lakefold_ingest.merge.modes import merge_of
from lakefold_ingest.operations.append import append_source
from lakefold_ingest.operations.upsert import UpsertRows
from lakefold_ingest.proposals.key import Key
from lakefold_ingest.rows import unused_files
from lakefold_ingest.rows.row_source import RowSource
from lakefold_ingest.writing import batch
from lakefold_ingest.writing.batch import put_batch
from lakefold_ingest.writing.log_client import Answer
from lakefold_ingest.writing.sending_query import Sender
from lakefold_log.read.turns import TURN
from lakefold_log.write import tracing
from lakefold_maintenance.lance.names import is_unique
from lakefold_table.entry import Duplicate, Outcome
from lakefold_table.errors import InvalidError
from lakefold_table.position import LogId, Position
from lakefold_table.uri import canonical, local_path
from tests.merging import Folding

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from lakefold_ingest.writing.operation import Operation
    from lakefold_ingest.writing.report import BatchReport
    from lakefold_ingest.writing.settings import WriteSettings
    from lakefold_log.read.consumer import Headers
    from lakefold_protos.lakefold.log_pb2 import Envelope

KEY: Final = Key("app", 1)


class Killed(BaseException):
    """The process ends here."""


@dataclass
class Death:
    """Kills the process the `times`-th time that a step ends, or before it begins if `is_before`."""

    owner: object
    name: str
    times: int = 1
    is_before: bool = False
    is_dead: bool = False

    def arm(self, patch: pytest.MonkeyPatch) -> None:
        """Has the step kill the process, and all that cleans up after errors end at once."""
        step, calls = getattr(self.owner, self.name), 0

        def killed(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - as the step
            nonlocal calls
            calls += 1
            if calls == self.times and self.is_before:
                self._die()
            result = step(*arguments, **named)
            if calls == self.times:
                self._die()
            return result

        def cleaning(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - as the function
            if self.is_dead:
                raise Killed
            return remove(*arguments, **named)

        remove = unused_files.remove_files
        patch.setattr(self.owner, self.name, killed)
        patch.setattr(unused_files, "remove_files", cleaning)

    def _die(self) -> None:
        self.is_dead = True
        raise Killed


@dataclass
class FoldedLog:
    """A log of several tables whose entries are folded when they are sent."""

    tables: dict[str, Folding] = field(default_factory=dict)
    sent: list[Envelope] = field(default_factory=list)

    def check_binding(self, bound: Position | None, table: str) -> None:
        assert bound is None or bound.log.partition == 0, table

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
        assert timeout_s
        assert partition in {0, None}
        assert not storage_options
        assert all(name == TURN for name, _ in headers)
        folding = self.tables.setdefault(envelope.table, Folding(_path_of(envelope.table)))
        self.sent.append(envelope)
        (result,) = folding.fold(envelope)
        position = Position(LogId("cluster", "topic", 0), folding.offset - 1)
        return FoldedProposal(envelope, Answer(position, Outcome(position, envelope.table, result), 0, 0))

    def ask(
        self,
        envelope: Envelope,
        partition: int | None,
        timeout_s: float,
        *,
        storage_options: Mapping[str, str] | None = None,
    ) -> Answer:
        return self.propose(envelope, partition, timeout_s, storage_options=storage_options or {}).answer(
            timeout_s
        )


@dataclass
class FoldedProposal:
    """A proposal whose outcome is known already."""

    envelope: Envelope
    known: Answer

    def answer(self, timeout_s: float) -> Answer:
        assert timeout_s
        return self.known


POINTS: Final[dict[str, Death]] = {
    "before the table is opened": Death(batch, "open_or_create", is_before=True),
    "the table is open": Death(batch, "open_or_create"),
    "before the columns are sent": Death(FoldedLog, "propose", is_before=True),
    "the columns are in the table": Death(FoldedLog, "propose"),
    "the columns are known to be": Death(batch, "with_columns_of"),
    "a file is written, but not durable": Death(data_files, "_make_durable", is_before=True),
    "a file is durable, another is not": Death(data_files, "_make_durable"),
    "all files are durable": Death(data_files, "_make_durable", times=2),
    "before the proposal is built": Death(LanceView, "append", is_before=True),
    "before the bad rows are built": Death(batch, "bad_records", is_before=True),
    "the table of bad rows is created": Death(FoldedLog, "propose", times=2),
    "before the bad rows are sent": Death(FoldedLog, "propose", times=3, is_before=True),
    "the bad rows are in their table": Death(FoldedLog, "propose", times=3),
    "before the proposal is sent": Death(FoldedLog, "propose", times=4, is_before=True),
    "the proposal is folded, and nothing is known of it": Death(FoldedLog, "propose", times=4),
    "the outcome is read": Death(batch, "accepted", times=2),
    "the outcome is about to be reported": Death(tracing.BatchSpan, "done", times=2, is_before=True),
}

MODES: Final = ("append", "upsert")
COLUMNS: Final = pa.schema({"n": pa.int64(), "small": pa.uint8()})
BATCH: Final = pa.table(
    {"n": [10, 11, 12, 13, 14], "small": pa.array([0, 1, 2, 300, 4]), "new": list("abcde")}
)
WRITTEN: Final = [
    {"n": n, "small": n - 10, "new": letter}
    for n, letter in zip(range(10, 15), "abcde", strict=True)
    if n != 13
]
"""The rows of the batch, of which one can't be written."""
FIRST: Final = {"n": 1, "small": 1, "new": None}


def _path_of(uri: str) -> Path:
    from pathlib import Path

    return Path(local_path(uri))


@dataclass
class Writer:
    """Processes that write the batch one after another, into a table that has a row."""

    path: Path
    mode: str
    log: FoldedLog = field(default_factory=FoldedLog)

    @classmethod
    def beside(cls, folder: Path, mode: str, patch: pytest.MonkeyPatch) -> Writer:
        """Creates the table, by a committer's hands from its first row on."""
        writer = cls(folder / "t", mode)
        patch.setattr(batch, "open_client", lambda *_: writer.log)
        lance.write_dataset(COLUMNS.empty_table(), str(writer.path))
        put_batch(writer.settings, Key("app", 0), writer.operation([{"n": 1, "small": 1}]))
        return writer

    @property
    def settings(self) -> WriteSettings:
        more = {"bad_records": canonical(self.path.with_name("bad")), "max_rows_per_file": 2}
        return replace(Folding(self.path).settings(), merge_schema=True, **more)  # type: ignore[arg-type]  # each has its field's type

    def operation(self, rows: list[dict[str, Any]] | pa.Table) -> Operation:
        table = rows if isinstance(rows, pa.Table) else pa.Table.from_pylist(rows, COLUMNS)
        if self.mode == "upsert":
            return UpsertRows(table, merge_of("upsert", "n"))
        return append_source(RowSource(table), leaves_rows_out=True)

    def put(self) -> BatchReport:
        """Writes the batch in a new process, which has read nothing yet."""
        formats._seen.clear()
        return put_batch(self.settings, KEY, self.operation(BATCH), Sender(in_order=True))

    def rows(self, name: str = "t") -> list[dict[str, Any]]:
        dataset = lance.dataset(str(self.path.with_name(name)))
        dataset.validate()
        rows: list[dict[str, Any]] = dataset.to_table().to_pylist()
        return sorted(rows, key=repr)

    def killed_at(self, point: str) -> None:
        """Has the first process end at this point."""
        with pytest.MonkeyPatch.context() as patch:
            replace(POINTS[point]).arm(patch)
            with pytest.raises(Killed):
                self.put()


def other_rows(writer: Writer) -> list[dict[str, Any]]:
    """Another writer adds a row meanwhile."""
    row = {"n": 99, "small": 9}
    put_batch(writer.settings, Key("other", 0), writer.operation([row]))
    return [row | {"new": None}]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("point", POINTS)
def test_a_batch_is_in_the_table_once_wherever_its_writer_ends(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    point: str,
    mode: str,
) -> None:
    writer = Writer.beside(tmp_path, mode, monkeypatch)
    writer.killed_at(point)
    added = other_rows(writer)
    writer.put()
    assert writer.rows() == sorted([FIRST, *WRITTEN, *added], key=repr)
    (bad,) = writer.rows("bad")
    assert (bad["batch_id"], bad["column"]) == (1, "small")
    again = writer.put()
    assert isinstance(again.result, Duplicate)
    assert len(writer.rows("bad")) == 1
    named = {
        file.path for each in lance.dataset(str(writer.path)).get_fragments() for file in each.data_files()
    }
    left = {path.name for path in (writer.path / "data").iterdir()} - named
    # What the killed process left is known by its name, so a clean-up removes it.
    assert all(is_unique(f"data/{name}") for name in left)


def overwritten(path: Path) -> None:
    """Another client replaces all rows."""
    rows = lance.dataset(str(path)).to_table()
    lance.write_dataset(rows.slice(0, 1), str(path), mode="overwrite")


def wiped(path: Path) -> None:
    """Another client replaces the table's metadata, in which the marks of committers are."""
    lance.dataset(str(path)).update_metadata({"owner": "somebody else"}, replace=True)


def overwritten_and_wiped(path: Path) -> None:
    """Another client does both."""
    overwritten(path)
    wiped(path)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("change", "kept"),
    [(overwritten, []), (wiped, WRITTEN), (overwritten_and_wiped, [])],
    ids=lambda each: each.__name__ if callable(each) else "",
)
def test_rows_that_others_removed_before_the_batch_is_run_again_stay_away(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Path], None],
    kept: list[dict[str, Any]],
    mode: str,
) -> None:
    writer = Writer.beside(tmp_path, mode, monkeypatch)
    writer.killed_at("the proposal is folded, and nothing is known of it")
    change(writer.path)
    assert isinstance(writer.put().result, Duplicate)
    assert writer.rows() == sorted([FIRST, *kept], key=repr)


@pytest.mark.parametrize("mode", MODES)
def test_rows_that_a_restore_removed_before_the_batch_is_run_again_are_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    writer = Writer.beside(tmp_path, mode, monkeypatch)
    writer.killed_at("the proposal is folded, and nothing is known of it")
    dataset = lance.dataset(str(writer.path))
    lance.dataset(str(writer.path), version=dataset.version - 1).restore()
    with pytest.raises(InvalidError, match="undone in version"):
        writer.put()
    assert writer.rows() == [FIRST]
