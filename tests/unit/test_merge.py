"""What a Merge makes of a table, and what is refused of the fragments that it lists."""

from collections.abc import Callable

import pytest

from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_protos.lance.table_pb2 import DataFile
from lakefold_protos.lance.transaction_pb2 import Transaction
from lakefold_table.entry import Committed, Invalid, Rejected
from lakefold_table.lance.operations import merge
from lakefold_table.lance.rows.row_versions import one_version
from tests.folding import URI, MemoryTable, add_fragment, append, changed, column, created

Change = Callable[[Envelope], object]


def filled(*, stable: bool = False) -> MemoryTable:
    """Version 2: two fragments of three rows, of columns a (never null) and s."""
    table = created(stable_row_ids=stable)
    table.fold(append(fragments=2))
    return table


def new_file(fields: list[int], name: str = "new") -> DataFile:
    return DataFile(
        path=f"{name}.lance",
        fields=fields,
        column_indices=range(len(fields)),
        file_major_version=2,
        file_minor_version=2,
        file_size_bytes=7,
    )


def merging(table: MemoryTable) -> Envelope:
    """A third column, with a file for each fragment."""
    envelope = Envelope(table=URI)
    envelope.lance.uuid, envelope.lance.read_version = "merge", table.state.version
    merge = envelope.lance.merge
    merge.schema.extend([*table.state.head.fields, column("z", 2)])
    merge.fragments.extend(table.state.fragments)
    for fragment in merge.fragments:
        fragment.files.append(new_file([2], f"new-{fragment.id}"))
    return envelope


def of(envelope: Envelope) -> Transaction.Merge:
    return envelope.lance.merge


@pytest.mark.parametrize("stable", [False, True])
def test_a_column_more(stable: bool) -> None:  # noqa: FBT001 - a parameter of the test
    table = filled(stable=stable)
    assert isinstance(table.result(merging(table)), Committed)
    state = table.state
    assert [field.name for field in state.head.fields] == ["a", "s", "z"]
    for fragment in state.fragments:
        assert [list(file.fields) for file in fragment.files] == [[0, 1], [2]]
        assert fragment.inline_last_updated_at_versions == (one_version(3, 3) if stable else b"")
        assert fragment.inline_created_at_versions == (one_version(3, 2) if stable else b"")


def test_columns_that_replace_all_columns_of_a_fragment_are_refused_without_values() -> None:
    table = filled()
    envelope = Envelope(table=URI)
    envelope.lance.uuid, envelope.lance.read_version = "merge", table.state.version
    of(envelope).schema.append(column("z", 2))
    of(envelope).fragments.extend(table.state.fragments)
    refused = table.result(envelope)
    assert isinstance(refused, Invalid)
    assert refused.message == (
        "no column of the new schema has a file in fragments [0, 1], so their rows can't be read"
    )
    for fragment in of(envelope).fragments:
        fragment.files.append(new_file([2], f"new-{fragment.id}"))
    assert isinstance(table.result(envelope), Committed)


def test_what_pylance_does_not_know_of_a_fragment_stays() -> None:
    """Its metadata: pylance's own proposals leave that out."""
    table = filled()

    def noted(envelope: Envelope) -> None:
        envelope.lance.append.fragments[0].metadata["k"] = "v"

    table.fold(changed(append("more", read=2), noted))

    def forgotten(envelope: Envelope) -> None:
        of(envelope).fragments[2].metadata.clear()

    assert isinstance(table.result(changed(merging(table), forgotten)), Committed)
    assert dict(table.state.fragments.get([2])[2].metadata) == {"k": "v"}


def test_fragments_that_do_not_change_keep_their_bytes() -> None:
    table = filled(stable=True)
    before = table.state.fragments.records([1])

    def only_the_first(envelope: Envelope) -> None:
        del of(envelope).fragments[1].files[1:]

    assert isinstance(table.result(changed(merging(table), only_the_first)), Committed)
    assert table.state.fragments.records([1]) == before


def test_new_fragments_come_last() -> None:
    table = filled(stable=True)

    def more(envelope: Envelope) -> None:
        fragment = of(envelope).fragments.add()
        add_fragment(fragment, "more", 5)
        fragment.files[0].fields[:] = [0, 1, 2]
        fragment.files[0].column_indices[:] = [0, 1, 2]

    result = table.result(changed(merging(table), more))
    assert isinstance(result, Committed)
    assert (result.rows_added, result.first_fragment_id) == (5, 2)
    assert table.state.head.next_row_id == 11


def test_it_asks_for_the_files_that_are_new() -> None:
    table = filled()
    needs = merge.needs(table.state, merging(table))
    assert needs.sizes == {"data/new-0.lance", "data/new-1.lance"}
    assert merge.needs(None, merging(table)).sizes > needs.sizes


def test_its_files_must_be_there() -> None:
    table = filled()
    for size, message in ((None, "is missing"), (8, "has 8 bytes")):
        result = table.result(merging(table), sizes={"data/new-0.lance": 7, "data/new-1.lance": size})
        assert isinstance(result, Invalid)
        assert message in result.message


def test_it_is_built_again_if_a_fragment_was_added() -> None:
    table = filled()
    envelope = merging(table)
    table.fold(append("between", read=2))
    result = table.result(envelope)
    assert isinstance(result, Rejected)
    assert result.conflict.retryable


def files(envelope: Envelope, number: int = 0) -> list[DataFile]:
    return of(envelope).fragments[number].files  # type: ignore[return-value]


def exchange(envelope: Envelope) -> None:
    fragment, other = of(envelope).fragments
    fragment.inline_row_ids, other.inline_row_ids = other.inline_row_ids, fragment.inline_row_ids


def nested(envelope: Envelope) -> None:
    of(envelope).schema[1].parent_id = 0
    of(envelope).schema[0].logical_type = "struct"


def reuse(envelope: Envelope) -> None:
    """A new column with the id of the struck out s."""
    schema = of(envelope).schema
    del schema[1]


REFUSED: dict[str, tuple[Change, str]] = {
    "a fragment left out": (lambda e: of(e).fragments.pop(), "fragments [1] of the table are not among"),
    "a new one before": (lambda e: of(e).fragments.insert(0, of(e).fragments[0]), "fragments [1]"),
    "listed twice": (lambda e: setattr(of(e).fragments[1], "id", 0), "fragments [1]"),
    "other rows": (
        lambda e: setattr(of(e).fragments[0], "physical_rows", 4),
        "has 3 rows in the table, not 4",
    ),
    "deleted rows": (
        lambda e: setattr(of(e).fragments[0].deletion_file, "id", 5),
        "another deletion file",
    ),
    "row ids of others": (exchange, "other row ids or row versions"),
    "row ids left out": (lambda e: of(e).fragments[0].ClearField("inline_row_ids"), "other row ids"),
    "row versions of others": (
        lambda e: setattr(of(e).fragments[0], "inline_created_at_versions", one_version(3, 1)),
        "row versions",
    ),
    "overlays": (lambda e: of(e).fragments[0].overlays.add(), "overlays"),
    "values lost": (lambda e: files(e)[0].fields.__setitem__(1, -2), "fields [1] of fragment 0 are in none"),
    "a file lost": (lambda e: of(e).fragments[0].files.pop(0), "fields [0, 1] of fragment 0 are in none"),
    "values twice": (lambda e: files(e)[1].fields.__setitem__(0, 1), "field ids [1] are in fragment 0 twice"),
    "an unknown field": (
        lambda e: files(e)[1].fields.__setitem__(0, 9),
        "field ids [9] are not in the table's schema",
    ),
    "a struck out field back": (
        lambda e: files(e)[0].fields.__setitem__(1, 2),
        "differs from its entry in the table",
    ),
    "another size of an old file": (
        lambda e: setattr(files(e)[0], "file_size_bytes", 5),
        "differs from its entry",
    ),
    "other columns of an old file": (
        lambda e: files(e)[0].column_indices.__setitem__(1, 5),
        "differs from its entry",
    ),
    "another version of an old file": (
        lambda e: setattr(files(e)[0], "file_minor_version", 1),
        "differs from its entry",
    ),
    "outside": (lambda e: setattr(files(e)[1], "path", "../x.lance"), "leaves its base"),
    "an unknown base": (lambda e: setattr(files(e)[1], "base_id", 3), "base 3"),
    "a file of version 3": (lambda e: setattr(files(e)[1], "file_major_version", 3), "3.2 is not known"),
    "another type": (
        lambda e: setattr(of(e).schema[1], "logical_type", "int64"),
        "fields [1] have another type or nullability",
    ),
    "no more nulls": (lambda e: setattr(of(e).schema[1], "nullable", False), "another type or nullability"),
    "another parent": (nested, "another type or nullability"),
    "a column that needs values": (
        lambda e: of(e).schema.extend([column("y", 3, nullable=False)]),
        "columns ['y'] are non-nullable and are in no file of fragment 0",
    ),
    "no column": (lambda e: of(e).ClearField("schema"), "at least one column"),
    "a key of the log": (
        lambda e: of(e).schema_metadata.update({"lakefold.x": b""}),
        "reserved for the log",
    ),
    "managed blobs": (lambda e: of(e).schema_metadata.update({"lance.blob.managed": b"true"}), "managed"),
}


@pytest.mark.parametrize(("change", "message"), REFUSED.values(), ids=REFUSED)
def test_refused(change: Change, message: str) -> None:
    table = filled(stable=True)
    result = table.result(changed(merging(table), change))
    assert isinstance(result, Invalid)
    assert message in result.message
    assert table.state.version == 2


def test_a_dropped_columns_id_is_not_given_to_another() -> None:
    """The old file still lists it, so its values would be read as the new column's."""
    table = filled()
    drop = Envelope(table=URI)
    drop.lance.uuid, drop.lance.read_version = "drop", 2
    drop.lance.project.schema.extend(table.state.head.fields[:1])
    assert isinstance(table.result(drop), Committed)

    def with_the_same_id(envelope: Envelope) -> None:
        of(envelope).schema[1].id = 1
        for fragment in of(envelope).fragments:
            del fragment.files[1:]

    result = table.result(changed(merging(table), with_the_same_id))
    assert isinstance(result, Invalid)
    assert "new fields [1] have ids that a file of fragment 0 uses for others" in result.message


def test_a_column_written_again_everywhere_may_have_another_type() -> None:
    table = filled()

    def anew(envelope: Envelope) -> None:
        of(envelope).schema[1].logical_type = "int64"
        for fragment in of(envelope).fragments:
            fragment.files[0].fields[1] = -2
            fragment.files[1].fields[:] = [1]
        del of(envelope).schema[2]

    assert isinstance(table.result(changed(merging(table), anew)), Committed)


@pytest.mark.parametrize("nullable", [True, False])
def test_fields_of_a_struct_follow_it(nullable: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """Files of version 2.1 and later list its leaves only; whether it is null recorded with each of them."""
    table = created(schema=(column("p", 0, "struct"), column("x", 1, parent=0)))

    def leaf(envelope: Envelope) -> None:
        file = envelope.lance.append.fragments[0].files[0]
        file.fields[:], file.column_indices[:] = [1], [0]

    assert isinstance(table.result(changed(append(), leaf)), Committed)
    result = table.result(changed(merging(table), lambda e: setattr(of(e).schema[0], "nullable", nullable)))
    assert isinstance(result, Committed if nullable else Invalid)
