"""Several committers and lost answers: one version line, one answer a position, and the older one stops."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from lakefold_committer.tables.table_writer import UNKNOWN_PUTS, TableWriter
from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_table.entry import Committed, Duplicate, Invalid, Rejected, Result
from lakefold_table.errors import DamagedError, FencedError, InvalidError, RetryError, StopError
from lakefold_table.format import Publication
from lakefold_table.position import LogId
from lakefold_table.storage.base import Buffer, Put
from lakefold_table.versions.lost_answers import Published
from lakefold_table.versions.stored_table import StoredTable
from lakefold_table.versions.versions import Versions
from tests.folding import FORMAT, LOG, append, changed, creation, entries, fold_at, opened, versions_at
from tests.foreign import commit, roll_back, wipe
from tests.memory_storage import LoseAnswer, MemoryStorage, Refuse

NAME = "table_writer"
HERE = f"memory://{NAME}/t"
MANIFEST = ".manifest"


@pytest.fixture
def store() -> Iterator[MemoryStorage]:
    yield MemoryStorage(HERE)
    MemoryStorage.forget(NAME)


def here(envelope: Envelope) -> Envelope:
    return changed(envelope, lambda e: setattr(e, "table", HERE))


def named(name: str, read: int = 1) -> Envelope:
    return here(append(name, read=read))


BAD = here(changed(append("bad"), lambda e: setattr(e.lance, "read_version", 999)))


def fold_one(table: TableWriter, envelope: Envelope, offset: int, log: LogId = LOG) -> Result:
    return fold_at(table, [envelope], offset, log)[0].result


def begun() -> TableWriter:
    """A committer that made the table's first version, of epoch 1."""
    table = opened(HERE)
    assert fold_one(table, here(creation()), 0) == Committed(1)
    return table


def epoch() -> int:
    return opened(HERE).table.marks.epoch


def rows() -> list[str]:
    """The names of all data files, in order."""
    state = opened(HERE).table.state
    return [fragment.files[0].path.removesuffix("-0.lance") for fragment in state.fragments]  # type: ignore[union-attr]


@pytest.mark.usefixtures("store")
def test_a_file_is_missing_although_the_first_version_is_not_put_yet() -> None:
    """An entry of the next group is folded on a table that only this process knows."""
    table = TableWriter(StoredTable(FORMAT, versions_at(HERE)))
    created = table.prepare(entries([here(creation())], 0))
    refused = table.prepare(entries([named("missing")], 1))
    (outcome,) = refused.folded.outcomes
    assert isinstance(outcome.result, Invalid)
    assert "is missing" in outcome.result.message
    for prepared in (created, refused):
        assert table.put(prepared)
        table.confirm(prepared)


@pytest.mark.usefixtures("store")
def test_whoever_comes_later_owns_the_table() -> None:
    first = begun()
    second = opened(HERE)
    assert isinstance(fold_one(second, named("f"), 1), Committed)
    assert epoch() == 2
    with pytest.raises(StopError, match="by a committer of a later epoch: 2, this one has 1"):
        fold_one(first, named("f"), 1)
    assert rows() == ["f"]


@pytest.mark.usefixtures("store")
def test_a_refusal_is_given_only_on_the_newest_version() -> None:
    """The older committer must not report answers about a table that others have continued."""
    first = begun()
    fold_one(opened(HERE), named("f"), 1)
    with pytest.raises(StopError):
        fold_one(first, BAD, 1)


@pytest.mark.usefixtures("store")
def test_a_new_owner_shows_its_epoch_before_it_refuses() -> None:
    begun()
    second = opened(HERE)
    assert isinstance(fold_one(second, BAD, 1), Invalid)
    assert epoch() == 2
    before = versions_at(HERE).latest()
    assert isinstance(fold_one(second, BAD, 2), Invalid)
    assert versions_at(HERE).latest() == before


@pytest.mark.usefixtures("store")
def test_twins_that_fold_the_same_both_go_on_until_they_differ() -> None:
    """They make the same bytes, so each takes the version for its own, and gives the same answers."""
    begun()
    writer, other = opened(HERE), opened(HERE)
    assert fold_one(writer, named("f"), 1) == fold_one(other, named("f"), 1)
    assert fold_one(writer, named("g"), 2) == fold_one(other, named("g"), 2)
    assert rows() == ["f", "g"]
    fold_one(writer, named("h"), 3)
    answers = fold_at(other, [named("h"), named("i")], 3)
    assert [type(answer.result) for answer in answers] == [Committed, Committed]
    assert epoch() == 3
    with pytest.raises(StopError):
        fold_one(writer, named("i"), 4)
    assert rows() == ["f", "g", "h", "i"]


@pytest.mark.usefixtures("store")
def test_a_twin_that_met_the_other_one_shows_its_new_epoch_before_it_refuses() -> None:
    begun()
    writer, other = opened(HERE), opened(HERE)
    for twin in (writer, other):
        fold_one(twin, named("f"), 1)
    fold_one(writer, named("g"), 2)
    answers = fold_at(other, [named("g"), BAD], 2)
    assert [type(answer.result) for answer in answers] == [Committed, Invalid]
    assert epoch() == 3
    assert versions_at(HERE).latest() == 4


@pytest.mark.usefixtures("store")
def test_a_twin_whose_refusal_the_other_one_answered_differently_stops() -> None:
    """What each saw of the store may differ; only one answer may get out."""
    begun()
    writer, other = opened(HERE, check_sizes=True), opened(HERE)
    for twin in (writer, other):
        fold_at(twin, [here(append("none", fragments=0))], 1)
    assert isinstance(fold_one(writer, named("f"), 2), Invalid)
    assert isinstance(fold_one(other, named("f"), 2), Committed)
    with pytest.raises(StopError, match="another committer has answered transactions/0@2 in version 3"):
        fold_one(writer, here(append("more", fragments=0)), 3)


@pytest.mark.usefixtures("store")
def test_a_table_created_meanwhile_is_taken_over() -> None:
    late, early = opened(HERE), opened(HERE)
    assert fold_one(early, here(creation()), 0) == Committed(1)
    answers = fold_at(late, [here(creation()), named("f")], 0)
    assert answers[0].result == Committed(1)
    assert isinstance(answers[1].result, Committed)
    assert epoch() == 2


@pytest.mark.usefixtures("store")
def test_refusals_given_before_another_one_created_the_table() -> None:
    """Both gave the same, and the table records it."""
    late, early = opened(HERE), opened(HERE)
    assert isinstance(fold_one(late, named("f"), 0), Invalid)
    assert isinstance(fold_at(early, [named("f")], 0)[0].result, Invalid)
    fold_one(early, here(creation()), 1)
    assert isinstance(fold_one(late, here(creation(uuid="x")), 2), Rejected)
    assert late.table.marks.epoch == 2
    with pytest.raises(FencedError, match="later epoch"):
        fold_one(early, named("g"), 2)


@pytest.mark.usefixtures("store")
def test_a_put_that_arrives_late_is_recognised() -> None:
    """Its refusals are recorded; what was folded in a larger group meanwhile is answered as it was."""
    table = begun()
    assert isinstance(fold_one(table, BAD, 1), Invalid)
    late = table.prepare(entries([named("f")], 2))
    table.fall_back()
    assert Versions.publish(versions_at(HERE), late.step.publication) is Published.OURS  # type: ignore[arg-type]
    results = [outcome.result for outcome in fold_at(table, [named("f"), named("g")], 2)]
    assert [type(result) for result in results] == [Committed, Committed]
    assert rows() == ["f", "g"]
    assert [committed.version for committed in results if isinstance(committed, Committed)] == [2, 3]


@pytest.mark.usefixtures("store")
def test_what_was_prepared_on_a_lost_put_is_prepared_again() -> None:
    table = begun()
    first = table.prepare(entries([named("f")], 1))
    second = table.prepare(entries([named("g")], 2))
    commit(HERE, "delete")
    assert not table.put(first)
    table.fall_back(lost=True)
    for prepared in (table.prepare(entries([named("f")], 1)), table.prepare(entries([named("g")], 2))):
        assert table.put(prepared)
        assert isinstance(table.confirm(prepared).outcomes[0].result, Committed)
    assert rows() == ["f", "g"]
    assert second.step.publication is not None
    assert table.table.version == second.step.publication.version + 1


@pytest.mark.usefixtures("store")
def test_a_table_that_was_let_go_is_owned_as_before() -> None:
    table = begun()
    again = opened(HERE)
    again.resume(table.epoch)
    assert isinstance(fold_one(again, BAD, 1), Invalid)
    assert again.table.version == 1
    other = opened(HERE)
    fold_one(other, named("f"), 1)
    again = opened(HERE)
    again.resume(table.epoch)
    assert again.epoch == other.epoch + 1


@pytest.mark.usefixtures("store")
def test_versions_of_others_are_followed() -> None:
    table = begun()
    commit(HERE, "delete")
    commit(HERE, "update")
    assert isinstance(fold_one(table, named("f"), 1), Committed)
    assert table.table.version == 4
    commit(HERE, "restore", roll_back(dict(versions_state(1).metadata)))
    assert isinstance(fold_one(table, named("g", read=4), 2), Rejected)
    commit(HERE, "update_config", wipe)
    assert isinstance(fold_one(table, named("h", read=6), 3), Committed)
    assert opened(HERE).table.marks.offset_of(LOG) == 3


def versions_state(version: int):  # type: ignore[no-untyped-def]  # noqa: ANN201 - a state of any format
    versions = versions_at(HERE)
    return FORMAT.decode(versions.path(version), versions.read(version))


def test_a_foreign_version_that_we_may_not_write_on_stops_the_folding(store: MemoryStorage) -> None:
    table = begun()
    commit(HERE, "delete", lambda head: setattr(head, "writer_feature_flags", 64))
    with pytest.raises(InvalidError, match="can't be written"):
        fold_one(table, named("f"), 1)
    assert store.size(versions_at(HERE).path(3)) is None


@pytest.mark.parametrize("stored", [True, False])
def test_a_lost_answer_is_no_lost_entry(store: MemoryStorage, *, stored: bool) -> None:
    table = begun()
    store.faults.plan(LoseAnswer(stored=stored, suffix=MANIFEST))
    assert isinstance(fold_one(table, named("f"), 1), Committed)
    assert isinstance(fold_one(table, named("g"), 2), Committed)
    assert rows() == ["f", "g"]
    assert table.table.version == 3


def test_a_store_that_never_answers_is_tried_again_later(store: MemoryStorage) -> None:
    table = begun()
    store.faults.plan(*[LoseAnswer(stored=False, suffix=MANIFEST)] * UNKNOWN_PUTS)
    with pytest.raises(RetryError, match="without an answer"):
        fold_one(table, named("f"), 1)
    assert isinstance(fold_one(table, named("f"), 1), Committed)
    store.faults.plan(Refuse(suffix=MANIFEST))
    with pytest.raises(RetryError):
        fold_one(table, named("g"), 2)
    assert isinstance(fold_one(table, named("g"), 2), Committed)
    assert rows() == ["f", "g"]


class Racing(MemoryStorage):
    """A store in which another client commits right before each put, several times."""

    races = 0

    def put_if_absent(self, path: str, buffers: Sequence[Buffer]) -> Put:
        """See `Storage.put_if_absent`."""
        if self.races:
            self.races -= 1
            commit(HERE, "delete")
        return super().put_if_absent(path, buffers)


@pytest.mark.usefixtures("store")
def test_a_lost_put_is_folded_again_on_the_winner_s_version() -> None:
    begun()
    racing = Racing(HERE)
    versions = Versions(racing, FORMAT.folder, FORMAT.detect)
    table = TableWriter(StoredTable(FORMAT, versions), check_sizes=False)
    racing.races = 3
    result = fold_one(table, named("f"), 1)
    assert isinstance(result, Committed)
    assert (result.version, result.rebased) == (5, True)
    assert rows() == ["f"]


@pytest.mark.usefixtures("store")
def test_a_stray_entry_in_another_partition_leaves_the_table_alone() -> None:
    owner, other = begun(), replace(LOG, partition=7)
    stray = opened(HERE)
    for offset in (50, 51):
        assert isinstance(fold_one(stray, named("stray"), offset, other), Invalid)
        assert isinstance(fold_one(owner, named(f"f{offset}"), offset), Committed)
    successor = opened(HERE)
    assert isinstance(fold_one(successor, named("g"), 60), Committed)
    assert isinstance(fold_one(stray, named("stray"), 52, other), Invalid)
    assert epoch() == 2
    assert rows() == ["f50", "f51", "g"]


@pytest.mark.usefixtures("store")
def test_a_committer_that_loses_the_race_for_a_new_table_to_another_partition_refuses() -> None:
    other = replace(LOG, partition=7)
    stray = opened(HERE)
    begun()
    fold_one(opened(HERE), named("f"), 1)
    answers = fold_at(stray, [here(creation(uuid="stray")), named("g")], 0, other)
    assert [type(answer.result) for answer in answers] == [Invalid, Invalid]


@pytest.mark.usefixtures("store")
def test_sizes_are_checked_where_that_is_cheap() -> None:
    begun()
    table = TableWriter(StoredTable(FORMAT, versions_at(HERE)))
    missing = fold_one(table, named("f"), 1)
    assert isinstance(missing, Invalid)
    assert "data/f-0.lance is missing" in missing.message
    versions_at(HERE).storage.put("data/f-0.lance", [b"x" * 1000])
    assert isinstance(fold_one(table, named("f"), 2), Committed)


@pytest.mark.parametrize(
    "path", ["../../etc/passwd", "x" * 300, "a/" * 3000 + "b", "a\0b", ".tmp1", "a.lance/b/"]
)
@pytest.mark.usefixtures("store")
def test_no_path_in_a_message_ends_the_committer(path: str) -> None:
    begun()
    table = TableWriter(StoredTable(FORMAT, versions_at(HERE)))
    envelope = named("f")
    envelope.lance.append.fragments[0].files[0].path = path
    assert isinstance(fold_one(table, envelope, 1), Invalid)


@pytest.mark.usefixtures("store")
def test_an_older_version_that_is_damaged_refuses_whoever_needs_it(store: MemoryStorage) -> None:
    begun()
    for _ in range(3):
        commit(HERE, "project")
    commit(HERE, "delete", wipe)
    store.put(versions_at(HERE).path(3), [b"damaged"])
    with pytest.raises(DamagedError):
        opened(HERE)


def test_old_versions_are_read_if_an_entry_needs_them(store: MemoryStorage) -> None:
    """A table of another client: what its versions did is read only if a proposal needs it."""
    fold_one(opened(HERE), here(creation()), 0)
    for kind in ("delete", "update", "delete"):
        commit(HERE, kind, wipe)
    for number in (1, 2):
        store.delete(versions_at(HERE).path(number))
    table = opened(HERE)
    assert table.table.marks.table_id == ""
    assert isinstance(fold_one(table, named("f", read=2), 1), Committed)
    gone = fold_one(table, named("g", read=1), 2)
    assert isinstance(gone, Rejected)
    assert "versions up to 2 are gone" in gone.conflict.message


@pytest.mark.usefixtures("store")
def test_an_old_version_that_is_damaged_counts_as_gone(store: MemoryStorage) -> None:
    """Else one entry that names it would stop the table for all others."""
    fold_one(opened(HERE), here(creation()), 0)
    for kind in ("delete", "update", "delete"):
        commit(HERE, kind, wipe)
    store.delete(versions_at(HERE).path(1))
    store.put(versions_at(HERE).path(3), [b"damaged"])
    answers = fold_at(opened(HERE), [named("f", read=2), named("g", read=4)], 1)
    assert [type(answer.result) for answer in answers] == [Rejected, Committed]


@pytest.mark.usefixtures("store")
def test_a_file_log_records_its_refusals_once() -> None:
    file = LogId(LogId.FILE_CLUSTER, "f", 0)
    table = opened(HERE)
    step = table.fold(entries([here(creation())], 0, file))
    assert isinstance(step.publication, Publication)
    step = table.fold(entries([BAD], 1, file))
    assert isinstance(step.publication, Publication)
    step = table.fold(entries([BAD], 1, file))
    assert step.publication is None
    assert isinstance(step.outcomes[0].result, Invalid)


@pytest.mark.usefixtures("store")
def test_a_file_log_folded_again_changes_nothing_whoever_folds_it() -> None:
    file = LogId(LogId.FILE_CLUSTER, "f", 0)
    group = entries([here(creation())], 0, file)
    assert opened(HERE).fold(group).publication is not None
    again = opened(HERE).fold(group)
    assert again.publication is None
    assert again.outcomes[0].result == Duplicate(1)


@pytest.mark.usefixtures("store")
def test_what_was_folded_is_reported_even_after_the_owner_changed() -> None:
    begun()
    first = fold_one(opened(HERE), here(append("f", app="a", batch=1)), 1)
    again = opened(HERE)
    assert fold_one(again, here(append("f", app="a", batch=1)), 1) == first
    assert fold_one(again, here(append("f", app="a", batch=1)), 2) == Duplicate(2)
