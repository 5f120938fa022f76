"""Spark's door to Lakefold: `sink` writes batches, `register` makes `format("lakefold")` known for reading.

Needs the extra `ingest`, on the driver and on the executors.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if find_spec("pyspark") is None:
    message = "lakefold.spark needs Spark: install lakefold[ingest]"
    raise ImportError(message, name="pyspark")

from lakefold.console.settings import read_settings
from lakefold_ingest.batch import OnRolledBack, Settings, Wait
from lakefold_ingest.fragments import MAX_BYTES_PER_FILE, MAX_ROWS_PER_FILE
from lakefold_ingest.sink import Sink
from lakefold_log.client.admin import KafkaConfig
from lakefold_log.client.topic_names import Topics
from lakefold_table.lance.creation import DEFAULT_STORAGE_VERSION
from lakefold_table.storage import open_storage
from lakefold_table.uri import canonical

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping
    from pathlib import Path

    from lakefold.console.settings import Settings as FrontSettings
    from lakefold_reader.spark.data_source import register

__all__ = ["register", "sink"]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - a name may stand for anything
    if name != "register":
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    from lakefold_reader.spark.data_source import register

    return register


def sink(  # noqa: PLR0913 - a user names the few that matter; all but the table have a default
    table: str | os.PathLike[str],
    bootstrap_servers: str | None = None,
    app_id: str | None = None,
    wait: Wait = "commit",
    *,
    timeout: float = 60.0,
    transactions_topic: str | None = None,
    outcomes_topic: str | None = None,
    kafka: Mapping[str, str] | None = None,
    storage_options: Mapping[str, str] | None = None,
    config: Path | None = None,
    stable_row_ids: bool = False,
    data_storage_version: str = DEFAULT_STORAGE_VERSION,
    max_rows_per_file: int = MAX_ROWS_PER_FILE,
    max_bytes_per_file: int = MAX_BYTES_PER_FILE,
    on_rolled_back: OnRolledBack = "raise",
) -> Sink:
    """A function for `foreachBatch` that appends each batch to a Lance table, exactly once.

        events.writeStream.foreachBatch(sink("/data/flights", "broker:9092"))

    Executors write the rows as Lance files; the driver sends one transaction a batch to the log, where a
    committer folds it into the table. A batch that Spark runs again after a crash is known by its key, and
    not doubled. Where there is no table, the first batch's schema makes one, nullable where Spark says so;
    the committer must run for that, and it makes the topics too. Columns go by name, case-sensitively;
    nullable ones may be left out. What doesn't fit fails the batch before it is sent, with its columns named.

    `table` is a URI or path, on a local disk or in a bucket. `bootstrap_servers`, `transactions_topic`,
    `outcomes_topic`, `kafka` (librdkafka's options) and `storage_options` (pylance's): what isn't given comes
    from `LAKEFOLD_…` variables, then the TOML file `config`; the brokers at last from this folder's `up`.

    `app_id`: who numbers the batches. Without it the streaming query's id serves, which lies in its
    checkpoint. Two sinks into one table within one `foreachBatch` need one each: else one is a duplicate.

    `wait`: "commit" returns when the batch is in the table, "log" when the log has it for good: a refusal is
    then a warning of a later batch, if this user may read the outcomes. Watch the dead letters. `timeout`:
    seconds for each. A batch without an answer, run again, is folded once. Creating waits too.

    `stable_row_ids`, `data_storage_version`: of a table that is made; an existing one keeps its own.
    `max_rows_per_file`, `max_bytes_per_file`: where each task begins another file; bytes as in memory.

    `on_rolled_back`: what becomes of a batch that was folded before, and whose rows a Restore left out since.
    "raise" fails it: send corrected batches with another `app_id`. "skip" goes on without its rows. With
    `wait="log"` only what the newest version says beforehand is noticed.

    The function returns the batch's outcome, `Committed` or `Duplicate` with its version (None where it is
    not known: a batch without rows, or `wait="log"`), and logs it with the logger `lakefold`. A Duplicate
    added nothing; it is a warning if its rows were rolled back or known to be others. It raises what fails
    the query: `InvalidError` for rows that don't fit or a refusal for good (one that a newer schema caused is
    tried again once), `RetryError` where the log or the committer gave no answer, `StopError` where the topic
    is another one. `sink` itself raises `PlaceError` where no table can be written at `table`.
    """
    given = {"bootstrap_servers": bootstrap_servers, "kafka": kafka, "storage_options": storage_options}
    topics = {"transactions_topic": transactions_topic, "outcomes_topic": outcomes_topic}
    settings = _settings(config, **given, **topics)
    told = Settings(
        table=_writable(canonical(table), settings.storage_options),
        kafka=KafkaConfig(settings.brokers(), settings.kafka),
        topics=Topics(settings.transactions_topic, settings.outcomes_topic, settings.dead_letters_topic),
        wait=wait,
        timeout_s=timeout,
        storage_options=settings.storage_options,
        stable_row_ids=stable_row_ids,
        data_storage_version=data_storage_version,
        max_rows_per_file=max_rows_per_file,
        max_bytes_per_file=max_bytes_per_file,
        on_rolled_back=on_rolled_back,
    )
    return Sink(told, app_id)


def _settings(config: Path | None, **named: str | Mapping[str, str] | None) -> FrontSettings:
    """What was named, and for the rest what the environment and the file `config` say."""
    said = {
        name: value if isinstance(value, str) else dict(value)
        for name, value in named.items()
        if value is not None
    }
    return read_settings(said, config)


def _writable(uri: str, storage_options: Mapping[str, str]) -> str:
    """The URI, once it is known that this release can write there."""
    open_storage(uri, storage_options)
    return uri
