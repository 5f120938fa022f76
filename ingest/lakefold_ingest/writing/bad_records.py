"""Rows that can't be written are appended to another table, through the log, before the rest of their batch.

Their proposal has a key of its own, made from the batch's key and table. So it is folded once, however often
the batch is run again, and the batch is sent only after that. If the process ends between the two, the batch
that is run again sends the same bad rows, which are a Duplicate, and then its other rows.

If the table's columns were changed in between, other rows may be bad the second time. Then the new ones are
written under another key, which is made from their content as well, so that no row is lost. Rows that were
bad both times are in the table twice then.
"""

from __future__ import annotations

import hashlib
import logging
import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from lakefold_ingest.formats import read_view
from lakefold_ingest.proposals.key import Key
from lakefold_ingest.rows.row_faults import BAD_ROWS
from lakefold_table.errors import InvalidError, OptionName

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakefold_ingest.writing.settings import WriteSettings

LOGGER = logging.getLogger("lakefold")
COLUMNS: Final = pa.schema(
    [("table", pa.string()), ("app_id", pa.string()), ("batch_id", pa.uint64()), *BAD_ROWS]
)
"""The columns of a table of bad rows: the table and the batch for which they were meant, the column that is
at fault, the reason, the row as a JSON object, and where it comes from, which is left out if no columns say
it. A batch without app id has its uuid as `app_id`."""
MOST_OF_APP_ID = 120
_checked: Final[set[str]] = set()
"""The tables of bad rows that this process has checked."""


@dataclass(frozen=True, slots=True)
class BadRecords:
    """A batch of rows that can't be written: its settings, its key, and the key if that has other rows."""

    settings: WriteSettings
    key: Key
    other_key: Key
    rows: pa.Table


def bad_records(settings: WriteSettings, key: Key, bad_rows: Sequence[pa.Table]) -> BadRecords | None:
    """Returns what is written of the bad rows of a batch; None if there are none.

    Raises `InvalidError` if their table is one of other rows.
    """
    all_bad = pa.concat_tables([BAD_ROWS.empty_table(), *bad_rows])
    count = all_bad.num_rows
    if not count:
        return None
    own = _own_settings(settings)
    _check_table(own)
    LOGGER.warning("%s: %s rows can't be written and go to %s", key, count, settings.bad_records)
    whose = [settings.table, key.app_id or key.own_uuid, key.batch_id]
    columns = [pa.array([value] * count, field.type) for value, field in zip(whose, COLUMNS, strict=False)]
    rows = pa.table([*columns, *all_bad.columns], schema=COLUMNS)
    if not settings.bad_records_columns:
        rows = rows.drop_columns("source")
    return BadRecords(
        own,
        bad_records_key(key, settings.table),
        Key("", None, str(uuid.uuid5(uuid.NAMESPACE_URL, f"{key} {rows.to_pylist()}"))),
        rows,
    )


def check_bad_records(settings: WriteSettings) -> None:
    """Raises `InvalidError` if the table of bad rows is one of other rows, before there is a bad row.

    Creates nothing. Reads the table once in each process. Raises as `read_view` does.
    """
    if settings.bad_records and settings.bad_records not in _checked:
        _check_table(_own_settings(settings))
        _checked.add(settings.bad_records)


def _check_table(own: WriteSettings) -> None:
    """Raises `InvalidError` if the table of bad rows exists and can't have them."""
    view = read_view(own.table, own.storage_options)
    if view is None:
        return
    # A table to which no batch with columns of a source has written lacks the column `source`.
    own_columns = COLUMNS.names if "source" in view.schema.names else COLUMNS.names[:-1]
    try:
        view.target(pa.schema([COLUMNS.field(name) for name in own_columns]), own)
    except InvalidError as misfit:
        raise InvalidError(
            f"{own.table} is a table of other rows: {misfit.message}",
            where=OptionName("bad_records"),
            hint="name a table for bad rows alone; if it does not exist, it is created",
        ) from None


def _own_settings(settings: WriteSettings) -> WriteSettings:
    """Returns the settings with which the bad rows of a write are written."""
    return replace(
        settings,
        table=settings.bad_records,
        bad_records="",
        bad_records_columns=(),
        wait="commit",
        on_rolled_back="skip",
        on_reused_key="skip",
        # A table of bad rows may lack the column `source` so far.
        merge_schema=bool(settings.bad_records_columns),
        format="",
        # These are for the batch's own table: this one may be of another format.
        stable_row_ids=False,
        table_properties={},
        partition_by=(),
        sort_by=(),
        commit_properties={},
    )


def bad_records_key(key: Key, table: str) -> Key:
    """Returns the key of the bad rows of a batch for this table: the same in each process."""
    if key.batch_id is None:
        return Key("", None, str(uuid.uuid5(uuid.UUID(key.own_uuid), table)))
    whose = hashlib.sha256(f"{table}\n{key.app_id}".encode()).hexdigest()[:16]
    return Key(f"{key.app_id[:MOST_OF_APP_ID].strip()} bad records {whose}", key.batch_id)
