"""Compactions by maintenance, folded by us: pylance reads the same rows of each version, and validates it."""

from __future__ import annotations

import random
import resource
import shutil
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

import lance
import pyarrow as pa
import pytest

from lakefold_committer.tables.branches import located
from lakefold_maintenance.lance.indices import IndexCoverage, IndexReport, optimize_indices
from lakefold_maintenance.lance.proposals import rewrite
from lakefold_maintenance.lance.rewriter import RewrittenTask, open_dataset
from lakefold_maintenance.planning.plan import RewriteTask
from lakefold_maintenance.planning.policy import PREFIX
from lakefold_maintenance.rewriting.compact import Compaction
from lakefold_maintenance.rewriting.engines import InProcess
from lakefold_maintenance.rewriting.survey import Surveyor
from lakefold_reader.formats import open_source
from lakefold_table.entry import Committed, Outcome, Rejected
from lakefold_table.errors import InvalidError, RetryError, VersionExpiredError
from lakefold_table.lance.manifests.features import Flag
from lakefold_table.position import LogId, Position
from lakefold_table.versions.table_address import TableAddress
from tests.oracle.committing import fold, owned, state
from tests.oracle.compactions import append, rows
from tests.oracle.reusing import reservation, versions, with_reuse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from lakefold_maintenance.format import TableSurvey
    from lakefold_maintenance.rewriting.engines import RewriteEngine
    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_protos.lance.table_pb2 import DataFragment
    from lakefold_reader.format.source import Source
    from lakefold_table.entry import Result
    from tests.merging import Batches

LOG = LogId("cluster", "topic", 0)


@dataclass
class FoldingLog:
    """A log whose committer folds each entry at once. `before`: what other clients do before each of them."""

    table: Path
    before: Callable[[Envelope], object] = lambda _: None
    asked: list[Envelope] = field(default_factory=list)
    closed: bool = False

    def ask(self, envelope: Envelope) -> Outcome:
        self.before(envelope)
        self.asked.append(envelope)
        offset = 100 * state(self.table).version + len(self.asked)
        (result,) = fold(owned(self.table), [envelope], offset)
        return Outcome(Position(LOG, offset, "t"), envelope.table, result, envelope.lance.uuid)

    def close(self) -> None:
        self.closed = True


@dataclass(kw_only=True)
class BatchLog(FoldingLog):
    """A log to which a table's batches are sent as well. `results`: what became of the others' proposals."""

    folding: Batches
    results: list[Result] = field(default_factory=list)

    def ask(self, envelope: Envelope) -> Outcome:
        self.before(envelope)
        (result,) = self.folding.fold(envelope)
        self.results.append(result)
        return Outcome(Position(LOG, self.folding.offset, "t"), envelope.table, result, envelope.lance.uuid)


def compaction(
    table: Path, log: FoldingLog, engine: RewriteEngine | None = None, **settings: str
) -> Compaction:
    surveyor = Surveyor(open_source(str(table)), {"target_rows": "1000", **settings})

    def opened(_: TableSurvey) -> FoldingLog:
        return log

    return Compaction(surveyor, opened, engine=engine)


def check(table: Path, before: pa.Table) -> lance.LanceDataset:
    """Reads what is left of the table, which must have the same rows."""
    dataset = lance.dataset(str(table))
    dataset.validate()
    assert dataset.to_table().sort_by("a").equals(before.sort_by("a"))
    for number in before["a"].to_pylist()[::7]:
        assert dataset.to_table(filter=f"a = {number}").num_rows == 1, number
    assert dataset.to_table(filter="a = 100000").num_rows == 0
    return dataset


def made(path: Path, *, stable: bool, version: str, appends: int = 9) -> Path:
    for number in range(appends):
        lance.write_dataset(
            rows(number * 10),
            str(path),
            mode="append" if number else "create",
            enable_stable_row_ids=stable,
            data_storage_version=version,  # type: ignore[arg-type] # one of the literals
        )
    return path


VERSIONS = pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
STABLE = pytest.mark.parametrize("stable", [False, True], ids=["plain", "stable"])


@STABLE
@VERSIONS
def test_small_fragments_become_one(tmp_path: Path, stable: bool, version: str) -> None:  # noqa: FBT001 - a parameter
    table = made(tmp_path / "t", stable=stable, version=version)
    lance.dataset(str(table)).delete("a % 4 = 1")
    before = lance.dataset(str(table)).to_table()
    ids = lance.dataset(str(table)).to_table(with_row_id=True).sort_by("a")["_rowid"]
    log = FoldingLog(table)
    report = compaction(table, log).run(full=True)
    dataset = check(table, before)
    assert log.closed
    assert (report.fragments_before, report.fragments_after) == (9, 1)
    assert (report.tasks, report.rows, report.deleted_rows, report.failed) == (1, len(before), 23, [])
    assert report.version == dataset.version
    (fragment,) = dataset.get_fragments()
    assert fragment.deletion_file() is None
    if stable:
        assert dataset.to_table(with_row_id=True).sort_by("a")["_rowid"].equals(ids)


def test_a_version_that_is_removed_before_it_is_compacted_fails_the_task_alone(tmp_path: Path) -> None:
    """Another maintainer has compacted the table and removed the version meanwhile."""
    table = made(tmp_path / "t", stable=False, version="2.1")
    log = FoldingLog(table)
    surveyor = Surveyor(open_source(str(table)), {"target_rows": "1000"})

    def others_first(_: TableSurvey) -> FoldingLog:
        lance.dataset(str(table)).optimize.compact_files()
        lance.dataset(str(table)).cleanup_old_versions(timedelta(0), delete_unverified=True)
        return log

    report = Compaction(surveyor, others_first).run(full=True)
    assert [type(each.error) for each in report.failed] == [VersionExpiredError]
    assert log.asked == []


def test_files_of_lances_first_format(tmp_path: Path) -> None:
    table = made(tmp_path / "t", stable=False, version="0.1")
    before = lance.dataset(str(table)).to_table()
    compaction(table, FoldingLog(table)).run(full=True)
    assert len(check(table, before).get_fragments()) == 1


@STABLE
def test_indices_find_the_rows_where_they_are_now(tmp_path: Path, stable: bool) -> None:  # noqa: FBT001 - a parameter
    table = made(tmp_path / "t", stable=stable, version="2.1")
    lance.dataset(str(table)).create_scalar_index("a", "BTREE")
    lance.dataset(str(table)).create_scalar_index("s", "BITMAP")
    lance.dataset(str(table)).delete("a % 5 = 0")
    append(lance.dataset(str(table)), 500)
    append(lance.dataset(str(table)), 600)
    before = lance.dataset(str(table)).to_table()
    log = FoldingLog(table)
    report = compaction(table, log).run(full=True)
    dataset = check(table, before)
    assert report.failed == []
    # Fragments that an index covers which follows rows by their ids are not joined with others.
    assert len(dataset.get_fragments()) == (2 if stable else 1)
    texts = before["s"].to_pylist()
    assert dataset.to_table(filter="s = 's1'").num_rows == sum(text == "s1" for text in texts)
    # An index that knows rows by their addresses covers less until it is optimized; a BTREE does in any case.
    used = {name for name in ("a = 7", "s = 's1'") if "ScalarIndexQuery" in explained(dataset, name)}
    assert used == ({"s = 's1'"} if stable else set())
    assert [each.lance.WhichOneof("operation") for each in log.asked] == ["rewrite"] * (2 if stable else 1)
    assert not any(each.HasField("fragment_reuse_index") for each in log.asked)
    # A second compaction of what was compacted, after further appends.
    for first in (700, 710, 720):
        append(dataset, first)
    lance.dataset(str(table)).optimize.optimize_indices()
    before = lance.dataset(str(table)).to_table()
    report = compaction(table, log).run(full=True)
    assert report.failed == []
    check(table, before)
    optimize_indices(open_source(str(table)))
    dataset = check(table, before)
    assert "ScalarIndexQuery" in explained(dataset, "a = 7")
    assert "ScalarIndexQuery" in explained(dataset, "s = 's1'")


def explained(dataset: lance.LanceDataset, where: str) -> str:
    """How pylance finds the rows for which a filter holds."""
    plan: str = dataset.scanner(filter=where).explain_plan()
    return plan


SEARCHED = 300
WORDS = ("ash", "birch", "cedar", "elm", "fir")


def searched_rows(first: int) -> pa.Table:
    """Vectors, each the nearest to itself, and texts, which share words."""
    numbers = range(first, first + SEARCHED)
    vectors = [[float(number), float(number % 7), 1.0, 0.0] for number in numbers]
    return pa.table(
        {
            "a": pa.array(numbers, pa.int64()),
            "v": pa.array(vectors, pa.list_(pa.float32(), 4)),
            "words": [f"{WORDS[number % 5]} {WORDS[number % 3]}" for number in numbers],
        }
    )


def check_searches(table: Path, left: pa.Table) -> None:
    """Checks that searches by vectors and by words find the rows that are left, and no others."""
    dataset = lance.dataset(str(table))
    numbers = left["a"].to_pylist()
    for number in (numbers[0], numbers[len(numbers) // 2], numbers[-1]):
        vector = left["v"].to_pylist()[numbers.index(number)]
        query = {"column": "v", "q": pa.array(vector, pa.float32()), "k": 5, "nprobes": 2}
        near = dataset.to_table(nearest=query)["a"].to_pylist()
        assert near[0] == number
        exact = dataset.to_table(nearest={**query, "use_index": False})["a"].to_pylist()
        assert sorted(near) == sorted(exact)
    for word in WORDS:
        having = [
            number for number, text in zip(numbers, left["words"].to_pylist(), strict=True) if word in text
        ]
        matching = dataset.to_table(full_text_query=word, limit=len(numbers) + 1)["a"].to_pylist()
        assert sorted(matching) == sorted(having)


@STABLE
def test_searches_by_vectors_and_words_find_the_rows_where_they_are_now(
    tmp_path: Path,
    stable: bool,  # noqa: FBT001 - a parameter
) -> None:
    """After a compaction, deletions that it was carried over, and an optimization of the indices."""
    table = tmp_path / "t"
    for first in (0, SEARCHED):
        lance.write_dataset(
            searched_rows(first), table, mode="append" if first else "create", enable_stable_row_ids=stable
        )
    dataset = lance.dataset(str(table))
    dataset.create_index("v", "IVF_FLAT", num_partitions=2)
    dataset.create_scalar_index("words", "INVERTED")
    for first in (2, 3):
        lance.write_dataset(searched_rows(first * SEARCHED), table, mode="append")
    lance.dataset(str(table)).delete("a % 5 = 0")
    left = lance.dataset(str(table)).to_table(filter="a % 11 != 3").sort_by("a")

    def delete_rows(envelope: Envelope) -> None:
        if envelope.lance.HasField("rewrite"):
            lance.dataset(str(table)).delete("a % 11 = 3")

    report = compaction(table, FoldingLog(table, delete_rows), target_rows="100000").run(full=True, rounds=1)
    assert (report.failed, report.fragments_after) == ([], 2 if stable else 1)
    check_searches(table, left)
    optimize_indices(open_source(str(table)))
    check_searches(table, left)


def test_two_compactions_of_one_version_both_add_to_the_reuse_index(tmp_path: Path) -> None:
    table = made(tmp_path / "t", stable=False, version="2.1")
    lance.dataset(str(table)).create_scalar_index("a", "BTREE")
    lance.dataset(str(table)).create_scalar_index("s", "BITMAP")
    lance.dataset(str(table)).delete("a % 5 = 0")
    before = lance.dataset(str(table)).to_table()
    survey = Surveyor(open_source(str(table))).survey()
    parts = [tuple(range(4)), tuple(range(4, 9))]
    tasks = [RewriteTask(part, 8 * len(part), 2 * len(part), 0) for part in parts]
    results = [end for _, end in InProcess().ended(survey, tasks) if isinstance(end, RewrittenTask)]
    assert len(results) == len(parts)
    committer = owned(table)
    reserved = [fold(committer, [reservation(table)], offset)[0] for offset in (10, 11)]
    rewrites = []
    for result, answer in zip(results, reserved, strict=True):
        assert isinstance(answer, Committed)
        rewrites.append(with_reuse(rewrite(survey, [result]), answer.version, answer.first_fragment_id))
    for offset, envelope in enumerate(rewrites, 20):
        (answer,) = fold(committer, [envelope], offset)
        assert isinstance(answer, Committed), answer
    assert len(set(versions(table))) == 2
    dataset = check(table, before)
    for filter_ in ("a = 7", "s = 's1'"):
        assert "ScalarIndexQuery" in dataset.scanner(filter=filter_).explain_plan()
    texts = before["s"].to_pylist()
    assert dataset.to_table(filter="s = 's1'").num_rows == sum(text == "s1" for text in texts)
    dataset.optimize.optimize_indices()
    check(table, before)


def test_a_row_is_created_when_it_was(tmp_path: Path) -> None:
    table = made(tmp_path / "t", stable=True, version="2.1")
    columns = ["a", "_row_created_at_version", "_row_last_updated_at_version"]
    lance.dataset(str(table)).update({"b": "b + 1000"}, where="a = 33")
    before = lance.dataset(str(table)).to_table(columns=columns).sort_by("a")
    compaction(table, FoldingLog(table)).run(full=True)
    assert lance.dataset(str(table)).to_table(columns=columns).sort_by("a").equals(before)


def test_a_table_at_its_target_is_left_alone(tmp_path: Path) -> None:
    table = made(tmp_path / "t", stable=False, version="2.1")
    log = FoldingLog(table)
    report = compaction(table, log, target_rows="10").run(full=True)
    assert (report.tasks, report.fragments_before, report.fragments_after, log.asked) == (0, 9, 9, [])


def data_files(table: Path) -> set[str]:
    return {path.name for path in (table / "data").iterdir()}


def test_a_refused_compaction_leaves_no_file_and_others_go_on(tmp_path: Path) -> None:
    table = made(tmp_path / "t", stable=False, version="2.1", appends=8)
    deleted: list[int] = []

    def drop_rows(envelope: Envelope) -> None:
        """Replaces a rewritten fragment by another client's version of it: its column is made anew."""
        first = envelope.lance.rewrite.groups[0].old_fragments[0].id
        if first == 0 and not deleted:
            deleted.append(first)
            lance.dataset(str(table)).add_columns({"c": "a + 1"})

    before, files = lance.dataset(str(table)).to_table(), data_files(table)
    log = FoldingLog(table, drop_rows)
    report = compaction(table, log, target_rows="40").run(full=True, rounds=1)
    assert deleted
    assert {number for each in report.failed for number in each.fragment_ids} == set(range(8))
    assert all(isinstance(each.refusal, Rejected) and each.message for each in report.failed)
    named = {
        file.path for fragment in lance.dataset(str(table)).get_fragments() for file in fragment.data_files()
    }
    assert data_files(table) == files | named
    assert lance.dataset(str(table)).to_table(columns=["a", "s", "b"]).equals(before)
    again = compaction(table, FoldingLog(table), target_rows="40").run(full=True)
    assert (again.failed, again.fragments_after) == ([], 2)


@STABLE
@pytest.mark.parametrize("indexed", [False, True], ids=["no index", "index"])
def test_rows_that_others_delete_meanwhile_turn_no_compaction_back(
    tmp_path: Path,
    stable: bool,  # noqa: FBT001 - a parameter
    indexed: bool,  # noqa: FBT001 - a parameter
) -> None:
    table = made(tmp_path / "t", stable=stable, version="2.1")
    if indexed:
        lance.dataset(str(table)).create_scalar_index("a", "BTREE")
    left = lance.dataset(str(table)).to_table(filter="a % 5 != 2")

    def delete_rows(envelope: Envelope) -> None:
        if envelope.lance.HasField("rewrite"):
            lance.dataset(str(table)).delete("a % 5 = 2")

    report = compaction(table, FoldingLog(table, delete_rows)).run(full=True, rounds=1)
    assert (report.failed, report.tasks, report.fragments_after) == ([], 1, 1)
    check(table, left)
    after = state(table)
    assert (after.fragments.deleted_rows, after.head.reader_feature_flags & Flag.DELETION_FILES) == (18, 1)


def test_a_damaged_file_fails_its_task_alone(tmp_path: Path) -> None:
    table = made(tmp_path / "t", stable=False, version="2.1", appends=8)
    (broken,) = lance.dataset(str(table)).get_fragments()[2].data_files()
    shutil.copy(table / "data" / broken.path, tmp_path / "kept")
    (table / "data" / broken.path).write_bytes(b"x" * 100)
    report = compaction(table, FoldingLog(table), target_rows="40").run(full=True)
    (failed,) = report.failed
    assert failed.fragment_ids == (0, 1, 2, 3)
    assert failed.error is not None
    assert failed.error.exit_code == 4
    assert report.fragments_after == 5
    shutil.copy(tmp_path / "kept", table / "data" / broken.path)
    check(table, pa.concat_tables(rows(number * 10) for number in range(8)))


@contextmanager
def files_limited_to(size: int) -> Iterator[None]:
    """Lets no file of this process become larger, as if the disk was full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_fails_its_task_alone(tmp_path: Path) -> None:
    table = made(tmp_path / "t", stable=False, version="2.1", appends=4)
    texts = [random.Random(number).randbytes(20_000).hex() for number in range(10)]
    for first in (40, 50):
        large = rows(first).set_column(1, "s", pa.array(texts))
        lance.write_dataset(large, table, mode="append")
    before, files = lance.dataset(str(table)).to_table(), data_files(table)
    largest = max(path.stat().st_size for path in (table / "data").iterdir())
    with files_limited_to(largest + largest // 2):
        report = compaction(table, FoldingLog(table), target_rows="20").run(full=True)
    (failed,) = report.failed
    assert failed.fragment_ids == (4, 5)
    assert "File too large" in failed.message
    assert report.fragments_after == 4
    named = {file.path for each in lance.dataset(str(table)).get_fragments() for file in each.data_files()}
    assert data_files(table) == files | named
    check(table, before)
    again = compaction(table, FoldingLog(table), target_rows="20").run(full=True)
    assert (again.failed, again.fragments_after) == ([], 3)
    check(table, before)


def test_a_missing_file_fails_its_task_alone(tmp_path: Path) -> None:
    table = made(tmp_path / "t", stable=False, version="2.1", appends=8)
    (gone,) = lance.dataset(str(table)).get_fragments()[7].data_files()
    (table / "data" / gone.path).unlink()
    report = compaction(table, FoldingLog(table), target_rows="40").run(full=True)
    (failed,) = report.failed
    assert failed.fragment_ids == (4, 5, 6, 7)
    assert gone.path in failed.message
    assert report.fragments_after == 5


def test_a_policy_that_makes_no_sense_stops_before_anything_is_done(tmp_path: Path) -> None:
    table = made(tmp_path / "t", stable=False, version="2.1")
    lance.dataset(str(table)).update_config({PREFIX + "target_rows": "0"})
    log = FoldingLog(table)
    with pytest.raises(InvalidError, match=PREFIX + "target_rows"):
        compaction(table, log).run(full=True)
    assert log.asked == []


def test_a_branch_is_compacted_by_itself(tmp_path: Path) -> None:
    table = made(tmp_path / "t", stable=False, version="2.1")
    branch = lance.dataset(str(table)).create_branch("audit")
    survey = Surveyor(open_source(branch.uri)).survey()
    assert (survey.branch, survey.table) == ("audit", Surveyor(open_source(str(table))).survey().table)
    assert located(TableAddress(survey.table), "audit").versions.latest() == survey.version


def test_figures_of_a_version_are_those_of_its_fragments(tmp_path: Path) -> None:
    table = made(tmp_path / "t", stable=False, version="2.1")
    lance.dataset(str(table)).delete("a < 13")
    surveyor = Surveyor(open_source(str(table)))
    surveyor.survey()
    append(lance.dataset(str(table)))
    figures = surveyor.survey().figures
    fragments: list[DataFragment] = list(state(table).fragments)
    assert figures.ids.tolist() == [each.id for each in fragments]
    assert figures.rows.tolist() == [10] * 9
    assert figures.deleted.tolist() == [3, *([0] * 8)]
    assert figures.bytes.tolist() == [each.files[0].file_size_bytes for each in fragments]


@STABLE
def test_indices_are_brought_up_to_date(tmp_path: Path, stable: bool) -> None:  # noqa: FBT001 - a parameter
    table = made(tmp_path / "t", stable=stable, version="2.1", appends=3)
    lance.dataset(str(table)).create_scalar_index("a", "BTREE")
    for number in range(3, 6):
        append(lance.dataset(str(table)), number * 10)
    source = open_source(str(table))
    dry = optimize_indices(source, dry_run=True)
    assert dry.indices == (IndexCoverage("a_idx", 3, 3),)
    report = optimize_indices(source)
    assert report == IndexReport(dry.version + 1, 6, (IndexCoverage("a_idx", 3, 6),))
    before = lance.dataset(str(table)).to_table()
    assert compaction(table, FoldingLog(table)).run(full=True).failed == []
    optimize_indices(source)
    dataset = check(table, before)
    assert "ScalarIndexQuery" in dataset.scanner(filter="a = 7").explain_plan()
    assert dataset.to_table(filter="a = 57").num_rows == 1


def test_a_table_without_indices_gets_no_version_by_optimizing_them(tmp_path: Path) -> None:
    table = made(tmp_path / "t", stable=False, version="2.1", appends=2)
    assert optimize_indices(open_source(str(table))) == IndexReport(2, 2, ())


def test_an_index_whose_commit_lost_against_a_compaction_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made(tmp_path / "t", stable=False, version="2.1", appends=3)
    lance.dataset(str(table)).create_scalar_index("a", "BTREE")
    append(lance.dataset(str(table)), 30)

    def overtaken(source: Source, version: int) -> lance.LanceDataset:
        dataset = open_dataset(source, version)
        lance.dataset(str(table)).optimize.compact_files()
        return dataset

    monkeypatch.setattr("lakefold_maintenance.lance.indices.open_dataset", overtaken)
    with pytest.raises(RetryError, match="commit conflict"):
        optimize_indices(open_source(str(table)))
