"""A log behind TLS and passwords: all connect by the client's own options, and no secret is printed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from lakefold_ingest.operations.append import AppendRows
from lakefold_ingest.proposals.key import Key
from lakefold_ingest.writing.batch import put_batch
from lakefold_ingest.writing.log_client import close_clients
from lakefold_ingest.writing.settings import WriteSettings
from lakefold_log.client.admin import Admin, KafkaConfig
from lakefold_log.client.topic_names import Topics
from lakefold_log.write.producer import Proposer
from lakefold_table.entry import Committed
from lakefold_table.errors import InvalidError, RetryError
from lakefold_table.uri import canonical
from tests.integration.committers import NEW_PROCESS, running_committer
from tests.integration.secured import PASSWORD, Authority, SecuredBroker
from tests.proposals import append, creation, ids_in, rows
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakefold_ingest.rows.target import Target, WrittenFile
    from tests.integration.conftest import TopicNames

WRONG = "wrong-horse-81c2"
QUICK_SECONDS = 120.0
"""Well below the minutes that the client's own time-outs add up to; starting Python is most of it."""
PAGES = ("/metrics", "/readyz", "/livez")
PASSWORD_VARIABLE = "LAKEFOLD_KAFKA__SASL_PASSWORD"  # noqa: S105 - a name


@pytest.fixture(scope="module")
def secured() -> Iterator[SecuredBroker]:
    """A running broker behind TLS that the tests of this module share."""
    with TemporaryDirectory(prefix="lakefold-broker-") as folder, SecuredBroker(folder) as running:
        yield running


@dataclass
class Shell:
    """Runs the command line against the secured listener, and keeps all that was ever printed."""

    secured: SecuredBroker
    names: TopicNames
    folder: Path
    printed: list[str] = field(default_factory=list)

    @property
    def topics(self) -> list[str]:
        return [
            *("--transactions-topic", self.names.transactions),
            *("--outcomes-topic", self.names.outcomes),
            *("--dead-letters-topic", self.names.dead_letters),
        ]

    def options(self, authority: Authority | None = None) -> list[str]:
        """All but the password, which comes by the environment."""
        values = self.secured.options(authority=authority)
        return [
            word
            for name, value in values.items()
            if "password" not in name
            for word in ("--kafka", f"{name}={value}")
        ]

    def run(
        self, *words: str, password: str = PASSWORD, authority: Authority | None = None
    ) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "lakefold", "--log-level", "debug", *words]
        command += ["--bootstrap-servers", self.secured.secure_servers, *self.options(authority)]
        done = subprocess.run(
            command,
            cwd=self.folder,
            env={**os.environ, PASSWORD_VARIABLE: password},
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        self.printed += [done.stdout, done.stderr]
        return done

    def check_nothing_told(self) -> None:
        """Neither password is in anything that was printed."""
        assert self.printed
        for text in self.printed:
            assert PASSWORD not in text
            assert WRONG not in text


@pytest.fixture
def shell(secured: SecuredBroker, topic_names: TopicNames, tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(secured, topic_names, tmp_path)
    yield shell
    shell.check_nothing_told()


@pytest.fixture
def password(monkeypatch: pytest.MonkeyPatch) -> None:
    """The password in the environment that processes get."""
    monkeypatch.setenv(PASSWORD_VARIABLE, PASSWORD)


@pytest.mark.usefixtures("password")
def test_committer_proposer_sink_and_status_go_through(shell: Shell, tmp_path: Path) -> None:
    secured, names = shell.secured, shell.names
    topics = Topics(names.transactions, names.outcomes, names.dead_letters)
    config = KafkaConfig(secured.secure_servers, secured.options())
    uri, other = canonical(str(tmp_path / "t")), canonical(str(tmp_path / "sink"))
    chatty = ["--kafka", "debug=conf,security"]
    with running_committer(
        secured.secure_servers, names, tmp_path, *shell.options(), *chatty, interpreter=NEW_PROCESS
    ) as committer:
        committer.wait_until_ready()
        with Proposer(config, topics) as proposer:
            proposer.send_wait(creation(uri))
        until(lambda: list((tmp_path / "t" / "_versions").glob("*.manifest")), "the table", seconds=120)
        envelope = append(uri, rows([5]), 1)
        (tmp_path / "append.txn").write_bytes(envelope.lance.SerializeToString())
        sent = shell.run(
            "propose", uri, "--transaction", "append.txn", "--wait", "120", "--json", *shell.topics
        )
        assert sent.returncode == 0, sent.stderr
        settings = WriteSettings(other, config, topics, timeout_s=120)
        batch = pa.record_batch({"id": pa.array([7], pa.int64())})

        def write(target: Target) -> list[WrittenFile]:
            return list(target.write([batch]))

        report = put_batch(settings, Key("app", 0), AppendRows(batch.schema, write))
        assert isinstance(report.result, Committed)
        close_clients()
        shell.printed += [str(config), repr(settings), *(committer.get(page)[1] for page in PAGES)]
        shell.printed += [
            Path(f"/proc/{committer.process.pid}/{name}").read_text() for name in ("cmdline", "comm")
        ]
        status = shell.run("status", "--json", "--timeout", "120", *shell.topics)
        assert status.returncode == 0, status.stderr
        assert json.loads(status.stdout)["brokers"]
        assert committer.stop() == 0
        shell.printed.append(committer.log.read_text())
    assert ids_in(uri) == [5]
    assert ids_in(other) == [7]
    replayed = shell.run("replay", uri, "--json")
    assert replayed.returncode == 0, replayed.stderr


def test_a_wrong_password_or_an_unknown_authority_is_reported_at_once_with_what_to_do(
    shell: Shell, tmp_path: Path
) -> None:
    stranger = Authority(tmp_path / "stranger")
    verbs = (
        ["committer", "--http-port", "0", "--root", str(tmp_path), *shell.topics],
        ["status", *shell.topics],
    )
    for verb in verbs:
        for password, authority, text, mend in (
            (WRONG, None, "Authentication failed", "sasl.password"),
            (PASSWORD, stranger, "certificate verify failed", "ssl.ca.location"),
        ):
            begun = time.monotonic()
            done = shell.run(*verb, "--json", password=password, authority=authority)
            assert time.monotonic() - begun < QUICK_SECONDS
            assert done.returncode == 2, done.stderr
            error = json.loads(done.stdout)["error"]
            assert error["kind"] == "InvalidError"
            assert text in error["message"]
            assert mend in error["hint"]


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"sasl.password": WRONG}, InvalidError, "sasl.password"),
        ({"sasl.mechanisms": "SCRAM-SHA-512"}, InvalidError, "sasl.mechanisms"),
        ({"ssl.ca.location": "/nowhere/ca.pem"}, InvalidError, "ssl.ca.location"),
        ({"security.protocol": "SASL_SLS"}, InvalidError, "security.protocol"),
        ({"security.protocol": "PLAINTEXT"}, RetryError, "security.protocol"),
    ],
)
def test_each_wrong_option_is_named(
    secured: SecuredBroker, options: dict[str, str], kind: type[Exception], message: str
) -> None:
    config = KafkaConfig(secured.secure_servers, {**secured.options(), **options})
    with pytest.raises(kind, match=message) as caught:
        # Who gets no answer at all waits for as long as that.
        Admin(config, timeout_s=60 if kind is InvalidError else 5).cluster_id()
    assert WRONG not in f"{caught.value!r} {config!r}"


def test_speaking_tls_to_a_plain_listener_says_so(secured: SecuredBroker) -> None:
    with pytest.raises(RetryError, match=r"security\.protocol is"):
        Admin(KafkaConfig(secured.bootstrap_servers, secured.options()), timeout_s=5).cluster_id()
