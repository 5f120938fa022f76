"""Random histories with clean-ups at every point, ours and pylance's: nothing is removed that is needed.

Needed are the rows of each version that exists, of all branches; the versions that tags and consumers name;
the files of proposals that wait, and the versions that they were built on; and the files of refused proposals
while they may be sent again. A proposal may also be sent again while a round of maintenance runs.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

import lance
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakefold_maintenance.files import clean_up
from lakefold_maintenance.files.refused_files import Refusals
from lakefold_maintenance.files.removal_note import NOTICE_S, read_note
from lakefold_maintenance.lance import unnamed_files
from lakefold_maintenance.lance.names import files_of
from lakefold_maintenance.scheduling.table_maintenance import MaintenanceParts
from lakefold_maintenance.scheduling.waiting_proposals import WaitingProposals, waiting_of
from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_protos.lance.table_pb2 import DeletionFile
from lakefold_reader.tail.tail import tail
from lakefold_table.bitmaps import Bitmap, encode_bitmap
from lakefold_table.entry import Committed, Invalid, Rejected
from lakefold_table.lance.rows.deletions import BITMAP, deletion_path, encode_deletions
from lakefold_table.storage.local import LocalStorage
from tests.oracle.committing import proposal, state, written
from tests.oracle.compactions import rows
from tests.oracle.test_compacting import made
from tests.oracle.test_upkeep import Surroundings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

REFUSED_FILES, UNNAMED_FILES = timedelta(hours=1), timedelta(hours=2)
POLICY: Final = {"refused_files": "1h", "unnamed_files": "2h", "version_age": "0s", "growth": "2"}
PAUSES: Final = (timedelta(minutes=1), timedelta(seconds=NOTICE_S + 1), timedelta(hours=3))
CONSUMER: Final = "reader"
waiting_in = waiting_of


@dataclass
class Cleaned(Surroundings):
    """A table, what was sent for it, and what must not be lost.

    `contents`: the values of each version that was seen, by its branch. `dead`: refused proposals, each with
    the time of its last refusal. `meanwhile`: what others do while a round runs, once it has read what waits.
    `removed_by_pylance`: data files of old versions. A Delete that was built on such a version names them.
    """

    sent: list[Envelope] = field(default_factory=list)
    dead: list[Envelope] = field(default_factory=list)
    contents: dict[tuple[str, int], list[int]] = field(default_factory=dict)
    branches: list[str] = field(default_factory=list)
    meanwhile: Callable[[], object] = lambda: None
    removed_by_pylance: set[str] = field(default_factory=set)
    count: int = 0

    @property
    def parts(self) -> MaintenanceParts:
        parts = super().parts

        def refused(_: object) -> Refusals:
            meanwhile, self.meanwhile = self.meanwhile, lambda: None
            meanwhile()
            return Refusals(self.refused, self.conflicts)

        return MaintenanceParts(
            parts.open_log,
            lambda _: waiting_in(self.sent, ""),
            refused,
            parts.go_on,
            parts.engine,
            parts.metrics,
            now=lambda: self.now,
            load=lambda: 0.0,
        )

    def act(self, kind: str, number: int) -> None:
        """Does one step, then checks everything."""
        getattr(self, f"do_{kind}")(number)
        self.check()

    def do_append(self, number: int) -> None:
        self.count += 1
        envelope = proposal(
            self.table, written(self.table, rows(1000 * self.count)), self.newest, f"append {self.count}"
        )
        self.sent.append(envelope)
        if number % 2:
            self.do_fold(0)

    def do_delete(self, number: int) -> None:
        """Sends a Delete of a row of a fragment of which no row is deleted."""
        whole = [each for each in state(self.table).fragments if not each.HasField("deletion_file")]
        if not whole:
            return
        self.count += 1
        fragment = whole[number % len(whole)]
        envelope = Envelope(table=self.log_table)
        envelope.lance.uuid, envelope.lance.read_version = f"delete {self.count}", self.newest
        updated = envelope.lance.delete.updated_fragments.add()
        updated.CopyFrom(fragment)
        gone = Bitmap([number % fragment.physical_rows])
        file = DeletionFile(
            file_type=BITMAP, read_version=self.newest, id=2**40 + self.count, num_deleted_rows=1
        )
        updated.deletion_file.CopyFrom(file)
        LocalStorage(self.table).put(deletion_path(fragment.id, file), [encode_deletions(gone, BITMAP)])
        envelope.affected_rows[fragment.id] = encode_bitmap(gone)
        self.sent.append(envelope)

    def do_fold(self, _: int) -> None:
        if self.sent:
            self.fold(self.sent.pop(0))

    def do_refuse(self, _: int) -> None:
        """Sends an Append whose file comes only after its refusal."""
        self.do_append(0)
        envelope = self.sent.pop()
        (path,) = files_of(envelope)
        aside = self.table.with_name("aside")
        (self.table / path).rename(aside)
        assert isinstance(self.fold(envelope), Invalid)
        aside.rename(self.table / path)

    def do_redrive(self, number: int) -> None:
        """Sends a refused proposal again, as `lakefold redrive` does; its files may be gone."""
        if self.dead:
            envelope = self.dead[number % len(self.dead)]
            listed = read_note(LocalStorage(self.table)).removing.keys()
            here = all((self.table / path).exists() for path in files_of(envelope))
            if here and listed.isdisjoint(files_of(envelope)):
                self.dead.remove(envelope)
                self.sent.append(envelope)

    def do_meanwhile(self, number: int) -> None:
        """A round, during which a refused proposal is sent again."""
        self.meanwhile = lambda: self.do_redrive(number)
        self.do_ours(0)

    def do_stray(self, _: int) -> None:
        """A process is killed after it has written a file."""
        written(self.table, rows(0))

    def do_tag(self, number: int) -> None:
        versions = self.versions()
        tags = lance.dataset(str(self.table)).tags
        name = f"tag{number % 3}"
        if name in tags.list():
            tags.delete(name)
        else:
            tags.create(name, versions[number % len(versions)])

    def do_branch(self, number: int) -> None:
        if len(self.branches) < 2:
            versions = self.versions()
            name = f"branch{len(self.branches)}"
            lance.dataset(str(self.table)).create_branch(name, versions[number % len(versions)])
            self.branches.append(name)

    def do_consume(self, number: int) -> None:
        reader = tail(str(self.table), "earliest", consumer=CONSUMER)
        for _ in range(number % 3):
            with suppress(StopIteration):
                next(iter(reader))
        reader.commit()

    def do_pause(self, number: int) -> None:
        self.now += PAUSES[number % len(PAUSES)]

    def do_ours(self, number: int) -> None:
        """A round, with a compaction or without."""
        needed = {envelope.lance.read_version for envelope in self.sent} & set(self.versions())
        self.upkeep(**POLICY, compaction="true" if number % 3 == 0 else "false", target_rows="40").round()
        assert needed <= set(self.versions())

    def do_theirs(self, _: int) -> None:
        dataset = lance.dataset(str(self.table))
        versions = [dataset.checkout_version(version) for version in self.versions()]
        named = {
            f"data/{file.path}"
            for version in versions
            for fragment in version.get_fragments()
            for file in fragment.data_files()
        }
        # It stops if there are tags, those of consumers as well.
        with suppress(OSError):
            dataset.cleanup_old_versions(older_than=timedelta(0))
        self.removed_by_pylance |= {path for path in named if not (self.table / path).exists()}

    @property
    def newest(self) -> int:
        return lance.dataset(str(self.table)).version

    @property
    def log_table(self) -> str:
        return LocalStorage(self.table).uri

    def fold(self, envelope: Envelope) -> object:
        result = self.log.ask(envelope).result
        if not isinstance(result, Committed):
            self.dead.append(envelope)
            conflicts = isinstance(result, Rejected) and result.conflict.other_version
            known = self.conflicts if conflicts else self.refused
            known |= dict.fromkeys(files_of(envelope), self.now.timestamp())
        return result

    def check(self) -> None:
        """Reads everything that must be there."""
        main = lance.dataset(str(self.table))
        branches = {name: main.checkout_version((name, None)) for name in self.branches}
        for branch, dataset in {"": main, **branches}.items():
            for each in dataset.versions():
                number = each["version"]
                version = dataset.checkout_version((branch, number) if branch else number)
                version.validate()
                values = sorted(version.to_table(columns=["a"])["a"].to_pylist())
                assert self.contents.setdefault((branch, number), values) == values, (branch, number)
        for name, tag in main.tags.list().items():
            assert tag["version"] in self.versions(), name
        self.check_files(self.sent)
        young = [
            path
            for path, refused_at in self.refused.items()
            if self.now.timestamp() - refused_at < REFUSED_FILES.total_seconds()
        ]
        assert [path for path in young if path.startswith("data/") and not (self.table / path).exists()] == []

    def check_files(self, envelopes: Iterable[Envelope]) -> None:
        for envelope in envelopes:
            for path in files_of(envelope):
                assert (self.table / path).exists() or path in self.removed_by_pylance, path

    def fold_all(self) -> None:
        """Folds what waits: nothing of it may have lost its files."""
        for envelope in self.sent:
            assert not isinstance(self.log.ask(envelope).result, Invalid)


def play(history: Iterable[tuple[str, int]]) -> None:
    """Plays a history on a new table, then folds what waits."""
    with TemporaryDirectory() as folder:
        world = Cleaned(made(Path(folder) / "t", stable=False, version="2.1", appends=3))
        world.check()
        for kind, number in history:
            world.act(kind, number)
        world.fold_all()
        world.check()


KINDS: Final = tuple(name.removeprefix("do_") for name in dir(Cleaned) if name.startswith("do_"))
WEIGHTED: Final = (*KINDS, "ours", "ours", "pause", "pause", "refuse", "redrive", "append")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(st.sampled_from(WEIGHTED), st.integers(0, 11)), min_size=4, max_size=16))
def test_nothing_that_is_needed_is_removed(history: list[tuple[str, int]]) -> None:
    play(history)


A_LONG_TIME: Final = ("pause", 2)
NOTICE: Final = ("pause", 1)
HISTORIES: Final[dict[str, list[tuple[str, int]]]] = {
    "a proposal waits that was refused before": [
        ("refuse", 0),
        ("redrive", 0),
        A_LONG_TIME,
        ("ours", 1),
        NOTICE,
        ("ours", 1),
    ],
    "only a tagged version names a file": [
        ("tag", 2),
        ("ours", 0),
        ("append", 1),
        A_LONG_TIME,
        ("ours", 1),
        A_LONG_TIME,
        ("ours", 1),
        NOTICE,
        ("ours", 1),
    ],
    "a proposal is sent again before its files are listed": [("refuse", 0), A_LONG_TIME, ("meanwhile", 0)],
    "a proposal is sent again after its files were listed": [
        ("refuse", 0),
        A_LONG_TIME,
        ("ours", 1),
        NOTICE,
        ("meanwhile", 0),
    ],
    "a refused proposal may be sent again for an hour": [("refuse", 0), ("ours", 1), NOTICE, ("ours", 1)],
}


@pytest.mark.parametrize("name", HISTORIES)
def test_what_is_needed_in_turn(name: str) -> None:
    play(HISTORIES[name])


def test_pylance_may_remove_files_that_a_delete_names() -> None:
    play([("append", 0), ("delete", 0), ("ours", 0), ("theirs", 0)])


def without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(envelopes: Iterable[Envelope], branch: str) -> WaitingProposals:
        return replace(waiting_of(envelopes, branch), files=frozenset())

    monkeypatch.setattr(sys.modules[__name__], "waiting_in", forgetful)


def with_the_newest_version_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def newest(storage: LocalStorage) -> list[bytes]:
        names = sorted(storage.names("_versions"))
        return [storage.get(f"_versions/{names[0]}")]

    monkeypatch.setattr(unnamed_files, "_files", newest)


def without_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clean_up, "NOTICE_S", 0.0)


def with_a_redrive_that_reads_no_note(monkeypatch: pytest.MonkeyPatch) -> None:
    def redrive(world: Cleaned, _: int) -> None:
        world.sent.append(world.dead.pop())

    monkeypatch.setattr(Cleaned, "do_redrive", redrive)


def without_an_age(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(POLICY, "refused_files", "0s")


@pytest.mark.parametrize(
    ("guard", "name"),
    list(
        zip(
            [
                without_waiting,
                with_the_newest_version_alone,
                without_notice,
                with_a_redrive_that_reads_no_note,
                without_an_age,
            ],
            HISTORIES,
            strict=True,
        )
    ),
)
def test_each_guard_is_needed(
    guard: Callable[[pytest.MonkeyPatch], None], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    guard(monkeypatch)
    with pytest.raises((AssertionError, OSError, ValueError)):
        play(HISTORIES[name])
