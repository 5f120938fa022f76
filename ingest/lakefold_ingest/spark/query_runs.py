"""Which batches a run of a streaming query has begun, by which a second query with its app id is noticed.

A run of a query is what Spark calls by its run id: it begins when the query is started, also from a
checkpoint. It repeats at most the first of its batches, which an earlier run had begun. If the table has a
later batch before this run sends it, another query uses the same app id, and the rows of this one are not in
the table. The same is true if the table has the first batch of this run, and the log says that another query
sent it. A function that calls the sink may call it with other rows of the same batch, to which the key
belongs already: then those are not in the table either. Nothing here knows Spark.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import tempfile
import time
from contextlib import contextmanager
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from lakefold_ingest.proposals.key import APP_ID
from lakefold_ingest.writing.log_client import open_client
from lakefold_ingest.writing.report import BatchReport, in_version
from lakefold_ingest.writing.reused_key import other_rows
from lakefold_ingest.writing.sending_query import sending_query
from lakefold_ingest.writing.sent_batches import SentBatch
from lakefold_table.entry import Committed, Duplicate
from lakefold_table.errors import InvalidError, LakefoldError, OptionName
from lakefold_table.position import LogId, Position

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakefold_ingest.proposals.key import Key
    from lakefold_ingest.writing.sending_query import Sender
    from lakefold_ingest.writing.settings import WriteSettings

QUERY_ID = "sql.streaming.queryId"
"""The local property in which Spark keeps the id of the streaming query that runs a task."""
RUN_ID = "spark.jobGroup.id"
"""The local property in which Spark keeps the run id: the jobs of a streaming query are a group."""
DESCRIPTION = "spark.job.description"
"""The local property in which Spark describes the jobs of a batch; it begins with the query's name."""
_KEPT_SECONDS = 30 * 24 * 3600
"""A run without a batch for this time is forgotten: its next batch counts as its first."""
_LOGGER = logging.getLogger("lakefold")
_begun: dict[tuple[str, str, str], int] = {}
"""The highest batch that this process has begun, by run, table and app id."""
_applied: dict[tuple[str, str, str], tuple[int, object]] = {}
"""The newest batch that this process has applied, and how its rows are computed; by run, table and app id."""


@dataclass(frozen=True, slots=True)
class RunBatch:
    """A batch of a run that is about to be sent, and what is known of its sender.

    `plan`: how its rows are computed and what is done with them, None if that is not compared.
    """

    key: Key
    settings: WriteSettings
    sender: Sender
    run_id: str = ""
    plan: object = None

    def check(self, report: BatchReport) -> None:
        """Raises `InvalidError` if the batch was folded before, and this query didn't send it then.

        Raises `ReusedKeyError` if this run has applied other rows under its key, so that these are left out.
        A batch that was found in the marks only, because no outcome came in time, may be this run's own if
        the version that has it doesn't say whose it is.
        """
        folded = report.result
        if self._has_other_plan() and not isinstance(folded, Committed):
            raise other_rows(self.key, self.settings.table)
        if report.is_by_marks or not isinstance(folded, Duplicate) or folded.rolled_back_by:
            return
        if not self.sender.may_repeat:
            raise InvalidError(
                (
                    f"{self.key} was folded before {in_version(folded)}, but this query sends it for the ",
                    "first time: another query uses this ",
                    APP_ID,
                    "; the rows of this one were not added",
                ),
                where=self.settings.table,
                hint=(
                    "give each query its own ",
                    APP_ID,
                    f"; with another one this query begins with batch {self.key.batch_id}, ",
                    "whose rows are added then; those of the first batch after its start may be missing",
                ),
            )
        other = self._other_query(folded.version)
        if other:
            raise InvalidError(
                (
                    f"{self.key} was folded before {in_version(folded)}, sent by the query {other}, and ",
                    f"this is the query {self.sender.query_id}: another query uses this ",
                    APP_ID,
                    ", or this one's checkpoint was deleted; the rows of this batch were not added",
                ),
                where=self.settings.table,
                hint=(
                    "give each query its own ",
                    APP_ID,
                    ", and a new one after its checkpoint was deleted; ",
                    OptionName("on_older_batch"),
                    '="skip" leaves out the rows of batches that the table has',
                ),
            )

    def _has_other_plan(self) -> bool:
        """Returns whether this run has applied the batch with another plan. Notes the first plan."""
        if not self.run_id or self.plan is None or self.key.batch_id is None:
            return False
        run, this = (self.run_id, self.settings.table, self.key.app_id), (self.key.batch_id, self.plan)
        first = _applied.get(run)
        if first is None or first[0] != self.key.batch_id:
            first = _applied[run] = this
        return first != this and self.settings.on_reused_key == "raise"

    def _other_query(self, version: int) -> str:
        """Returns the id of the query that sent the batch in `version`; "" if it is this one or not known.

        No other query can have sent it if the app id is the query's own. With `on_older_batch="skip"` it does
        not matter.
        """
        query_id = self.sender.query_id
        if query_id in {"", self.key.app_id} or self.settings.on_older_batch == "skip":
            return ""
        try:
            first = sending_query(self.settings, self.key, version)
        except LakefoldError as error:
            _LOGGER.warning(
                "%s: which query sent %s, which the table has, can't be looked up (%s); if it was another "
                "one, the rows of this batch are not in the table",
                self.settings.table,
                self.key,
                error,
            )
            return ""
        return "" if first == query_id else first


def begin_batch(
    run_id: str | None,
    key: Key,
    settings: WriteSettings,
    sender: Sender,
    folder: Path | None = None,
    plan: object = None,
) -> RunBatch:
    """Returns the batch that the run is about to send, with whether it may repeat, and notes its begin.

    `run_id`: None or "" if no streaming query runs the batch. `folder`: where the note is stored as well, if
    each batch of the run is sent by another process (`notes_folder`). `plan`: as in `RunBatch`. Any batch may
    repeat an earlier one if the query may be far behind the table on purpose. A batch that was begun before
    may be a repetition, as a function that calls the sink may call it again after an error.
    """
    if not run_id or key.batch_id is None or settings.on_older_batch == "skip":
        return RunBatch(key, settings, replace(sender, may_repeat=True))
    run = (run_id, settings.table, key.app_id)
    note = None if folder is None else _note(folder, *run)
    begun = max(_begun.get(run, -1), -1 if note is None else _read(note))
    _begun[run] = max(begun, key.batch_id)
    if note is not None:
        _write(note, str(_begun[run]))
    may_repeat = begun < 0 or key.batch_id <= begun
    return RunBatch(key, settings, replace(sender, may_repeat=may_repeat), run_id, plan)


@contextmanager
def sent_batches_noted(run_id: str, key: Key, settings: WriteSettings, folder: Path) -> Iterator[None]:
    """Notes which batches have no outcome when the block ends, if the run doesn't wait for outcomes.

    At first it takes over what the process noted that sent the batch before: so a limit of unanswered batches
    and a refusal are those of the run. Notes nothing before refusals of earlier runs were looked up, which a
    batch that is in the table already does not need: the process that sends the next one looks them up.
    Raises `RetryError` if no broker answers.
    """
    if settings.wait != "log" or not run_id:
        yield
        return
    client = open_client(settings.kafka, settings.topics, settings.timeout_s)
    note = _note(folder, run_id, settings.table, key.app_id).with_suffix(".sent")
    sent = _read_sent(note)
    if sent is not None:
        client.take_over(settings.table, key.app_id, sent)
    try:
        yield
    finally:
        if client.has_looked_up(settings.table, key.app_id):
            unanswered = client.unanswered(settings.table, key.app_id)
            _write(note, json.dumps([astuple(each) for each in unanswered]))


def _read_sent(note: Path) -> list[SentBatch] | None:
    """Returns the batches that are noted, None if none were noted yet."""
    try:
        return [
            SentBatch(batch_id, Position(LogId(*log), offset, topic), *more)
            for batch_id, (log, offset, topic), *more in json.loads(note.read_text())
        ]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as error:
        _warn(note, error)
        return None


def _note(folder: Path, *run: str) -> Path:
    return folder / hashlib.sha256("\n".join(run).encode()).hexdigest()


def notes_folder() -> Path:
    """Returns the folder of this user in which the processes of one machine share the notes of runs."""
    return Path(tempfile.gettempdir()) / f"lakefold-{os.getuid()}" / "query-runs"


def _read(note: Path) -> int:
    """Returns the batch that is noted, or -1 if none is."""
    try:
        return int(note.read_text())
    except FileNotFoundError:
        return -1
    except (OSError, ValueError) as error:
        _warn(note, error)
        return -1


def _write(note: Path, text: str) -> None:
    """Stores the note completely or not at all, in a folder that no other user can write to."""
    scratch = note.with_suffix(f".{os.getpid()}")
    try:
        if not note.exists():
            prepare_notes(note.parent)
        scratch.write_text(text)
        scratch.replace(note)
    except OSError as error:
        _warn(note, error)


def prepare_notes(folder: Path) -> None:
    """Creates the folder, and removes the notes of runs that ended long ago."""
    for each in (folder.parent, folder):
        each.mkdir(mode=0o700, exist_ok=True)
        status = each.lstat()
        if status.st_uid != os.getuid() or status.st_mode & 0o022:
            raise PermissionError(f"{each} belongs to another user, or others may write to it")
    for old in folder.iterdir():
        if time.time() - old.lstat().st_mtime > _KEPT_SECONDS:
            old.unlink(missing_ok=True)


def _warn(note: Path, error: Exception) -> None:
    """Logs what is not noticed without the notes; the batch is sent all the same."""
    _LOGGER.warning(
        "%s: which batches this query has begun or sent can't be stored (%s), so a second query with the "
        "same app id is not noticed, and with wait=log each process counts its own batches; set TMPDIR of "
        "Spark's driver to a folder that it can write to",
        note.parent,
        error,
    )
