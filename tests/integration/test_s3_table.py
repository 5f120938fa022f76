"""A table on S3, folded beside other clients: what it costs, what a bad day leaves, what pylance sees."""

from __future__ import annotations

import math
import uuid
from typing import TYPE_CHECKING

import lance
import pytest

from lakefold_committer.tables.branches import open_branch
from lakefold_reader.formats import open_source
from lakefold_table.entry import Committed, Duplicate
from lakefold_table.errors import RetryError, StopError
from lakefold_table.formats import built_in
from lakefold_table.marks.record import is_own
from lakefold_table.storage import open_storage
from lakefold_table.versions.table_address import TableAddress
from tests.folding import FORMAT, entries
from tests.proposals import SCHEMA, append, creation, rows
from tests.servers.fault_proxy import Answer, Fault, FaultProxy, LoseAnswer, LoseRequest
from tests.servers.s3 import BUCKET

if TYPE_CHECKING:
    from lakefold_committer.tables.table_writer import TableWriter
    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_table.entry import Result
    from tests.servers.s3 import S3Server


@pytest.fixture
def uri() -> str:
    return f"s3://{BUCKET}/{uuid.uuid4().hex}/flights and é"


def fold(table: TableWriter, offset: int, *envelopes: Envelope) -> list[Result]:
    return [outcome.result for outcome in table.fold(entries(envelopes, offset)).outcomes]


def small(uri: str, name: str, files: int = 1) -> Envelope:
    """An Append whose files are not checked: the committer checks none if that takes a request."""
    envelope = creation(uri)
    envelope.ClearField("create")
    envelope.lance.uuid, envelope.lance.read_version = name, 1
    envelope.lance.ClearField("overwrite")
    for number in range(files):
        added = envelope.lance.append.fragments.add(physical_rows=3)
        added.files.add(
            path=f"{name}-{number}.lance",
            fields=[0, 1],
            column_indices=[0, 1],
            file_major_version=2,
            file_minor_version=1,
            file_size_bytes=1000,
        )
    return envelope


@pytest.mark.parametrize("at_once", [True, False])
def test_a_version_costs_a_put_and_a_listing_and_after_a_pause_a_look(
    uri: str, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch, *, at_once: bool
) -> None:
    monkeypatch.setattr("lakefold_table.versions.versions.RECENT_SECONDS", math.inf if at_once else -1)
    table = open_branch(TableAddress(uri, proxy.options()), "")
    assert fold(table, 0, creation(uri)) == [Committed(1)]
    with proxy.counted() as asked:
        for offset in range(1, 21):
            fold(table, offset, small(uri, f"batch-{offset}"))
    looks = {} if at_once else {"HEAD": 20}
    # The version before is checked while the transaction's own file is put.
    assert asked == {"PUT": 40, "LIST": 20, **looks}


def test_without_transaction_files_a_version_costs_two_requests(
    uri: str, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lakefold_table.versions.versions.RECENT_SECONDS", math.inf)
    table = open_branch(TableAddress(uri, proxy.options()), "", formats=built_in(transaction_files=False))
    fold(table, 0, creation(uri))
    with proxy.counted() as asked:
        for offset in range(1, 4):
            fold(table, offset, small(uri, f"batch-{offset}"))
    assert asked == {"PUT": 3, "LIST": 3}


def test_opening_costs_the_same_however_many_versions_there_are(uri: str, proxy: FaultProxy) -> None:
    table = open_branch(TableAddress(uri, proxy.options()), "")
    fold(table, 0, creation(uri))
    costs = []
    for offset in (1, 2, 3):
        fold(table, offset, small(uri, f"batch-{offset}"))
        with proxy.counted() as asked:
            open_branch(TableAddress(uri, proxy.options()), "")
        costs.append(asked)
    # The newest version by its name, whole, and that it is there.
    assert costs == [{"LIST": 1, "GET": 1, "HEAD": 1}] * 3


def test_a_faulty_store_makes_no_version_twice_and_loses_none(
    uri: str, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault at each request of a publish in turn: what was put is ours, and what wasn't is put again."""
    monkeypatch.setattr("lakefold_table.versions.versions.RECENT_SECONDS", -1)
    table = open_branch(TableAddress(uri, proxy.options(client_max_retries="0")), "")
    fold(table, 0, creation(uri))
    faults: list[Fault] = [LoseAnswer(), LoseRequest(), Answer(500, done=True), Answer(503), Answer(409)]
    offset = 0
    for fault in faults:
        for at in range(4):
            offset += 1
            proxy.plan(fault, after=at)
            entry = small(uri, f"batch-{offset}")
            try:
                results = fold(table, offset, entry)
            except RetryError:
                results = fold(table, offset, entry)
            assert [type(result) for result in results] == [Committed]
            assert results[0].version == offset + 1  # type: ignore[union-attr]
    source = open_source(uri, proxy.options())
    assert source.versions.numbers() == list(range(1, offset + 2))
    newest = FORMAT.decode(source.versions.path(offset + 1), source.versions.read(offset + 1))
    assert sum(1 for _ in newest.fragments) == offset
    assert is_own(newest.properties, offset + 1)


def test_a_lost_answer_is_never_mistaken_for_a_lost_race(uri: str, proxy: FaultProxy) -> None:
    """The put got through, and reading back fails as well: the same put again finds its own."""
    table = open_branch(TableAddress(uri, proxy.options(client_max_retries="0")), "")
    fold(table, 0, creation(uri))
    proxy.plan(LoseAnswer(), lambda request: request.method == "PUT" and "/_versions/" in request.path)
    proxy.plan(LoseRequest(), lambda request: request.method == "GET")
    entry = small(uri, "batch")
    with pytest.raises(RetryError):
        fold(table, 1, entry)
    assert [type(result) for result in fold(table, 1, entry)] == [Committed]
    assert open_source(uri, proxy.options()).versions.numbers() == [1, 2]
    assert [
        type(result) for result in fold(open_branch(TableAddress(uri, proxy.options()), ""), 1, entry)
    ] == [Committed]


def test_a_table_that_others_emptied_gets_no_version(
    uri: str, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lakefold_table.versions.versions.RECENT_SECONDS", -1)
    table = open_branch(TableAddress(uri, s3.options()), "")
    fold(table, 0, creation(uri))
    fold(table, 1, small(uri, "one"))
    storage = open_storage(uri, s3.options())
    names = storage.names("_versions")
    for name in names:
        storage.delete(f"_versions/{name}")
    with pytest.raises(RetryError, match="all versions of the table are missing"):
        fold(table, 2, small(uri, "two"))
    assert storage.names("_versions") == []


def test_pylance_and_we_write_one_table_by_turns(uri: str, s3: S3Server) -> None:
    """Every version opens in both; a batch that was folded before stays a Duplicate."""
    options = s3.options()
    table = open_branch(TableAddress(uri, options), "")
    fold(table, 0, creation(uri))
    sent = [append(uri, rows([1, 2]), 1, "app", 0, storage_options=options)]
    assert [type(result) for result in fold(table, 1, sent[0])] == [Committed]
    lance.write_dataset(rows([3]), uri, mode="append", storage_options=options)
    sent.append(append(uri, rows([4]), 1, "app", 1, storage_options=options))
    assert [
        committed.version for committed in fold(table, 2, sent[1]) if isinstance(committed, Committed)
    ] == [4]
    dataset = lance.dataset(uri, storage_options=options)
    dataset.validate()
    assert sorted(dataset.to_table()["id"].to_pylist()) == [1, 2, 3, 4]
    dataset.delete("id = 1")
    dataset.tags.create("kept", 4)
    sent.append(append(uri, rows([5]), 4, "app", 2, storage_options=options))
    again = open_branch(TableAddress(uri, options), "")
    assert [type(result) for result in fold(again, 3, *sent)] == [Duplicate, Duplicate, Committed]
    for version in lance.dataset(uri, storage_options=options).versions():
        at = lance.dataset(uri, version=version["version"], storage_options=options)
        at.validate()
        versions = open_source(uri, options).versions
        number = version["version"]
        assert FORMAT.decode(versions.path(number), versions.read(number)).version == number
    newest = lance.dataset(uri, storage_options=options)
    assert sorted(newest.to_table()["id"].to_pylist()) == [2, 3, 4, 5]
    assert newest.schema.equals(SCHEMA)


def test_a_table_that_pylance_cleaned_up_is_opened_again(uri: str, s3: S3Server) -> None:
    options = s3.options()
    table = open_branch(TableAddress(uri, options), "")
    fold(table, 0, creation(uri))
    fold(table, 1, append(uri, rows([1]), 1, "app", 0, storage_options=options))
    for number in (2, 3):
        lance.write_dataset(rows([number]), uri, mode="append", storage_options=options)
    storage = open_storage(uri, options)
    versions = open_source(uri, options).versions
    for number in (1, 2, 3):
        storage.delete(versions.path(number))
    entry = append(uri, rows([9]), 4, "app", 1, storage_options=options)
    with pytest.raises(StopError, match="versions missing between them"):
        fold(table, 2, entry)
    assert versions.numbers() == [4]
