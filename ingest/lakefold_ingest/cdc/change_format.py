"""The envelopes in which rows say what happened to them, as data."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from lakefold_ingest.cdc.debezium_types import DebeziumType, named_types
from lakefold_ingest.merge.clauses import check_names, names_of
from lakefold_table.errors import InvalidError, OptionName

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class ChangeEnvelope(StrEnum):
    """How a row says what happened.

    `plain`: a column says what happened to the row, and the other columns are the row. `debezium`: `op`,
    `before` and `after`. `delta` and `lakefold`: the change feed of a table, with `_change_type`.
    """

    PLAIN = "plain"
    DEBEZIUM = "debezium"
    DELTA = "delta"
    LAKEFOLD = "lakefold"


class EventEffect(StrEnum):
    """What an event does: an upsert writes the row, a delete removes the row with its key."""

    UPSERT = "upsert"
    DELETE = "delete"


CHANGE_TYPE: Final = "_change_type"
COMMIT_VERSION: Final = "_commit_version"
FEED_COLUMNS: Final = (CHANGE_TYPE, COMMIT_VERSION, "_commit_timestamp", "_log_offset")
"""What a change feed says beside the row."""

_UPSERTS: Final = ("i", "c", "r", "u", "insert", "create", "read", "update", "upsert")
PLAIN_OPERATIONS: Final = MappingProxyType(
    {**dict.fromkeys(_UPSERTS, EventEffect.UPSERT), "d": EventEffect.DELETE, "delete": EventEffect.DELETE}
)
"""What the usual values of an operation column mean."""
DEBEZIUM_OPERATIONS: Final = MappingProxyType(
    {"c": EventEffect.UPSERT, "r": EventEffect.UPSERT, "u": EventEffect.UPSERT, "d": EventEffect.DELETE}
)
# If an update changes a key, its row before is deleted. If not, the row after has the same key and counts.
FEED_OPERATIONS: Final = MappingProxyType(
    {
        "insert": EventEffect.UPSERT,
        "update_postimage": EventEffect.UPSERT,
        "update_preimage": EventEffect.DELETE,
        "delete": EventEffect.DELETE,
    }
)


@dataclass(frozen=True, slots=True)
class ChangeFormat:
    """How the rows of a batch say what happened to which row of the table.

    `keys` identify a row. `order_by` are the columns by which the last event of a key is found: names of the
    row, or paths into the envelope such as `source.lsn`; without them it is the order of the rows, or of a
    feed's versions. `operation_column` is that of `plain`, and `operations` what its values mean, in lower
    case. `debezium_types` are those of columns whose events have no schema. Raises `InvalidError` if they
    contradict each other.
    """

    keys: tuple[str, ...]
    order_by: tuple[str, ...] = ()
    envelope: ChangeEnvelope = ChangeEnvelope.PLAIN
    operation_column: str | None = None
    operations: Mapping[str, EventEffect] = field(default_factory=lambda: PLAIN_OPERATIONS)
    debezium_types: Mapping[str, DebeziumType] = field(default_factory=lambda: MappingProxyType({}))

    def __post_init__(self) -> None:
        check_names(self.keys, self.order_names)
        if (self.envelope is ChangeEnvelope.PLAIN) != (self.operation_column is not None):
            message = "changes need either the column with their operations or an envelope"
            hint = "name the column, or an envelope: debezium, delta or lakefold"
            raise InvalidError(message, where=OptionName("operation_column"), hint=hint)
        if self.debezium_types and self.envelope is not ChangeEnvelope.DEBEZIUM:
            hint = "give envelope=debezium, or leave them out"
            raise InvalidError(
                "these events are not Debezium's", where=OptionName("debezium_types"), hint=hint
            )
        if self.operation_column in self.keys:
            message = f"{self.operation_column} says what happens to a row, so it can't be a key"
            raise InvalidError(message, where=OptionName("operation_column"))

    @property
    def is_feed(self) -> bool:
        """Whether the rows are the change feed of a table."""
        return self.envelope in {ChangeEnvelope.DELTA, ChangeEnvelope.LAKEFOLD}

    @property
    def order_names(self) -> tuple[str, ...]:
        """The names of the ordering columns: the last part of each path."""
        return tuple(path.rpartition(".")[2] for path in self.order_by)


def change_format(
    keys: str | Iterable[str] | None,
    order_by: str | Iterable[str] | None = None,
    envelope: str | None = None,
    operation_column: str | None = None,
    operations: Mapping[str, str] | None = None,
    debezium_types: Mapping[str, str] | None = None,
) -> ChangeFormat:
    """Returns the format that these options describe. Without an envelope it is `plain`.

    Raises `InvalidError` if the envelope, an effect or a type is unknown, or the options contradict each
    other.
    """
    known = ChangeEnvelope.PLAIN.value if envelope is None else envelope.strip().lower()
    if known not in set(ChangeEnvelope):
        hint = f"give one of {', '.join(ChangeEnvelope)}"
        raise InvalidError(f"there is no envelope {envelope!r}", where=OptionName("envelope"), hint=hint)
    if operations and operation_column is None:
        message = "they are the values of an operation column, and none is named"
        raise InvalidError(
            message, where=OptionName("operations"), hint=("name it in ", OptionName("operation_column"))
        )
    effects = dict(PLAIN_OPERATIONS)
    if operations:
        meanings = {value.strip().lower(): word.strip().lower() for value, word in operations.items()}
        wrong = [word for word in meanings.values() if word not in PLAIN_OPERATIONS]
        if wrong:
            hint = 'give operations={"I": "upsert", "D": "delete"}, for example'
            message = f"no operation of an event is called {', '.join(wrong)}"
            raise InvalidError(message, where=OptionName("operations"), hint=hint)
        effects = {value: PLAIN_OPERATIONS[word] for value, word in meanings.items()}
    return ChangeFormat(
        names_of(keys, "keys"),
        names_of(order_by, "order_by"),
        ChangeEnvelope(known),
        operation_column,
        MappingProxyType(effects),
        MappingProxyType(named_types(debezium_types)),
    )
