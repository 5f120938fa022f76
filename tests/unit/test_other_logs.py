"""Logs that aren't those a table was folded from: who stops, who refuses, and what stays as it is."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from lakefold_committer.recovery.recovery_context import RecoveryContext
from lakefold_committer.tables.table_writer import TableWriter
from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_table.entry import Committed, Invalid, Result
from lakefold_table.errors import FencedError, GapError
from lakefold_table.position import LogId, Position
from lakefold_table.versions.stored_table import StoredTable
from tests.folding import FORMAT, LOG, append, changed, creation, entry, fold_at, opened, versions_at
from tests.memory_storage import MemoryStorage

NAME = "other-logs"
HERE = f"memory://{NAME}/t"


@pytest.fixture
def store() -> Iterator[MemoryStorage]:
    yield MemoryStorage(HERE)
    MemoryStorage.forget(NAME)


def here(envelope: Envelope) -> Envelope:
    return changed(envelope, lambda e: setattr(e, "table", HERE))


def named(name: str, read: int = 1) -> Envelope:
    return here(append(name, read=read))


def fold_one(table: TableWriter, envelope: Envelope, offset: int, log: LogId = LOG) -> Result:
    return fold_at(table, [envelope], offset, log)[0].result


def begun() -> TableWriter:
    """A committer that made the table's first version, of epoch 1."""
    table = opened(HERE)
    assert fold_one(table, here(creation()), 0) == Committed(1)
    return table


def rows() -> list[str]:
    """The names of all data files, in order."""
    state = opened(HERE).table.state
    return [fragment.files[0].path.removesuffix("-0.lance") for fragment in state.fragments]  # type: ignore[union-attr]


@pytest.mark.usefixtures("store")
def test_an_entry_of_another_topic_leaves_the_table_and_its_committer_alone() -> None:
    """Not even if the table has got versions meanwhile, under the epoch of its owner."""
    owner, stray = begun(), opened(HERE)
    elsewhere = Position(replace(LOG, topic_id="of others"), 50, "others")
    fold_one(opened(HERE), named("f"), 1)
    group = [replace(entry(named("stray"), 50), position=elsewhere)]
    for _ in range(2):
        (outcome,) = stray.fold(group).outcomes
        assert isinstance(outcome.result, Invalid)
        assert "bound to topic transactions, this entry is in others" in outcome.result.message
    with pytest.raises(FencedError, match="later epoch"):
        fold_one(owner, named("g"), 2)
    assert rows() == ["f"]


@pytest.mark.usefixtures("store")
def test_marks_beyond_the_end_of_the_log_stop_the_committer() -> None:
    """What is written at those offsets next is something else, and would count as folded."""
    fold_one(begun(), named("f"), 9)
    asked = []

    def end() -> int:
        asked.append(10)
        return 9 if len(asked) > 1 else 10

    def reopened(answered: int) -> TableWriter:
        return TableWriter(
            StoredTable(FORMAT, versions_at(HERE)), recovery=RecoveryContext(LOG, end, answered)
        )

    reopened(answered=10)
    assert not asked
    reopened(answered=9)
    with pytest.raises(GapError, match=r"folded to transactions/0@9, .* that log ends before offset 9"):
        reopened(answered=0)


@pytest.mark.parametrize("log", [replace(LOG, topic_id="made again"), replace(LOG, cluster_id="another")])
@pytest.mark.usefixtures("store")
def test_another_log_stops_the_committer(log: LogId) -> None:
    """Its offsets mean nothing to the table: all of it would be folded again."""
    begun()
    with pytest.raises(GapError, match="this log is transactions/0, cluster") as caught:
        fold_one(opened(HERE), named("f"), 0, log)
    assert "the table is bound to transactions/0@0" in caught.value.message
    assert rows() == []


@pytest.mark.usefixtures("store")
def test_another_log_that_took_the_table_meanwhile_stops_the_committer() -> None:
    late = opened(HERE)
    begun()
    with pytest.raises(GapError, match="this log is transactions/0, cluster"):
        fold_one(late, here(creation()), 0, replace(LOG, topic_id="made again"))
