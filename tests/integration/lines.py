"""A branch of a table that many clients change at once, and what it must contain in the end.

Clients propose what pylance made of an older version in a folder of their own, or commit by pylance itself.
In the end the log's outcomes and plain rows show, version by version, what the table must contain.
"""

from __future__ import annotations

import os
import shutil
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING

import lance

from lakefold_committer.tables.table_writer import TableWriter
from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_table.branch_names import branch_root
from lakefold_table.entry import Committed, Duplicate, Rejected
from lakefold_table.lance.manifests.naming import Scheme
from lakefold_table.lance.rows.deletions import deletion_path
from lakefold_table.marks.record import decode_record
from lakefold_table.storage.local import LocalStorage
from lakefold_table.versions.stored_table import StoredTable
from lakefold_table.versions.versions import Versions
from tests.folding import FORMAT
from tests.oracle.committing import state
from tests.oracle.manifests import manifest_files
from tests.oracle.operations import version_in
from tests.properties.audits import audit
from tests.properties.copies import rows_at
from tests.properties.model import Effect, Row, Snapshot, must_commit, must_refuse

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from lakefold_log.read.outcomes import OutcomeWaiter
    from lakefold_protos.lance.table_pb2 import DataFragment
    from lakefold_protos.lance.transaction_pb2 import Transaction
    from lakefold_table.entry import Outcome
    from lakefold_table.marks.record import Record
    from lakefold_table.position import Position
    from tests.properties.acts import Act

SHARED_FOLDERS = ("data", "_deletions", "_indices")
"""What writers leave before they propose."""


@dataclass(frozen=True)
class Sent:
    """A proposal in the log, and what it does if it is committed."""

    name: str
    envelope: Envelope
    effect: Effect

    @property
    def uuid(self) -> str:
        """By what a repetition is recognised."""
        return self.envelope.lance.uuid

    @property
    def read(self) -> int:
        """The version that it was built on."""
        return self.envelope.lance.read_version


@dataclass
class Line:
    """`root`: the root of its versions. `uri`, `branch`: as in its proposals. `sent`: by offset."""

    root: Path
    uri: str
    scratch: Path
    branch: str = ""
    sent: dict[int, Sent] = field(default_factory=dict)
    foreign: dict[int, Effect] = field(default_factory=dict)
    model: dict[int, Snapshot] = field(default_factory=lambda: {0: Snapshot()})

    def __post_init__(self) -> None:
        self._copies = count()
        self._lock = threading.Lock()
        self.last: Position | None = None
        self._own: dict[int, Record | None] = {}

    @property
    def storage(self) -> LocalStorage:
        """Its root."""
        return LocalStorage(self.root)

    @property
    def versions(self) -> Versions:
        """Its versions."""
        return Versions(self.storage, FORMAT.folder, FORMAT.detect)

    def opened(self, storage: LocalStorage) -> TableWriter:
        """Returns the branch as a committer opens it that reaches its disk so."""
        return TableWriter(StoredTable(FORMAT, Versions(storage, FORMAT.folder, FORMAT.detect)))

    def at(self, version: int) -> lance.LanceDataset:
        """A version, as pylance opens it."""
        return lance.dataset(str(self.root), version=version)

    def newest(self) -> int:
        """Returns the newest version, 0 if none exists yet."""
        paths = manifest_files(self.root)
        return (Scheme.V2.parse(paths[-1].name) or 0) if paths else 0

    def rows(self, version: int) -> Snapshot:
        """The rows of a version, as pylance reads them."""
        table = self.at(version).to_table()
        return Snapshot(
            {row["k"]: Row(row, 0, frozenset()) for row in table.to_pylist()}, tuple(table.schema.names)
        )

    def envelope(self, transaction: Transaction, read: int, act: Act | None = None) -> Envelope:
        """The transaction, as a proposal that says which rows the act touches."""
        envelope = Envelope(table=self.uri, branch=self.branch)
        envelope.lance.CopyFrom(transaction)
        envelope.lance.read_version = read
        if act is not None and act.effect.kind in {"delete", "update"}:
            for number, rows in rows_at(self.root, read, act.effect.touches).items():
                envelope.affected_rows[number] = rows
        return envelope

    def made(self, act: Act, read: int) -> list[Transaction]:
        """What pylance commits for the act on an older version, in a folder of its own.

        The files that it needs lie in the table then. None where pylance found nothing to do.
        """
        with self._lock:
            folder = self.scratch / f"copy{next(self._copies)}"
        # pylance opens a branch only at the path of its name.
        copy = folder / branch_root(self.branch) if self.branch else folder
        (copy / "_versions").mkdir(parents=True)
        for path in manifest_files(self.root):
            if (Scheme.V2.parse(path.name) or 0) <= read:
                os.link(path, copy / "_versions" / path.name)
        known = len(manifest_files(copy))
        _link(self.root, copy)
        act.run(lance.dataset(str(copy)))
        _link(copy, self.root)
        made = [version_in(path).transaction for path in manifest_files(copy)[known:]]
        shutil.rmtree(folder)
        return [transaction for transaction in made if transaction is not None]

    def note(self, position: Position, sent: Sent) -> None:
        """It is in the log now."""
        with self._lock:
            self.sent[position.offset] = sent
            if self.last is None or position.offset > self.last.offset:
                self.last = position

    def wait_for_last(self, waiter: OutcomeWaiter, timeout_s: float) -> None:
        """Waits until the last proposal in the log is answered."""
        with self._lock:
            position = self.last
            assert position is not None
            envelope = self.sent[position.offset].envelope
        waiter.wait(position, envelope, timeout_s)

    def commit(self, act: Act) -> None:
        """Another client does it, without us; for one thread."""
        with suppress(OSError):  # It lost too often, and says so.
            act.run(lance.dataset(str(self.root)))
        for number in range(max(self._own, default=0) + 1, self.newest() + 1):
            self._own[number] = self.record(number)
            if self._own[number] is None:
                self.foreign[number] = act.effect

    def record(self, version: int) -> Record | None:
        """What a version that a committer made says of the log; None for any other."""
        properties = StoredTable(FORMAT, self.versions).own_properties(version)
        return None if properties is None else decode_record(properties)

    def check(self, outcomes: Mapping[int, Outcome]) -> None:
        """Every version holds what the outcomes say, every outcome is right, and pylance finds no fault."""
        first = min(self.versions.numbers())
        assert self.versions.numbers() == list(range(first, self.newest() + 1))
        effects = self._played(first, outcomes)
        before = None
        for version in range(first, self.newest() + 1):
            after = state(self.root, version)
            audit(self.root, before, after)
            before = after
            wanted, snapshot = self.model[version], self.rows(version)
            assert snapshot.names == wanted.names
            assert _plain(snapshot) == _plain(wanted), f"version {version}: {effects[version]}"
        self.at(self.newest()).validate()
        self._check_answers(outcomes, effects)
        self._check_orphans(outcomes)

    def _played(self, first: int, outcomes: Mapping[int, Outcome]) -> dict[int, list[Effect]]:
        """The model of each version, and what each version did."""
        covered, answered = -1, set()
        effects: dict[int, list[Effect]] = {}
        for version in range(first, self.newest() + 1):
            snapshot = self.model[version - 1]
            record, effects[version] = self.record(version), []
            if record is None:
                effects[version].append(self.foreign[version])
            else:
                assert record.first_offset > covered or record.last_offset < record.first_offset
                covered = max(covered, record.last_offset)
                answered |= set(record.committed)
            for offset in sorted(record.committed) if record else ():
                assert outcomes[offset].result == record.committed[offset] if record else False
                sent = self.sent[offset]
                since = [
                    effect for past in range(sent.read + 1, version + 1) for effect in effects.get(past, [])
                ]
                assert must_refuse(sent.effect, since) == "", f"{sent.name} on version {sent.read}"
                effects[version].append(sent.effect)
            for effect in effects[version]:
                gone = effect.touches - snapshot.rows.keys()
                assert not gone or version in self.foreign, f"rows {sorted(gone)} were touched when gone"
                snapshot = snapshot.after(effect, version, self.model)
            # A version that only fences says that it is an Append, and others keep away from it as from one.
            effects[version] = effects[version] or [Effect("append")]
            self.model[version] = snapshot
        committed = {at for at in self.sent if isinstance(outcomes[at].result, Committed)}
        assert answered == committed
        return effects

    def _check_answers(
        self, outcomes: Mapping[int, Outcome], effects: Mapping[int, Iterable[Effect]]
    ) -> None:
        """A repetition is a Duplicate, and nothing is refused beside what it goes with."""
        done: dict[str, int] = {}
        for offset in sorted(self.sent):
            sent, result = self.sent[offset], outcomes[offset].result
            text = f"{sent.name} on version {sent.read}: {result}"
            if sent.uuid in done:
                assert result == Duplicate(done[sent.uuid], self._rolled_back(offset, done, outcomes)), text
            elif isinstance(result, Committed):
                done[sent.uuid] = result.version
            else:
                assert isinstance(result, Rejected), text
                until = self._next_version(offset, outcomes)
                since = [
                    effect for past in range(sent.read + 1, until + 1) for effect in effects.get(past, ())
                ]
                clash = must_refuse(sent.effect, since)
                assert clash or not result.conflict.row_addresses, f"{text}: nobody else touched these rows"
                assert not must_commit(sent.effect, since, knows_rows=bool(sent.envelope.affected_rows)), text

    def _rolled_back(self, offset: int, done: Mapping[str, int], outcomes: Mapping[int, Outcome]) -> int:
        """The version that took back what is repeated here, 0 if none did before this repetition."""
        version = done[self.sent[offset].uuid]
        for at in sorted(self.sent):
            restores, result = self.sent[at].effect.restores, outcomes[at].result
            if (
                restores
                and at < offset
                and isinstance(result, Committed)
                and restores < version < result.version
            ):
                return result.version
        return 0

    def _next_version(self, offset: int, outcomes: Mapping[int, Outcome]) -> int:
        """A version that no entry before this entry came after."""
        later = (outcomes[at].result for at in sorted(self.sent) if at > offset)
        return next(
            (committed.version for committed in later if isinstance(committed, Committed)), self.newest()
        )

    def _check_orphans(self, outcomes: Mapping[int, Outcome]) -> None:
        """No version names a file of a proposal that was refused."""
        done = {sent.uuid for at, sent in self.sent.items() if isinstance(outcomes[at].result, Committed)}
        refused = [sent.envelope.lance for sent in self.sent.values() if sent.uuid not in done]
        orphans = {name for transaction in refused for name in _brought(transaction)}
        for path in manifest_files(self.root):
            fragments = version_in(path).manifest.fragments
            assert not orphans & {*_data_files(fragments), *_deletion_files(fragments)}


def _plain(snapshot: Snapshot) -> dict[int, dict[str, object]]:
    return {key: dict(row.values) for key, row in snapshot.rows.items()}


def _link(source: Path, target: Path) -> None:
    """Gives the target the files of the source that belong to no version, while others write there too."""
    for folder in SHARED_FOLDERS:
        for path in (source / folder).rglob("*"):
            link = target / path.relative_to(source)
            if path.is_file() and not link.exists():
                link.parent.mkdir(parents=True, exist_ok=True)
                with suppress(FileNotFoundError, FileExistsError):
                    os.link(path, link)


def _brought(transaction: Transaction) -> Iterator[str]:
    """The files that a proposal would have the table name."""
    yield from _data_files(transaction.append.fragments)
    yield from _data_files(transaction.update.new_fragments)
    yield from _deletion_files(transaction.delete.updated_fragments)
    yield from _deletion_files(transaction.update.updated_fragments)
    for group in transaction.rewrite.groups:
        yield from _data_files(group.new_fragments)


def _data_files(fragments: Iterable[DataFragment]) -> Iterator[str]:
    return (file.path for fragment in fragments for file in fragment.files)


def _deletion_files(fragments: Iterable[DataFragment]) -> Iterator[str]:
    return (
        deletion_path(fragment.id, fragment.deletion_file)
        for fragment in fragments
        if fragment.HasField("deletion_file")
    )
