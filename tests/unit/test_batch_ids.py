"""A writer's batches have keys that no other batch of its app has, as far as the table's marks show."""

from __future__ import annotations

from typing import TYPE_CHECKING

import lance
import pyarrow as pa
import pytest

from lakefold_ingest.formats import read_view
from lakefold_ingest.proposals.key import MAX_BATCH_ID
from lakefold_ingest.writer.batching import BatchIds
from lakefold_table.errors import InvalidError, RetryError
from lakefold_table.marks.batches import AppMark
from lakefold_table.marks.marks import Marks
from lakefold_table.uri import canonical

if TYPE_CHECKING:
    from pathlib import Path


def taken(ids: BatchIds) -> int | None:
    with ids.next_key() as key:
        return key.batch_id


def test_a_number_is_used_again_only_if_no_table_can_have_it() -> None:
    ids = BatchIds("svc")
    assert [taken(ids), taken(ids)] == [0, 1]
    with pytest.raises(InvalidError), ids.next_key() as refused:
        raise InvalidError("the rows don't fit")
    assert taken(ids) == refused.batch_id == 2
    with pytest.raises(RetryError), ids.next_key() as unknown:
        raise RetryError("no answer")
    assert unknown.batch_id == 3
    assert taken(ids) == 4


def test_numbers_continue_after_the_highest_in_the_table_and_never_go_back(tmp_path: Path) -> None:
    lance.write_dataset(pa.table({"n": [1]}), tmp_path / "t")
    apps = {"svc": AppMark(((0, 7), (9, 11)))}
    lance.dataset(tmp_path / "t").update_metadata(dict(Marks(table_id="t", version=1, apps=apps).encode()))
    view = read_view(canonical(tmp_path / "t"), {})
    ids, other = BatchIds("svc"), BatchIds("another")
    for each in (ids, other):
        each.continue_after(None)
        each.continue_after(view)
    assert (taken(ids), taken(other)) == (12, 0)
    ids.continue_after(view)
    assert taken(ids) == 13


def test_an_app_that_has_used_the_highest_number_is_told_to_take_another(tmp_path: Path) -> None:
    lance.write_dataset(pa.table({"n": [1]}), tmp_path / "t")
    for highest in (MAX_BATCH_ID - 1, MAX_BATCH_ID):
        apps = {"svc": AppMark(((highest, highest),))}
        marks = Marks(table_id="t", version=1, apps=apps).encode()
        lance.dataset(tmp_path / "t").update_metadata(dict(marks))
        ids, other = BatchIds("svc"), BatchIds("another")
        for each in (ids, other):
            each.continue_after(read_view(canonical(tmp_path / "t"), {}, afresh=True))
        if highest < MAX_BATCH_ID:
            assert taken(ids) == MAX_BATCH_ID
        with pytest.raises(InvalidError, match="no number is left for a batch of svc") as refused:
            taken(ids)
        assert "give the writer another one" in str(refused.value.hint)
        assert taken(other) == 0


def test_without_an_app_each_batch_has_a_new_key() -> None:
    ids = BatchIds(None)
    assert not ids.is_numbered
    with ids.next_key() as first, ids.next_key() as second:
        assert first.batch_id is None
        assert first.own_uuid != second.own_uuid
    with pytest.raises(InvalidError, match="can't be an app id"):
        BatchIds("")


def test_says_which_earlier_ids_were_not_folded() -> None:
    mark = AppMark(intervals=((2, 4), (7, 7)))
    assert mark.not_folded_below(10) == ((0, 1), (5, 6), (8, 9))
    assert mark.not_folded_below(4) == ((0, 1),)
    assert mark.not_folded_below(0) == ()
    assert AppMark(((5, 6),), forgotten_below=4, recent=((1, 1),)).not_folded_below(7) == ((4, 4),)
