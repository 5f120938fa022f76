"""What a DataReplacement makes of the files of a fragment, and which are refused."""

from collections.abc import Callable

import pytest

from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_protos.lance.table_pb2 import DataFile
from lakefold_table.entry import Committed, Invalid
from lakefold_table.lance.operations import data_replacement
from lakefold_table.lance.rows.row_versions import one_version
from tests.folding import SCHEMA, URI, MemoryTable, append, changed, column, created

Change = Callable[[Envelope], object]
COLUMNS = (*SCHEMA, column("n", 2), column("m", 3))


def filled(*, stable: bool = False) -> MemoryTable:
    """Version 2: three fragments of columns a and s; n and m are in no file."""
    table = created(schema=COLUMNS, stable_row_ids=stable)
    assert isinstance(table.result(append(fragments=3)), Committed)
    return table


def replacing(*fragments: int, fields: tuple[int, ...] = (1,), minor: int = 2, read: int = 2) -> Envelope:
    envelope = Envelope(table=URI)
    envelope.lance.uuid, envelope.lance.read_version = f"replace-{fields}", read
    envelope.lance.data_replacement.SetInParent()
    for number in fragments:
        group = envelope.lance.data_replacement.replacements.add(fragment_id=number)
        group.new_file.path = f"new-{number}-{'-'.join(map(str, fields))}.lance"
        group.new_file.fields.extend(fields)
        group.new_file.column_indices.extend(range(len(fields)))
        group.new_file.file_major_version, group.new_file.file_minor_version = 2, minor
    return envelope


def listed(table: MemoryTable, number: int) -> list[list[int]]:
    return [list(file.fields) for file in table.state.fragments.get([number])[number].files]


CASES: dict[str, tuple[tuple[int, ...], int, list[list[int]]]] = {
    "in place": ((0, 1), 2, [[0, 1]]),
    "struck out": ((1,), 2, [[0, -2], [1]]),
    "all struck out": ((1, 0), 2, [[1, 0]]),
    "of another version": ((0, 1), 1, [[0, 1]]),
    "in no file": ((2, 3), 2, [[0, 1], [2, 3]]),
}


@pytest.mark.parametrize(("fields", "minor", "files"), CASES.values(), ids=CASES)
def test_files(fields: tuple[int, ...], minor: int, files: list[list[int]]) -> None:
    table = filled()
    before = table.state.fragments.records([0])
    assert isinstance(table.result(replacing(1, fields=fields, minor=minor)), Committed)
    assert listed(table, 1) == files
    assert table.state.fragments.get([1])[1].files[-1].path.startswith("new-1")
    assert table.state.fragments.records([0]) == before
    assert table.state.head.reader_feature_flags == (256 if minor == 1 else 0)


def test_the_new_file_counts_with_its_own_columns() -> None:
    """If it replaces another file it may have the field in another column of the file."""
    table = filled()

    def swapped(envelope: Envelope) -> None:
        envelope.lance.data_replacement.replacements[0].new_file.column_indices[:] = [1, 0]

    assert isinstance(table.result(changed(replacing(1, fields=(0, 1)), swapped)), Committed)
    assert list(table.state.fragments.get([1])[1].files[0].column_indices) == [1, 0]


def test_rows_count_as_updated() -> None:
    table = filled(stable=True)
    assert isinstance(table.result(replacing(1, 2)), Committed)
    updated = {fragment.id: fragment.inline_last_updated_at_versions for fragment in table.state.fragments}
    assert updated == {0: one_version(3, 2), 1: one_version(3, 3), 2: one_version(3, 3)}


def test_nothing_to_replace() -> None:
    table = filled()
    before = table.state.fragments
    assert isinstance(table.result(replacing()), Committed)
    assert table.state.fragments is before


def test_it_asks_for_the_new_files() -> None:
    table = filled()
    assert data_replacement.needs(table.state, replacing(1, 2)).sizes == {
        "data/new-1-1.lance",
        "data/new-2-1.lance",
    }
    result = table.result(replacing(1), sizes={"data/new-1-1.lance": None})
    assert isinstance(result, Invalid)
    assert "is missing" in result.message


def new(envelope: Envelope) -> DataFile:
    return envelope.lance.data_replacement.replacements[0].new_file


def group(envelope: Envelope, number: int) -> None:
    envelope.lance.data_replacement.replacements[1].fragment_id = number


def list_fields(file: DataFile, fields: list[int]) -> DataFile:
    file.fields[:], file.column_indices[:] = fields, range(len(fields))
    return file


def swapped(file: DataFile, path: str) -> DataFile:
    """A file that the fragment has, with each column in the other's place."""
    file.path, file.fields[:], file.column_indices[:] = path, [0, 1], [1, 0]
    return file


REFUSED: dict[str, tuple[Change, str]] = {
    "no such fragment": (lambda e: group(e, 7), "no fragments [7]"),
    "twice": (lambda e: group(e, 1), "fragments [1] get more than one new file"),
    "other fields": (lambda e: new(e).fields.__setitem__(0, 0), "hold different fields"),
    "no field": (
        lambda e: [replacement.new_file.ClearField("fields") for replacement in replacements(e)],
        "lists no fields",
    ),
    "an unknown field": (
        lambda e: [replacement.new_file.fields.__setitem__(0, 9) for replacement in replacements(e)],
        "field ids [9] are not in the table's schema",
    ),
    "some in no file": (
        lambda e: [
            replacement.new_file.MergeFrom(DataFile(fields=[2], column_indices=[1]))
            for replacement in replacements(e)
        ],
        "of the fields [1, 2] fragment 1 has files for [1] only",
    ),
    "outside": (lambda e: setattr(new(e), "path", "/x"), "leaves its base"),
    "an unknown base": (lambda e: setattr(new(e), "base_id", 3), "base 3"),
    "a field twice": (
        lambda e: [list_fields(replacement.new_file, [2, 2]) for replacement in replacements(e)],
        "field ids [2] are in the fragment twice",
    ),
    "its columns in another order": (
        lambda e: [
            swapped(replacement.new_file, f"f-{replacement.fragment_id}.lance")
            for replacement in replacements(e)
        ],
        "other column indices",
    ),
    "its own file": (lambda e: setattr(new(e), "path", "f-1.lance"), "is one of fragment 1 already"),
}


def replacements(envelope: Envelope) -> list:  # type: ignore[type-arg]
    return list(envelope.lance.data_replacement.replacements)


@pytest.mark.parametrize(("change", "message"), REFUSED.values(), ids=REFUSED)
def test_refused(change: Change, message: str) -> None:
    table = filled()
    result = table.result(changed(replacing(1, 2), change))
    assert isinstance(result, Invalid)
    assert message in result.message
    assert table.state.version == 2
