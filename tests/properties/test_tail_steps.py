"""For every order of calls a tail returns each version once and in order, and steps keep to their limits."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from lakefold_reader.formats import source_on
from lakefold_reader.tail.tail import tail_of
from tests.memory_storage import MemoryStorage
from tests.tables import Folded, fragments_only

if TYPE_CHECKING:
    from lakefold_reader.tail.change import Change

COUNTER = itertools.count()
LIMIT = st.none() | st.integers(1, 12)
ACTS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["step", "end"]), LIMIT, LIMIT),
        st.tuples(st.sampled_from(["next", "grow"]), st.none(), st.none()),
    ),
    max_size=20,
)


def rows_of(changes: list[Change]) -> int:
    return sum(change.rows or 0 for change in changes)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(1, 8), max_size=12), st.booleans(), ACTS)
def test_each_version_once_in_order_within_limits(
    sizes: list[int],
    far: bool,  # noqa: FBT001 - drawn
    acts: list[tuple[str, int | None, int | None]],
) -> None:
    storage = MemoryStorage(f"memory://drawn-steps-{next(COUNTER)}/t")
    storage.cheap_size = not far
    table = Folded(storage)
    for size in sizes:
        table.fold(fragments_only(table.uri, size))
    begun = tail_of(source_on(storage), 1)
    given_out: list[int] = []
    for act, versions, rows in acts:
        if act == "grow":
            table.fold(fragments_only(table.uri, 1))
        elif act == "next":
            given_out += [change.version for change in itertools.islice(begun, 1)]
        elif act == "end":
            before = begun.cursor
            assert begun.end(versions, rows).version >= before.version
            assert begun.cursor == before
        else:
            cursor = begun.end(versions, rows)
            step = begun.step(versions, rows)
            given_out += [change.version for change in step]
            assert begun.cursor == cursor
            assert len(step) <= (versions or len(step))
            assert len(step) <= 1 or rows is None or rows_of(step) <= rows
        assert begun.cursor.version == (given_out[-1] if given_out else 1)
    given_out += [change.version for change in begun.step()]
    assert given_out == [*range(2, table.owned.table.version + 1)]
    begun.close()
