"""With any messages in the log, a committer writes below its roots only, limits its memory, and continues.

The real process on a real broker: each message is refused and put aside, the whole region of the file system
around the root stays as it was, and the kernel's account of the process stays small.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import lance
import pytest
from confluent_kafka import Producer

from lakefold_log.client.topics import ensure_topics
from lakefold_log.codec.envelope import encode
from lakefold_log.read.outcomes import read_outcomes
from lakefold_log.read.turns import TURN
from lakefold_log.write.producer import Proposer
from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_table.entry import Committed, Invalid, Rejected
from lakefold_table.wire import varint
from tests.integration.committers import NEW_PROCESS, running_committer
from tests.integration.conftest import TopicNames
from tests.integration.ledger import Ledger
from tests.integration.own_log import patient_admin
from tests.integration.raw import dead_letters_of, send_header
from tests.properties.hostile import hostile
from tests.proposals import append, creation, ids_in, rows
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lakefold.local.broker import Broker
    from lakefold_table.entry import Outcome
    from tests.integration.committers import CommitterProcess

    Raw = tuple[bytes | None, bytes | None, list[tuple[str, str | bytes | None]]]

ANSWER_SECONDS = 120.0
MANY = 3_000
A_NAME = 2_400
"""So many characters has a table's name about."""
KEPT = 10_000
"""Bytes that a name may leave behind: the last some thousand names and what is wrong with them are kept."""
AT_ONCE = 340
"""So many names are sent at once: what a busy machine folds together takes memory for a moment."""
MEGABYTE = 1 << 20
MOST = 240 * MEGABYTE
"""What a committer of small tables may hold at most, whatever it is sent: three of the worst at once."""


@dataclass
class Site:
    """A committer of the root `lake`, a table there, and files beside the root."""

    ledger: Ledger
    committer: CommitterProcess
    proposer: Proposer
    region: Path
    known_outcomes: dict[int, Outcome] = field(default_factory=dict)
    read: int = 0
    dead_letters: int = 0

    @property
    def lake(self) -> Path:
        """The root."""
        return self.ledger.root

    def uri(self, name: str) -> str:
        """The URI of a place in the region, canonical or not."""
        return f"file://{self.region}/{name}"

    def send(self, messages: Sequence[Raw]) -> list[int]:
        """Send raw messages, gives their offsets."""
        offsets: list[int] = []
        producer = Producer({"bootstrap.servers": self.ledger.bootstrap, "message.max.bytes": 4 * MEGABYTE})
        topic = self.ledger.names.transactions
        for key, value, headers in messages:
            producer.produce(
                topic,
                value,
                key,
                0,
                headers=headers,
                on_delivery=lambda _, message: offsets.append(message.offset() or 0),
            )
            producer.poll(0)
        producer.flush(ANSWER_SECONDS)
        return offsets

    def answers(self, offsets: Sequence[int]) -> list[Outcome]:
        """The outcomes of these positions, once all are there."""

        def all_there() -> bool:
            assert self.committer.process.poll() is None, self.committer.log.read_text()
            for at, outcome in read_outcomes(
                patient_admin(self.ledger.config), self.ledger.topics, 0, self.read
            ):
                self.known_outcomes[outcome.position.offset], self.read = outcome, at + 1
            return self.known_outcomes.keys() >= set(offsets)

        until(all_there, "all answers", seconds=ANSWER_SECONDS)
        outcomes = [self.known_outcomes[offset] for offset in offsets]
        self.dead_letters += sum(isinstance(outcome.result, Invalid | Rejected) for outcome in outcomes)
        return outcomes

    def refuses(self, messages: Sequence[Raw], names: Sequence[str] = ()) -> list[str]:
        """Sends them. Each is refused and kept as a dead letter. Returns the answer to each."""
        reported = []
        for number, outcome in enumerate(self.answers(self.send(messages))):
            result = outcome.result
            what = names[number] if names else str(number)
            assert isinstance(result, Invalid | Rejected), f"{what}: {result}"
            reported.append(f"{result.message} ({result.hint})" if isinstance(result, Invalid) else "")
        dead_letters = dead_letters_of(
            self.ledger.bootstrap, self.ledger.names.dead_letters, self.dead_letters
        )
        values = {value for _, value in dead_letters}
        assert all((value or b"") in values for _, value, _ in messages)
        return reported

    def refuses_envelopes(self, envelopes: Mapping[str, Envelope]) -> dict[str, str]:
        """As `refuses`, under the key that each asks for."""
        messages: list[Raw] = [
            (envelope.table.encode(), encode(envelope), []) for envelope in envelopes.values()
        ]
        return dict(zip(envelopes, self.refuses(messages, list(envelopes)), strict=True))

    def seen(self, top: Path | None = None) -> dict[str, tuple[int, int, int]]:
        """The files below `top`, else in the region, without the log: mode, size, time of change."""
        actual = {}
        for folder, folders, files in os.walk(top or self.region):
            for name in (*folders, *files, ""):
                path = Path(folder) / name
                if path != self.committer.log:
                    stat_result = path.lstat()
                    actual[str(path)] = (stat_result.st_mode, stat_result.st_size, stat_result.st_mtime_ns)
        return actual

    def peak(self) -> int:
        """The most memory that the committer has held, in bytes."""
        status = Path(f"/proc/{self.committer.process.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024

    def goes_on(self, number: int) -> None:
        """The committer folds what is good."""
        good = self.proposer.send_wait(append(self.ledger.uri, rows([number]), 1, "good", number))
        (outcome,) = self.answers([good.offset])
        assert isinstance(outcome.result, Committed), outcome


@pytest.fixture(scope="module")
def site(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A committer for all tests of this module: it must live through all of them."""
    region = tmp_path_factory.mktemp("region")
    (region / "lake").mkdir()
    (region / "logs").mkdir()
    names = TopicNames(*(f"hostile-{part}-{os.getpid()}" for part in ("e", "t", "o", "d", "g")))
    ledger = Ledger(broker.bootstrap_servers, names, region / "lake")
    ensure_topics(patient_admin(ledger.config), ledger.topics)
    with (
        Proposer(ledger.config, ledger.topics) as proposer,
        running_committer(
            ledger.bootstrap, names, ledger.root, logs=region / "logs", interpreter=NEW_PROCESS
        ) as committer,
    ):
        committer.wait_until_ready()
        actual = Site(ledger, committer, proposer, region)
        actual.answers([proposer.send_wait(creation(ledger.uri)).offset])
        actual.goes_on(0)
        yield actual
        actual.goes_on(1)
        assert ids_in(ledger.uri) == [0, 1]
        assert committer.stop() == 0


def at(uri: str, envelope: Envelope) -> Envelope:
    """The same proposal for another table."""
    other = Envelope()
    other.CopyFrom(envelope)
    other.table = uri
    return other


def test_nothing_is_written_outside_of_the_roots_whatever_a_message_names(site: Site) -> None:
    outside = site.region / "outside"
    lance.write_dataset(rows([9]), str(outside / "victim"))
    (site.lake / "link").symlink_to(outside)
    (site.lake / "new").symlink_to(outside / "new")
    (site.lake / "versions").mkdir()
    (site.lake / "versions" / "_versions").symlink_to(outside)
    (site.region / "lake-of-others").mkdir()
    good = append(site.ledger.uri, rows([5]), 1)
    names = {
        "beside": site.uri("outside/t"),
        "a name that begins alike": site.uri("lake-of-others/t"),
        "above": site.uri("t"),
        "the root of all": "file:///",
        "dots": site.uri("lake/../outside/t"),
        "encoded dots": site.uri("lake/%2e%2e/outside/t"),
        "half encoded dots": site.uri("lake/.%2E/outside/t"),
        "an encoded slash": site.uri("lake/..%2Foutside/t"),
        "twice encoded dots": site.uri("lake/%252e%252e/x").replace("lake", "outside"),
        "a backslash": site.uri("lake\\..\\outside\\t"),
        "a link": site.uri("lake/link/t"),
        "a link to nothing": site.uri("lake/new"),
        "a link below": site.uri("lake/versions"),
        "a victim by a link": site.uri("lake/link/victim"),
        "a victim": site.uri("outside/victim"),
        "no scheme": f"{site.region}/outside/t",
        "another case": f"FILE://{site.lake}/t",
        "a host": f"file://elsewhere{site.lake}/t",
        "s3": "s3://lake/t",
        "another bucket": "s3://other/lake/t",
        "gs": "gs://lake/t",
        "az": "az://container/t",
        "http": "http://127.0.0.1:1/t",
        "memory": "memory://lake/t",
        "an external store": f"s3+ddb://lake{site.lake}/t?ddbTableName=T",
    }
    before = site.seen()
    for made in (creation(site.ledger.uri), good):
        site.refuses_envelopes({what: at(uri, made) for what, uri in names.items()})
    assert site.seen() == before
    assert lance.dataset(str(outside / "victim")).count_rows() == 1


def test_no_name_inside_of_a_proposal_leads_out(site: Site) -> None:
    outside = site.region / "beyond"
    victim = lance.write_dataset(rows([9]), str(outside / "victim"))
    (data_file,) = [file.path for fragment in victim.get_fragments() for file in fragment.data_files()]
    secret = outside / "victim" / "data" / data_file
    (site.lake / "table" / "data" / "link.lance").symlink_to(secret)
    hostile: dict[str, Envelope] = {}

    def added(what: str, envelope: Envelope | None = None) -> Envelope:
        hostile[what] = at(site.ledger.uri, envelope or append(site.ledger.uri, rows([5]), 1))
        hostile[what].lance.uuid = what
        return hostile[what]

    for what, path in {
        "dots": f"../../../outside/victim/data/{data_file}",
        "absolute": str(secret),
        "a URI": f"file://{secret}",
        "encoded": f"%2e%2e/{data_file}",
        "a link": "link.lance",
        "a line end": "x.lance\n",
        "null": "x\0.lance",
    }.items():
        file = added(f"data file: {what}").lance.append.fragments[0].files[0]
        file.path, file.file_size_bytes = path, secret.stat().st_size
    for name in (
        "..",
        "../../../outside/b",
        "a/../../../../outside/b",
        "/b",
        "a//b",
        "%2e%2e/b",
        "b" * 300,
        "a\\b",
    ):
        added(f"branch {name[:20]}").branch = name
        begins = added(f"new branch {name[:20]}", Envelope())
        begins.branch, begins.lance.read_version = name, 1
        begins.lance.clone.is_shallow, begins.lance.clone.ref_version = True, 1
        begins.lance.clone.ref_path, begins.lance.clone.branch_name = str(site.lake / "table"), name
    for what, path in {
        "outside": str(outside / "victim"),
        "a URI": f"file://{outside}/victim",
        "dots": f"{site.lake}/../outside/victim",
        "a bucket": "s3://other/table",
        "no URI": f"{site.lake}/table\n",
    }.items():
        for table in (site.uri(f"lake/clone-{len(hostile)}"), site.ledger.uri):
            clone = at(table, Envelope())
            clone.lance.uuid, clone.lance.clone.is_shallow = what, True
            clone.lance.clone.ref_version, clone.lance.clone.ref_path = 1, path
            hostile[f"clone of {what} as {table}"] = clone
    claimed = encode(append(site.ledger.uri, rows([5]), 1))
    digest = hashlib.sha256(claimed).digest()
    (outside / digest.hex()).write_bytes(claimed)
    for what, uri in {
        "outside": f"file://{outside}/{digest.hex()}",
        "dots": f"{site.ledger.uri}/_lakefold/claims/../../../../outside/{digest.hex()}",
        "http": f"http://127.0.0.1:1/{digest.hex()}",
    }.items():
        claim = added(f"claim {what}", Envelope())
        claim.ClearField("lance")
        claim.claim.uri, claim.claim.size, claim.claim.sha256 = uri, len(claimed), digest
    before = site.seen()
    site.refuses_envelopes(hostile)
    assert site.seen() == before


def test_no_reader_is_sent_elsewhere_by_a_base(site: Site) -> None:
    outside = site.region / "elsewhere"
    lance.write_dataset(rows([9]), str(outside / "victim"))
    (site.lake / "way-out").symlink_to(outside)
    before = site.seen()
    hostile: dict[str, Envelope] = {}
    for number, path in enumerate(
        [
            str(outside / "victim"),
            f"file://{outside}/victim",
            f"{site.lake}/../elsewhere/victim",
            f"{site.lake}/way-out/victim",
            "../elsewhere/victim",
            "s3://other/table",
        ]
    ):
        based = creation(site.uri(f"lake/based-{number}"))
        based.lance.overwrite.initial_bases.add(id=1, path=path, is_dataset_root=True)
        later = at(site.ledger.uri, Envelope())
        later.lance.uuid, later.lance.read_version = f"later-{number}", 1
        later.lance.update_bases.new_bases.add(path=path, name="n", is_dataset_root=True)
        hostile[f"created with {path}"], hostile[f"given {path}"] = based, later
    values = site.refuses_envelopes(hostile)
    assert all(" base " in text for text in values.values()), values
    assert site.seen() == before


def bombs(uri: str) -> Iterator[Raw]:
    """Messages that are large in unexpected fields, or no messages at all."""
    key = uri.encode()
    good = creation(uri)
    good.lance.uuid = "bomb"
    value = encode(good)
    yield key, b"\x0b" * 500_000, []
    yield key, b"\xa2\x06\xff\xff\xff\xff\x0f", []
    yield key, b"\x52" + b"\xff" * 9 + b"\x01", []
    yield key, b"", []
    yield key, None, []
    yield None, value, []
    yield b"\xff\xfe" * 100_000, value, []
    yield key, value, [("name", b"x" * 800_000)]
    # What an outcome repeats of a message must leave room for the rest of the outcome.
    yield key, value, [(TURN, b"x" * (MEGABYTE - len(key) - len(value) - 150))]
    yield key, value, [(f"name-{number}", b"") for number in range(20_000)]
    yield key, value, [("n" * 30_000, b"v") for _ in range(20)]
    nested = b""
    for _ in range(10_000):
        nested = b"\x52" + varint(len(nested)) + nested
    yield key, nested, []


def test_a_header_s_name_may_be_any_bytes(site: Site) -> None:
    """The client library ends the process if a name is not UTF-8 and is requested twice."""
    broken, (key, value) = b"\xff\xfe", (site.ledger.uri.encode(), b"nothing")
    topic = site.ledger.names.transactions
    offset = send_header(site.ledger.bootstrap, topic, key, value, broken)
    (outcome,) = site.answers([offset])
    assert isinstance(outcome.result, Invalid)
    dead_letters = dead_letters_of(site.ledger.bootstrap, site.ledger.names.dead_letters, site.dead_letters)
    assert (key, value) in dead_letters


def test_memory_stays_bounded_whatever_a_message_claims(site: Site) -> None:
    uri = site.ledger.uri
    site.refuses(list(bombs(uri)))
    victim = site.uri("lake/victim")
    site.answers([site.proposer.send_wait(creation(victim, stable_row_ids=True)).offset])
    proposals = [at(victim, envelope) for _, envelope in hostile()]
    for number, envelope in enumerate(proposals):
        envelope.lance.uuid = f"hostile-{number}"
    site.answers(site.send([(victim.encode(), encode(envelope), []) for envelope in proposals]))
    manifest = max(path.stat().st_size for path in (site.lake / "victim" / "_versions").iterdir())
    site.refuses_envelopes(of_nothing(site, 0))
    before = site.peak()
    names = iter(of_nothing(site, MANY).items())
    while some := dict(islice(names, AT_ONCE)):
        site.refuses_envelopes(some)
    assert site.peak() - before < MANY * KEPT, "what is not there is forgotten"
    assert site.peak() < MOST + 3 * manifest


def of_nothing(location: Site, first: int) -> dict[str, Envelope]:
    """Appends to tables, and to branches, that are not there; each bears a long name of its own."""
    deep = "/".join(["d" * 200] * (A_NAME // 200))
    tables = [Envelope(table=location.uri(f"lake/{deep}/{number}")) for number in range(first, first + MANY)]
    branches = [
        Envelope(table=location.ledger.uri, branch=f"b{number}") for number in range(first, first + 200)
    ]
    for number, envelope in enumerate([*tables, *branches]):
        envelope.lance.uuid, envelope.lance.read_version = f"nothing-{number}", 1
        envelope.lance.append.SetInParent()
    return {f"{envelope.table} {envelope.branch}": envelope for envelope in [*tables, *branches]}
