"""Reads positions of the log as people and programs name them, and finds the log of a table that is meant.

A position from `lakefold` names its log in full. A bare offset means the log that the table is bound to. A
text as `lakefold log` and `tail` print it names topic and partition, which may have been several logs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from lakefold_table.errors import InvalidError, NotFoldedYetError
from lakefold_table.marks.marks import Marks, Rebinding, describe_position
from lakefold_table.position import LogId, Position
from lakefold_table.whole_numbers import integer

_PRINTED: Final = re.compile(
    r"(?:(?P<cluster>[^/@\s]+)/)?(?P<topic>[^/@\s]+)/(?P<partition>[0-9]{1,10})"
    r"@(?:[0-9]{1,19}-)?(?P<offset>[0-9]{1,19})(?: \(topic id (?P<topic_id>\S+)\))?"
)
_FILE_LOG: Final = re.compile(r"file log (?P<name>\S+)@(?P<offset>[0-9]{1,19})")
_OFFSET: Final = re.compile(r"[0-9]{1,19}")
_OFFSETS: Final = ("offset", "last_offset")
_HOW: Final = (
    "give a position as changes and outcomes have it, its text (TOPIC/PARTITION@OFFSET) or JSON, or an offset"
)


@dataclass(frozen=True, slots=True)
class PositionQuery:
    """A position as it was requested: what it doesn't say of its log is None. `topic` is a name or an id."""

    offset: int
    cluster_id: str | None = None
    topic_id: str | None = None
    topic: str | None = None
    partition: int | None = None

    @property
    def names_log(self) -> bool:
        """Whether the query has more than an offset."""
        return any(part is not None for part in (self.cluster_id, self.topic_id, self.topic, self.partition))

    def is_in(self, position: Position) -> bool:
        """Returns whether the proposal may be in the log of this position."""
        log = position.log
        return (
            self.cluster_id in (None, log.cluster_id)
            and self.topic_id in (None, log.topic_id)
            and self.partition in (None, log.partition)
            and self.topic in (None, position.topic, log.topic_id)
        )

    def __str__(self) -> str:
        if not self.names_log:
            return f"offset {self.offset}"
        topic = self.topic or self.topic_id or "any topic"
        topic_id = f" (topic id {self.topic_id})" if self.topic and self.topic_id else ""
        return f"{topic}/{'any' if self.partition is None else self.partition}@{self.offset}{topic_id}"


def position_query(position: object) -> PositionQuery:
    """Parses a position: see `lakefold.open`. Raises `InvalidError` if it is none."""
    if isinstance(position, PositionQuery):
        return position
    if isinstance(position, str):
        return _of_text(position.strip())
    if isinstance(position, Mapping):
        return _of_mapping(position)
    if (number := integer(position)) is not None:
        return PositionQuery(_offset(number))
    return _of_object(position)


def log_position(query: PositionQuery, marks: Marks, uri: str) -> Position:
    """Returns the position that is meant, in a log that the marks know and that was folded so far.

    Raises `NotFoldedYetError` if the log was not folded so far, and `InvalidError` if no log or more than one
    fits, if the table left the log before that, or if the offset was assigned twice.
    """
    by_log = _known(marks)
    fitting = _fitting(query, marks, by_log)
    if len(fitting) != 1:
        what = "is in no log of this table" if not fitting else "may be in several logs of this table"
        listed = "; ".join(sorted(describe_position(position) for position in by_log.values())) or "none"
        hint = f"known are: {listed}. Name the log by cluster_id, topic_id and partition"
        raise InvalidError(f"{query} {what}", where=uri, hint=hint)
    newest = fitting[0]
    _check_folded(query, newest, marks, uri)
    _check_single(query.offset, newest.log, marks, uri)
    return Position(newest.log, query.offset, newest.topic)


def reached(marks: Marks, log: LogId) -> int:
    """Returns the highest offset of a log that these marks count as folded, -1 if they lack the log.

    Unlike `Marks.offset_of` it doesn't go back if entries were lost and that was accepted.
    """
    position = _known(marks).get(log)
    return -1 if position is None else position.offset


def _fitting(query: PositionQuery, marks: Marks, by_log: Mapping[LogId, Position]) -> list[Position]:
    if not query.names_log and marks.position is not None:
        return [by_log[marks.position.log]]
    return [position for position in by_log.values() if query.is_in(position)]


def _check_folded(query: PositionQuery, newest: Position, marks: Marks, uri: str) -> None:
    if query.offset <= newest.offset:
        return
    bound = marks.position
    if newest.log.is_file or (bound is not None and bound.log == newest.log):
        latest = newest if bound is None or newest.log.is_file else bound
        raise NotFoldedYetError(
            f"{query} isn't folded yet: the table is at {describe_position(latest)}",
            newest=latest,
            where=uri,
            hint="ask again later, or for an earlier one; entries that were refused alone make no version",
        )
    raise InvalidError(
        f"{query} was never folded: the table left that log at {describe_position(newest)}",
        where=uri,
        hint=f"now it is at {describe_position(bound)}",
    )


def _check_single(offset: int, log: LogId, marks: Marks, uri: str) -> None:
    """Raises `InvalidError` if entries were lost and others got the same offsets."""
    for move in marks.moves:
        again = _set_back(move, log)
        if again is not None and again.start <= offset < again.stop:
            raise InvalidError(
                f"offsets {again.start} to {again.stop - 1} were lost and assigned again: {offset} may "
                "be that of two entries",
                where=uri,
                hint="name a version or a time; `lakefold log` lists the versions with their positions",
            )


def _set_back(move: Rebinding, log: LogId) -> range | None:
    """Returns the offsets of this log that a rebinding made free again."""
    before, after = move.before, move.after
    if before is None or after is None or not before.log == after.log == log:
        return None
    return range(after.offset + 1, before.offset + 1)


def _known(marks: Marks) -> dict[LogId, Position]:
    """Returns each log that the marks know, with the highest position that counts as folded."""
    highest: dict[LogId, Position] = {}
    for position in _positions(marks):
        if position.log not in highest or highest[position.log].offset < position.offset:
            highest[position.log] = position
    return highest


def _positions(marks: Marks) -> Iterator[Position]:
    if marks.position is not None:
        yield marks.position
    for move in reversed(marks.moves):
        yield from (position for position in (move.before, move.after) if position is not None)
    for name, offset in marks.file_logs:
        yield Position(LogId(LogId.FILE_CLUSTER, name, 0), offset)


def printed(text: str) -> PositionQuery | None:
    """Returns the position that a text names with its log, as positions are printed.

    Returns None for other texts.
    """
    match, file_log = _PRINTED.fullmatch(text), _FILE_LOG.fullmatch(text)
    if match is not None:
        cluster, topic_id, topic = match.group("cluster", "topic_id", "topic")
        return PositionQuery(int(match["offset"]), cluster, topic_id, topic, int(match["partition"]))
    return (
        None
        if file_log is None
        else PositionQuery(int(file_log["offset"]), LogId.FILE_CLUSTER, file_log["name"])
    )


def _of_text(text: str) -> PositionQuery:
    if _OFFSET.fullmatch(text):
        return PositionQuery(int(text))
    if (position := printed(text)) is not None:
        return position
    if not text.startswith("{"):
        raise _no_position(text)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _no_position(text) from error
    return _of_mapping(value)


def _of_mapping(value: Mapping[str, Any]) -> PositionQuery:
    """Parses the JSON of a position, of a range of positions, or of an object that has a position."""
    for name in ("position", "positions"):
        if isinstance(value.get(name), Mapping):
            return _of_mapping(value[name])
    given = next((value[name] for name in _OFFSETS if name in value), None)
    if given is None:
        raise _no_position(str(dict(value)))
    partition = value.get("partition")
    return PositionQuery(
        _number(given),
        value.get("cluster_id") or None,
        value.get("topic_id") or None,
        None if value.get("topic_id") else value.get("topic") or None,
        None if partition is None else _number(partition),
    )


def _of_object(position: object) -> PositionQuery:
    """Reads a position, a range of positions, a position's message, or an object that has a position."""
    log, offset = getattr(position, "log", None), getattr(position, "offset", getattr(position, "last", None))
    if isinstance(log, LogId):
        return PositionQuery(_number(offset), log.cluster_id, log.topic_id, None, log.partition)
    names = ("cluster_id", "topic_id", "topic", "partition", "offset")
    if all(hasattr(position, name) for name in names):
        return _of_mapping({name: getattr(position, name) for name in names})
    inner = getattr(position, "position", getattr(position, "positions", None))
    if inner is None or callable(inner):
        raise _no_position(repr(position))
    return position_query(inner)


def _number(value: object) -> int:
    """Returns a number from JSON, in which protobuf writes numbers of 64 bits as text."""
    if isinstance(value, str) and _OFFSET.fullmatch(value):
        return int(value)
    if (number := integer(value)) is not None:
        return _offset(number)
    raise _no_position(repr(value))


def _offset(value: int) -> int:
    if value < 0:
        raise InvalidError("an offset is 0 or more", where=str(value), hint=_HOW)
    return value


def _no_position(text: str) -> InvalidError:
    return InvalidError("this is not a position of a log", where=text, hint=_HOW)
