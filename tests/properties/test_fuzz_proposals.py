"""Sound proposals of every operation with a thing or two changed in them: refused, or sound all the same."""

from __future__ import annotations

import os
import shutil
from functools import cache
from itertools import count
from typing import TYPE_CHECKING

import lance
import pytest
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_table.entry import Committed, Invalid, Rejected
from tests.folding import entries
from tests.oracle.committing import owned, state
from tests.properties.acts import ACTS, FEW_ROWS, SCHEMA, Choice, table_of, values_of
from tests.properties.audits import audit
from tests.properties.copies import proposed, rows_at
from tests.properties.model import FIRST_COLUMNS, Snapshot
from tests.properties.mutations import mutated

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LONG = settings.get_current_profile_name() == "long"
UNSEEN = {
    # What a data file or an index holds is its writer's word: the fold doesn't read it.
    "physical_rows",
    "fields",
    "column_indices",
    "file_major_version",
    "file_minor_version",
    "logical_type",
    "index_details",
    "type_url",
    "value",
    "index_version",
    "fragment_bitmap",
    "fields_for_preserving_frag_bitmap",
    "fields_modified",
    "groups",
    "nullable",
    "metadata",
}
"""Fields whose truth neither the proposal nor the table shows."""


KEYS: Iterator[int] = count(100)
COPIES = count()


class Proposals:
    """Tables, and sound proposals for them, made once each: a row of examples asks for the same again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.base = cache(self._base)
        self.sound = cache(self._sound)

    def _base(self, stable: bool) -> tuple[Path, int]:  # noqa: FBT001 - cached by it
        """A table with deleted rows and indices, and its version."""
        table = self.folder / f"base-{stable}"
        rows = [values_of(key, (*FIRST_COLUMNS, "c")) for key in range(4 * FEW_ROWS)]
        lance.write_dataset(
            table_of(rows, SCHEMA), str(table), enable_stable_row_ids=stable, max_rows_per_file=FEW_ROWS
        )
        lance.dataset(str(table)).add_columns({"c": "k * 3"})
        lance.dataset(str(table)).create_scalar_index("a", "BTREE")
        lance.dataset(str(table)).create_scalar_index("s", "BITMAP")
        lance.dataset(str(table)).delete("k in (1, 6)")
        return table, lance.dataset(str(table)).version

    def _sound(self, name: str, stable: bool) -> bytes:  # noqa: FBT001 - cached by it
        """A proposal of this act on the newest version; None if it can't be done to such a table."""
        table, version = self.base(stable)
        dataset = lance.dataset(str(table))
        names = (*FIRST_COLUMNS, "c")
        rows = {key: None for key in range(4 * FEW_ROWS) if key not in (1, 6)}
        snapshot = Snapshot(rows, names)  # type: ignore[arg-type]  # only the keys are asked for
        act = ACTS[name](Choice(snapshot, [2, 3, 9], KEYS, dataset))
        if act is None:
            return b""
        envelope = Envelope(table=str(table))
        envelope.lance.CopyFrom(proposed(table, version, act.run, self.folder / f"copy-{name}-{stable}")[-1])
        envelope.lance.read_version = version
        if act.effect.kind in {"delete", "update"}:
            for number, offsets in rows_at(table, version, act.effect.touches).items():
                envelope.affected_rows[number] = offsets
        return envelope.SerializeToString()


@pytest.fixture(scope="module")
def proposals(tmp_path_factory: pytest.TempPathFactory) -> Proposals:
    return Proposals(tmp_path_factory.mktemp("proposals"))


def check_committed(table: Path, version: int, result: Committed, changed: set[str]) -> None:
    """The version breaks no invariant, and pylance finds in it what the outcome reports."""
    audit(table, state(table, version), state(table, version + 1))
    if changed & UNSEEN:
        return
    dataset = lance.dataset(str(table))
    dataset.validate()
    rows = dataset.to_table()
    assert rows.num_rows == dataset.count_rows()
    for column, value, condition in (("a", 2, "a = 2"), ("s", "s1", "s = 's1'")):
        if column in rows.column_names:
            scanned = dataset.to_table(columns=[column], filter=condition).num_rows
            assert scanned == rows[column].to_pylist().count(value)
    before = lance.dataset(str(table), version=version).count_rows()
    operation = state(table, version + 1).transaction
    assert operation is not None
    if operation.WhichOneof("operation") in {"append", "delete", "update"}:
        assert dataset.count_rows() == before + result.rows_added - result.rows_deleted


@pytest.mark.timeout(7200 if LONG else 600)
@settings(max_examples=5000 if LONG else 120, deadline=None)
@given(data=st.data(), name=st.sampled_from(sorted(ACTS)), stable=st.booleans())
def test_what_is_changed_is_refused_or_sound(
    proposals: Proposals,
    data: st.DataObject,
    name: str,
    stable: bool,  # noqa: FBT001 - drawn
) -> None:
    assume(proposals.sound(name, stable))
    envelope = Envelope.FromString(proposals.sound(name, stable))
    changed = {
        data.draw(mutated(envelope.lance if data.draw(st.booleans()) else envelope)).rpartition(".")[2]
        for _ in range(data.draw(st.integers(0, 2)))
    }
    source, version = proposals.base(stable)
    table = proposals.folder / f"table{next(COPIES)}"
    shutil.copytree(source, table, copy_function=os.link)
    try:
        (outcome,) = owned(table).fold(entries([envelope], 0)).outcomes
        event(f"{name}: {type(outcome.result).__name__}")
        if isinstance(outcome.result, Committed):
            check_committed(table, version, outcome.result, changed)
        else:
            assert isinstance(outcome.result, Invalid | Rejected)
            assert changed, outcome.result
    finally:
        shutil.rmtree(table)
