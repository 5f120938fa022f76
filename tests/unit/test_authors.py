"""Each version says who sent its entries, if they say it, and the history is searched by it and by others."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import lance
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import lakefold
from lakefold.cli import run
from lakefold.proposals.explain import explanation_document
from lakefold.proposals.explain_proposal import explain
from lakefold_ingest.operations.append import append_source
from lakefold_ingest.operations.delete import DeleteWhere
from lakefold_ingest.rows.row_source import RowSource
from lakefold_log.write import authorship
from lakefold_log.write.authorship import check_message, sign
from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_reader.as_json import plain_change, plain_history
from lakefold_reader.formats import open_source
from lakefold_reader.snapshot.history import history_of
from lakefold_reader.snapshot.history_filter import HistoryFilter, row_of
from lakefold_reader.versions.proposals import sought_of
from lakefold_table.author import MAX_MESSAGE, MAX_NAME, Author, text_of
from lakefold_table.errors import InvalidError
from lakefold_table.marks.record import decode_record
from lakefold_table.storage.local import LocalStorage
from lakefold_table.uri import canonical
from tests.delta_merging import VECTORS, DeltaFolding
from tests.proposals import append, rows
from tests.tables import Folded

if TYPE_CHECKING:
    from pathlib import Path


ANNA = Author("anna@ingest-7", "load.py, Lakefold 0.1.0", message="rows that came late")
STREAM = Author("spark@driver", "app.py, Lakefold 0.1.0", "flights")


@pytest.fixture
def table(tmp_path: Path) -> Folded:
    """A creation, two batches of two authors in one version, and one of nobody."""
    made = Folded(LocalStorage(canonical(tmp_path / "t.lance")))
    first, second = (append(made.uri, rows([number]), 1, "loader", number) for number in (1, 2))
    first.author.CopyFrom(ANNA.as_message())
    second.author.CopyFrom(STREAM.as_message())
    made.fold(first, second)
    made.append(rows([3]))
    return made


def test_a_version_records_who_sent_which_entry(table: Folded) -> None:
    source = open_source(table.uri)
    newest, shared, created = history_of(source)
    assert (newest.authors, shared.authors, created.authors) == ((), (ANNA, STREAM), ())
    assert plain_history(shared)["authors"][0] == {
        "name": "anna@ingest-7",
        "program": "load.py, Lakefold 0.1.0",
        "query": "",
        "message": "rows that came late",
    }
    summary = source.summary(2, whole=True)
    assert summary is not None
    record = decode_record(summary.properties)
    assert record is not None
    assert record.author_of == {1: ANNA, 2: STREAM}
    assert summary.properties["lakefold.author"] == text_of([ANNA, STREAM])
    summary = source.summary(3, whole=True)
    assert summary is not None
    assert "lakefold.author" not in summary.properties
    changes = list(lakefold.tail(table.uri, start=0))
    assert [change.authors for change in changes] == [(), (ANNA, STREAM), ()]
    assert plain_change(changes[1])["authors"][1]["query"] == "flights"


def test_an_explanation_names_the_author(table: Folded) -> None:
    source = open_source(table.uri)
    for offset, author in ((1, ANNA), (2, STREAM)):
        explanation = explain(source, sought_of(str(offset)), None, versions=10)
        assert explanation.author == author
        assert explanation_document(explanation)["author"]["name"] == author.name
    for text in ("3", "loader:1"):
        assert explain(source, sought_of(text), None, versions=10).author is None
    alone = append(table.uri, rows([4]), 1, "loader", 4)
    alone.author.CopyFrom(STREAM.as_message())
    table.fold(alone)
    assert explain(source, sought_of("loader:4"), None, versions=10).author == STREAM


def test_a_delta_version_names_the_user(tmp_path: Path) -> None:
    table = DeltaFolding(tmp_path / "t")
    table.create(pa.schema([("x", pa.int64())]), VECTORS)
    for author in (None, ANNA):
        envelope = table.build(append_source(RowSource(pa.table({"x": [1, 2]}))))
        assert envelope is not None
        if author is not None:
            envelope.author.CopyFrom(author.as_message())
        table.fold(envelope)
    named, nobody, _ = DeltaTable(str(table.path)).history()
    assert named["userName"] == "anna@ingest-7"
    assert "userName" not in nobody
    newest = next(history_of(open_source(canonical(table.path), format_name="delta")))
    assert newest.authors == (ANNA,)


def test_versions_of_other_clients_name_these(tmp_path: Path) -> None:
    """And have the rows that they changed, not those of whole files."""
    path = tmp_path / "t"
    write_deltalake(path, pa.table({"id": list(range(100)), "word": ["a"] * 100}))
    DeltaTable(path).delete("id = 3")
    DeltaTable(path).update(updates={"word": "'b'"}, predicate="id = 5 or id = 6")
    source = pa.table({"id": [7, 200], "word": ["m", "m"]})
    merge = DeltaTable(path).merge(source, "t.id = s.id", source_alias="s", target_alias="t")
    merge.when_matched_update_all().when_not_matched_insert_all().execute()
    DeltaTable(path).delete()
    write_deltalake(path, source, mode="overwrite")
    write_deltalake(path, source, mode="overwrite")
    listed = list(history_of(open_source(canonical(path), format_name="delta")))
    assert {str(row.authors[0]).rpartition("-")[0] for row in listed} == {"delta-rs.py"}
    assert [(row.rows_in, row.rows_out) for row in reversed(listed)] == [
        (100, 0),
        (0, 1),
        (2, 2),
        (2, 1),
        (0, 100),
        (2, 0),
        (2, None),
    ]
    commit = path / "_delta_log" / "00000000000000000001.json"
    for wrong in ('"num_copied_rows":98', '"other":99'):
        commit.write_text(commit.read_text().replace('"num_copied_rows":99', wrong))
        deleted = list(history_of(open_source(canonical(path), format_name="delta")))[-2]
        assert (deleted.rows_in, deleted.rows_out) == (None, None)
        commit.write_text(commit.read_text().replace(wrong, '"num_copied_rows":99'))
    lance.write_dataset(source, str(tmp_path / "lance"))
    (made,) = history_of(open_source(canonical(tmp_path / "lance")))
    assert str(made.authors[0]).startswith("lance ")


def test_an_explanation_names_the_client_that_a_proposal_conflicts_with(tmp_path: Path) -> None:
    table = DeltaFolding(tmp_path / "t")
    table.create(pa.schema([("x", pa.int64())]), {}, features=("appendOnly", "invariants"))
    table.append(pa.table({"x": [1, 2]}))
    delete = table.build(DeleteWhere("x = 1"))
    more = table.build(append_source(RowSource(pa.table({"x": [3]}))))
    assert delete is not None
    assert more is not None
    DeltaTable(table.path).delete("x = 1")
    table.fold(delete, more)
    source = open_source(canonical(table.path), format_name="delta")
    explanation = explain(source, sought_of("0"), None, versions=10)
    assert explanation.other_client is not None
    assert explanation.other_client.program.startswith("delta-rs.py-")
    assert explanation_document(explanation)["other_client"]["name"] == ""


def test_texts_of_any_length_are_cut() -> None:
    long = Envelope()
    long.author.name, long.author.message = "x" * 10_000, "y" * 10_000
    author = Author.of(long.author)
    assert (len(author.name), len(author.message)) == (MAX_NAME, MAX_MESSAGE)
    with pytest.raises(InvalidError, match="501 characters, more than 500"):
        check_message("y" * 501)
    check_message("y" * 500)


def test_a_text_has_what_is_known() -> None:
    assert str(ANNA) == "anna@ingest-7 (load.py, Lakefold 0.1.0): rows that came late"
    assert str(STREAM) == "spark@driver (app.py, Lakefold 0.1.0, query flights)"
    assert str(Author(program="a.py")) == "a.py"
    assert str(Author(message="why")) == "why"
    assert str(Author()) == ""
    assert text_of(Author(str(number)) for number in range(7)) == "0; 1; 2; 3; 4; 2 more"


@pytest.mark.parametrize(
    ("setting", "arguments", "name", "program"),
    [
        ("", ["jobs/load.py", "--token=x"], None, "load.py, Lakefold"),
        ("nightly job", ["jobs/load.py"], "nightly job", "load.py, Lakefold"),
        ("", ["bin/lakefold", "restore"], None, "lakefold restore, Lakefold"),
        ("", ["bin/lakefold", "--password=x"], None, "lakefold, Lakefold"),
        ("", ["-c"], None, "Lakefold"),
        ("", ["python/pyspark/daemon.py"], None, "Lakefold"),
        ("", [""], None, "Lakefold"),
        ("none", ["jobs/load.py"], "", ""),
        ("None", ["jobs/load.py"], "", ""),
    ],
)
def test_who_sends_a_proposal_is_the_users_choice(
    monkeypatch: pytest.MonkeyPatch, setting: str, arguments: list[str], name: str | None, program: str
) -> None:
    monkeypatch.setattr(sys, "argv", arguments)
    monkeypatch.setattr("getpass.getuser", lambda: "anna")
    monkeypatch.setattr("socket.gethostname", lambda: "ingest-7")
    # The names are asked for once in a process.
    monkeypatch.setattr(authorship, "_user_and_machine", authorship._user_and_machine.__wrapped__)
    envelope = Envelope()
    envelope.author.message = "why"
    sign(envelope, setting)
    assert envelope.author.name == ("anna@ingest-7" if name is None else name)
    assert envelope.author.program.startswith(program)
    assert "x" not in envelope.author.program.replace("Lakefold", "")
    assert envelope.author.message == "why"


def test_a_proposal_that_is_sent_again_keeps_its_author() -> None:
    envelope = Envelope()
    envelope.author.CopyFrom(ANNA.as_message())
    sign(envelope, "somebody else")
    assert Author.of(envelope.author) == ANNA


def test_the_log_is_searched(table: Folded, capsys: pytest.CaptureFixture[str]) -> None:
    def listed(*arguments: str) -> list[int]:
        assert run(["log", table.uri, "--json", *arguments]) == 0
        return [json.loads(line)["version"] for line in capsys.readouterr().out.splitlines()]

    assert listed() == [3, 2, 1]
    assert listed("-n", "2") == [3, 2]
    assert listed("--app", "loader") == [2]
    assert listed("--app", "load") == []
    assert listed("--operation", "append", "-n", "1") == [3]
    assert listed("--operation", "APPEND", "-n", "1") == [3]
    assert listed("--row", "id=2") == [2]
    assert listed("--row", "id=4") == []
    newest = next(history_of(open_source(table.uri)))
    assert listed("--since", newest.timestamp.isoformat()) == [3]
    assert listed("--since", (newest.timestamp + timedelta(1)).isoformat()) == []
    assert run(["log", table.uri]) == 0
    text = capsys.readouterr().out
    assert "anna@ingest-7 (load.py, Lakefold 0.1.0): rows that came late; spark@driver" in text
    assert run(["log", table.uri, "--from", "3"]) == 0
    assert "author" not in capsys.readouterr().out


@pytest.mark.parametrize("row", ["id", "=1", "id=1,", "id=seven"])
def test_a_row_that_is_none_is_refused(table: Folded, capsys: pytest.CaptureFixture[str], row: str) -> None:
    assert run(["log", table.uri, "--row", row]) == 2
    assert row.partition("=")[2] in capsys.readouterr().err


def test_versions_that_changed_a_row_of_a_delta_table(tmp_path: Path) -> None:
    table = DeltaFolding(tmp_path / "t")
    table.create(pa.schema([("x", pa.int64()), ("day", pa.date32())]), VECTORS)
    days = [datetime(2026, 5, day, tzinfo=UTC).date() for day in (1, 2)]
    for day in days:
        table.put(append_source(RowSource(pa.table({"x": [1, 2], "day": [day, day]}))))
    table.put(DeleteWhere("x = 2 AND day = DATE '2026-05-02'"))
    source = open_source(canonical(table.path), format_name="delta")

    def changed(text: str, **more: object) -> list[int]:
        chosen = HistoryFilter(row=row_of(text), **more)  # type: ignore[arg-type] # the test names the field
        return [row.version for row in chosen.chosen(source, history_of(source))]

    assert changed("x=2,day=2026-05-02") == [3, 2]
    assert changed("x=2,day=2026-05-02", operation="DELETE") == [3]
    assert changed("x=1") == [2, 1]
    assert changed("y=1") == []
