"""Idempotency keys: what was folded is answered, what was not is folded, what is not known is reported.

Promises: keyless-repeats, batches-remembered (docs/operations.md).
"""

import pytest

from lakefold_committer.fold.fold import LATEST_US
from lakefold_committer.fold.keys import Keys
from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_table.entry import Duplicate, Invalid
from lakefold_table.marks.batches import MAX_INTERVALS, AppMark
from lakefold_table.marks.marks import KEPT_APPS, MAX_APPS, MAX_UUIDS, SILENT_APP_US, Marks
from tests.folding import DAY, START_US, append, entry


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
    assert keys.marks(START_US).uuids == ()


def test_batch_0_is_a_number() -> None:
    keys = Keys(Marks())
    add(keys, append(app="a", batch=0), 3)
    assert seen(keys, append(app="a", batch=0)) == Duplicate(3)


def test_a_batch_older_than_what_is_kept_cannot_be_checked() -> None:
    keys = Keys(Marks())
    for batch in range(0, 200, 2):
        add(keys, append(app="a", batch=batch), 1)
    below = 200 - 2 * MAX_INTERVALS - 1
    old = seen(keys, append(app="a", batch=below - 1))
    assert isinstance(old, Invalid)
    assert "too old to check" in old.message
    assert f"from {below} on can be checked" in old.hint
    assert seen(keys, append(app="a", batch=below)) is None
    assert seen(keys, append(app="a", batch=below + 1)) == Duplicate(0)


def test_the_newest_uuids_are_kept() -> None:
    keys = Keys(Marks())
    for number in range(MAX_UUIDS + 10):
        add(keys, append(f"u{number}"), number)
    assert seen(keys, append("u0")) == Duplicate(0)
    marks = keys.marks(START_US)
    assert len(marks.uuids) == MAX_UUIDS
    assert marks.uuids[0] == ("u10", 10)
    assert seen(Keys(marks), append("u9")) is None
    assert seen(Keys(marks), append("u10")) == Duplicate(10)


def test_apps_that_are_silent_for_long_are_forgotten_if_many_others_came_since() -> None:
    apps = {
        f"app-{number}": AppMark(((0, 0),), recent=((0, 10_000 - number),), time_us=START_US)
        for number in range(KEPT_APPS + 9)
    }
    keys = Keys(Marks(apps=apps))
    add(keys, append(app="new", batch=1), 20_000, START_US + 80 * DAY)
    assert len(keys.marks(START_US + SILENT_APP_US - 1).apps) == KEPT_APPS + 10
    kept = set(keys.marks(START_US + SILENT_APP_US).apps)
    assert kept == {"new", *(f"app-{number}" for number in range(KEPT_APPS - 1))}


def test_a_clock_makes_no_app_forgotten_in_a_table_of_few() -> None:
    keys = Keys(Marks(apps={"old": AppMark(((0, 0),), time_us=START_US)}))
    add(keys, append(app="new", batch=1), 1, LATEST_US)
    assert set(keys.marks(LATEST_US).apps) == {"old", "new"}


@pytest.mark.parametrize(("length", "refused"), [(256, False), (257, True), (100_000, True)])
def test_an_app_id_has_a_bounded_length(length: int, *, refused: bool) -> None:
    answer = seen(Keys(Marks()), append(app="a" * length, batch=1))
    assert isinstance(answer, Invalid) == refused
    assert answer is None or "at most 256" in answer.hint  # type: ignore[attr-defined]


def test_there_is_room_for_so_many_apps_and_no_more() -> None:
    """Each is written into every version: without a bound anybody could make a table unusable."""
    known = {f"app-{number}": AppMark(((0, 0),), time_us=START_US) for number in range(MAX_APPS)}
    full = Keys(Marks(apps=known))
    refused = seen(full, append(app="one more", batch=0))
    assert isinstance(refused, Invalid)
    assert "the batch ids of 10000 apps" in refused.message
    assert "an app id that the table knows" in refused.hint
    assert seen(full, append(app="app-3", batch=1)) is None
    assert seen(full, append(app="app-3", batch=0)) == Duplicate(0)
    assert seen(full, append("by uuid")) is None


def test_keys_do_not_change_the_marks_they_began_with() -> None:
    marks = Marks(apps={"a": AppMark(((0, 0),))}, uuids=(("u", 1),))
    keys = Keys(marks)
    add(keys, append("v"), 2)
    add(keys, append(app="a", batch=1), 2)
    assert marks == Marks(apps={"a": AppMark(((0, 0),))}, uuids=(("u", 1),))
