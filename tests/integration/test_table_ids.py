"""Every door's proposals name the table that they were built on, in each format, as a real log has them.

`tests/unit/test_table_ids_of_doors.py` lists the places that make and send them. Promise: its-own-table
(docs/operations/promises.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest

import lakefold
from lakefold import cli
from lakefold.writing.options import write_settings
from lakefold_ingest.options.write_options import WriteUse
from lakefold_ingest.proposals.key import new_key
from lakefold_ingest.spark.given_options import read_write_options
from lakefold_ingest.spark.write_plan import plan_write
from lakefold_log.client.admin import KafkaConfig
from lakefold_log.client.topics import describe, watermarks
from lakefold_log.read.consumer import PartitionReader
from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_protos.lance.transaction_pb2 import Transaction
from tests.integration.own_log import patient_admin, take

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lakefold import WriteOptions

SENT: Final = {
    "lance": {
        "append",
        "clone",
        "delete",
        "delete_branch",
        "forget_app",
        "merge",
        "overwrite",
        "restore",
        "rewrite",
        "tag",
        "update",
        "update_config",
    },
    "delta": {
        "ADD COLUMNS",
        "CREATE TABLE",
        "DELETE",
        "MERGE",
        "OPTIMIZE",
        "RESTORE",
        "WRITE",
        "forget_app",
    },
}
"""The kinds of proposals that the doors of each format send."""
NOT_SENT: Final = {
    # Sent for an outdated fragment-reuse index, by the function that makes Rewrites.
    "create_index",
    "data_overlay",
    "data_replacement",
    "project",
    "reserve_fragments",
    "update_bases",
    "update_mem_wal_state",
}
"""Operations of Lance that no door sends here; writers of their own transactions may."""


def rows(*numbers: int) -> pa.Table:
    return pa.table({"n": pa.array(numbers, pa.int64()), "s": [str(number) for number in numbers]})


class Doors:
    """A table of a format, and everything by which proposals for it are sent."""

    def __init__(self, table: Path, options: WriteOptions, kind: str) -> None:
        self.kind, self.table, self.options = kind, str(table), options
        self.given: WriteOptions = {**options, "format": kind}

    def verb(self, name: str, *words: str, at: str = "") -> None:
        assert cli.run([name, f"{self.table}{at}", *words]) == 0

    def write(self, batch: pa.Table, *, overwrite: bool, **options: Any) -> None:  # noqa: ANN401 - Spark's options
        """Writes as `df.write` does: tasks write the files, and the driver sends them."""
        key = new_key()
        given = read_write_options({"path": self.table, **options})
        settings = write_settings(self.table, self.given)
        plan = plan_write(given, settings, batch.schema, key, use=WriteUse.BATCH, overwrite=overwrite)
        plan.commit(key, [plan.run(batch.to_batches())])

    def writer(self) -> None:
        with lakefold.Writer(self.table, **self.given) as writer:
            writer.append(rows(12)).result()

    def events(self) -> None:
        changes = rows(1, 13).append_column("op", pa.array(["d", "c"]))
        lakefold.apply_changes(self.table, changes, keys="n", operation_column="op", **self.given)

    def all(self) -> dict[str, Callable[[], object]]:
        """The doors in the order in which they are opened."""
        table, given = self.table, self.given
        merging: WriteOptions = {**given, "merge_schema": True}
        wider = rows(10).append_column("more", pa.array([1]))
        both: dict[str, Callable[[], object]] = {
            "append": lambda: lakefold.append(table, rows(*range(9)), app_id="app", batch_id=1, **given),
            "append of nothing": lambda: lakefold.append(table, rows(), app_id="app", batch_id=2, **given),
            "new columns": lambda: lakefold.append(table, wider, **merging),
            "upsert": lambda: lakefold.upsert(table, rows(0, 11), keys="n", **given),
            "delete by a condition": lambda: lakefold.delete(table, where="n = 2", **given),
            "delete by keys": lambda: lakefold.delete(table, keys="n", rows=rows(3), **given),
            "change events": self.events,
            "Writer": self.writer,
            "Spark's append": lambda: self.write(rows(14), overwrite=False),
            "Spark's replaceWhere": lambda: self.write(rows(4), overwrite=True, replaceWhere="n = 4"),
            "compact": lambda: lakefold.compact(
                table,
                bootstrap_servers=str(given["bootstrap_servers"]),
                transactions_topic=str(given["transactions_topic"]),
                outcomes_topic=str(given["outcomes_topic"]),
            ),
            "Spark's overwrite": lambda: self.write(rows(5, 6), overwrite=True),
            "forget": lambda: self.verb("forget", "app", "--yes"),
            "restore": lambda: self.verb("restore", "--version", "2"),
        }
        refs: dict[str, Callable[[], object]] = {
            "tag": lambda: self.verb("tag", "x"),
            "tag --delete": lambda: self.verb("tag", "x", "--delete"),
            "branch": lambda: self.verb("branch", "dev"),
            "append on a branch": lambda: lakefold.append(f"{table}/tree/dev", rows(7), **given),
            "forget on a branch": self.on_branch,
            "branch --delete": lambda: self.verb("branch", "dev", "--delete"),
        }
        return {**both, **refs} if self.kind == "lance" else both

    def on_branch(self) -> None:
        lakefold.append(f"{self.table}/tree/dev", rows(8), app_id="dev", batch_id=1, **self.given)
        self.verb("forget", "dev", "--branch", "dev", "--yes")


def kind_of(envelope: Envelope) -> str:
    """The name of what is proposed."""
    which = envelope.WhichOneof("proposal") or ""
    if which == "lance":
        return envelope.lance.WhichOneof("operation") or ""
    return envelope.delta.operation if which == "delta" else which


def begins_a_table(envelope: Envelope) -> bool:
    return envelope.HasField("create") or kind_of(envelope) in {"CREATE TABLE", "clone"}


@pytest.mark.parametrize("kind", SENT)
def test_every_door_names_its_table(
    kind: str, options: WriteOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("bootstrap_servers", "transactions_topic", "outcomes_topic"):
        monkeypatch.setenv(f"LAKEFOLD_{name.upper()}", str(options[name]))
    doors = Doors(tmp_path / "t", options, kind)
    admin = patient_admin(KafkaConfig(str(options["bootstrap_servers"])))
    topic = str(options["transactions_topic"])
    reader = PartitionReader(admin, topic, describe(admin, topic).log_id(0), 0)
    kinds, ends, envelopes = set[str](), 0, list[Envelope]()
    try:
        for name, act in doors.all().items():
            act()
            count = watermarks(admin, topic, 0)[1] - ends
            assert count, name
            ends += count
            envelopes = [Envelope.FromString(each.value) for each in take(reader, count)]
            kinds.update(map(kind_of, envelopes))
            for envelope in envelopes:
                assert bool(envelope.table_id) != begins_a_table(envelope), (name, envelope)
    finally:
        reader.close()
    main = lakefold.open(doors.table).marks
    assert main is not None
    assert envelopes[-1].branch or envelopes[-1].table_id == main.table_id
    assert kinds == SENT[kind]
    if kind == "lance":
        operations = {each.name for each in Transaction.DESCRIPTOR.oneofs_by_name["operation"].fields}
        assert operations == (kinds & operations) | NOT_SENT
