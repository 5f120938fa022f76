"""A table on a disk, its log, its model, and the clients that change it: what histories are played on."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING

import lance
from hypothesis import event

from lakefold_committer.fold.grouping import Limits
from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_table.entry import Committed, Duplicate, Invalid
from lakefold_table.lance.kinds import FOLDED, kind_of
from lakefold_table.lance.rows.row_order import KEPT, ROW_ORDER
from lakefold_table.uri import canonical
from tests.folding import FORMAT, entries, groups_of
from tests.oracle.committing import owned, state
from tests.oracle.manifests import manifest_files
from tests.properties.acts import ACTS, FEW_ROWS, SCHEMA, Act, Choice, table_of, values_of
from tests.properties.audits import audit
from tests.properties.copies import link_files, proposed, rows_at
from tests.properties.model import FIRST_COLUMNS, PLAIN, Effect, Snapshot, must_commit, must_refuse, number_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from lakefold_protos.lance.transaction_pb2 import Transaction
    from lakefold_table.entry import Entry, Result

LINEAGE = ("_rowid", "_row_created_at_version", "_row_last_updated_at_version")
TOGETHER = Limits(1000, 10**9)
TAKE_OVER = "take over"
LIMIT = 3
"""Values of `a` begin below it and are changed to others above it."""


@dataclass(frozen=True)
class Sent:
    """A proposal in the log: what it must come to (None: it must be refused), and what it was built on."""

    name: str
    envelope: Envelope
    effect: Effect | None

    @property
    def read(self) -> int:
        """The version that it was built on."""
        return self.envelope.lance.read_version

    @property
    def is_folded(self) -> bool:
        """Whether this release folds its operation."""
        return kind_of(self.envelope.lance) in FOLDED


@dataclass
class World:
    """`root` is an empty folder; `stable`: rows keep their ids."""

    root: Path
    stable: bool
    version: int = 1
    waiting: list[Sent] = field(default_factory=list)
    effects: dict[int, list[Effect]] = field(default_factory=dict)
    model: dict[int, Snapshot] = field(default_factory=dict)
    steps: list[list[Entry] | int | str] = field(default_factory=list)
    committed: set[str] = field(default_factory=set)
    written: set[str] = field(default_factory=set)
    key_of_row_id: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.table, self.begun = self.root / "t", self.root / "begun"
        self.keys, self.copies, self.offset = count(), count(), 0
        first = tuple(values_of(next(self.keys), FIRST_COLUMNS) for _ in range(2 * FEW_ROWS))
        lance.write_dataset(
            table_of(first, SCHEMA),
            str(self.table),
            enable_stable_row_ids=self.stable,
            max_rows_per_file=FEW_ROWS,
        )
        self.model[1] = Snapshot().after(Effect("overwrite", adds=first), 1, {})
        self.check()
        shutil.copytree(self.table, self.begun, copy_function=os.link)
        self.ours = owned(self.table)

    def since(self, version: int) -> list[Effect]:
        """What was done after this version, in order."""
        return [effect for number in range(version + 1, self.version + 1) for effect in self.effects[number]]

    def act(self, name: str, picks: Sequence[int], version: int) -> Act | None:
        dataset = lance.dataset(str(self.table), version=version)
        return ACTS[name](Choice(self.model[version], picks, self.keys, dataset))

    def foreign(self, name: str, picks: Sequence[int], back: int) -> None:
        """Another client commits; what pylance rebases by itself maybe from a dataset opened before."""
        read = max(1, self.version - back)
        if any(effect.kind not in PLAIN for effect in self.since(read)):
            read = self.version
        act = self.act(name, picks, read)
        if act is not None and not act.rebases:
            read = self.version
            act = self.act(name, picks, read)
        if act is None:
            return
        act.run(lance.dataset(str(self.table), version=read))
        newest = lance.dataset(str(self.table)).version
        for version in range(self.version + 1, newest + 1):
            self.steps.append(version)
            self.take(version, [act.effect] if version == newest else [])

    def propose(self, name: str, picks: Sequence[int], back: int, *, knows_rows: bool) -> Sent | None:
        """A client that knew an older version sends what it would have done to that."""
        read = max(1, self.version - back)
        act = self.act(name, picks, read)
        if act is None:
            return None
        made = proposed(self.table, read, act.run, self.root / f"copy{next(self.copies)}")
        if not made:
            return None
        transaction = self.reserved(made, read) if len(made) > 1 else made[0]
        if transaction is None:
            return None
        sent = Sent(name, self.envelope(transaction, read), act.effect)
        if transaction.HasField("rewrite"):
            sent.envelope.lance.transaction_properties[ROW_ORDER] = KEPT
        if knows_rows and act.effect.kind in {"delete", "update"}:
            self.name_rows(sent, without_removed=picks[0] % 3 == 0)
        self.waiting.append(sent)
        return sent

    def name_rows(self, sent: Sent, *, without_removed: bool) -> None:
        """Names the rows of a proposal, perhaps only those of fragments of which some rows are left."""
        assert sent.effect is not None
        envelope = sent.envelope
        rows = dict(rows_at(self.table, sent.read, sent.effect.touches))
        delete, update = envelope.lance.delete, envelope.lance.update
        if without_removed and (delete.updated_fragments or update.updated_fragments):
            for number in (*delete.deleted_fragment_ids, *update.removed_fragment_ids):
                rows.pop(number, None)
        for number, offsets in rows.items():
            envelope.affected_rows[number] = offsets

    def envelope(self, transaction: Transaction, read: int) -> Envelope:
        envelope = Envelope(table=canonical(str(self.table)))
        envelope.lance.CopyFrom(transaction)
        envelope.lance.read_version = read
        return envelope

    def reserved(self, made: Sequence[Transaction], read: int) -> Transaction | None:
        """A compaction, its ids reserved at once; None where others than it counts on are free by now."""
        reservation, rewrite = made
        self.fold(len(self.waiting))
        (result,) = self.fold_these([Sent("reserve", self.envelope(reservation, read), Effect("compact"))])
        numbers = [fragment.id for group in rewrite.rewrite.groups for fragment in group.new_fragments]
        free = isinstance(result, Committed) and result.first_fragment_id == min(numbers)
        return rewrite if free else None

    def fold(self, most: int) -> None:
        """The next entries of the log."""
        now, self.waiting = self.waiting[:most], self.waiting[most:]
        self.fold_these(now)

    def fold_these(self, sent: Sequence[Sent]) -> list[Result]:
        group = entries([proposal.envelope for proposal in sent], self.offset)
        self.offset += len(group)
        results: list[Result] = []
        for part in groups_of(group, FORMAT, TOGETHER):
            results += self.fold_group(list(part), sent[len(results) : len(results) + len(part)])
        return results

    def fold_group(self, group: list[Entry], sent: Sequence[Sent]) -> list[Result]:
        step = self.ours.fold(group)
        self.steps.append(group)
        assert [outcome.position for outcome in step.outcomes] == [entry.position for entry in group]
        done: list[Effect] = []
        results = [outcome.result for outcome in step.outcomes]
        for first, result in zip(sent, results, strict=True):
            since = [*self.since(first.read), *done] if first.read <= self.version else []
            if self.passed(first, result, since):
                assert first.effect is not None
                done.append(first.effect.behind(since))
        assert (step.publication is not None) >= bool(done)
        if step.publication is not None:
            assert step.publication.version == self.version + 1
            self.written |= {file.path for file in step.publication.before}
            # A version that only fences says that it is an Append, and others keep away from it as from one.
            self.take(self.version + 1, done or [Effect("append")])
        return results

    def passed(self, sent: Sent, result: Result, since: Sequence[Effect]) -> bool:
        """Whether the proposal is part of the table now; fails if that is the wrong answer."""
        event(f"{sent.name}: {type(result).__name__}")
        text = f"{sent.name} on version {sent.read}: {result}"
        if sent.envelope.lance.uuid in self.committed:
            assert isinstance(result, Duplicate), text
            return False
        if isinstance(result, Committed):
            assert result.version == self.version + 1, text
            assert sent.effect is not None, text
            assert must_refuse(sent.effect, since) == "", text
            self.committed.add(sent.envelope.lance.uuid)
            return True
        if sent.effect is not None and sent.is_folded:
            assert not isinstance(result, Invalid), text
            knows_rows = bool(sent.envelope.affected_rows)
            assert not must_commit(sent.effect, since, knows_rows=knows_rows), text
        return False

    def take(self, version: int, effects: list[Effect]) -> None:
        """The model follows to a version, and is compared."""
        snapshot = self.model[self.version]
        for effect in effects:
            snapshot = snapshot.after(effect, version, self.model)
        self.version = version
        self.effects[version], self.model[version] = effects, snapshot
        self.check()

    def take_over(self) -> None:
        """Another committer continues."""
        self.steps.append(TAKE_OVER)
        self.ours = owned(self.table)

    def check(self) -> None:
        """The table is what the model says, as pylance reads it, and breaks no invariant."""
        after = state(self.table, self.version)
        audit(self.table, state(self.table, self.version - 1) if self.version > 1 else None, after)
        dataset = lance.dataset(str(self.table), version=self.version)
        dataset.validate()
        snapshot = self.model[self.version]
        assert tuple(field.name for field in dataset.schema) == snapshot.names
        assert dataset.count_rows() == len(snapshot.rows)
        columns = [*snapshot.names, *(LINEAGE if self.stable else ())]
        values = {row["k"]: row for row in dataset.to_table(columns=columns).to_pylist()}
        expected = {key: dict(row.values) for key, row in snapshot.rows.items()}
        assert {key: {name: row[name] for name in snapshot.names} for key, row in values.items()} == expected
        if self.stable:
            self.check_lineage(values)
        self.check_scans(dataset, snapshot)

    def check_lineage(self, values: dict[int, dict[str, int]]) -> None:
        """Row ids never change and never name another row; versions are those of the model."""
        snapshot = self.model[self.version]
        rows = dict(snapshot.rows)
        for key, row in snapshot.rows.items():
            row_id, created, updated = (values[key][name] for name in LINEAGE)
            assert row.row_id in (None, row_id)
            assert self.key_of_row_id.setdefault(row_id, key) == key
            assert (key, created) == (key, row.created)
            assert (key, updated in row.updated) == (key, True), (updated, row.updated)
            rows[key] = replace(row, row_id=row_id, updated=frozenset({updated}))
        self.model[self.version] = Snapshot(rows, snapshot.names)

    def check_scans(self, dataset: lance.LanceDataset, snapshot: Snapshot) -> None:
        """Scans that an index may answer."""
        text = f"s{self.version % 3}"
        small = {key for key, row in snapshot.rows.items() if number_of(row.values["a"]) < LIMIT}
        texts = {key for key, row in snapshot.rows.items() if row.values["s"] == text}
        for condition, matches in (
            (f"a < {LIMIT}", small),
            (f"a >= {LIMIT}", snapshot.rows.keys() - small),
            (f"s = '{text}'", texts),
        ):
            rows = dataset.to_table(columns=["k"], filter=condition)["k"].to_pylist()
            assert (condition, sorted(rows)) == (condition, sorted(matches))

    def replay(self) -> None:
        """The same entries on a copy of the start, with the same versions of others: the same bytes."""
        again = self.root / "again"
        shutil.copytree(self.begun, again, copy_function=os.link)
        link_files(self.table, again, without=self.written)
        ours = owned(again)
        versions = manifest_files(self.table)
        for step in self.steps:
            if isinstance(step, int):
                os.link(versions[step - 1], again / "_versions" / versions[step - 1].name)
            elif isinstance(step, str):
                ours = owned(again)
            else:
                ours.fold(step)
        assert [path.name for path in manifest_files(again)] == [path.name for path in versions]
        for path in versions:
            assert (again / "_versions" / path.name).read_bytes() == path.read_bytes()
        for name in self.written:
            assert (again / name).read_bytes() == (self.table / name).read_bytes()
