"""The link that names a version is held in a committer's process, while others continue and free its name.

The name is free again when the link goes on, so it succeeds, and the file is not a version of the table.
pylance commits twice and cleans up with zero age meanwhile.

Promises: late-files, late-files-unread (docs/operations/promises.md).
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

import lance

import lakefold
from lakefold_reader.formats import open_source
from lakefold_table.entry import Committed, Rejected
from tests.integration.committers import running_committer
from tests.integration.own_log import PATIENCE_S, OwnLog
from tests.integration.stage import Stage
from tests.proposals import append, ids_in, rows
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_table.entry import Result
    from tests.integration.committers import CommitterProcess
    from tests.integration.conftest import TopicNames
    from tests.servers.kafka_relay import RelayedBroker

HOLDS_ITS_LINK = """
import os
import pathlib
from lakefold.cli import main
signs, dies = pathlib.Path({signs!r}), {dies!r}
link = os.link
def held(source, name, **folders):
    is_held = name.endswith(".manifest") and not (signs / "held").exists()
    if is_held:
        (signs / "held").touch()
        (signs / "release").read_bytes()
    link(source, name, **folders)
    if is_held and dies:
        os._exit(9)
os.link = held
main()
"""
"""A committer that holds the link of its first version until something is written to the pipe `release`.

`dies`: it ends when the link was made, before it can look what came of it.
"""


@dataclass
class Held:
    """A table of versions 1 and 2, a batch whose version is held on its way, and what others do meanwhile."""

    stage: Stage
    committer: CommitterProcess
    batch: Envelope

    def others_go_on(self) -> None:
        """Two versions of pylance's, and a clean-up that leaves only the newest."""
        path = str(self.stage.path)
        for number in (101, 102):
            lance.write_dataset(rows([number]), path, mode="append")
        lance.dataset(path).cleanup_old_versions(older_than=timedelta(0))
        assert self.versions() == [4]

    def versions(self) -> list[int]:
        """The numbers for which files lie among the versions."""
        return open_source(self.stage.uri).versions.numbers()

    def tailed(self) -> list[int]:
        """The rows that a reader is handed out from the oldest version on."""
        with lakefold.tail(self.stage.uri, "earliest") as tail:
            return sorted(value for change in tail for value in change.inserted()["id"].to_pylist())

    def answer(self) -> Result:
        """The answer to the batch."""
        results: list[Result] = []

        def answered() -> bool:
            results.extend(
                outcome.result for outcome in self.stage.outcomes() if outcome.uuid == self.batch.lance.uuid
            )
            return bool(results)

        until(answered, "the answer", seconds=PATIENCE_S)
        return results[0]


@contextmanager
def holding(
    broker: RelayedBroker, names: TopicNames, folder: Path, *, dies: bool
) -> Iterator[tuple[Held, Path]]:
    """A committer whose link is held, and the pipe that lets it continue."""
    bootstrap = broker.bootstrap_servers
    root, signs = folder / "root", folder / "signs"
    root.mkdir()
    signs.mkdir()
    os.mkfifo(signs / "release")
    stage = Stage(bootstrap, names, OwnLog.make(bootstrap, names), root)
    stage.begin(1)
    batch = append(stage.uri, rows([2, 3, 4]), 2, "app", 2)
    stage.send(batch)
    interpreter = ("-c", HOLDS_ITS_LINK.format(signs=str(signs), dies=dies))
    with running_committer(bootstrap, names, root, logs=folder, interpreter=interpreter) as committer:
        until((signs / "held").exists, "the link to be held", seconds=PATIENCE_S)
        yield Held(stage, committer, batch), signs / "release"


def test_a_committer_removes_its_late_file_and_each_row_is_read_once(
    relayed: RelayedBroker, topic_names: TopicNames, tmp_path: Path
) -> None:
    with holding(relayed, topic_names, tmp_path, dies=False) as (held, release):
        held.others_go_on()
        release.write_bytes(b"go on")
        result = held.answer()
        assert isinstance(result, Rejected)
        assert result.conflict.retryable
        assert "removed a late version" in held.committer.log.read_text()
        assert held.versions() == [4, 5], "the file is gone, and version 5 records the refusal"
        again = append(held.stage.uri, rows([2, 3, 4]), 5, "app", 2)
        answered = held.stage.ask(again)
        assert isinstance(answered, Committed)
        assert answered.version == 6
        assert held.committer.stop() == 0
        assert held.tailed() == ids_in(held.stage.uri) == [1, 2, 3, 4, 101, 102]


def test_a_late_file_is_not_used_as_a_version_whose_committer_died(
    relayed: RelayedBroker, topic_names: TopicNames, tmp_path: Path
) -> None:
    with holding(relayed, topic_names, tmp_path, dies=True) as (held, release):
        held.others_go_on()
        release.write_bytes(b"go on")
        assert held.committer.process.wait(PATIENCE_S) == 9
        assert held.versions() == [3, 4]
        assert held.tailed() == ids_in(held.stage.uri) == [1, 101, 102]
        assert held.stage.fold() == {"rejected": 1, "versions": 1}
        result = held.answer()
        assert isinstance(result, Rejected)
        held.stage.send(append(held.stage.uri, rows([2, 3, 4]), 5, "app", 2))
        assert held.stage.fold() == {"committed": 1, "versions": 1}
        assert held.tailed() == ids_in(held.stage.uri) == [1, 2, 3, 4, 101, 102]
