"""What an Overwrite of a table that exists changes, and which are refused."""

from collections.abc import Callable

import pytest

from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_protos.lance.table_pb2 import DataFile
from lakefold_table.entry import Committed, Invalid
from tests.folding import SCHEMA, MemoryTable, add_fragment, append, changed, column, created

Change = Callable[[Envelope], object]


def overwrite(rows: int = 3, read: int = 2) -> Envelope:
    envelope = Envelope(table="memory://tests/t")
    envelope.lance.uuid, envelope.lance.read_version = "overwrite", read
    envelope.lance.overwrite.schema.extend(SCHEMA)
    if rows:
        add_fragment(envelope.lance.overwrite.fragments.add(), "new", rows)
    return envelope


def filled() -> MemoryTable:
    table = created(stable_row_ids=True)
    table.fold(append(fragments=2))
    return table


def test_the_rows_the_schema_and_the_version_of_the_files_are_new() -> None:
    table = filled()

    def other(envelope: Envelope) -> None:
        del envelope.lance.overwrite.schema[:]
        envelope.lance.overwrite.schema.extend([column("x", 0), column("y", 1, "string")])
        envelope.lance.overwrite.schema_metadata["unit"] = b"m"
        envelope.lance.overwrite.config_upsert_values["k"] = "v"
        envelope.lance.overwrite.fragments[0].files[0].file_minor_version = 1

    result = table.result(changed(overwrite(), other))
    assert isinstance(result, Committed)
    assert (result.rows_added, result.rows_deleted, result.first_fragment_id) == (3, 6, 2)
    head = table.state.head
    assert [field.name for field in head.fields] == ["x", "y"]
    assert (head.data_format.version, table.state.file_version) == ("2.1", (2, 1))
    assert dict(head.schema_metadata) == {"unit": b"m"}
    assert dict(head.config) == {"k": "v"}
    assert [fragment.id for fragment in table.state.fragments] == [2]
    assert (head.max_fragment_id, head.next_row_id) == (2, 9)
    assert head.reader_feature_flags == 2
    assert head.writer_feature_flags == 10
    assert isinstance(table.result(append("later", read=3)), Committed)


def test_older_files_go_on_with_older_files() -> None:
    table = filled()

    def older(file: DataFile) -> None:
        file.file_major_version, file.file_minor_version = 0, 2
        file.ClearField("column_indices")

    legacy = changed(overwrite(), lambda e: older(e.lance.overwrite.fragments[0].files[0]))
    assert isinstance(table.result(legacy), Committed)
    assert table.state.head.data_format.version == "0.1"
    assert isinstance(table.result(append("newer", read=3)), Invalid)
    more = changed(append("older", read=3), lambda e: older(e.lance.append.fragments[0].files[0]))
    assert isinstance(table.result(more), Committed)


def test_what_it_follows_is_judged() -> None:
    table = filled()
    table.fold(overwrite())
    result = table.result(append("stale", read=2))
    assert not isinstance(result, Committed)


REFUSED: dict[str, tuple[Change, str]] = {
    "bases": (lambda e: e.lance.overwrite.initial_bases.add(id=1, path="/b"), "bases only if it creates"),
    "no column": (lambda e: e.lance.overwrite.ClearField("schema"), "at least one column"),
    "reserved key": (
        lambda e: e.lance.overwrite.config_upsert_values.update({"lakefold.x": "1"}),
        "is reserved for the log",
    ),
    "reserved schema key": (
        lambda e: e.lance.overwrite.schema_metadata.update({"lakefold.x": b"1"}),
        "is reserved for the log",
    ),
    "managed blobs": (
        lambda e: e.lance.overwrite.schema_metadata.update({"lance.blob.managed": b"true"}),
        "managed blobs are not known",
    ),
    "deleted rows": (
        lambda e: e.lance.overwrite.fragments[0].deletion_file.SetInParent(),
        "no deletion file",
    ),
    "another schema's files": (
        lambda e: e.lance.overwrite.schema.add(id=2, parent_id=-1, name="z", logical_type="int64"),
        "are non-nullable",
    ),
}


@pytest.mark.parametrize(("change", "message"), REFUSED.values(), ids=REFUSED)
def test_refused(change: Change, message: str) -> None:
    table = filled()
    result = table.result(changed(overwrite(), change))
    assert isinstance(result, Invalid)
    assert message in result.message
    assert table.state.version == 2


def test_its_files_must_be_there() -> None:
    result = filled().result(overwrite(), sizes={"data/new.lance": None})
    assert isinstance(result, Invalid)
    assert "is missing" in result.message
