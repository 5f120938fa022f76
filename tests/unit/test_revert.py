"""Undoing single batches: their rows go, what they removed comes back, everything else stays."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakefold_ingest.proposals.key import Key
from lakefold_ingest.revert.conflicts import RevertConflictError
from tests.reverting import KINDS, Tables, words

if TYPE_CHECKING:
    from pathlib import Path

EACH_KIND = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture
def made(tmp_path: Path, kind: str) -> Tables:
    """A table with ten rows in two files."""
    table = Tables.made(kind, tmp_path / "t")
    table.append(words(0, 1, 2, 3, 4))
    table.append(words(5, 6, 7, 8, 9))
    return table


def rows(*ids: int, word: str = "first") -> list[tuple[object, ...]]:
    return [(n, f"{word} {n}") for n in ids]


@EACH_KIND
def test_rows_that_were_appended_go(made: Tables) -> None:
    made.append(words(20, 21, word="bad"), Key("loader", 7))
    made.append(words(30))
    made.revert(batches=(("loader", 7),))
    assert made.rows() == rows(*range(10), 30)


@EACH_KIND
def test_they_go_after_compactions_as_well(made: Tables) -> None:
    made.append(words(20, 21, word="bad"), Key("loader", 7))
    made.delete("id = 20")
    made.compact()
    made.append(words(30))
    made.delete("id = 3")
    made.compact()
    made.append(words(31))
    made.revert(batches=(("loader", 7),))
    assert made.rows() == rows(0, 1, 2, *range(4, 10), 30, 31)


@EACH_KIND
def test_rows_that_were_deleted_come_back(made: Tables) -> None:
    made.delete("id > 3 and id < 8", Key("loader", 7))
    made.append(words(30))
    made.compact()
    made.revert(batches=(("loader", 7),))
    assert made.rows() == rows(*range(10), 30)


@EACH_KIND
def test_rows_that_were_updated_get_their_earlier_values(made: Tables) -> None:
    made.upsert(words(3, 4, 5, 40, word="bad"), Key("loader", 7))
    made.upsert(words(6, word="good"))
    made.compact()
    made.delete("id = 7")
    made.revert(batches=(("loader", 7),))
    assert made.rows() == sorted([*rows(0, 1, 2, 3, 4, 5, 8, 9), *rows(6, word="good")])


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "delta-tracked"])
def test_compactions_of_others_are_followed(made: Tables) -> None:
    made.upsert(words(3, 4, 40, word="bad"), Key("loader", 7))
    made.compact_by_others()
    made.append(words(30))
    made.compact_by_others()
    made.revert(batches=(("loader", 7),))
    assert made.rows() == rows(*range(10), 30)


def conflicts(table: Tables, **request: object) -> list[str]:
    """The conflicts of undoing what the request names, which is refused."""
    operation = table.operation(**request)
    with pytest.raises(RevertConflictError) as refused:
        table.batches.build(operation)
    return [f"{each.row}: {each.change} by {each.later_entry}" for each in refused.value.conflicts]


@EACH_KIND
def test_rows_that_were_changed_later_are_named_and_refused(made: Tables) -> None:
    made.upsert(words(3, 4, 40, word="bad"), Key("loader", 7))
    made.upsert(words(4, word="good"), Key("other", 1))
    made.compact()
    named = (("loader", 7),)
    assert conflicts(made, batches=named, keys=("id",)) == ["id=4: changed by other:1"]
    made.revert(batches=named, keep_later=True)
    assert made.rows() == sorted([*rows(*(n for n in range(10) if n != 4)), *rows(4, word="good")])


@EACH_KIND
def test_what_was_built_on_the_rows_goes_too(made: Tables) -> None:
    made.upsert(words(3, 4, 40, word="bad"), Key("loader", 7))
    made.upsert(words(4, 8, word="other"), Key("other", 1))
    made.upsert(words(8, word="third"), Key("third", 1))
    made.append(words(50))
    made.revert(batches=(("loader", 7),), with_dependents=True)
    assert made.rows() == rows(*range(10), 50)


@EACH_KIND
def test_a_row_that_was_only_added_and_deleted_later_is_no_conflict(made: Tables) -> None:
    made.append(words(20, 21, word="bad"), Key("loader", 7))
    made.delete("id = 20")
    made.revert(batches=(("loader", 7),))
    assert made.rows() == rows(*range(10))


@EACH_KIND
def test_an_updated_row_that_was_deleted_later_is_a_conflict(made: Tables) -> None:
    made.upsert(words(3, 4, word="bad"), Key("loader", 7))
    made.delete("id = 4", Key("gdpr", 1))
    named = (("loader", 7),)
    assert conflicts(made, batches=named, keys=("id",)) == ["id=4: deleted by gdpr:1"]
    made.revert(batches=named, keep_later=True)
    assert made.rows() == rows(*(n for n in range(10) if n != 4))


@EACH_KIND
def test_a_deleted_row_whose_key_was_inserted_again_is_a_conflict(made: Tables) -> None:
    made.delete("id = 4 or id = 5", Key("loader", 7))
    made.upsert(words(4, 60, word="again"), Key("other", 1))
    named = (("loader", 7),)
    assert conflicts(made, batches=named, keys=("id",)) == ["id=4: inserted again by other:1"]
    made.revert(batches=named, keys=("id",), keep_later=True)
    expected = [*rows(*(n for n in range(10) if n != 4)), *rows(4, 60, word="again")]
    assert made.rows() == sorted(expected)


@EACH_KIND
def test_all_batches_of_a_chain_are_undone_together(made: Tables) -> None:
    made.upsert(words(3, 20, word="one"), Key("loader", 7))
    made.upsert(words(3, 20, word="two"), Key("loader", 8))
    made.compact()
    made.delete("id = 20", Key("loader", 9))
    made.revert(batches=(("loader", 7), ("loader", 8), ("loader", 9)))
    assert made.rows() == rows(*range(10))


@EACH_KIND
def test_a_revert_is_undone_by_its_version(made: Tables) -> None:
    made.upsert(words(3, 20, word="one"), Key("loader", 7))
    before = made.rows()
    version = made.revert(batches=(("loader", 7),))
    assert made.rows() == rows(*range(10))
    made.revert(version=version)
    assert made.rows() == before


@EACH_KIND
def test_a_restore_in_between_counts(made: Tables) -> None:
    """What it brought back is followed; what it took back isn't undone again."""
    made.append(words(20, 21, word="bad"), Key("loader", 7))
    version = made.version
    made.delete("id >= 20")
    made.append(words(30), Key("loader", 8))
    made.restore(version)
    made.compact()
    assert made.operation(batches=(("loader", 7),)).planned(made.batches.view(), {})[1].removed.size == 2
    made.revert(batches=(("loader", 7),))
    assert made.rows() == rows(*range(10))
