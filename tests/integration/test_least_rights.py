"""Each role runs with the rights that the documents list for it, and misses by name each right that is taken.

The broker's authorizer is Kafka's own. The test's set-up is its super user, the roles are users with
ACLs made from the table in docs/operations/promises.md.

Promise: least-rights (docs/operations/promises.md).
"""

from __future__ import annotations

import io
import re
import shutil
import threading
from contextlib import closing, redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

import pytest
from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)
from structlog.testing import capture_logs

from lakefold.binding.bound_partition import bound_partition
from lakefold.cli import run
from lakefold.console.settings import Settings
from lakefold.web.activity import Activity
from lakefold.web.cluster import NOT_YET, ClusterWatch
from lakefold.web.documents import proposal_document
from lakefold_committer.observability.metrics import Metrics
from lakefold_committer.process.daemon import Committer, Options
from lakefold_ingest.operations.append import AppendRows
from lakefold_ingest.proposals.key import Key
from lakefold_ingest.writing.batch import put_batch
from lakefold_ingest.writing.log_client import close_clients
from lakefold_ingest.writing.settings import WriteSettings
from lakefold_log.client.admin import KafkaConfig
from lakefold_log.client.rights import Right, on_group, on_topics
from lakefold_log.client.topic_names import Topics
from lakefold_protos.lance.table_pb2 import DataFragment
from lakefold_reader.tail.wakeup import OutcomesTopic
from lakefold_table.errors import InvalidError, LakefoldError
from lakefold_table.uri import canonical
from lakefold_table.versions.table_address import TableAddress
from tests.integration.authorized import AuthorizedBroker
from tests.integration.conftest import TopicNames
from tests.integration.own_log import PATIENCE_S, OwnLog
from tests.integration.roles import Role, bindings, documented
from tests.integration.stage import Stage, folding
from tests.proposals import SCHEMA, append, creation, ids_in, rows
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from lakefold_ingest.writing.settings import Wait
    from lakefold_protos.lakefold.log_pb2 import Envelope

NAMES: Final = TopicNames("events", "proposals", "answers", "letters", "folders")
MADE: Final = TopicNames("events", "made-proposals", "made-answers", "made-letters", "makers")
ELSEWHERE: Final = "/nowhere/elsewhere"
"""A table that lies below no root of the committers."""
ROLES: Final = documented(NAMES)
TOPICS: Final = Topics(NAMES.transactions, NAMES.outcomes, NAMES.dead_letters)
SHARING: Final = "committer"
ALONE: Final = "committer with --partitions all, or named ones"
MAKER: Final = Role(
    "maker",
    (
        *documented(MADE)[ALONE].rights,
        *on_topics("Create", MADE.transactions, MADE.outcomes, MADE.dead_letters),
    ),
)


def lacking() -> Iterator[tuple[Role, Right]]:
    """Each role with each of its rights; of a committer that shares what others don't need."""
    common = ROLES[ALONE].rights
    for role in ROLES.values():
        for right in role.rights:
            if role.name != SHARING or right not in common:
                yield role, right


LACKING: Final = list(lacking())
GROUP: Final = Right("Read", "group", NAMES.group)
SEEING: Final = replace(
    ROLES[ALONE].without(GROUP),
    rights=(*ROLES[ALONE].without(GROUP).rights, *on_group("Describe", NAMES.group)),
)
"""A committer that may look at its group's offset, and not move it."""
USERS: Final[Mapping[Role, str]] = {
    role: f"user{number}"
    for number, role in enumerate(
        [*ROLES.values(), *(role.without(right) for role, right in LACKING), MAKER, SEEING]
        + [MAKER.without(right) for right in MAKER.rights if right.operation == "Create"]
    )
}


@dataclass(frozen=True, slots=True)
class Done:
    """What came of what a role did: whether it did it, and all that was said."""

    well: bool
    message: str


class Scene:
    """A log with a dead letter, tables that are folded from it, and a broker that checks its clients."""

    def __init__(self, broker: AuthorizedBroker, folder: Path) -> None:
        bootstrap = broker.bootstrap_servers
        own = OwnLog.make(bootstrap, NAMES, partitions=2)
        self.stage = Stage(bootstrap, NAMES, own, folder)
        self._broker = broker
        self._numbers = count(1)
        self._done = set[str]()

    def config(self, user: str) -> KafkaConfig:
        return KafkaConfig(self._broker.named_servers, self._broker.options(user))

    def options(self, user: str) -> Options:
        """A committer's."""
        return replace(self.stage.options(), kafka=self.config(user), give_up_after_s=PATIENCE_S)

    def once(self, name: str, act: Callable[[], object]) -> None:
        """Does this if nothing of this name was done before."""
        if name not in self._done:
            act()
            self._done.add(name)

    def uri(self, name: str) -> str:
        """A table of this name, folded from the log."""
        uri = canonical(self.stage.root / name)
        self.once(name, lambda: self._fold(creation(uri)))
        return uri

    def batch(self, name: str) -> tuple[Envelope, int]:
        """A proposal for the table of this name: one row, and the row's id."""
        number = next(self._numbers)
        return append(self.uri(name), rows([number]), 1, "app", number), number

    def send(self, name: str) -> tuple[str, int]:
        """Sends a batch, and a proposal that becomes a dead letter. Returns the batch's uuid and row."""
        envelope, number = self.batch(name)
        self._send(envelope, creation(canonical(ELSEWHERE)))
        return envelope.lance.uuid, number

    def verb(self, user: str, *words: str) -> Done:
        """Calls the command line as this user."""
        topics = ["--transactions-topic", NAMES.transactions, "--outcomes-topic", NAMES.outcomes]
        names = ["--bootstrap-servers", self._broker.named_servers, *topics]
        if words[0] == "replay":
            names = names[:2]
        else:
            names += ["--dead-letters-topic", NAMES.dead_letters]
        if words[0] not in {"propose", "replay"}:
            names += ["--group", NAMES.group]
        for name, value in self._broker.options(user).items():
            names += ["--kafka", f"{name}={value}"]
        out = io.StringIO()
        with redirect_stdout(out), redirect_stderr(out):
            code = run([*words, *names])
        return Done(code == 0, out.getvalue())

    def write_letters(self) -> str:
        """Makes sure of dead letters; returns the table that they are for."""
        # Behind the first entry there is something to read.
        self.once("letters", lambda: self._fold(*(creation(canonical(ELSEWHERE)) for _ in range(2))))
        return canonical(ELSEWHERE)

    def _fold(self, *envelopes: Envelope) -> None:
        self._send(*envelopes)
        self.stage.fold()

    def _send(self, *envelopes: Envelope) -> None:
        with self.stage.own.proposer() as proposer:
            for envelope in envelopes:
                proposer.send_wait(envelope)


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    with (
        TemporaryDirectory(prefix="lakefold-rights-") as folder,
        AuthorizedBroker(Path(folder) / "broker", USERS.values()) as broker,
    ):
        root = Path(folder) / "lake"
        root.mkdir()
        scene = Scene(broker, root)
        allow(scene)
        yield scene


def allow(scene: Scene) -> None:
    """Makes all ACLs, and waits until the broker applies them."""
    client = scene.stage.own.admin.client
    wanted = [acl for role, user in USERS.items() for acl in bindings(user, role.rights)]
    for made in client.create_acls(wanted).values():
        made.result()
    anything: Any = None
    every = AclBindingFilter(
        ResourceType.ANY,
        anything,
        ResourcePatternType.ANY,
        anything,
        anything,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    until(lambda: len(client.describe_acls(every).result()) == len(wanted), "the ACLs")


def commit(scene: Scene, user: str) -> Done:
    _, row = scene.send("main")
    text = ""
    with capture_logs() as logs:
        try:
            Committer(scene.options(user), Metrics()).run(until_caught_up=True)
        except LakefoldError as error:
            text = str(error)
    return Done(not text and row in ids_in(scene.uri("main")), f"{text} {logs}")


def share(scene: Scene, user: str) -> Done:
    _, row = scene.send("main")
    committer = Committer(replace(scene.options(user), share=True), Metrics())
    names: list[str] = []

    def work() -> None:
        try:
            committer.run()
        except LakefoldError as error:
            names.append(str(error))

    thread = threading.Thread(target=work)
    thread.start()
    try:
        until(lambda: names or row in ids_in(scene.uri("main")), "the committer", seconds=PATIENCE_S)
    finally:
        committer.stop()
        thread.join(PATIENCE_S)
    return Done(not names, " ".join(names))


def write_and_wait(scene: Scene, user: str) -> Done:
    # It is made by a committer that would fence the committer below.
    scene.uri("main")
    with folding(scene.stage):
        proposed, sunk = propose(scene, user, "--wait", "120"), sink(scene, user, "commit")
    return Done(proposed.well and sunk.well, proposed.message + sunk.message)


def propose(scene: Scene, user: str, *more: str) -> Done:
    envelope, _ = scene.batch("main")
    file = scene.stage.root / "batch.txn"
    file.write_bytes(envelope.lance.SerializeToString())
    return scene.verb(user, "propose", scene.uri("main"), "--transaction", str(file), *more)


def sink(scene: Scene, user: str, wait: Wait) -> Done:
    """What the Spark sink does on the driver."""
    envelope, row = scene.batch("main")
    fragments = [
        DataFragment.FromString(fragment.SerializeToString()) for fragment in envelope.lance.append.fragments
    ]
    settings = WriteSettings(scene.uri("main"), scene.config(user), TOPICS, wait=wait)
    try:
        put_batch(settings, Key("sink", row), AppendRows(SCHEMA, lambda _: fragments))
    except LakefoldError as error:
        return Done(well=False, message=str(error))
    finally:
        close_clients()
    return Done(well=True, message="")


def listen(scene: Scene, user: str) -> Done:
    config = scene.config(user)
    topic = OutcomesTopic(config.bootstrap_servers, config.options, NAMES.transactions, NAMES.outcomes)
    try:
        with closing(topic.news(scene.uri("main"), "", None)) as news:
            scene.send("main")
            scene.stage.fold()
            until(lambda: news.wait(1) > 0, "the news", every=0)
    except LakefoldError as error:
        return Done(well=False, message=str(error))
    return Done(well=True, message="")


def explain(scene: Scene, user: str) -> Done:
    """A proposal that waits: only the log knows it."""
    uuid, _ = scene.send("main")
    return scene.verb(user, "explain", scene.uri("main"), uuid)


def redrive(scene: Scene, user: str) -> Done:
    scene.write_letters()
    return scene.verb(user, "redrive")


def redrive_sent(scene: Scene, user: str) -> Done:
    """What is sent is refused again: that it was answered is what counts."""
    table = scene.write_letters()
    with folding(scene.stage):
        done = scene.verb(user, "redrive", "--table", table, "--all")
    return replace(done, well="refused again" in done.message)


def adopt(scene: Scene, user: str) -> Done:
    uri = scene.uri("adopted")
    scene.once("detached first", lambda: run(["detach", uri, "--unanswered"]))
    return scene.verb(user, "adopt", uri)


def rebind(scene: Scene, user: str) -> Done:
    uri = scene.uri("rebound")
    other = 1 - (bound_partition(TableAddress(uri)) or 0)
    return scene.verb(user, "rebind", uri, "--partition", str(other))


def rebind_restored(scene: Scene, user: str) -> Done:
    """The table was set back to a backup."""
    uri = scene.uri("restored")
    path, copy = scene.stage.root / "restored", scene.stage.root.parent / "copy"

    def set_back() -> None:
        shutil.copytree(path, copy)
        scene.send("restored")
        scene.stage.fold()
        shutil.rmtree(path)
        shutil.copytree(copy, path)

    scene.once("set back", set_back)
    return scene.verb(user, "rebind", uri, "--restored")


def drop(scene: Scene, user: str) -> Done:
    """The table was deleted by hand."""
    uri = scene.uri("gone")
    scene.once("deleted", lambda: shutil.rmtree(scene.stage.root / "gone"))
    return scene.verb(user, "drop", uri, "--yes")


def watch(scene: Scene, user: str) -> Done:
    """What the console shows of the brokers, and of a proposal that waits."""
    config = scene.config(user)
    scene.write_letters()
    uuid, _ = scene.send("main")
    settings = Settings(
        bootstrap_servers=config.bootstrap_servers,
        kafka=dict(config.options),
        transactions_topic=NAMES.transactions,
        outcomes_topic=NAMES.outcomes,
        dead_letters_topic=NAMES.dead_letters,
        group=NAMES.group,
        http_port=0,
    )
    activity = Activity()
    cluster = ClusterWatch(settings, activity, lambda: None)
    try:
        until(lambda: cluster.problem or any(activity.series()["committed"]), "outcomes", seconds=PATIENCE_S)
        until(lambda: is_asked(cluster.document()), "the overview", seconds=PATIENCE_S)
        shown = cluster.document()
    finally:
        cluster.close()
    text = " ".join(shown[name] for name in ("problem", "feed_problem", "dead_letters_problem")).strip()
    try:
        text += str(proposal_document(scene.uri("main"), uuid, "", settings)["not_looked_at"] or "")
    except LakefoldError as error:
        text += str(error)
    # A right that lacks leaves the rest of the overview as it is.
    assert shown["partitions"] or NAMES.transactions in text or NAMES.group in text
    return Done(not text, text)


def is_asked(overview: dict[str, Any]) -> bool:
    """Whether the letters were counted, or it is said why something of the overview isn't known."""
    why = overview["dead_letters_problem"] or overview["problem"].removeprefix(NOT_YET)
    return bool(overview["dead_letters"] or why)


ACTS: Final[Mapping[str, Callable[[Scene, str], Done]]] = {
    ALONE: commit,
    SHARING: share,
    "writer (lakefold propose)": propose,
    'Spark\'s sink with wait="log"': lambda scene, user: sink(scene, user, "log"),
    "writer or sink that waits for outcomes": write_and_wait,
    "reader that is woken by outcomes": listen,
    "lakefold status": lambda scene, user: scene.verb(user, "status", "--http-port", "0"),
    "lakefold explain": explain,
    "lakefold replay": lambda scene, user: scene.verb(user, "replay", scene.uri("main"), "--to", "3"),
    "lakefold redrive, to list": redrive,
    "lakefold redrive, to send": redrive_sent,
    "lakefold console": watch,
    "lakefold adopt": adopt,
    "lakefold rebind": rebind,
    "lakefold rebind --restored": rebind_restored,
    "lakefold detach": lambda scene, user: scene.verb(user, "detach", scene.uri("detached")),
    "lakefold drop of a table that is gone": drop,
}


def test_each_role_of_the_document_is_tried() -> None:
    assert list(ROLES) == list(ACTS)


@pytest.mark.parametrize(("role", "right"), LACKING, ids=[f"{role.name}: {right}" for role, right in LACKING])
def test_a_right_that_lacks_is_named(scene: Scene, role: Role, right: Right) -> None:
    done = ACTS[role.name](scene, USERS[role.without(right)])
    assert f"on {right.kind} {right.name.removesuffix('…')}" in done.message
    assert done.well or "kafka-acls.sh --add" in done.message
    # Without this right a committer warns, and continues.
    assert done.well is (right.operation == "DescribeConfigs")


@pytest.mark.parametrize("role", ROLES.values(), ids=ROLES)
def test_the_rights_of_a_role_suffice(scene: Scene, role: Role) -> None:
    done = ACTS[role.name](scene, USERS[role])
    assert done.well, done.message


def test_a_committer_that_may_not_move_its_offset_says_so(scene: Scene) -> None:
    done = commit(scene, USERS[SEEING])
    assert not done.well
    assert f"lacks the right {GROUP}" in done.message


def test_a_committer_makes_its_topics_if_it_may(scene: Scene) -> None:
    topics = Topics(MADE.transactions, MADE.outcomes, MADE.dead_letters)
    options = replace(scene.options(USERS[MAKER]), topics=topics, group=MADE.group)
    for right in MAKER.rights:
        if right.operation == "Create":
            refused = replace(options, kafka=scene.config(USERS[MAKER.without(right)]))
            with pytest.raises(InvalidError, match=re.escape(str(right))):
                Committer(refused, Metrics()).run(until_caught_up=True)
            break
    Committer(options, Metrics()).run(until_caught_up=True)
