"""Deletes, Updates and Appends of many writers against a plain model: a row is deleted once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from lakefold_committer.fold.grouping import Limits
from lakefold_table.entry import Committed, Rejected
from lakefold_table.lance.rows.row_versions import decode_versions
from lakefold_table.lance.rows.rowids import decode_row_ids, encode_row_ids
from tests.changing import ROWS, MemoryRows
from tests.folding import FORMAT, entries, groups_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lakefold_protos.lakefold.log_pb2 import Envelope

FRAGMENTS = 2
MOST = Limits(4, 10**9)
APPENDED = 3
ROW = st.tuples(st.integers(0, FRAGMENTS - 1), st.integers(0, ROWS - 1))
KINDS = st.sampled_from(["append", "delete", "update"])
CHOICE = st.tuples(KINDS, st.frozensets(ROW, min_size=1, max_size=9))
ROUNDS = st.lists(st.lists(CHOICE, min_size=1, max_size=5), min_size=1, max_size=3)
"""In each round all writers open the table as it is, then their proposals are folded in order."""


@dataclass
class Model:
    """The rows left, as (fragment, offset), what was moved by id, and how many rows were appended."""

    rows: set[tuple[int, int]] = field(
        default_factory=lambda: {(number, row) for number in range(FRAGMENTS) for row in range(ROWS)}
    )
    moved: set[int] = field(default_factory=set)
    appended: int = 0

    def of(self, fragment: int) -> set[int]:
        """The offsets that are left in a fragment."""
        return {row for number, row in self.rows if number == fragment}


@dataclass(frozen=True)
class Sent:
    """A proposal, the rows that it takes, and how many it adds."""

    envelope: Envelope
    rows: frozenset[tuple[int, int]]
    moves: bool
    adds: int = 0


def proposed(table: MemoryRows, model: Model, kind: str, chosen: Iterable[tuple[int, int]]) -> Sent | None:
    """What a writer sends who takes those of the chosen rows that are there, or appends some."""
    if kind == "append":
        return Sent(table.append(), frozenset(), moves=False, adds=APPENDED)
    rows = frozenset(chosen) & model.rows
    if not rows:
        return None
    taken = {number: sorted(row for first, row in rows if first == number) for number, _ in rows}
    removed = [number for number, few in taken.items() if set(few) == model.of(number)]
    updated: dict[int, Iterable[int]] = {n: few for n, few in taken.items() if n not in removed}
    if kind == "delete":
        return Sent(table.delete(updated, removed), rows, moves=False)
    envelope = table.update(updated, removed)
    (new,) = envelope.lance.update.new_fragments
    new.physical_rows = len(rows)
    new.inline_row_ids = encode_row_ids(np.array(sorted(map(row_id, rows)), dtype=np.uint64))
    return Sent(envelope, rows, moves=True)


def row_id(row: tuple[int, int]) -> int:
    return row[0] * ROWS + row[1]


def check(table: MemoryRows, model: Model) -> None:
    """The table is what the model says, and each moved row is there once, with its id and its birth."""
    state = table.state
    value = state.fragments.get(range(FRAGMENTS))
    assert value.keys() == {number for number, _ in model.rows}
    for number in value:
        assert set(range(ROWS)) - set(table.deleted(number)) == model.of(number)
    ids: list[int] = []
    for fragment in state.fragments:
        if fragment.id >= FRAGMENTS:
            rows = fragment.physical_rows
            values = decode_row_ids(fragment.inline_row_ids, rows).tolist()
            moved = min(values) < FRAGMENTS * ROWS
            born = set(decode_versions(fragment.inline_created_at_versions, rows).tolist())
            assert born == {2} if moved else min(born) > 2
            ids += values
    fresh = range(FRAGMENTS * ROWS, FRAGMENTS * ROWS + model.appended)
    assert sorted(ids) == sorted([*model.moved, *fresh])
    assert state.rows == len(model.rows) + len(model.moved) + model.appended


def groups(sent: Sequence[Sent]) -> Iterable[Sequence[Sent]]:
    """As the committer cuts them."""
    actual = groups_of(entries([proposal.envelope for proposal in sent], 0), FORMAT, MOST)
    return [[sent[entry.position.offset] for entry in group] for group in actual]


@settings(max_examples=60, deadline=None)
@given(ROUNDS)
def test_a_row_is_removed_once(rounds: list[list[tuple[str, frozenset[tuple[int, int]]]]]) -> None:
    table, model = MemoryRows(stable=True, fragments=FRAGMENTS), Model()
    for choices in rounds:
        sent = [single for kind, rows in choices if (single := proposed(table, model, kind, rows))]
        cut = [*groups(sent)]
        assert len(cut) == -(-len(sent) // MOST.max_entries)
        for group in cut:
            version = table.version
            results = table.fold(*(sent.envelope for sent in group))
            assert table.version <= version + 1
            for single, result in zip(group, results, strict=True):
                if single.rows <= model.rows:
                    assert isinstance(result, Committed), result
                    assert result.rows_deleted == len(single.rows)
                    model.rows -= single.rows
                    model.appended += single.adds
                    model.moved |= {row_id(row) for row in single.rows} if single.moves else set()
                else:
                    assert isinstance(result, Rejected), result
                    assert result.conflict.retryable
        check(table, model)
