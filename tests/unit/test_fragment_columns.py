"""What a fragment's files must be for a schema: what pylance would choke on is named before it is folded."""

import pytest

from lakefold_protos.lance.file_pb2 import Field
from lakefold_protos.lance.table_pb2 import DataFragment
from lakefold_table.entry import Invalid
from lakefold_table.lance.schemas import columns as columns_module
from lakefold_table.lance.schemas.columns import Columns, columns_of, some
from lakefold_table.lance.schemas.data_files import PACKED
from tests.folding import column

Files = list[tuple[str, list[int], list[int]]]

# a int64 not null; s struct<x, l list<item>> ; p packed struct<q, r>; n string
NESTED = [
    column("a", 0, nullable=False),
    column("s", 1, "struct"),
    column("x", 2, parent=1),
    column("l", 3, "list", parent=1),
    column("item", 4, parent=3, nullable=False),
    Field(name="p", id=5, parent_id=-1, logical_type="struct", nullable=True, metadata={PACKED: b"true"}),
    column("q", 6, parent=5),
    column("r", 7, parent=5),
    column("n", 8, "string"),
]


def nested(version: tuple[int, int] | None = (2, 2)) -> Columns:
    return columns_of(NESTED, version)


def fragment(*files: tuple[str, list[int], list[int]]) -> DataFragment:
    made = DataFragment(physical_rows=3)
    for version, fields, indices in files:
        major, minor = version.split(".")
        made.files.add(
            path="f",
            fields=fields,
            column_indices=indices,
            file_major_version=int(major),
            file_minor_version=int(minor),
        )
    return made


@pytest.mark.parametrize(
    "files",
    [
        [("2.2", [0, 2, 4, 5, 8], [0, 1, 2, 3, 4])],
        [("2.1", [0], [0])],
        [("2.3", [8, 0], [7, 2])],
        [("2.2", [0, 1, 3, 4], [0, -1, -1, 1])],
        [("2.0", [0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5])],
        [("2.2", [0], [0]), ("2.1", [8], [0]), ("2.0", [2], [0])],
    ],
)
def test_files_that_fit(files: Files) -> None:
    columns = nested()
    assert columns.fault(fragment(*files)) is None
    assert columns.fault(fragment(*files)) is None


def test_files_from_before_version_2() -> None:
    columns = nested((0, 2))
    assert columns.fault(fragment(("0.2", [0, 1, 2, 3, 4, 5, 6, 7, 8], []))) is None
    assert columns.fault(fragment(("0.1", [0], []))) is None


def test_a_list_far_longer_than_the_schema_is_not_looked_through() -> None:
    many = list(range(columns_module.MOST_FIELDS + 10))
    fault = nested().fault(fragment(("2.2", many, many)))
    assert isinstance(fault, Invalid)
    assert fault.message == "a data file lists 10010 fields, the table has 9"


@pytest.mark.parametrize(
    ("files", "message", "hint"),
    [
        ([], "no data file", "at least one file"),
        ([("3.0", [0], [0])], "version 3.0 is not known", "use one of 2.0, 2.1, 2.2, 2.3"),
        ([("2.4", [0], [0])], "version 2.4 is not known", "use one of 2.0"),
        ([("0.2", [0], [])], "can't be mixed", "rewrite the files"),
        ([("2.2", [], [])], "lists no fields", "list the field ids"),
        (
            [("2.2", [0, 9], [0, 1])],
            "field ids [9] are not in the table's schema, which has [0, 1, 2",
            "its schema and",
        ),
        ([("2.2", [0, -2], [0, 1])], "field ids [-2] are not", "open the table"),
        ([("2.2", [0, -3], [0, 1])], "field ids [-3] are not", "open the table"),
        ([("2.2", [0, 8], [0])], "2 field ids have 1 column indices", "one column index for each"),
        ([("2.2", [0], [])], "1 field ids have 0 column indices", "one column index for each"),
        (
            [("2.2", [0, 8], [1, 1])],
            "column indices [1] are listed for two fields",
            "another column for each",
        ),
        ([("2.2", [0, 0], [0, 1])], "field ids [0] are in the fragment twice", "in one file of the fragment"),
        ([("2.2", [0], [0]), ("2.2", [0], [0])], "field ids [0] are in the fragment twice", "one file"),
        ([("2.2", [0, 8], [0, -1])], "field ids [8] have no column in their file", "list its index"),
        ([("2.2", [0, 5], [0, -1])], "field ids [5] have no column in their file", "list its index"),
        ([("2.2", [0, 5, 6], [0, 1, -1])], "field ids [6] have no column in their file", "list its"),
        ([("2.0", [0, 1, 2], [0, -1, 1])], "field ids [1] have no column in their file", "list its"),
        ([("2.2", [0, 1, 2], [0, 1, 2])], "field ids [1] have no columns of their own", "their child fields"),
        ([("2.1", [0, 3, 4], [0, 1, 2])], "field ids [3] have no columns of their own", "their child fields"),
        ([("2.2", [0, 6, 7], [0, 1, 2])], "field ids [6, 7] have no columns of their own", "packed"),
        ([("2.2", [8], [0])], "columns ['a'] are non-nullable and are in no file", "non-nullable"),
    ],
)
def test_files_that_do_not_fit(files: Files, message: str, hint: str) -> None:
    columns = nested()
    for _ in range(2):
        fault = columns.fault(fragment(*files))
        assert isinstance(fault, Invalid)
        assert message in fault.message
        assert hint in fault.hint


def test_files_of_version_2_in_an_older_table() -> None:
    fault = nested((0, 2)).fault(fragment(("2.2", [0], [0])))
    assert fault is not None
    assert "can't be mixed" in fault.message


def test_a_table_whose_files_have_no_version_yet_takes_new_ones() -> None:
    assert nested(None).fault(fragment(("2.2", [0], [0]))) is None


def test_one_field_of_a_struct_that_may_not_be_null_is_enough() -> None:
    fields = [column("s", 0, "struct", nullable=False), column("x", 1, parent=0), column("y", 2, parent=0)]
    assert columns_of(fields, (2, 2)).fault(fragment(("2.2", [2], [0]))) is None


def test_only_sound_shapes_are_remembered_and_not_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns_module, "MAX_REMEMBERED_IDS", 4)
    columns = nested()
    shapes = [fragment(("2.2", [0], [index])) for index in range(10)]
    for shape in shapes:
        assert columns.fault(shape) is None
        assert 1 <= len(columns.sound._shapes) <= 4
    remembered = set(columns.sound._shapes)
    assert columns.fault(fragment(("2.2", [8], [0]))) is not None
    assert columns.sound._shapes == remembered


def test_wide_and_deep_schemas_cost_no_more_than_their_length() -> None:
    """A thousand times the fields must not cost a million times the time or memory."""
    count = 50_000
    wide = [column(f"c{number}", number, nullable=False) for number in range(count)]
    fault = columns_of(wide, (2, 2)).fault(fragment(("2.2", [0], [0])))
    assert fault is not None
    assert "and 49989 more" in fault.message
    deep = [column("s", number, "struct", parent=number - 1) for number in range(count)]
    assert columns_of(deep, (2, 2)).roots[count - 1] == 0
    twice = columns_of(wide, (2, 2)).fault(fragment(("2.2", [1] * count, list(range(count)))))
    assert twice is not None


def test_messages_name_a_few_and_count_the_rest() -> None:
    assert some([3, 1, 2]) == "[1, 2, 3]"
    assert some({"b", "a"}) == "['a', 'b']"
    assert some(range(1000)) == "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9] and 990 more"
