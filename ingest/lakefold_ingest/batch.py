"""One batch, from the rows to the answer: open, check, write, propose, wait. Knows no Spark.

Exactly once rests on two things only: the key (app id, batch id) is the same whenever the batch is run
again, and the committer folds a key once. So every step may fail or be repeated at any point:

- Before the rows are written, the table's marks are read. If they contain the batch, nothing is written. That
  only saves work: the committer would answer Duplicate.
- A batch without rows is not proposed: its rows are all in the table. A later run of the same batch that does
  have rows is folded, because a key that was never sent is a gap, and gaps can be filled.
- A refusal changed nothing, so the batch may be sent again under its key, built on the version that refused
  it. That is done once, by running the batch again: usually the schema has changed under a running query,
  and the files must be written for the new schema. A second refusal is raised.
- A batch that was folded, and whose rows a Restore then left out of the table, is never folded again under
  its key. That would be silent loss, so it raises, unless the sink is told to skip such batches.
- A streaming query repeats only its last batch. If it sends an older one that was folded, its checkpoint is
  older than the table, or another query uses its app id. Then its batches may have new rows under known keys,
  which would be dropped silently, so this raises an error too, unless `on_older_batch` is "skip".
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, get_args

from lakefold_ingest.fitting import fit
from lakefold_ingest.fragments import MAX_BYTES_PER_FILE, MAX_ROWS_PER_FILE, Target
from lakefold_ingest.log_client import Answer, LogClient, drop_client, open_client
from lakefold_ingest.proposals import append, check_key, creation
from lakefold_ingest.view import View, look
from lakefold_protos.lakefold.log_pb2 import CreateOptions
from lakefold_table.entry import Committed, Duplicate, Invalid, Rejected, rolled_back_text
from lakefold_table.errors import InvalidError, LakefoldError, RetryError, StopError
from lakefold_table.lance.creation import DEFAULT_STORAGE_VERSION
from lakefold_table.lance.schemas.arrow import schema_from_arrow
from lakefold_table.lance.schemas.data_files import file_version

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pyarrow as pa

    from lakefold_log.client.admin import KafkaConfig
    from lakefold_log.client.topic_names import Topics
    from lakefold_protos.lance.table_pb2 import DataFragment
    from lakefold_table.entry import Conflict, Outcome, Result

LOGGER = logging.getLogger("lakefold")
Wait = Literal["commit", "log"]
OnRolledBack = Literal["raise", "skip"]
OnOlderBatch = Literal["raise", "skip"]
_ATTEMPTS = 2
_NO_ANSWER = "see that a committer runs; the same batch may be run again, it is folded once"


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a sink; `lakefold.spark.sink` describes each. `table` is the canonical URI.

    Raises `InvalidError` if a value is wrong.
    """

    table: str
    kafka: KafkaConfig
    topics: Topics
    wait: Wait = "commit"
    timeout_s: float = 60.0
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    stable_row_ids: bool = False
    data_storage_version: str = DEFAULT_STORAGE_VERSION
    max_rows_per_file: int = MAX_ROWS_PER_FILE
    max_bytes_per_file: int = MAX_BYTES_PER_FILE
    on_rolled_back: OnRolledBack = "raise"
    on_older_batch: OnOlderBatch = "raise"

    def __post_init__(self) -> None:
        if self.wait not in get_args(Wait):
            raise InvalidError(
                f"{self.wait!r} is no way to wait", where="wait", hint='give "commit" or "log"'
            )
        if self.on_rolled_back not in get_args(OnRolledBack):
            raise InvalidError(
                f"{self.on_rolled_back!r} is nothing to do with a batch that was rolled back",
                where="on_rolled_back",
                hint='give "raise" or "skip"',
            )
        if self.on_older_batch not in get_args(OnOlderBatch):
            raise InvalidError(
                f"{self.on_older_batch!r} is nothing to do with a batch that is older than the table",
                where="on_older_batch",
                hint='give "raise" or "skip"',
            )
        for name in ("timeout_s", "max_rows_per_file", "max_bytes_per_file"):
            if getattr(self, name) <= 0:
                raise InvalidError(f"{getattr(self, name)} is not above 0", where=name)
        file_version(self.data_storage_version)


def put_batch(
    settings: Settings,
    app_id: str,
    batch_id: int,
    schema: pa.Schema,
    write: Callable[[Target], list[DataFragment]],
    *,
    in_order: bool = False,
) -> Result | None:
    """Put the rows that `write` writes into the table, exactly once for each key (`app_id`, `batch_id`).

    `schema` is that of the rows. `in_order`: the app sends its batches by ascending ids and repeats only the
    last one, as a streaming query does. Returns the outcome (`Committed` or `Duplicate`), or None if it is
    not known: the batch has no rows, or the sink waits for the log only. Raises `InvalidError` if the rows
    don't fit the table or the proposal is refused for good, if the batch was folded before and rolled back
    since (unless `on_rolled_back` is "skip"), or if it comes `in_order` and was folded before, as were later
    ones (unless `on_older_batch` is "skip"); `RetryError` if nothing answered in time, `StopError` if the log
    is not the one it was.
    """
    check_key(app_id, batch_id)
    try:
        result = _Batch(settings, app_id, batch_id, schema, in_order=in_order).put(write)
    except StopError:
        drop_client(settings.kafka, settings.topics)
        raise
    doubtful = isinstance(result, Duplicate) and (result.rolled_back_by or result.different_content)
    level = logging.WARNING if doubtful else logging.INFO
    LOGGER.log(level, "batch %s of %s into %s: %s", batch_id, app_id, settings.table, _result_text(result))
    if isinstance(result, Duplicate) and result.rolled_back_by and settings.on_rolled_back == "raise":
        raise _rolled_back(result, app_id, batch_id, settings.table)
    return result


def _result_text(result: Result | None) -> str:
    """Returns an outcome in a few words, for the log."""
    match result:
        case Committed():
            return f"committed in version {result.version}, {result.rows_added} rows"
        case Duplicate():
            doubts = f"; {rolled_back_text(result.rolled_back_by)}" if result.rolled_back_by else ""
            doubts += "; its content is another than that of the first" if result.different_content else ""
            return f"duplicate, folded before {_in_version(result)}: nothing was added{doubts}"
        case _:
            return "no outcome is known: it has no rows, or the sink waits for the log only"


def _refusal_text(outcome: Outcome) -> str:
    """Returns the log message for a refused batch whose outcome the sink did not wait for."""
    result = outcome.result
    reason = result.conflict.message if isinstance(result, Rejected) else ""
    if isinstance(result, Invalid):
        reason = f"{result.message} ({result.hint})" if result.hint else result.message
    key = f"batch {outcome.batch_id} of {outcome.app_id} into {outcome.table}"
    return f"{key}: refused at {outcome.position}, nothing was added (uuid {outcome.uuid}): {reason}"


def _in_version(result: Duplicate) -> str:
    return f"in version {result.version}" if result.version else "in a version no longer known"


class _Batch:
    def __init__(
        self, settings: Settings, app_id: str, batch_id: int, schema: pa.Schema, *, in_order: bool
    ) -> None:
        self._settings = settings
        self._refuses_older = in_order and settings.on_older_batch == "raise"
        self._app_id = app_id
        self._batch_id = batch_id
        self._schema = schema

    def put(self, write: Callable[[Target], list[DataFragment]]) -> Result | None:
        refused: list[str] = []
        while len(refused) < _ATTEMPTS:
            view = self._look(afresh=bool(refused)) or self._create()
            later = view.folded_later(self._app_id, self._batch_id) if self._refuses_older else None
            if later is not None:
                raise self._older(later)
            folded = view.folded(self._app_id, self._batch_id)
            if folded is not None:
                return folded
            fragments = write(self._target(view))
            if not fragments:
                return None
            result = self._propose(view, fragments)
            if not isinstance(result, Rejected):
                return result
            if not result.conflict.retryable:
                raise _refused(result.conflict, self._settings.table)
            LOGGER.warning("batch %s of %s: %s", self._batch_id, self._app_id, result.conflict.message)
            refused.append(result.conflict.message)
        raise RetryError(
            f"batch {self._batch_id} was refused {len(refused)} times: {'; '.join(refused)}",
            where=self._settings.table,
            hint="others change the table's schema; run the batch again when they are done",
        )

    def _look(self, *, afresh: bool) -> View | None:
        return look(self._settings.table, self._settings.storage_options, afresh=afresh)

    def _client(self) -> LogClient:
        return open_client(self._settings.kafka, self._settings.topics, self._settings.timeout_s)

    def _target(self, view: View) -> Target:
        fitting = fit(self._schema, view.schema, view.uri)
        return Target(
            view.uri,
            fitting,
            view.field_ids(fitting.schema.names),
            view.data_storage_version,
            self._settings.storage_options,
            self._settings.max_rows_per_file,
            self._settings.max_bytes_per_file,
        )

    def _propose(self, view: View, fragments: list[DataFragment]) -> Committed | Duplicate | Rejected | None:
        client = self._client()
        client.check_binding(view.bound, view.uri)
        envelope = append(view.uri, self._app_id, self._batch_id, view.version, fragments)
        options = self._settings.storage_options
        if self._settings.wait == "log":
            for refused in client.refused(envelope, view.partition):
                LOGGER.warning("%s", _refusal_text(refused))
            client.send_unasked(envelope, view.partition, storage_options=options)
            return None
        answer = client.ask(envelope, view.partition, self._settings.timeout_s, storage_options=options)
        if answer.outcome is None:
            return self._outcome_by_marks(answer)
        if isinstance(answer.outcome.result, Invalid):
            raise _invalid(answer.outcome.result, self._settings.table)
        return answer.outcome.result

    def _outcome_by_marks(self, answer: Answer) -> Duplicate:
        """Returns the outcome by the table's marks, if no outcome was reported in time.

        Raises `RetryError` if the marks don't contain the batch.
        """
        view = self._look(afresh=True)
        folded = None if view is None else view.folded(self._app_id, self._batch_id)
        if folded is None:
            raise self._no_answer(answer, f"batch {self._batch_id} of {self._app_id}")
        return folded

    def _create(self) -> View:
        """Has the committer create the table. Returns it, also if another writer created it first."""
        settings = self._settings
        version = file_version(settings.data_storage_version)
        options = CreateOptions(
            stable_row_ids=settings.stable_row_ids, data_storage_version=settings.data_storage_version
        )
        schema = schema_from_arrow(self._schema, version)
        envelope = creation(settings.table, self._app_id, schema, options)
        answer = self._client().ask(envelope, None, settings.timeout_s)
        result = None if answer.outcome is None else answer.outcome.result
        if isinstance(result, Invalid):
            raise _invalid(result, settings.table)
        view = self._look(afresh=True)
        if view is not None:
            return view
        if result is None:
            raise self._no_answer(answer, "the creation of the table")
        raise RetryError(
            f"the creation of the table ended as {result}, but there is no table",
            where=settings.table,
            hint="somebody may have removed it meanwhile; run the batch again",
        )

    def _older(self, later: int) -> InvalidError:
        return InvalidError(
            f"batch {self._batch_id} of {self._app_id} was folded before, and so were later ones up to "
            f"{later}: the query's checkpoint is older than the table, or another query uses this app_id; "
            "nothing was added",
            where=self._settings.table,
            hint="restore the newest checkpoint, or give the sink another app_id and start the source "
            'where the table ends; on_older_batch="skip" leaves out the rows of all such batches',
        )

    def _no_answer(self, answer: Answer, what: str) -> RetryError:
        message = f"no outcome within {self._settings.timeout_s:g} s for {what} at {answer.position}"
        return RetryError(message, where=self._settings.table, hint=_NO_ANSWER)


def _rolled_back(result: Duplicate, app_id: str, batch_id: int, table: str) -> InvalidError:
    return InvalidError(
        f"batch {batch_id} of {app_id} was folded before {_in_version(result)}, and "
        f"{rolled_back_text(result.rolled_back_by)}; nothing was added",
        where=table,
        hint="a key is folded once: give the sink another app_id, under which its batches are new; or "
        'on_rolled_back="skip", if the rows are to stay away',
    )


def _refused(conflict: Conflict, table: str) -> LakefoldError:
    hint = "`lakefold explain` tells what it met; the query must be built anew on the table as it is"
    return InvalidError(f"the batch was refused: {conflict.message}", where=table, hint=hint)


def _invalid(result: Invalid, table: str) -> InvalidError:
    return InvalidError(f"the committer can't fold it: {result.message}", where=table, hint=result.hint)
