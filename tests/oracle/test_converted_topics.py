"""Messages with a schema of Kafka Connect beside them and messages without one, in one batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

from tests.change_events import TABLE
from tests.merging import Folding
from tests.oracle.test_change_events import MESSAGES, change, messages, names, put, refusal

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def folding(tmp_path: Path) -> Folding:
    """A table with rows of the time 5."""
    rows = pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"], "at": [5, 5, 5]}, schema=TABLE)
    lance.write_dataset(rows, str(tmp_path / "t"))
    return Folding(tmp_path / "t")


@pytest.mark.parametrize("wrapped", [*range(16)])
def test_messages_of_a_topic_whose_converter_was_changed(folding: Folding, wrapped: int) -> None:
    """Each set of four messages may have a schema beside them, and so may the keys of tombstones."""

    def shown(number: int, event: dict[str, Any] | None) -> dict[str, Any] | None:
        if event is None or not wrapped >> number & 1:
            return event
        # The parser infers the types of what is around the rows, and these differ.
        around = {"source": {"table": "people", "snapshot": "first"}} if "op" in event else {}
        return {"schema": {"type": "struct"}, "payload": {**event, **around}}

    events = [
        change("u", None, {"id": 1, "name": "x"}, 6),
        change("d", {"id": 2, "name": "b"}, None, 7),
        change("c", None, {"id": 4, "name": "d"}, 8),
        None,
    ]
    values = [shown(number, event) for number, event in enumerate(events)]
    keys = tuple(shown(number, {"id": key}) for number, key in enumerate((1, 2, 4, 3)))
    put(folding, messages(*values, keys=keys), MESSAGES)
    assert names(folding) == {1: "x", 4: "d"}


def test_a_stray_message_with_a_payload_is_a_bad_row_alone(folding: Folding) -> None:
    good = [change("c", None, {"id": number, "name": "n"}, number) for number in range(10, 13)]
    for stray in ({"payload": {"x": 1}}, {"payload": 5}, {"payload": None, "op": "z"}):
        assert refusal(folding, messages(*good, stray), MESSAGES).rows == 1
    put(folding, messages(*good, {**good[0], "payload": None}), MESSAGES)
    assert set(names(folding)) == {1, 2, 3, 10, 11, 12}
