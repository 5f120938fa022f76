"""Idempotency keys: what was folded is answered, what was not is folded, what is not known is reported.

Promises: keyless-repeats, batches-remembered (docs/operations/promises.md).
"""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefold_committer.fold import keys as keys_module
from lakefold_committer.fold.keys import Keys
from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_table.durations import LATEST_US
from lakefold_table.entry import Duplicate, Invalid
from lakefold_table.errors import DamagedError
from lakefold_table.marks.batches import PLAIN_INTERVALS, AppMark, GrowingMark
from lakefold_table.marks.marks import (
    KEPT_APPS,
    MAX_UUIDS,
    OLDER_APPS,
    OLDER_APPS_BYTES,
    Marks,
    decode_marks,
)
from tests.folding import START_US, append, entry


def seen(keys: Keys, envelope: Envelope) -> object:
    return keys.seen(entry(envelope, 0))


def add(keys: Keys, envelope: Envelope, version: int, time_us: int = START_US) -> None:
    keys.add(entry(envelope, 0), version, time_us)


def test_a_batch_is_known_by_its_app_and_number() -> None:
    keys = Keys(Marks())
    add(keys, append("one", app="a", batch=7), 3)
    assert seen(keys, append("other uuid", app="a", batch=7)) == Duplicate(3)
    assert seen(keys, append("one", app="a", batch=8)) is None
    assert seen(keys, append("one", app="b", batch=7)) is None


def test_without_an_app_or_a_number_the_uuid_is_the_key() -> None:
    keys = Keys(Marks())
    add(keys, append("one"), 3)
    add(keys, append("two", app="a"), 4)
    add(keys, append("three", batch=9), 5)
    for name, version in [("one", 3), ("two", 4), ("three", 5)]:
        assert seen(keys, append(name)) == Duplicate(version)
        assert seen(keys, append(name, app="b")) == Duplicate(version)
    assert seen(keys, append("one", app="a", batch=1)) is None


def test_what_has_neither_is_new_each_time() -> None:
    keys = Keys(Marks())
    add(keys, append(""), 3)
    assert seen(keys, append("")) is None
    assert keys.marks().uuids == ()


def test_batch_0_is_a_number() -> None:
    keys = Keys(Marks())
    add(keys, append(app="a", batch=0), 3)
    assert seen(keys, append(app="a", batch=0)) == Duplicate(3)


def test_a_batch_older_than_what_is_kept_cannot_be_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys_module, "APP_BYTES", 0)
    keys = Keys(Marks())
    for batch in range(0, 200, 2):
        add(keys, append(app="a", batch=batch), 1)
    keys = Keys(keys.marks())
    below = 200 - 2 * PLAIN_INTERVALS - 1
    old = seen(keys, append(app="a", batch=below - 1))
    assert isinstance(old, Invalid)
    assert "too old to check" in old.message
    assert f"from {below} on can be checked" in old.hint
    assert "if it has, there is nothing to do; only if it has not" in old.hint
    assert seen(keys, append(app="a", batch=below)) is None
    assert seen(keys, append(app="a", batch=below + 1)) == Duplicate(0)


def test_the_newest_uuids_are_kept() -> None:
    keys = Keys(Marks())
    for number in range(MAX_UUIDS + 10):
        add(keys, append(f"u{number}"), number)
    assert seen(keys, append("u0")) == Duplicate(0)
    marks = keys.marks()
    assert len(marks.uuids) == MAX_UUIDS
    assert marks.uuids[0] == ("u10", 10)
    assert seen(Keys(marks), append("u9")) is None
    assert seen(Keys(marks), append("u10")) == Duplicate(10)


def apps(count: int, **changes: Any) -> dict[str, AppMark]:  # noqa: ANN401 - the test names the field
    """The marks of apps that sent batches 0 and 1, app-0 last."""
    mark = AppMark(((0, 1),), recent=((0, 1), (1, 2)), time_us=START_US)
    return {
        f"app-{number}": replace(mark, recent=((0, 1), (1, 10_000 - number)), **changes)
        for number in range(count)
    }


@pytest.mark.parametrize("count", [1, KEPT_APPS + 9])
def test_no_clock_makes_an_app_forgotten(count: int) -> None:
    """Neither one that jumps ahead, nor one that was behind when the apps wrote and is corrected."""
    keys = Keys(Marks(apps=apps(count)))
    add(keys, append(app="new", batch=1), 20_000, LATEST_US)
    again = Keys(through(keys.marks()))
    assert all(
        isinstance(seen(again, append(app=name, batch=1)), Duplicate) for name in (*apps(count), "new")
    )


@pytest.mark.parametrize(("length", "refused"), [(256, False), (257, True), (100_000, True)])
def test_an_app_id_has_a_bounded_length(length: int, *, refused: bool) -> None:
    answer = seen(Keys(Marks()), append(app="a" * length, batch=1))
    assert isinstance(answer, Invalid) == refused
    assert answer is None or "at most 256" in answer.hint  # type: ignore[attr-defined]


def test_any_number_of_apps_writes_and_each_version_stays_small() -> None:
    """Runs of a job with an id of their own; one app writes beside them all the time, another came first."""
    marks = Marks(apps=apps(10_000))
    for run in range(20):
        keys = Keys(through(marks))
        for number in range(200):
            entry = append(app=f"run {run} of a nightly job, number {number}", batch=0)
            assert seen(keys, entry) is None
            add(keys, entry, 20_000 + run)
        steady = append(app="steady", batch=run)
        assert seen(keys, steady) is None
        add(keys, steady, 20_000 + run)
        marks = keys.marks()
        assert sum(map(len, marks.encode().values())) < OLDER_APPS_BYTES + KEPT_APPS * 200
    again = Keys(through(marks))
    assert [seen(again, append(app="steady", batch=run)) is None for run in (0, 19, 20)] == [
        False,
        False,
        True,
    ]
    known = [name for name in marks.apps if name.startswith("run ")]
    assert len(known) > 2 * KEPT_APPS
    assert all(isinstance(seen(again, append(app=name, batch=0)), Duplicate) for name in known)
    assert known[-1] == "run 19 of a nightly job, number 199"


@given(
    batches=st.lists(st.integers(0, 12), min_size=1, max_size=12, unique=True),
    batch=st.integers(0, 12),
    is_rolled_back=st.booleans(),
)
def test_a_shortened_app_folds_nothing_twice_and_takes_what_follows(
    batches: list[int], batch: int, *, is_rolled_back: bool
) -> None:
    """Compared with the app's whole mark: a Duplicate stays one or is too old, a new batch may be too old."""
    rolled_back = ((batches[0], batches[0], 9),) if is_rolled_back else ()
    growing = GrowingMark(AppMark(rolled_back=rolled_back))
    for number in batches:
        growing.add(number, 1, START_US)
    whole = Marks(apps={"a": growing.mark()})
    short = through(replace(whole, apps={"a": growing.mark().shortened()}))
    assert short.apps["a"].is_short
    entry = append(app="a", batch=batch)
    before, after = seen(Keys(whole), entry), seen(Keys(short), entry)
    if isinstance(after, Duplicate):
        assert isinstance(before, Duplicate)
        assert after.rolled_back_by == before.rolled_back_by
    elif after is None:
        assert before is None
        keys = Keys(short)
        add(keys, entry, 2)
        assert seen(Keys(through(keys.marks())), entry) == Duplicate(2)
    else:
        assert "too old to check" in after.message  # type: ignore[attr-defined]
        assert batch < max(batches)
    assert seen(Keys(short), append(app="a", batch=max(batches))) is not None
    assert seen(Keys(short), append(app="a", batch=max(batches) + 1)) is None


def test_apps_of_one_version_are_shortened_in_an_order_that_no_restart_changes() -> None:
    names = [f"app-{number}" for number in range(KEPT_APPS + 50)]
    texts = []
    for order in (names, names[::-1]):
        keys = Keys(Marks())
        for name in order:
            add(keys, append(app=name, batch=0), 7)
        texts.append(keys.marks().encode()[OLDER_APPS])
    assert texts[0] == texts[1]


@pytest.mark.parametrize("text", ["[1]", '[["a"]]', '[["a",-1,0,0]]', '[["a",1,2,0]]', '[["a",1.5]]', '["a"'])
def test_broken_short_marks_are_reported(text: str) -> None:
    with pytest.raises(DamagedError, match="can't be read"):
        decode_marks(Marks().encode() | {OLDER_APPS: text})


def through(marks: Marks) -> Marks:
    """The marks as the next version is made from them, by another process."""
    decoded = decode_marks(marks.encode())
    assert decoded is not None
    return decoded


def test_keys_do_not_change_the_marks_they_began_with() -> None:
    marks = Marks(apps={"a": AppMark(((0, 0),))}, uuids=(("u", 1),))
    keys = Keys(marks)
    add(keys, append("v"), 2)
    add(keys, append(app="a", batch=1), 2)
    assert marks == Marks(apps={"a": AppMark(((0, 0),))}, uuids=(("u", 1),))
