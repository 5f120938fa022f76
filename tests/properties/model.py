"""A table as plain rows: the result of every history of changes, without fragments, files or ids.

Nothing of the package is used here. A row is known by its key, the column `k`, which no change touches; its
row id is learnt when it is first seen and must then never change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

Values = Mapping[str, object]
FIRST_COLUMNS = ("k", "a", "s")


@dataclass(frozen=True)
class Row:
    """`created`: the version that it came with. `updated`: the versions that may have changed it last."""

    values: Values
    created: int
    updated: frozenset[int]
    row_id: int | None = None


@dataclass(frozen=True)
class Effect:
    """What one change does to the rows. `kind` names the operation.

    `adds`: new rows. `deletes`: keys. `changes`: for a key new values, computed from the old values; `bumps`:
    whether the version counts as the one that changed them. `renames`:
    columns with their new names, None for one that goes. `column`: a column that comes, and its value in each
    row that is there; in rows written before it came but added after, it is null. `rewrites`: whether all
    rows count as changed (None: they may). `restores`: the version whose rows come back. `replaces`: all rows
    that are there go first, and the columns are the first again.
    """

    kind: str
    adds: tuple[Values, ...] = ()
    deletes: frozenset[int] = frozenset()
    changes: Mapping[int, Callable[[Values], Values]] = field(default_factory=dict)
    bumps: bool = True
    renames: Mapping[str, str | None] = field(default_factory=dict)
    column: tuple[str, Callable[[Values], object]] | None = None
    rewrites: bool | None = False
    restores: int | None = None
    replaces: bool = False

    @property
    def touches(self) -> frozenset[int]:
        """The keys of the rows that it deletes or changes."""
        return self.deletes | self.changes.keys()

    @property
    def is_of_columns(self) -> bool:
        """Whether columns come, go, or have another name or type then."""
        return self.kind == "columns"

    def carried(self, values: Values) -> dict[str, object]:
        """Values by their names after the change."""
        named = {self.renames.get(name, name): value for name, value in values.items()}
        return {name: value for name, value in named.items() if name is not None}

    def behind(self, since: Sequence[Effect]) -> Effect:
        """Returns the same change if it was made before these others, and is applied after them."""
        adds, changes = list(self.adds), dict(self.changes)
        for other in since:
            adds = [other.carried(values) for values in adds]
            changes = {key: _then(new, other.carried) for key, new in changes.items()}
        return replace(self, adds=tuple(adds), changes=changes)


def _then(
    first: Callable[[Values], Values], second: Callable[[Values], Values]
) -> Callable[[Values], Values]:
    return lambda values: second(first(values))


@dataclass(frozen=True)
class Snapshot:
    """The rows of a version by key, and its columns."""

    rows: Mapping[int, Row] = field(default_factory=dict)
    names: tuple[str, ...] = FIRST_COLUMNS

    def after(self, effect: Effect, version: int, older: Mapping[int, Snapshot]) -> Snapshot:
        """The rows after this change became part of `version`; `older`: all versions so far."""
        if effect.restores is not None:
            return older[effect.restores]
        names, rows = self.names, dict(self.rows)
        if effect.replaces:
            names, rows = FIRST_COLUMNS, {}
        if effect.is_of_columns:
            names = self._names_after(effect)
            rows = {key: _recast(row, effect, version) for key, row in rows.items()}
        for key in effect.deletes:
            rows.pop(key, None)
        for key, new in effect.changes.items():
            if key in rows:
                values = {**rows[key].values, **new(rows[key].values)}
                updated = frozenset({version}) if effect.bumps else rows[key].updated
                rows[key] = replace(rows[key], values=values, updated=updated)
        for added in effect.adds:
            key = key_of(added)
            assert key not in rows, "a key is given once"
            kept = {name: added.get(name) for name in names}
            rows[key] = Row(kept, version, frozenset({version}))
        return Snapshot(rows, names)

    def _names_after(self, effect: Effect) -> tuple[str, ...]:
        renamed = [effect.renames.get(name, name) for name in self.names]
        added = [] if effect.column is None else [effect.column[0]]
        return (*[name for name in renamed if name is not None], *added)


def key_of(values: Values) -> int:
    return number_of(values["k"])


def number_of(value: object) -> int:
    assert isinstance(value, int)
    return value


def _recast(row: Row, effect: Effect, version: int) -> Row:
    updated = {False: row.updated, True: frozenset({version}), None: row.updated | {version}}
    values = effect.carried(row.values)
    if effect.column is not None:
        name, new = effect.column
        values[name] = new(row.values)
    return replace(row, values=values, updated=updated[effect.rewrites])


WITHOUT_ROWS = frozenset({"index", "config", "compact", "describe"})
"""Kinds of change that no row shows."""
ROW_CHANGES = frozenset({"append", "delete", "update", "values"})
PLAIN = WITHOUT_ROWS | ROW_CHANGES
"""Kinds of change that leave the columns and the versions as they are."""


def must_commit(ours: Effect, since: Sequence[Effect], *, knows_rows: bool) -> bool:
    """Whether a sound proposal has to pass beside what came after its read version.

    Told only where it is plain; for the rest either answer is right. `knows_rows`: it says which rows.
    """
    kinds = {effect.kind for effect in since}
    if not kinds:
        return True
    if ours.kind == "append":
        return kinds <= PLAIN
    if ours.kind == "delete" or (ours.kind == "update" and not ours.adds):
        carried = {"append", "index", "config", "delete", "compact"}
        return kinds <= {"append", "index", "config"} or (
            knows_rows and kinds <= carried and not must_refuse(ours, since)
        )
    if ours.kind == "compact":
        return kinds <= {"append", "config", "delete", "update"}
    return ours.kind == "config" and kinds <= PLAIN


def must_refuse(ours: Effect, since: Sequence[Effect]) -> str:
    """Why a proposal may not pass beside what came after its read version; empty if that isn't plain."""
    for theirs in since:
        if theirs.restores is not None or theirs.replaces:
            if ours.kind in ROW_CHANGES | {"index", "compact", "columns"}:
                return f"the rows were replaced by {theirs.kind}"
        elif ours.kind == "values" and theirs.kind == "delete":
            continue
        elif both := ours.touches & theirs.touches:
            return f"rows {sorted(both)} were touched by {theirs.kind}"
        elif ours.is_of_columns and ours.column is not None and (theirs.adds or theirs.is_of_columns):
            return f"the new column has no values for what {theirs.kind} did"
    return ""
