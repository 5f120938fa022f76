"""Clients that opened a table before our commits go on writing to it after them.

Promise: older-clients (docs/operations/promises.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.clients.process import Client
from tests.clients.stream import Stream

if TYPE_CHECKING:
    from pathlib import Path

WRITERS = ["lancedb-0.40.0", "pylance-13.0.0", "pylance-14.0.2"]
STEPS = ["append", "delete", "scalar_index", "optimize"]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("name", WRITERS)
def test_from_a_handle_that_was_opened_before(name: str, step: str, tmp_path: Path) -> None:
    stream = Stream(tmp_path / "t.lance")
    with Client(name, str(stream.path)) as client:
        opened = client.open("before")
        stream.commit(3)
        given: dict[str, object] = {}
        if step == "append":
            given = {"ids": [1000, 1001], "text": "theirs"}
            stream.expected |= {1000: "theirs", 1001: "theirs"}
        elif step == "delete":
            given = {"ids": [3, 150]}
            del stream.expected[3], stream.expected[150]
        client.do(step, "before", **given)
        assert client.open("after") > opened + 3
        stream.commit()
        stream.check()
        assert client.rows() == stream.expected
