"""What `lakefold show` prints of the marks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakefold.reading import show

if TYPE_CHECKING:
    import pytest


def marks(offset: int) -> dict[str, Any]:
    """The marks of a table that is bound to a partition, as the verb has them."""
    position = {"topic": "topic", "partition": 2, "offset": offset, "topic_id": "topic-id"}
    plain = {"table_id": "id", "version": 2, "epoch": 0, "rules": 3, "position": position}
    return {**plain, "moves": [], "file_logs": {}, "apps": {}}


def test_a_table_that_nothing_was_folded_into_is_at_the_start(capsys: pytest.CaptureFixture[str]) -> None:
    show._print_marks(marks(-1))
    assert "  folded to   the start of topic/2 (topic id topic-id)\n" in capsys.readouterr().out
    show._print_marks(marks(0))
    assert "  folded to   topic/2@0 (topic id topic-id)\n" in capsys.readouterr().out
