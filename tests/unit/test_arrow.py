"""Stored fields that have no meaning in Arrow are damage, and the column is named."""

import pyarrow as pa
import pytest

from lakefold_protos.lance.file_pb2 import Field
from lakefold_table.errors import DamagedError
from lakefold_table.lance.schemas.arrow import schema_to_arrow


@pytest.mark.parametrize(
    "kind",
    [
        *["quaternion", "", "int", "time:s", "time32:us", "duration:h", "timestamp:h:-"],
        *["decimal:64:5:2", "decimal:128:5", "decimal:128:99:2"],
        *["fixed_size_binary:x", "fixed_size_binary:-1"],
        *["dict:string:int8", "dict:string:utf8:false", "dict:date32:day:int8:false"],
        *["fixed_size_list:float:0", "fixed_size_list:float", "fixed_size_list:quaternion:3"],
    ],
)
def test_a_logical_type_that_is_not_known(kind: str) -> None:
    with pytest.raises(DamagedError, match="not known") as error:
        schema_to_arrow([Field(name="a", parent_id=-1, logical_type=kind)], {})
    assert error.value.where == "a"


def test_a_map_whose_keys_may_be_null() -> None:
    fields = [
        Field(name="m", id=0, parent_id=-1, logical_type="map"),
        Field(name="entries", id=1, parent_id=0, logical_type="struct"),
        Field(name="key", id=2, parent_id=1, logical_type="string", nullable=True),
        Field(name="value", id=3, parent_id=1, logical_type="string", nullable=True),
    ]
    with pytest.raises(DamagedError) as error:
        schema_to_arrow(fields, {})
    assert error.value.where == "m"


def test_an_extension_type_on_the_wrong_storage() -> None:
    field = Field(
        name="u", parent_id=-1, logical_type="int8", metadata={"ARROW:extension:name": b"arrow.uuid"}
    )
    with pytest.raises(DamagedError, match="extension"):
        schema_to_arrow([field], {})


def test_a_table_without_columns() -> None:
    assert schema_to_arrow([], {}).equals(pa.schema([]), check_metadata=True)
