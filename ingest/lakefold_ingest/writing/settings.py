"""The settings of a writer, checked when it is made."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from lakefold_ingest.formats import DEFAULT_FILE_VERSION, FILE_VERSIONS
from lakefold_ingest.options.write_options import WRITE_OPTIONS
from lakefold_ingest.view import TableSettings
from lakefold_log.write.authorship import check_message
from lakefold_reader.spark.option_kinds import choice
from lakefold_table.errors import InvalidError, OptionName
from lakefold_table.marks.marks import PREFIX
from lakefold_table.uri import is_under

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakefold_log.client.admin import KafkaConfig
    from lakefold_log.client.topic_names import Topics

Wait = Literal["commit", "log"]
OnRolledBack = Literal["raise", "skip", "again"]
OnOlderBatch = Literal["raise", "skip"]
OnReusedKey = Literal["raise", "skip"]
OnRefused = Literal["raise", "warn"]
MOST_UNANSWERED: Final = 10_000
"""The highest `max_unanswered`: a process remembers this many proposals of a table."""
_MOST: Final = {"timeout_s": 2_000_000, "max_rows_per_file": 2**63 - 1, "max_bytes_per_file": 2**63 - 1}
"""The highest values: librdkafka counts milliseconds in 31 bits, pylance rows and bytes in 63."""


@dataclass(frozen=True, slots=True)
class WriteSettings(TableSettings):
    """The settings of a writer. `lakefold.spark.sink` describes each.

    `format`: that of the table; empty: its own, or Lance if it is created. `keeps_schema`: the write does not
    give the table the columns of its rows and other partition columns, so `partition_by` can only name its
    own. `dry_run`: nothing is to be sent. Raises `InvalidError` if a value is wrong.
    """

    kafka: KafkaConfig
    topics: Topics
    wait: Wait = "commit"
    timeout_s: float = 60.0
    data_storage_version: str = field(default=DEFAULT_FILE_VERSION, kw_only=True)
    on_rolled_back: OnRolledBack = "raise"
    on_older_batch: OnOlderBatch = "raise"
    on_reused_key: OnReusedKey = "raise"
    on_refused: OnRefused = "raise"
    max_unanswered: int = 1000
    max_lag_s: float | None = None
    commit_properties: Mapping[str, str] = field(default_factory=dict)
    commit_message: str = ""
    merge_schema: bool = False
    format: str = ""
    keeps_schema: bool = True
    dry_run: bool = False

    def __post_init__(self) -> None:
        for name, kind in _CHOICES.items():
            value = getattr(self, name)
            # An empty format is that of the table.
            if value not in kind.choices and (value or name != "format"):
                option = OptionName(name)
                hint = f"give {kind.shown}"
                raise InvalidError((f"{value!r} is not a value of ", option), where=option, hint=hint)
        if not 0 < self.max_unanswered <= MOST_UNANSWERED:
            message = f"{self.max_unanswered} is not from 1 to {MOST_UNANSWERED}"
            raise InvalidError(message, where=OptionName("max_unanswered"))
        if self.max_lag_s is not None and not self.max_lag_s > 0:
            raise InvalidError(f"{self.max_lag_s} is not above 0", where=OptionName("max_lag"))
        for name, most in _MOST.items():
            if not 0 < getattr(self, name) <= most:
                message = f"{getattr(self, name)} is not above 0, or above {most:,}"
                raise InvalidError(message, where=OptionName(name.removesuffix("_s")))
        _check_apart(self.bad_records, self.table)
        if self.bad_records_columns and not self.bad_records:
            message = "they are kept by rows that can't be written, and no table is named for these"
            raise InvalidError(
                message,
                where=OptionName("bad_records_columns"),
                hint=("name it by ", OptionName("bad_records")),
            )
        check_message(self.commit_message)
        reserved = [name for name in self.commit_properties if name.startswith(PREFIX)]
        if reserved:
            raise InvalidError(
                f"{', '.join(reserved)}: names that begin with {PREFIX} are reserved for the log",
                where=OptionName("commit_properties"),
                hint="use other names",
            )


_CHOICES: Final = {
    **{
        option.setting: option.kind
        for option in WRITE_OPTIONS
        if option.kind.choices and option.setting in WriteSettings.__dataclass_fields__
    },
    "data_storage_version": choice(*FILE_VERSIONS),
}


def _check_apart(bad_records: str, table: str) -> None:
    """Raises `InvalidError` if one of the tables is the other one, or is inside of it."""
    if not bad_records or not (is_under(bad_records, [table]) or is_under(table, [bad_records])):
        return
    message = f"no table can be inside of another one: {bad_records} and {table}, which is written"
    if bad_records == table:
        message = "rows that can't be written into a table can't be written into the same one"
    raise InvalidError(message, where=OptionName("bad_records"), hint="name another table")
