"""The texts that are logical types, parameters included."""

import pytest

from lakefold_table.lance.schemas.logical_types import MAX_LENGTH, is_known_type
from tests.oracle.types import OPENED, REFUSED


@pytest.mark.parametrize("name", [*OPENED, "struct", "map", "list", "large_list.struct"])
def test_a_type_is_known(name: str) -> None:
    assert is_known_type(name)


@pytest.mark.parametrize(
    "name",
    [
        *REFUSED,
        "fixed_size_list:int32:0",
        "fixed_size_list:list:2",
        "fixed_size_list:struct:x",
        "fixed_size_list:" * 100_000,
        "dict:dict:string:int8:false:int8:false",
        "fixed_size_binary:٣",
        f"timestamp:us:{'Z' * MAX_LENGTH}",
    ],
    ids=lambda name: name[:40],
)
def test_what_no_client_could_open_is_no_type(name: str) -> None:
    assert not is_known_type(name)
