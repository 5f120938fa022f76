"""Random histories of change events, late, repeated and out of order, leave what a dictionary has."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import lance
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakefold_ingest.operations.apply_changes import ApplyChanges
from lakefold_ingest.proposals.key import Key
from lakefold_table.entry import Committed, Duplicate
from tests.change_events import FORMATS, TABLE, Event, Model, applied, rendered
from tests.merging import Folding

# A time has one event: repeated events are equal.
NAMES = st.one_of(st.none(), st.text("ab", max_size=2))
OLD_KEYS = st.one_of(st.none(), st.integers(0, 5))
STEPS = st.tuples(st.integers(0, 5), NAMES, st.booleans(), OLD_KEYS)
HISTORIES = st.lists(STEPS, min_size=1, max_size=14).flatmap(
    lambda events: st.lists(
        st.lists(
            st.sampled_from(
                [
                    Event(number, at, name, tombstone, old)
                    for at, (number, name, tombstone, old) in enumerate(events)
                ]
            ),
            max_size=8,
        ),
        min_size=1,
        max_size=4,
    )
)


@pytest.mark.parametrize("form", FORMATS)
@given(batches=HISTORIES, stable=st.booleans())
@settings(max_examples=25, deadline=None)
def test_a_table_has_the_rows_of_its_history(form: str, batches: list[list[Event]], *, stable: bool) -> None:
    with TemporaryDirectory() as folder:
        folding, model = Folding(Path(folder) / "t"), Model()
        lance.write_dataset(
            TABLE.empty_table(), str(folding.path), schema=TABLE, enable_stable_row_ids=stable
        )
        for number, batch in enumerate(batches):
            operation = ApplyChanges(*rendered(form, batch))
            envelope = folding.build(operation, Key("app", number))
            before = dict(model)
            applied(model, batch, deletes_win=form != "delta")
            assert (envelope is None) == (before == model)
            if envelope is not None:
                first, again = folding.fold(envelope), folding.fold(envelope)
                assert [type(result) for result in first + again] == [Committed, Duplicate]
            actual = {row["id"]: (row["at"], row["name"]) for row in folding.rows()}
            assert len(folding.rows()) == len(actual)
            assert actual == model
