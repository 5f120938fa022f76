"""Proposals larger than a message, on a real broker: folded once after any crash, and no file remains."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from lakefold_log.client.admin import KafkaConfig
from lakefold_log.client.topic_names import Topics
from lakefold_log.client.topics import ensure_topics
from lakefold_log.codec.claims import FOLDER
from lakefold_log.read.outcomes import read_outcomes
from lakefold_log.write.producer import Proposer
from lakefold_table.entry import Committed, Duplicate, Rejected
from lakefold_table.uri import canonical
from tests.integration.committers import fold_to_the_end, running_committer
from tests.integration.copies import command_line
from tests.integration.own_log import patient_admin
from tests.integration.stage import DIES_BEFORE_ITS_REPORT
from tests.proposals import append, creation, ids_in, rows

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.conftest import TopicNames

SMALL = 1000
"""So many bytes a message may have here: each of these proposals is larger."""


def test_large_proposals_are_folded_once_and_leave_nothing(
    bootstrap: str, topic_names: TopicNames, tmp_path: Path
) -> None:
    topics = Topics(topic_names.transactions, topic_names.outcomes, topic_names.dead_letters)
    config = KafkaConfig(bootstrap, {"message.max.bytes": SMALL})
    ensure_topics(patient_admin(KafkaConfig(bootstrap)), topics)
    uri = canonical(tmp_path / "table")
    begun = creation(uri)
    begun.lance.overwrite.config_upsert_values["why"] = "x" * SMALL
    folder = tmp_path / "table" / FOLDER
    with Proposer(config, topics) as proposer:
        proposer.send_wait(begun)
        fold_to_the_end(bootstrap, topic_names, tmp_path)
        assert list(folder.iterdir()) == []
        for batch in (0, 1, 0):
            wide = append(uri, rows([batch]), 1, "app", batch)
            wide.lance.transaction_properties["why"] = "x" * SMALL
            proposer.send_wait(wide)
        again = creation(uri)
        again.lance.overwrite.config_upsert_values["why"] = "y" * SMALL
        proposer.send_wait(again)
    assert len(list(folder.iterdir())) == 4
    # Had it reported an outcome before it died, the file of that proposal would stay.
    dies = ("-c", DIES_BEFORE_ITS_REPORT)
    with running_committer(bootstrap, topic_names, tmp_path, interpreter=dies) as killed:
        assert killed.process.wait(120) == 9
    fold_to_the_end(bootstrap, topic_names, tmp_path)
    results = [
        outcome.result for _, outcome in read_outcomes(patient_admin(KafkaConfig(bootstrap)), topics, 0, 0)
    ]
    assert [type(result) for result in results] == [Committed, Committed, Committed, Duplicate, Rejected]
    assert ids_in(uri) == [0, 1]
    assert len(list(folder.iterdir())) == 1


def test_the_verb_sends_what_does_not_fit(bootstrap: str, topic_names: TopicNames, tmp_path: Path) -> None:
    uri = canonical(tmp_path / "table")
    begun = creation(uri)
    begun.lance.overwrite.config_upsert_values["why"] = "x" * SMALL
    (tmp_path / "one.txn").write_bytes(begun.lance.SerializeToString())
    with running_committer(bootstrap, topic_names, tmp_path) as committer:
        committer.wait_until_ready()
        names = [str(tmp_path / "table"), "--transaction", str(tmp_path / "one.txn"), "--create"]
        flags = ["--bootstrap-servers", bootstrap, "--transactions-topic", topic_names.transactions]
        flags += ["--outcomes-topic", topic_names.outcomes, "--kafka", f"message.max.bytes={SMALL}"]
        sent = command_line().run(["propose", *names, *flags, "--wait", "120", "--json"], timeout=200)
        assert committer.stop() == 0
    assert sent.returncode == 0, sent.stderr
    assert "committed" in json.loads(sent.stdout)
    assert (tmp_path / "table" / FOLDER).is_dir()
    assert list((tmp_path / "table" / FOLDER).iterdir()) == []
