"""Any Arrow schema that Lance can store comes back from its fields, less what Lance does not keep."""

import pyarrow as pa
from hypothesis import given

from lakefold_table.lance.schemas.arrow import schema_from_arrow, schema_to_arrow
from lakefold_table.lance.schemas.data_files import FILE_VERSIONS, expected_file_fields
from lakefold_table.lance.schemas.schema import check_structure, field_ids
from tests.properties.schemas import SCHEMAS, kept


@given(SCHEMAS)
def test_a_schema_comes_back_from_its_fields(schema: pa.Schema) -> None:
    made = schema_from_arrow(schema)
    expected = pa.schema([kept(column) for column in schema], metadata=schema.metadata)
    assert schema_to_arrow(made.fields, made.metadata).equals(expected, check_metadata=True)


@given(SCHEMAS)
def test_what_comes_back_is_kept_as_it_is(schema: pa.Schema) -> None:
    made = schema_from_arrow(schema)
    again = schema_from_arrow(schema_to_arrow(made.fields, made.metadata))
    assert [(field.id, field.parent_id, field.logical_type) for field in again.fields] == [
        (field.id, field.parent_id, field.logical_type) for field in made.fields
    ]


@given(SCHEMAS)
def test_fields_are_listed_depth_first_with_ids_in_order(schema: pa.Schema) -> None:
    made = list(schema_from_arrow(schema).fields)
    check_structure(made)
    assert field_ids(made) == list(range(len(made)))
    assert [field.name for field in made if field.parent_id < 0] == schema.names


@given(SCHEMAS)
def test_without_packed_structs_and_blobs_a_file_lists_the_leaves(schema: pa.Schema) -> None:
    made = list(schema_from_arrow(schema).fields)
    assert expected_file_fields(made, FILE_VERSIONS["2.2"]) == [
        field.id for field in made if all(other.parent_id != field.id for other in made)
    ]
    assert expected_file_fields(made, FILE_VERSIONS["legacy"]) == field_ids(made)
