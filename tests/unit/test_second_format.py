"""A table of another format is followed by the same tail, the same verb and the same consumers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

import lakefold
from lakefold import cli
from lakefold_committer.claims.claim_check import Claims
from lakefold_committer.fold.grouping import Limits
from lakefold_committer.replay.file_fold import fold_file
from lakefold_committer.tables.branches import open_branch
from lakefold_log.read.file_log import FileLog, framed
from lakefold_reader import formats as read_formats
from lakefold_reader.format.source import Source
from lakefold_reader.snapshot.history import history_of
from lakefold_reader.tail.tail import tail_of
from lakefold_reader.versions.as_of import version_as_of
from lakefold_table.errors import DamagedError, VersionExpiredError
from lakefold_table.formats import Formats, lance
from lakefold_table.storage import open_storage
from lakefold_table.versions.table_address import TableAddress
from tests.toy_format.reading import ToyReader, append
from tests.toy_format.toy import APPEND, CREATE, DELETE, NAMING, ToyFormat, ToyProposal, envelope_of

if TYPE_CHECKING:
    from pathlib import Path

    from lakefold_table.storage.base import Storage

LOG_ID = "6d9b4a4e-6f1c-4f0b-9a5e-0f3b7a1c2d3e"


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    made = open_storage((tmp_path / "toy").as_uri())
    for version in (1, 2, 3):
        append(made, version, {str(version): f"row {version}"})
    return made


@pytest.fixture
def source(storage: Storage) -> Source:
    return Source.on(storage, ToyReader())


def test_a_tail_gives_each_version_and_its_rows(source: Source) -> None:
    with tail_of(source, "earliest") as tail:
        first, *others = tail
    assert first.inserted().to_pylist() == [{"key": "1", "value": "row 1"}]
    assert [(change.version, change.rows, change.operation) for change in others] == [
        (2, 1, "append"),
        (3, 1, "append"),
    ]
    assert others[-1].inserted(["key"]).to_pylist() == [{"key": "3"}]


def test_a_tail_continues_from_a_cursor_and_sees_what_came_since(source: Source) -> None:
    cursor = tail_of(source, 3).cursor
    append(source.storage, 4, {"4": "row 4"})
    (change,) = tail_of(source, str(cursor))
    assert change.inserted().to_pylist() == [{"key": "4", "value": "row 4"}]


def test_a_tail_notices_another_table_under_the_same_name(source: Source) -> None:
    cursor = tail_of(source, 3).cursor
    source.storage.delete(NAMING.path(3))
    append(source.storage, 3, {}, uuid="another")
    with pytest.raises(lakefold.MadeAnewError):
        tail_of(source, cursor)


def test_a_tail_notices_that_versions_were_cleaned_up(source: Source) -> None:
    for version in (1, 2):
        source.storage.delete(NAMING.path(version))
    with pytest.raises(VersionExpiredError) as caught:
        tail_of(source, 1)
    assert caught.value.oldest == 3


def test_a_damaged_version_is_named(source: Source) -> None:
    source.storage.put(NAMING.path(4), [b"{"])
    with pytest.raises(DamagedError) as caught:
        list(tail_of(source, 3))
    assert caught.value.where.endswith(NAMING.path(4))


def test_steps_stay_within_limits(source: Source) -> None:
    with tail_of(source, 0) as tail:
        assert [change.version for change in tail.step(max_rows=2)] == [1, 2]


def test_a_consumer_continues_where_it_stopped(source: Source) -> None:
    with tail_of(source, 1, consumer="nightly") as tail:
        next(tail)
        tail.commit()
    with tail_of(source, consumer="nightly") as tail:
        assert [change.version for change in tail] == [3]


def test_the_verb_prints_its_versions_and_rows(
    storage: Storage, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # A verb opens tables of the registered formats.
    monkeypatch.setattr(read_formats, "FORMATS", (*read_formats.FORMATS, ToyReader()))
    assert cli.run(["tail", storage.uri, "--from", "1", "--rows", "--json"]) == 0
    document = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["row"] for line in document if "row" in line] == [
        {"key": "2", "value": "row 2"},
        {"key": "3", "value": "row 3"},
    ]
    assert [line["version"] for line in document if "cursor" in line] == [2, 3]


def test_history_and_times(source: Source) -> None:
    assert version_as_of(source, 2_500_000) == 2
    assert [(row.version, row.rows_in) for row in history_of(source)] == [(3, 1), (2, 1), (1, 1)]


def test_a_tail_reads_what_the_committer_folded(tmp_path: Path) -> None:
    uri, formats = (tmp_path / "folded").as_uri(), Formats(lance(), ToyFormat())
    proposals = (
        ToyProposal("a", CREATE),
        ToyProposal("b", APPEND, 1, {"1": "one", "2": "two"}),
        ToyProposal("c", DELETE, 1, keys=("1",)),
    )
    entries = FileLog(framed([envelope_of(uri, each) for each in proposals]), LOG_ID, formats=formats)
    line = open_branch(TableAddress(uri), "", formats=formats)
    claims = Claims(formats=formats)
    list(fold_file(lambda _: line, uri, formats, entries, Limits(1, 1 << 20), dry_run=False, claims=claims))
    changes = list(tail_of(Source.on(open_storage(uri), ToyReader()), 0))
    assert [(change.operation, change.rows, change.only_inserts) for change in changes] == [
        ("create", 0, True),
        ("append", 2, True),
        ("delete", 0, False),
    ]
    assert changes[1].inserted().to_pylist() == [
        {"key": "1", "value": "one"},
        {"key": "2", "value": "two"},
    ]
    assert [change.position.offset for change in changes if change.position] == [0, 1, 2]
