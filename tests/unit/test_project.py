"""What a Project leaves of a table, and which are refused."""

from collections.abc import Callable

import pytest

from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_table.entry import Committed, Invalid
from lakefold_table.format import Fetched
from lakefold_table.lance.change import Proposal, TableChange
from lakefold_table.lance.operations import project
from lakefold_table.lance.version_builder import VersionBuilder
from tests.folding import URI, MemoryTable, append, changed, column, created

Edit = Callable[[Envelope], object]
SCHEMA = (
    column("a", 0),
    column("p", 1, "struct"),
    column("x", 2, parent=1),
    column("y", 3, "string", parent=1),
    column("l", 4, "list"),
    column("item", 5, parent=4),
)


def filled(*files: list[int]) -> MemoryTable:
    """Version 2: two fragments, their columns in files of these fields."""
    table = created(schema=SCHEMA)

    def split(envelope: Envelope) -> None:
        for index, fragment in enumerate(envelope.lance.append.fragments):
            del fragment.files[:]
            for number, fields in enumerate(files or ([0, 2, 3], [5])):
                fragment.files.add(
                    path=f"f{index}-{number}.lance",
                    fields=fields,
                    column_indices=range(len(fields)),
                    file_major_version=2,
                    file_minor_version=2,
                )

    assert isinstance(table.result(changed(append(fragments=2), split)), Committed)
    return table


def projecting(table: MemoryTable, *kept: int) -> Envelope:
    envelope = Envelope(table=URI)
    envelope.lance.uuid, envelope.lance.read_version = "project", table.state.version
    known = {field.id: field for field in table.state.head.fields}
    envelope.lance.project.schema.extend(known[number] for number in kept)
    return envelope


def listed(table: MemoryTable) -> list[list[int]]:
    return [list(file.fields) for fragment in table.state.fragments for file in fragment.files]


def test_a_file_of_dropped_columns_goes() -> None:
    table = filled()
    assert isinstance(table.result(projecting(table, 0, 1, 2)), Committed)
    assert [field.name for field in table.state.head.fields] == ["a", "p", "x"]
    assert listed(table) == [[0, 2, 3]] * 2


def test_renaming_touches_no_fragment() -> None:
    table = filled()
    before = table.state.fragments

    def renamed(envelope: Envelope) -> None:
        envelope.lance.project.schema[2].name = "z"
        envelope.lance.project.schema[0].nullable = True

    assert isinstance(table.result(changed(projecting(table, 0, 1, 2, 3, 4, 5), renamed)), Committed)
    assert table.state.fragments is before
    assert [field.name for field in table.state.head.fields] == ["a", "p", "z", "y", "l", "item"]


def test_fragments_without_a_dropped_file_stay_as_they_are() -> None:
    table = filled([0], [2, 3], [5])
    table.fold(changed(append("whole", read=2), lambda e: whole(e.lance.append.fragments[0].files[0])))
    working = VersionBuilder(table.state, Fetched())
    change = project.change(working, Proposal(projecting(table, 0, 1, 2)))
    assert isinstance(change, TableChange)
    assert change.replaced.keys() == {0, 1}
    assert isinstance(table.result(projecting(table, 0, 1, 2)), Committed)
    assert listed(table) == [[0], [2, 3]] * 2 + [[0, 2, 3, 5]]


def whole(file: object) -> None:
    file.fields[:] = [0, 2, 3, 5]  # type: ignore[attr-defined]
    file.column_indices[:] = [0, 1, 2, 3]  # type: ignore[attr-defined]


def field(envelope: Envelope, location: int, name: str, value: object) -> None:
    setattr(envelope.lance.project.schema[location], name, value)


REFUSED: dict[str, tuple[Edit, str]] = {
    "no column": (lambda e: e.lance.project.ClearField("schema"), "at least one column"),
    "a new column": (
        lambda e: e.lance.project.schema.extend([column("n", 6)]),
        "fields [6] are not in the table's schema",
    ),
    "another type": (lambda e: field(e, 0, "logical_type", "int32"), "columns ['a'] have another type"),
    "another parent": (lambda e: field(e, 2, "parent_id", -1), "columns ['x'] have another type or parent"),
    "another encoding": (lambda e: field(e, 0, "encoding", 3), "columns ['a'] have another type"),
    "two of a name": (lambda e: field(e, 4, "name", "a"), "several fields have the names ['a']"),
    "a list without items": (lambda e: e.lance.project.schema.pop(5), "instead of one"),
    "a hollow struct": (
        lambda e: e.lance.project.schema.__delitem__(slice(2, 4)),
        "columns ['p'] have no child columns left",
    ),
    "a primary key of nulls": (
        lambda e: field(e, 0, "unenforced_primary_key", value=True),
        "a primary key and its parents must be non-nullable",
    ),
}


@pytest.mark.parametrize(("change", "message"), REFUSED.values(), ids=REFUSED)
def test_refused(change: Edit, message: str) -> None:
    table = filled()
    result = table.result(changed(projecting(table, 0, 1, 2, 3, 4, 5), change))
    assert isinstance(result, Invalid)
    assert message in result.message
    assert table.state.version == 2


def test_rows_that_could_not_be_read_any_more() -> None:
    """A scan of a fragment without files fails in pylance, even where all its columns would be null."""
    table = filled([0, 2, 3])
    result = table.result(projecting(table, 4, 5))
    assert isinstance(result, Invalid)
    assert "in fragments [0, 1]" in result.message
