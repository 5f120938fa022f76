"""A number may come out of an array or a data frame, and what is not a number is refused by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import lakefold
from lakefold_table.errors import InvalidError
from lakefold_table.storage import open_storage
from tests.proposals import rows
from tests.tables import Folded

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NUMBERS: tuple[Any, ...] = (np.int64(2), np.uint8(2), np.uint64(2))
NO_NUMBERS: tuple[Any, ...] = (True, np.bool_(True), 2.0, np.float64(2), [2])  # noqa: FBT003 - values that are refused
CALLS: dict[str, Callable[[str, Any], object]] = {
    "version": lambda uri, given: lakefold.open(uri, given).count_rows(),
    "at_position": lambda uri, given: lakefold.open(uri, at_position=given).version,
    "start": lambda uri, given: [change.version for change in lakefold.tail(uri, given)],
    "cursor": lambda uri, given: str(lakefold.tail(uri, given).cursor),
    "after": lambda uri, given: lakefold.changes(uri, given).read_all(),
    "to": lambda uri, given: lakefold.changes(uri, 0, given).read_all(),
    "history from": lambda uri, given: [row.version for row in lakefold.open(uri).history(given)],
    "history to": lambda uri, given: [row.version for row in lakefold.open(uri).history(None, given)],
    "limit": lambda uri, given: lakefold.open(uri).to_arrow(limit=given),
    "offset": lambda uri, given: lakefold.open(uri).to_arrow(offset=given),
    "batch_size": lambda uri, given: [len(batch) for batch in lakefold.open(uri).to_reader(batch_size=given)],
    "take": lambda uri, given: lakefold.open(uri).take([given]),
    "max_versions": lambda uri, given: len(lakefold.tail(uri, 0).step(given)),
    "max_rows": lambda uri, given: len(lakefold.tail(uri, 0).step(max_rows=given)),
    "max_bytes": lambda uri, given: str(lakefold.tail(uri, 0).end(max_bytes=given)),
}


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    table = Folded(open_storage(tmp_path_factory.mktemp("numbers") / "t"))
    for number in range(3):
        table.append(rows([number, 10 + number, 20 + number]))
    return table.uri


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("given", NUMBERS, ids=lambda given: type(given).__name__)
def test_a_number_of_any_integer_type_is_taken(uri: str, call: str, given: object) -> None:
    assert CALLS[call](uri, given) == CALLS[call](uri, 2)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("given", NO_NUMBERS, ids=lambda given: f"{type(given).__name__}")
def test_what_is_no_whole_number_is_refused(uri: str, call: str, given: object) -> None:
    with pytest.raises(InvalidError) as refused:
        CALLS[call](uri, given)
    assert refused.value.hint


@pytest.mark.parametrize("timeout", [True, "1", float("nan"), [1]])
def test_a_step_waits_for_seconds(uri: str, timeout: Any) -> None:  # noqa: ANN401 - of any type
    with pytest.raises(InvalidError, match="timeout is "):
        lakefold.tail(uri).step(timeout=timeout)
    assert lakefold.tail(uri).step(timeout=np.float32(0)) == []  # type: ignore[arg-type] # as it comes


def test_a_blob_column_is_named_by_a_text(tmp_path: Path) -> None:
    blob = pa.field("blob", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    data = pa.table([pa.array([b"a"], pa.large_binary())], schema=pa.schema([blob]))
    lance.write_dataset(data, tmp_path / "t")
    table = lakefold.open(tmp_path / "t")
    with pytest.raises(InvalidError, match="column: 5 is not a name"):
        table.blobs(5, [0])  # type: ignore[arg-type]
    (actual,) = table.blobs("blob", np.array([0], np.int32))
    assert actual is not None
    assert actual.read() == b"a"
