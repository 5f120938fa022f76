"""The options that a user gave to one write, read and checked against the table of options."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from lakefold_ingest.cdc.change_format import ChangeFormat, change_format
from lakefold_ingest.formats import PROPERTY_PREFIX, read_properties
from lakefold_ingest.merge.clause_texts import ClauseTexts
from lakefold_ingest.merge.modes import merge_of
from lakefold_ingest.options.write_options import (
    CLAUSES,
    KAFKA_PREFIX,
    MERGES,
    ROWS_BY_KEY,
    TABLE_PROPERTIES,
    USER_METADATA,
    WRITES,
    WriteMode,
    WriteUse,
)
from lakefold_reader.spark.option_table import refuse_together, without_prefix
from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakefold_ingest.merge.clauses import Merge
    from lakefold_reader.spark.option_table import Option


_OF_THE_BATCH: Final = frozenset(
    {"path", "txnAppId", "writeMode"}
    | {option.name for option in WRITES.options if option.modes and option.modes <= ROWS_BY_KEY}
)
"""Options that say what the rows do to which table, and no settings of the write."""


@dataclass(frozen=True, slots=True)
class GivenWrite:
    """The options of a write.

    `values`: by the option's name. `kafka`: options of Kafka's client. `storage`: options of the store.
    """

    values: Mapping[str, Any]
    kafka: Mapping[str, str] = field(default_factory=dict, repr=False)
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)

    def value(self, name: str) -> Any:  # noqa: ANN401 - each option has a type of its own
        """Returns the value of an option: its default if it was not given."""
        return self.values.get(name, WRITES.known(name).default)

    def mode(self, *, overwrite: bool) -> WriteMode:
        """Returns what the write does. `overwrite`: what Spark's save mode or output mode says.

        Raises `InvalidError` if the two contradict each other.
        """
        mode = WriteMode(self.value("writeMode"))
        if overwrite and "writeMode" in self.values:
            hint = "leave the option out, or write with the mode append"
            raise InvalidError(
                f"{mode} is given, but Spark's mode replaces the rows", where="writeMode", hint=hint
            )
        return WriteMode.OVERWRITE if overwrite else mode

    def merge(self, mode: WriteMode) -> Merge | None:
        """Returns how rows are merged by their keys, or None in a mode that doesn't do that.

        Raises `InvalidError` if keys are missing or the clauses contradict each other.
        """
        if mode not in MERGES:
            return None
        texts = {each.parameter: self.values[each.name] for each in CLAUSES if each.name in self.values}
        clauses = ClauseTexts(**texts).clauses() if texts else None
        return merge_of(mode, self.value("keys"), self.value("orderBy"), clauses)

    def changes(self, mode: WriteMode) -> ChangeFormat | None:
        """Returns how the rows say what happened, or None in a mode in which they don't.

        Raises `InvalidError` if options are missing or contradict each other.
        """
        if mode is not WriteMode.CDC:
            return None
        names = ("keys", "orderBy", "envelope", "operationColumn", "operations", "debeziumTypes")
        return change_format(*map(self.value, names))

    def check(self, use: WriteUse, mode: WriteMode) -> None:
        """Raises `InvalidError` for options without a meaning for this use or mode."""
        for name, value in self.values.items():
            option = WRITES.known(name)
            if value != option.default:
                _check_meaning(option, use, mode)
        hint = "leave one out: rows that stay need the columns they have"
        refuse_together(self.values, "replaceWhere", "overwriteSchema", hint=hint)
        if ("txnAppId" in self.values) != ("txnVersion" in self.values) and use is WriteUse.BATCH:
            missing = "txnVersion" if "txnAppId" in self.values else "txnAppId"
            hint = "give both txnAppId and txnVersion, by which a repeated batch is recognised, or neither"
            raise InvalidError("it is missing", where=missing, hint=hint)

    def settings(self) -> dict[str, Any]:
        """Returns what was given as parameters of `sink`, without `app_id` and `table`.

        Options of Kafka's client and of the store are in `kafka` and `storage_options`. What the rows do to
        the table is not among them: see `mode`.
        """
        values = {
            option.parameter: self.values[option.name]
            for option in WRITES.of(WriteUse.SINK)
            if option.name in self.values and option.name not in _OF_THE_BATCH
        }
        if USER_METADATA in self.values:
            recorded = {USER_METADATA: self.values[USER_METADATA]}
            values["commit_properties"] = {**values.get("commit_properties", {}), **recorded}
        return values | {"kafka": dict(self.kafka), "storage_options": dict(self.storage)}

    @property
    def path(self) -> str:
        """The table. Raises `InvalidError` if none is named, or two different tables."""
        paths = {self.values[name] for name in ("path", "table") if name in self.values}
        if not paths:
            raise InvalidError("no table is named", where="path", hint='.save("s3://lake/flights") names it')
        if len(paths) > 1:
            raise InvalidError("they name different tables", where="path and table", hint="leave one out")
        return str(paths.pop())


def read_write_options(texts: Mapping[str, str]) -> GivenWrite:
    """Returns the options that Spark passes. Raises `InvalidError` for an unknown name or a wrong value."""
    named: dict[str, str] = {}
    kafka: dict[str, str] = {}
    properties: dict[str, str] = {}
    for name, text in texts.items():
        kafka_option = without_prefix(name, (KAFKA_PREFIX,))
        if kafka_option is not None and kafka_option.lower() != "bootstrap.servers":
            # librdkafka knows its names in lower case only, and Spark compares names without regard to case.
            kafka[kafka_option.lower()] = text
        elif name.lower().startswith(PROPERTY_PREFIX):
            properties[name] = text
        else:
            named[name] = text
    values, storage = WRITES.read(named)
    properties = {**values.get(TABLE_PROPERTIES, {}), **properties}
    if properties:
        values[TABLE_PROPERTIES] = read_properties(properties)
    return GivenWrite(values, kafka, storage)


def _check_meaning(option: Option, use: WriteUse, mode: WriteMode) -> None:
    if not option.is_for(use):
        where = "a streaming query" if use is WriteUse.STREAM else f"`{use}`"
        hint = f"leave it out; it is an option of {', '.join(sorted(option.uses))}"
        raise InvalidError(f"it has no meaning for {where}", where=option.name, hint=hint)
    if not option.is_of_mode(mode):
        hint = f"leave it out; it is an option of the mode {', '.join(sorted(option.modes))}"
        raise InvalidError(f"it has no meaning in the mode {mode}", where=option.name, hint=hint)
