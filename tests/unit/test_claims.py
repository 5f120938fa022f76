"""A large envelope beside the log is folded as one in it, and what isn't the envelope claimed is answered."""

from __future__ import annotations

import hashlib
import os
import resource
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from structlog.testing import capture_logs

from lakefold_committer.claims.claim_check import Claims
from lakefold_committer.fold.grouping import Limits
from lakefold_committer.loop.partition import PartitionCommitter
from lakefold_committer.loop.ports import LoopLimits, Tables
from lakefold_committer.observability.metrics import Metrics
from lakefold_committer.replay.file_fold import fold_file
from lakefold_log.codec.claims import FOLDER, MAX_ENVELOPE_BYTES, claim_fault, path_of, put_claim
from lakefold_log.codec.envelope import encode
from lakefold_log.read.file_log import FileLog, framed
from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_table.entry import Committed, Duplicate, Entry, Invalid, Outcome
from lakefold_table.errors import InvalidError, LocationError, RetryError, StopError
from lakefold_table.storage import open_storage
from lakefold_table.uri import canonical, local_path
from tests.folding import FORMAT, FORMATS, append, changed, creation, entry, groups_of
from tests.folding import opened as owned
from tests.unit.test_partition import Log, Message, Reports, at, opened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lakefold_log.read.dead_letters import RefusedMessage
    from lakefold_log.read.offset_metadata import OffsetMetadata
    from lakefold_table.entry import Result

NOW_US = 1_700_000_000_000_000
LIMITS = Limits(100, 1 << 20)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with capture_logs():
        yield


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return canonical(tmp_path / "table")


def claimed(envelope: Envelope, sent_ns: int = 1) -> Envelope:
    """What goes to the log for an envelope that was written beside its table."""
    return put_claim(open_storage(envelope.table), envelope, encode(envelope), sent_ns)


def file_of(small: Envelope) -> Path:
    return Path(local_path(small.table)) / path_of(small.claim)


def claim_of(small: Envelope, data: bytes) -> Envelope:
    """The same message with a true claim to these bytes, written in their place."""
    made = changed(small, lambda envelope: envelope.claim.Clear())
    made.claim.sha256, made.claim.size = hashlib.sha256(data).digest(), len(data)
    made.claim.uri = f"{made.table}/{path_of(made.claim)}"
    file_of(made).parent.mkdir(parents=True, exist_ok=True)
    file_of(made).write_bytes(data)
    return made


@dataclass
class Watching(Reports):
    """Reports, and which claims were there while reporting."""

    folder: Path = Path()
    seen: list[set[str]] = field(default_factory=list)

    def report(
        self,
        outcomes: Sequence[Outcome],
        dead_letters: Sequence[RefusedMessage],
        next_offset: int,
        offset_metadata: OffsetMetadata,
    ) -> int:
        self.seen.append(files_in(self.folder))
        return super().report(outcomes, dead_letters, next_offset, offset_metadata)


def files_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} if folder.exists() else set()


def folded(
    uri: str, *envelopes: Envelope, time_us: int = NOW_US, metrics: Metrics | None = None
) -> tuple[list[Result], Watching]:
    """What a committer answers to these messages from offset 0 on, and its reports."""
    made = [
        Message(number, envelope.table.encode(), encode(envelope), time_us)
        for number, envelope in enumerate(envelopes)
    ]
    reports = Watching(folder=Path(local_path(uri)) / FOLDER)
    log = Log([made])
    tables = Tables(FORMATS, lambda _: None, opened)
    committer = PartitionCommitter(log, reports, tables, LoopLimits(LIMITS, 0.0), metrics or Metrics())  # type: ignore[arg-type]
    committer.run(threading.Event(), log.end_offset())
    outcomes = sorted(reports.outcomes, key=lambda outcome: outcome.position.offset)
    return [outcome.result for outcome in outcomes], reports


def answered(uri: str, *envelopes: Envelope) -> list[Result]:
    """What a committer that opens the table answers to these messages from offset 0 on, before it reports."""
    table = opened(uri, "")
    entries = [entry(envelope, number) for number, envelope in enumerate(envelopes)]
    groups = groups_of(entries, FORMAT, LIMITS)
    return [outcome.result for group in groups for outcome in table.fold(Claims().fetch(group)).outcomes]


def test_a_claimed_proposal_is_folded_as_it_is_and_its_file_goes_after_the_report(uri: str) -> None:
    small = claimed(at(uri, append("b", app="app", batch=1, fragments=3)))
    results, reports = folded(uri, at(uri, creation()), at(uri, append("a")), small, at(uri, append("c")))
    assert [type(result) for result in results] == [Committed] * 4
    assert results[2] == Committed(3, rebased=True, rows_added=9, first_fragment_id=1, num_fragment_ids=3)
    assert reports.outcomes[2].uuid == "b"
    assert (reports.outcomes[2].app_id, reports.outcomes[2].batch_id) == ("app", 1)
    assert reports.seen[0] == {small.claim.sha256.hex()}
    assert not file_of(small).exists()


@pytest.mark.parametrize("fragments", [1, 2])
def test_a_claimed_append_whose_data_files_are_missing_is_invalid(fragments: int) -> None:
    """Also if the files are requested twice, since an unreachable store lacks them too."""
    uri = f"memory://tests/{uuid4()}"
    table = owned(uri, check_sizes=True)
    small = claimed(at(uri, append("a", fragments=fragments)))
    results = []
    for number, envelope in enumerate((at(uri, creation()), small, small)):
        (outcome,) = table.fold(Claims().fetch([entry(envelope, number)])).outcomes
        results.append(outcome.result)
        for name in range(fragments * number):
            open_storage(uri).put(f"data/a-{name}.lance", [bytes(1000)])
    assert [type(result) for result in results] == [Committed, Invalid, Committed]
    assert "a-0.lance" in str(results[1])


def test_claims_that_were_brought_are_counted(uri: str) -> None:
    metrics = Metrics()
    large, gone = claimed(at(uri, append("b", fragments=3))), claimed(at(uri, append("c")))
    file_of(gone).unlink()
    folded(uri, at(uri, creation()), at(uri, append("a")), large, gone, metrics=metrics)
    get_sample_value = metrics.registry.get_sample_value
    assert get_sample_value("lakefold_claims_total") == 1
    assert get_sample_value("lakefold_claim_bytes_total") == large.claim.size


def test_a_table_may_begin_with_a_claim(uri: str) -> None:
    results, _ = folded(uri, claimed(at(uri, creation())))
    assert results == [Committed(1)]


def test_the_message_has_table_key_branch_and_time_of_the_envelope(uri: str) -> None:
    whole = at(uri, append(app="app", batch=0))
    whole.branch = "b"
    whole.proposed_at.seconds = 9
    small = claimed(whole)
    assert (small.table, small.app_id, small.batch_id, small.branch) == (uri, "app", 0, "b")
    assert small.HasField("batch_id")
    assert small.proposed_at.seconds == 9
    assert claim_fault(small) is None
    data = file_of(small).read_bytes()
    assert hashlib.sha256(data).digest() == small.claim.sha256
    assert (len(data), small.claim.uri) == (small.claim.size, f"{uri}/{FOLDER}/{small.claim.sha256.hex()}")
    assert Envelope.FromString(data).lance == whole.lance
    assert not claimed(at(uri, append())).HasField("batch_id")


def test_a_batch_sent_twice_has_two_files_and_is_a_duplicate(uri: str) -> None:
    batch = at(uri, append("b", app="app", batch=1))
    first, second = claimed(batch, 1), claimed(batch, 2)
    assert file_of(first) != file_of(second)
    assert folded(uri, at(uri, creation()), first)[0] == [
        Committed(1),
        Committed(2, rows_added=3, num_fragment_ids=1),
    ]
    results, _ = folded(uri, at(uri, creation()), first, second)
    assert results == [Committed(1), Committed(2, rows_added=3, num_fragment_ids=1), Duplicate(2)]
    assert not file_of(second).exists()


def test_a_successor_gives_the_same_answers_without_the_file(uri: str) -> None:
    bad = changed(append("bad"), lambda envelope: setattr(envelope.lance, "read_version", 99))
    sent = [at(uri, creation()), claimed(at(uri, append("a"))), claimed(at(uri, bad)), at(uri, append("c"))]
    before = answered(uri, *sent)
    for small in sent[1:3]:
        file_of(small).unlink(missing_ok=True)
    assert answered(uri, *sent) == before
    assert [type(result) for result in before] == [Committed, Committed, Invalid, Committed]


def test_a_file_that_comes_late_changes_no_answer(uri: str) -> None:
    small = claimed(at(uri, append("a")))
    data = file_of(small).read_bytes()
    file_of(small).unlink()
    sent = [at(uri, creation()), small, at(uri, append("b"))]
    before = answered(uri, *sent)
    assert [type(result) for result in before] == [Committed, Invalid, Committed]
    file_of(small).parent.mkdir(parents=True, exist_ok=True)
    file_of(small).write_bytes(data)
    assert answered(uri, *sent) == before


def test_somebody_elses_claim_is_not_removed_under_a_key_that_was_folded(uri: str) -> None:
    other = claimed(at(uri, append("other", app="other", batch=7)))
    stolen = changed(other, lambda envelope: envelope.MergeFrom(Envelope(app_id="app", batch_id=1)))
    known = at(uri, append("a", app="app", batch=1))
    results, _ = folded(uri, at(uri, creation()), known, stolen)
    assert results[2] == Duplicate(2)
    assert file_of(other).exists()


def _other_table(small: Envelope) -> Envelope:
    whole = Envelope.FromString(file_of(small).read_bytes())
    whole.table += "x"
    return claim_of(small, encode(whole))


def _other_key(small: Envelope) -> Envelope:
    return changed(small, lambda envelope: setattr(envelope, "app_id", "other"))


def _other_branch(small: Envelope) -> Envelope:
    whole = Envelope.FromString(file_of(small).read_bytes())
    whole.branch = "b"
    return claim_of(small, encode(whole))


def _in_a_claim(small: Envelope) -> Envelope:
    return claim_of(small, encode(small))


def _other_bytes(small: Envelope) -> Envelope:
    data = file_of(small).read_bytes()
    file_of(small).write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    return small


def _cut(small: Envelope) -> Envelope:
    file_of(small).write_bytes(file_of(small).read_bytes()[:-1])
    return small


def _gone(small: Envelope) -> Envelope:
    file_of(small).unlink()
    return small


def _folder(small: Envelope) -> Envelope:
    file_of(small).unlink()
    file_of(small).mkdir()
    return small


def _pipe(small: Envelope) -> Envelope:
    file_of(small).unlink()
    os.mkfifo(file_of(small))
    return small


def _link_outside(small: Envelope) -> Envelope:
    outside = Path(local_path(small.table)).parent / "outside"
    file_of(small).rename(outside)
    file_of(small).symlink_to(outside)
    return small


def _huge(small: Envelope) -> Envelope:
    return changed(small, lambda envelope: setattr(envelope.claim, "size", 10 << 30))


def _other_size(small: Envelope) -> Envelope:
    return changed(small, lambda envelope: setattr(envelope.claim, "size", envelope.claim.size + 1))


def _located_at(uri: str) -> Callable[[Envelope], Envelope]:
    return lambda small: changed(small, lambda envelope: setattr(envelope.claim, "uri", uri))


def _short_hash(small: Envelope) -> Envelope:
    return changed(small, lambda envelope: setattr(envelope.claim, "sha256", b"../.."))


def _beside(small: Envelope) -> Envelope:
    return changed(small, lambda envelope: envelope.affected_rows.update({0: b""}))


HOSTILE = {
    "another table's": (_other_table, "another table, key or branch"),
    "another key's": (_other_key, "another table, key or branch"),
    "another branch's": (_other_branch, "another table, key or branch"),
    "a claim in a claim": (_in_a_claim, "holds a claim itself"),
    "no envelope": (lambda small: claim_of(small, b"\xff\xff"), "is not an Envelope"),
    "no proposal": (lambda small: claim_of(small, encode(Envelope(table=small.table))), "no proposal"),
    "changed": (_other_bytes, "other bytes than its hash"),
    "cut": (_cut, "bytes, the claim says"),
    "gone": (_gone, "does not exist"),
    "a folder": (_folder, "does not exist"),
    "a pipe": (_pipe, "does not exist"),
    "a link": (_link_outside, "can't be read: a symbolic link leads out of the root"),
    "10 GB": (_huge, "10737418240 bytes, the limit is"),
    "another size": (_other_size, "bytes, the claim says"),
    "a place elsewhere": (_located_at("file:///etc/passwd"), "differs from the path that its hash gives"),
    "dots": (_located_at("../../x"), "differs from the path that its hash gives"),
    "a short hash": (_short_hash, "hash has 5 bytes"),
    "a part beside": (_beside, "is in the message beside its claim"),
}


@pytest.mark.parametrize("name", ["claims", "_lakefold"])
def test_a_folder_of_claims_that_is_a_link_out_of_the_table_refuses_nothing(uri: str, name: str) -> None:
    """It is not a sender's: the table waits until the folder is what it was."""
    small = claimed(at(uri, append("a")))
    folder = Path(local_path(uri)) / FOLDER
    folder = folder if folder.name == name else folder.parent
    assert folder.name == name
    elsewhere = Path(local_path(uri)).parent / "elsewhere"
    folder.rename(elsewhere)
    folder.symlink_to(elsewhere)
    with pytest.raises(StopError, match="the folder of claims can't be used: a symbolic link leads out"):
        folded(uri, at(uri, creation()), small)
    assert len(open_storage(uri).names("_versions")) == 1
    folder.unlink()
    elsewhere.rename(folder)
    results, _ = folded(uri, at(uri, creation()), small)
    assert isinstance(results[1], Committed)


@pytest.mark.parametrize("what", HOSTILE)
def test_what_is_not_the_envelope_claimed_is_invalid_and_the_others_go_on(uri: str, what: str) -> None:
    make, text = HOSTILE[what]
    small = make(claimed(at(uri, append("a"))))
    results, _ = folded(uri, at(uri, creation()), small, at(uri, append("b")))
    assert isinstance(results[1], Invalid)
    assert text in results[1].message
    assert results[1].hint
    assert results[2] == Committed(2, rows_added=3, num_fragment_ids=1)


def test_a_kind_from_the_future_stops_its_table(uri: str) -> None:
    data = encode(Envelope(table=uri)) + b"\x72\x02\x08\x01"
    small = claim_of(Envelope(table=uri), data)
    with pytest.raises(StopError, match=r"field 14"):
        folded(uri, at(uri, creation()), small)


@contextmanager
def no_more_files() -> Iterator[None]:
    """Nothing can be opened: a passing fault of this machine."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_store_that_can_not_be_reached_refuses_nothing(uri: str) -> None:
    group = [entry(claimed(at(uri, append("a"))), 0)]
    claims = Claims()
    with no_more_files(), pytest.raises(RetryError):
        claims.fetch(group)
    assert claims.fetch(group)[0].fault is None


def test_a_path_at_which_no_table_can_be_is_reported_as_such() -> None:
    small = Envelope(table="hdfs://lake/x")
    with pytest.raises(LocationError):
        Claims().fetch([entry(changed(small, lambda envelope: envelope.claim.SetInParent()), 0)])


def test_a_claim_goes_alone(uri: str) -> None:
    group = [
        entry(envelope, number)
        for number, envelope in enumerate(
            [append("a"), append("b"), claimed(at(uri, append("c"))), append("d"), append("e")]
        )
    ]
    assert [len(entries) for entries in groups_of(group, FORMAT, LIMITS)] == [2, 1, 2]


def test_no_envelope_is_written_that_nobody_would_read(uri: str) -> None:
    with pytest.raises(InvalidError, match="the limit of every committer"):
        put_claim(open_storage(uri), at(uri, append()), bytes(MAX_ENVELOPE_BYTES), 1)
    assert not Path(local_path(uri)).exists()


def test_the_query_of_a_table_stays_at_the_end_of_its_claims() -> None:
    small = Envelope(table="s3://lake/t?ddbTableName=x")
    small.claim.sha256 = bytes(32)
    small.claim.uri = f"s3://lake/t/{FOLDER}/{'00' * 32}?ddbTableName=x"
    assert claim_fault(small) is None


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_file_log_may_hold_claims_and_leaves_them(uri: str, *, dry_run: bool) -> None:
    small = claimed(at(uri, append("b")))
    gone = _gone(claimed(at(uri, append("c")), 2))
    log = FileLog(framed([at(uri, creation()), at(uri, append("a")), small, gone]))

    def fold() -> list[Result]:
        lines = fold_file(lambda branch: opened(uri, branch), uri, FORMATS, log, LIMITS, dry_run=dry_run)
        return [outcome.result for outcome in lines]

    first = fold()
    assert [type(result) for result in first] == [Committed, Committed, Committed, Invalid]
    assert files_in(file_of(small).parent) == {small.claim.sha256.hex()}
    file_of(small).unlink()
    again = [type(result) for result in fold()]
    expected = (
        [Committed, Committed, Invalid, Invalid] if dry_run else [Duplicate, Duplicate, Duplicate, Invalid]
    )
    assert again == expected


def test_an_entry_without_a_claim_is_left_as_it_is(uri: str) -> None:
    group: list[Entry] = [entry(at(uri, append("a")), 0)]
    assert Claims().fetch(group) is group
