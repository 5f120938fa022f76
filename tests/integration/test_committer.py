"""The committer process on a real broker: bad input, signals, a broker that is away, a second committer."""

from __future__ import annotations

import random
import string
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from lakefold.local.ports import free_port
from lakefold_log.client.admin import KafkaConfig
from lakefold_log.client.topic_names import Topics
from lakefold_log.client.topics import ensure_topics
from lakefold_log.read.outcomes import OutcomeWaiter
from lakefold_log.write.producer import Proposer
from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_table.entry import Committed, Duplicate, Invalid, Outcome, Rejected
from lakefold_table.uri import canonical
from tests.integration.committers import (
    NEW_PROCESS,
    committer_arguments,
    fold_to_the_end,
    running_committer,
)
from tests.integration.copies import IMPORTED, command_line
from tests.integration.own_log import patient_admin, settled_outcomes
from tests.integration.raw import dead_letters_of, send_raw
from tests.proposals import append, creation, ids_in, remove_files_of, rows
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lakefold.local.broker import Broker
    from tests.integration.committers import CommitterProcess
    from tests.integration.conftest import TopicNames

ANSWER_SECONDS = 120.0


@dataclass(frozen=True)
class Bench:
    """What a test talks to: topics that exist, a producer, and the folder of the tables."""

    bootstrap: str
    names: TopicNames
    root: Path
    proposer: Proposer

    @property
    def config(self) -> KafkaConfig:
        """How to reach the broker."""
        return KafkaConfig(self.bootstrap)

    @property
    def topics(self) -> Topics:
        """The test's own topics."""
        return Topics(self.names.transactions, self.names.outcomes, self.names.dead_letters)

    def uri(self, name: str = "table") -> str:
        """The canonical URI of a table of the test."""
        return canonical(str(self.root / name))

    def propose(self, envelope: Envelope) -> Outcome:
        """Sends a proposal and waits for what became of it."""
        with OutcomeWaiter(self.config, self.topics, envelope.table) as waiter:
            return waiter.wait(self.proposer.send_wait(envelope), envelope, ANSWER_SECONDS)

    def outcomes(self) -> list[Outcome]:
        """All outcomes reported so far, once no report is open."""
        return settled_outcomes(patient_admin(self.config), self.topics)


@pytest.fixture
def bench(bootstrap: str, topic_names: TopicNames, tmp_path: Path) -> Iterator[Bench]:
    config = KafkaConfig(bootstrap)
    topics = Topics(topic_names.transactions, topic_names.outcomes, topic_names.dead_letters)
    ensure_topics(patient_admin(config), topics)
    with Proposer(config, topics) as proposer:
        yield Bench(bootstrap, topic_names, tmp_path, proposer)


def test_it_creates_appends_and_answers_each_writer(bench: Bench) -> None:
    with running_committer(bench.bootstrap, bench.names, bench.root, interpreter=NEW_PROCESS) as committer:
        committer.wait_until_ready()
        created = bench.propose(creation(bench.uri()))
        first = bench.propose(append(bench.uri(), rows([1, 2]), 1, "app", 0))
        again = bench.propose(append(bench.uri(), rows([1, 2]), 1, "app", 0))
        stale = bench.propose(append(bench.uri(), rows([3]), 1, "app", 1))
        twice = bench.propose(creation(bench.uri()))
        assert committer.stop() == 0
    assert created.result == Committed(1)
    assert first.result == Committed(2, rows_added=2, num_fragment_ids=1)
    assert again.result == Duplicate(2)
    assert stale.result == Committed(3, rebased=True, rows_added=1, first_fragment_id=1, num_fragment_ids=1)
    assert isinstance(twice.result, Rejected)
    assert twice.result.conflict.retryable
    assert {outcome.table_id for outcome in (created, first, again, stale, twice)} == {created.table_id}
    assert ids_in(bench.uri()) == [1, 2, 3]


def test_bad_input_is_answered_put_aside_and_does_not_stop_the_partition(bench: Bench) -> None:
    with running_committer(bench.bootstrap, bench.names, bench.root) as committer:
        committer.wait_until_ready()
        bench.propose(creation(bench.uri()))
        bad = _bad_proposals(bench.uri())
        answers = {what: bench.propose(envelope).result for what, envelope in bad.items()}
        nowhere = bench.propose(_foreign(bench.uri("nowhere"), bad["rows 0"])).result
        outside = bench.propose(_foreign("file:///proc/lakefold", bad["rows 0"])).result
        (bench.root / "file").write_text("no folder")
        through = bench.propose(_foreign(bench.uri("file"), bad["rows 0"])).result
        long = bench.propose(_foreign(bench.uri("n" * 300), bad["rows 0"])).result
        elsewhere = bench.propose(_foreign("memory://lake/table", bad["rows 0"])).result
        (bench.root / "other").mkdir()
        (bench.root / "other" / "notes.txt").write_text("not a table")
        something = bench.propose(creation(bench.uri("other"))).result
        position = send_raw(
            bench.bootstrap, bench.names.transactions, bench.uri().encode(), b"\xff\xffno envelope"
        )
        good = bench.propose(append(bench.uri(), rows([7]), 1))
        # Nobody waits for the answer to a message that is not a proposal.
        until(lambda: position in {each.position.offset for each in bench.outcomes()}, "its answer")
        refused = [outcome for outcome in bench.outcomes() if isinstance(outcome.result, Invalid)]
    expected = {
        "no operation": "no operation",
        "missing file": "missing",
        "other size": "bytes, but the transaction says",
        "field ids": "are not in the table's schema",
        "rows 0": "has 0 rows",
        "read version": "above the latest version",
        "leaves its base": "leaves its base",
        "unbuilt operation": "data overlays are not folded",
    }
    for what, text in expected.items():
        result = answers[what]
        assert isinstance(result, Invalid), what
        assert text in result.message, what
        assert result.hint, what
    assert isinstance(nowhere, Invalid)
    assert "no table at" in nowhere.message
    assert isinstance(outside, Invalid)
    assert "roots" in outside.message
    for location, text in ((through, "is a file"), (long, "shorter"), (elsewhere, "roots")):
        assert isinstance(location, Invalid)
        assert text in f"{location.message} {location.hint}"
    assert isinstance(something, Invalid)
    assert "no version of a table" in something.message
    assert [entry.name for entry in (bench.root / "other").iterdir()] == ["notes.txt"]
    assert isinstance(good.result, Committed)
    assert ids_in(bench.uri()) == [7]
    assert position in {outcome.position.offset for outcome in refused}
    dead_letters = dead_letters_of(bench.bootstrap, bench.names.dead_letters, len(refused))
    assert b"\xff\xffno envelope" in [value for _, value in dead_letters]


def test_no_name_is_too_long_to_be_answered(bench: Bench) -> None:
    chance = random.Random(3)

    def noise(length: int) -> str:
        return "".join(chance.choices(string.ascii_lowercase, k=length))

    wordy = Envelope(table="s3://lake/table", app_id=noise(300_000), branch=noise(300_000))
    wordy.lance.uuid = noise(300_000)
    wordy.lance.append.SetInParent()
    long = Envelope(table=f"s3://lake/{noise(450_000)}")
    sent = [(noise(600_000).encode(), b"\xff"), (long.table.encode(), long.SerializeToString())]
    sent.append((wordy.table.encode(), wordy.SerializeToString()))
    for key, value in sent:
        send_raw(bench.bootstrap, bench.names.transactions, key, value)
    bench.proposer.send_wait(creation(bench.uri()))
    fold_to_the_end(bench.bootstrap, bench.names, bench.root)
    # Large messages wait for their turn, so that another table's outcome may come first.
    outcomes = sorted(bench.outcomes(), key=lambda outcome: outcome.position.offset)
    assert [type(outcome.result) for outcome in outcomes] == [Invalid, Invalid, Invalid, Committed]


def test_a_proposal_of_an_unknown_kind_parks_its_table_and_no_other(bench: Bench) -> None:
    """Entries before it are answered; later entries wait, also for the next committer."""
    other = bench.uri("other")
    bench.proposer.send_wait(creation(bench.uri()))
    fold_to_the_end(bench.bootstrap, bench.names, bench.root)
    bench.proposer.send_wait(append(bench.uri(), rows([1]), 1, "app", 0))
    newer = Envelope(table=bench.uri()).SerializeToString() + b"\x72\x00"
    unknown = send_raw(bench.bootstrap, bench.names.transactions, bench.uri().encode(), newer)
    bench.proposer.send_wait(append(bench.uri(), rows([2]), 1, "app", 1))
    for number in range(2):
        with running_committer(bench.bootstrap, bench.names, bench.root) as committer:
            committer.wait_until_ready()
            result = bench.propose(creation(other)).result
            assert isinstance(result, Rejected if number else Committed)
            assert isinstance(bench.propose(append(other, rows([number]), 1)).result, Committed)
            until(lambda: _parked(committer) == (1, 2), "what is parked")
            until(lambda: f"@{unknown}" in committer.log.read_text(), "a word of it")
            assert bench.outcomes()
            committer.kill()
    assert sorted(outcome.position.offset for outcome in bench.outcomes()) == [0, 1, 4, 5, 6, 7]
    assert (ids_in(bench.uri()), ids_in(other)) == ([1], [0, 1])
    arguments = committer_arguments(bench.bootstrap, bench.names, bench.root)
    done = command_line().run([*arguments, "--http-port", "0", "--until-caught-up"], timeout=200)
    assert done.returncode == 5
    assert f"@{unknown}" in done.stderr


def test_until_caught_up_folds_the_present_log_and_exits(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bench.proposer.send_wait(creation(bench.uri()))
    fold_to_the_end(bench.bootstrap, bench.names, bench.root)
    for number in range(20):
        bench.proposer.send_wait(append(bench.uri(), rows([number]), 1, "app", number))
    with monkeypatch.context() as patch:
        patch.setenv(IMPORTED, str(tmp_path / "imported"))
        fold_to_the_end(bench.bootstrap, bench.names, bench.root)
    imported = (tmp_path / "imported").read_text().split()
    assert imported == [], "copies are cheap because they import nothing: name these modules in `LATER`"
    fold_to_the_end(bench.bootstrap, bench.names, bench.root)
    assert len(bench.outcomes()) == 21
    assert ids_in(bench.uri()) == list(range(20))


def test_until_caught_up_it_gives_up_on_brokers_that_never_answer(bench: Bench) -> None:
    nobody = f"127.0.0.1:{free_port()}"
    arguments = committer_arguments(nobody, bench.names, bench.root)
    arguments += ["--http-port", "0", "--until-caught-up", "--give-up-after", "1"]
    done = command_line().run(arguments, timeout=200)
    assert done.returncode == 5
    assert f'"error": "{nobody}: ' in done.stderr


def test_a_second_committer_takes_over_and_the_first_one_steps_down(bench: Bench) -> None:
    with running_committer(bench.bootstrap, bench.names, bench.root) as first:
        first.wait_until_ready()
        bench.propose(creation(bench.uri()))
        (bench.root / "second").mkdir()
        with running_committer(bench.bootstrap, bench.names, bench.root) as second:
            second.wait_until_ready()
            sent = bench.proposer.send_wait(append(bench.uri(), rows([1]), 1, "app", 0))
            first.process.wait(120)
            until(lambda: any(outcome.position == sent for outcome in bench.outcomes()), "the outcome")
            second.stop()
        assert first.process.returncode == 5
    assert [outcome.position for outcome in bench.outcomes()].count(sent) == 1
    assert ids_in(bench.uri()) == [1]


def test_it_keeps_trying_while_the_broker_is_away_and_says_so(
    own_broker: Broker, topic_names: TopicNames, tmp_path: Path
) -> None:
    bootstrap = own_broker.bootstrap_servers
    topics = Topics(topic_names.transactions, topic_names.outcomes, topic_names.dead_letters)
    uri = canonical(str(tmp_path / "table"))
    with running_committer(bootstrap, topic_names, tmp_path) as committer:
        committer.wait_until_ready()
        with Proposer(KafkaConfig(bootstrap), topics) as proposer:
            proposer.send_wait(creation(uri))
            until(
                lambda: list((tmp_path / "table" / "_versions").glob("*.manifest")), "the table", seconds=120
            )
        own_broker.kill()
        until(lambda: says_that_brokers_are_away(committer), "not ready", seconds=120)
        assert committer.get("/livez")[0] == 200
        own_broker.start()
        until(committer.is_ready, "ready again", seconds=120)
        config = KafkaConfig(bootstrap)
        with Proposer(config, topics) as proposer, OutcomeWaiter(config, topics, uri) as waiter:
            envelope = append(uri, rows([5]), 1, "app", 0)
            sent = proposer.send_wait(envelope)
            assert isinstance(waiter.wait(sent, envelope, ANSWER_SECONDS).result, Committed)
        assert ids_in(uri) == [5]
        assert committer.stop() == 0


def says_that_brokers_are_away(committer: CommitterProcess) -> bool:
    status, text = committer.get("/readyz")
    return status == 503 and ("reach" in text or "broker" in text)


def _parked(committer: CommitterProcess) -> tuple[int, int]:
    """How many tables are parked, and how many entries with them, by the metrics."""
    page = committer.get("/metrics")[1]
    values = dict.fromkeys(("lakefold_parked_tables", "lakefold_parked_entries"), 0)
    for line in page.splitlines():
        name, _, value = line.rpartition(" ")
        if (name := name.partition("{")[0]) in values:
            values[name] += int(float(value))
    return values["lakefold_parked_tables"], values["lakefold_parked_entries"]


def _bad_proposals(uri: str) -> dict[str, Envelope]:
    """Proposals that are wrong, each in its own way."""
    bad = {
        what: append(uri, rows([1]), 1)
        for what in ("missing file", "other size", "field ids", "rows 0", "read version", "leaves its base")
    }
    remove_files_of(bad["missing file"])
    bad["other size"].lance.append.fragments[0].files[0].file_size_bytes += 1
    bad["field ids"].lance.append.fragments[0].files[0].fields[0] = 77
    bad["rows 0"].lance.append.fragments[0].physical_rows = 0
    bad["read version"].lance.read_version = 99
    bad["leaves its base"].lance.append.fragments[0].files[0].path = "../../etc/passwd"
    bad["no operation"] = Envelope(table=uri)
    bad["no operation"].lance.uuid = "0"
    bad["unbuilt operation"] = Envelope(table=uri)
    bad["unbuilt operation"].lance.read_version = 1
    bad["unbuilt operation"].lance.data_overlay.SetInParent()
    return bad


def _foreign(uri: str, envelope: Envelope) -> Envelope:
    """The same proposal for another table."""
    other = Envelope()
    other.CopyFrom(envelope)
    other.table = uri
    return other
