"""Actions in a Parquet file: a column for each kind of action, a row for each action (Delta fact 4.1).

Arrow is loaded when the first such file is read: what opens no checkpoint starts without it.
"""

from __future__ import annotations

import datetime as dt
from itertools import chain, groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Protocol

from lakefold_table.delta.actions.fields import FLAG, LONG, TEXT, TEXT_MAP, TEXTS, ActionField, fields_of
from lakefold_table.delta.actions.file_actions import AddFile, DeletionVector, RemoveFile
from lakefold_table.delta.actions.file_columns import FileColumns, members_present
from lakefold_table.delta.actions.lines import action_of
from lakefold_table.delta.actions.table_actions import BY_NAME, Action, FileFormat
from lakefold_table.delta.checkpoints.statistics_columns import (
    JSON_ALONE,
    PARSED,
    StatisticsForm,
    arrow_column,
    column_type,
)
from lakefold_table.delta.json_text import exact_json
from lakefold_table.errors import DamagedError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from lakefold_table.delta.actions.file_columns import FileGroup

ROWS_AT_ONCE: Final = 4096
"""So many actions become Arrow arrays at once, or values."""
ROWS_READ: Final = 1 << 16
"""So many rows of a file are decoded at once."""
MOST_TEXT: Final = 64 << 20
"""The largest text in a file's footer, and the most parts of one list there."""
SPARE_BYTES: Final = 64 << 20
MOST_TIMES: Final = 100
"""How much larger than the file its columns may be in memory, beside `SPARE_BYTES`."""
_TEXTS: Final = "BYTE_ARRAY"
"""What Parquet calls the type of texts."""
_STORED_ONCE: Final = frozenset({"PLAIN_DICTIONARY", "RLE_DICTIONARY"})
"""The encodings that store a text once for all of its rows."""
STATS: Final = "stats"
_NOT_OF_TOMBSTONES: Final = (STATS, "tags")
_DATA_CHANGE: Final = "dataChange"
_PATH, _STATS, _PARSED = (f"{AddFile.NAME}.{name}" for name in ("path", STATS, PARSED))
_INTEGERS: Final = frozenset({"minReaderVersion", "minWriterVersion", "offset", "sizeInBytes"})
"""The members that have 32 bits in a checkpoint."""
_NESTED: Final[Mapping[str, type[Any]]] = {"deletionVector": DeletionVector, "format": FileFormat}
"""The members that are objects."""
_FILES: Final = frozenset({AddFile.NAME, RemoveFile.NAME})
HINT: Final = "remove the checkpoint if all commits are in the log, or restore it from a copy"


_Part = tuple[list[str], list[int]]
"""Columns, and the row groups of which they are read."""


class SeekableFile(Protocol):
    """A file that is read in parts."""

    def read(self, size: int | None = -1, /) -> bytes:
        """Returns `size` bytes, fewer at the end of the file."""

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Sets where the next byte is read, and returns it."""


def parquet_actions(
    data: bytes | SeekableFile, where: str, names: Collection[str] = tuple(BY_NAME)
) -> Iterator[Action | FileGroup]:
    """Yields the actions with these names in a Parquet file. Most files that are added come in groups.

    `data`: its bytes, or a file, of which only the footer and the columns of these actions are read. Raises
    `DamagedError` if it is no such file, or would take far more memory than it is long.
    """
    import pyarrow as pa
    from pyarrow import parquet

    try:
        opened = pa.BufferReader(data) if isinstance(data, bytes) else pa.PythonFile(data, mode="r")
        file = parquet.ParquetFile(
            opened,
            thrift_string_size_limit=MOST_TEXT,
            thrift_container_size_limit=MOST_TEXT,
            coerce_int96_timestamp_unit="us",
        )
        parts = list(_parts(file.metadata, _columns(file.schema_arrow, names)))
        _check_size(opened, file.metadata, parts, where)
        for columns, numbers in parts:
            for batch in file.iter_batches(ROWS_READ, row_groups=numbers, columns=columns, use_threads=True):
                for name, column in zip(batch.schema.names, batch.columns, strict=True):
                    yield from _actions(name, column, where)
    except (pa.ArrowException, OSError, OverflowError, ValueError) as error:
        if isinstance(error, FileNotFoundError | MemoryError):
            raise
        message = f"the file can't be read as Parquet: {error}"
        raise DamagedError(message, where=where, hint=HINT) from error


def parquet_file(actions: Mapping[str, Sequence[Action]], form: StatisticsForm = JSON_ALONE) -> bytes:
    """Returns a Parquet file with a row for each action, and a column for each kind of action.

    Actions about files change no data there, and those of removed files lack statistics and tags (Delta fact
    4.5). `form`: how files that are added have their statistics.
    """
    import pyarrow as pa
    from pyarrow import parquet

    types = {name: _struct(BY_NAME[name]) for name in actions}
    if RemoveFile.NAME in types:
        kept = [each for each in types[RemoveFile.NAME] if each.name not in _NOT_OF_TOMBSTONES]
        types[RemoveFile.NAME] = pa.struct(kept)
    if AddFile.NAME in types:
        members = [each for each in types[AddFile.NAME] if form.as_json or each.name != STATS]
        members += [pa.field(each.name, column_type(each)) for each in form.columns]
        types[AddFile.NAME] = pa.struct(members)
    schema = pa.schema(list(types.items()))
    sink = pa.BufferOutputStream()
    # Paths and statistics differ in each row: a dictionary of them would only take time.
    with parquet.ParquetWriter(sink, schema, compression="snappy", use_dictionary=False) as writer:
        for name, each in actions.items():
            for start in range(0, len(each), ROWS_AT_ONCE):
                column = _column(each[start : start + ROWS_AT_ONCE], types[name], BY_NAME[name], form)
                arrays = [
                    column if field.name == name else pa.nulls(len(column), field.type) for field in schema
                ]
                writer.write_batch(pa.record_batch(arrays, schema=schema))
    return bytes(sink.getvalue())


def _column(actions: Sequence[Any], type_: Any, kind: type[Any], form: StatisticsForm) -> Any:  # noqa: ANN401 - Arrow types and arrays
    """Returns actions of one kind as an array of structs: a member of all of them at a time."""
    import pyarrow as pa

    fields = {field.name: field for field in fields_of(kind)}
    parsed = {column.name: column for column in form.columns}
    arrays = []
    for member in type_:
        field = fields.get(member.name)
        if field is None:
            arrays.append(arrow_column(parsed[member.name], actions))
            continue
        if field.name == _DATA_CHANGE:
            values: list[Any] = [False] * len(actions)
        else:
            values = list(map(attrgetter(field.attribute), actions))
        arrays.append(_array(values, field, member.type))
    return pa.StructArray.from_arrays(arrays, fields=list(type_))


def _array(values: list[Any], field: ActionField, kind: Any) -> Any:  # noqa: ANN401 - Arrow types and arrays
    """Returns the values of one member."""
    import pyarrow as pa

    write = field.kind.write
    if write is not None:
        values = [None if value is None else write(value) for value in values]
    if pa.types.is_map(kind):
        values = [None if value is None else list(value.items()) for value in values]
    elif pa.types.is_struct(kind):
        values = [_arrow_value(value, kind) for value in values]
    return pa.array(values, kind)


def _struct(kind: type[Any]) -> Any:  # noqa: ANN401 - an Arrow type
    import pyarrow as pa

    types = {
        TEXT: pa.string(),
        FLAG: pa.bool_(),
        LONG: pa.int64(),
        TEXTS: pa.list_(pa.string()),
        TEXT_MAP: pa.map_(pa.string(), pa.string()),
    }
    members = []
    for field in fields_of(kind):
        if field.name in _INTEGERS:
            members.append((field.name, pa.int32()))
        elif field.name in _NESTED:
            members.append((field.name, _struct(_NESTED[field.name])))
        else:
            members.append((field.name, types[field.kind]))
    return pa.struct(members)


def _arrow_value(content: Any, kind: Any) -> Any:  # noqa: ANN401 - JSON values and Arrow types
    """Returns a value as Arrow takes it: maps as lists of pairs, and no members that the type lacks."""
    import pyarrow as pa

    if content is None:
        return None
    if pa.types.is_map(kind):
        return list(content.items())
    if pa.types.is_struct(kind):
        return {field.name: _arrow_value(content.get(field.name), field.type) for field in kind}
    return content


def _check_size(opened: Any, metadata: Any, parts: Iterable[_Part], where: str) -> None:  # noqa: ANN401 - a file and its footer
    """Raises `DamagedError` if what is read of a file would take far more memory than the file is long.

    A value that repeats is stored once, whether it is null or a text of many megabytes, and is in memory for
    each row.
    """
    size = opened.size()
    most = SPARE_BYTES + MOST_TIMES * size
    takes = sum(
        max(0, metadata.row_group(number).total_byte_size) for number in range(metadata.num_row_groups)
    )
    texts: dict[tuple[int, str], int] = {}
    for columns, numbers in parts:
        for number in numbers:
            group = metadata.row_group(number)
            for chunk in map(group.column, range(group.num_columns)):
                if _member(chunk.path_in_schema) in columns:
                    values = max(chunk.num_values, group.num_rows)
                    takes += values
                    if chunk.physical_type == _TEXTS and not _STORED_ONCE.isdisjoint(chunk.encodings):
                        texts[number, chunk.path_in_schema] = values
    if takes <= most:
        takes += _texts_size(opened, metadata, texts, most - takes)
    if takes > most:
        message = f"the columns of the file of {size} bytes would take at least {takes} bytes"
        raise DamagedError(message, where=where, hint=HINT)


def _texts_size(opened: Any, metadata: Any, texts: Mapping[tuple[int, str], int], most: int) -> int:  # noqa: ANN401 - as above
    """Returns how many bytes texts take at most that are stored once for all rows; exactly if near `most`.

    `texts`: how many values there are, by row group and column.
    """
    longest = {text: values * _longest_text(opened, metadata, *text) for text, values in texts.items()}
    takes = sum(longest.values())
    for text in sorted(longest, key=longest.__getitem__, reverse=True):
        if takes <= most:
            break
        # Most texts of a column may be shorter than the longest.
        takes += _text_bytes(opened, metadata, *text, most) - longest[text]
    return takes


def _longest_text(opened: Any, metadata: Any, number: int, column: str) -> int:  # noqa: ANN401 - as above
    """Returns the bytes of the longest text that a column of a row group stores once for all of its rows."""
    import pyarrow.compute as pc

    texts = next(_stored_texts(opened, metadata, number, column, 1), None)
    return 0 if texts is None else pc.max(pc.binary_length(texts.dictionary)).as_py() or 0


def _text_bytes(opened: Any, metadata: Any, number: int, column: str, most: int) -> int:  # noqa: ANN401 - as above
    """Returns how many bytes the texts of a column take, or a number above `most`."""
    import pyarrow.compute as pc

    takes = 0
    for texts in _stored_texts(opened, metadata, number, column, ROWS_READ):
        takes += pc.sum(pc.binary_length(texts.dictionary).take(texts.indices)).as_py() or 0
        if takes > most:
            break
    return takes


def _stored_texts(opened: Any, metadata: Any, number: int, column: str, rows: int) -> Iterator[Any]:  # noqa: ANN401 - as above
    """Yields the texts of a column, `rows` at once: each text once, and which one each row has."""
    import pyarrow as pa
    from pyarrow import parquet

    file = parquet.ParquetFile(opened, metadata=metadata, read_dictionary=[column], pre_buffer=False)
    for batch in file.iter_batches(rows, row_groups=[number], columns=[column], use_threads=False):
        texts = batch.column(0)
        while pa.types.is_nested(texts.type):
            texts = texts.field(0) if pa.types.is_struct(texts.type) else texts.flatten()
        yield texts


def _columns(schema: Any, names: Collection[str]) -> list[str]:  # noqa: ANN401 - an Arrow schema
    """Returns the columns to read: the members of the actions that this release knows."""
    import pyarrow as pa

    columns: list[str] = []
    for column in schema:
        kind = BY_NAME.get(column.name)
        if kind is None or column.name not in names or not pa.types.is_struct(column.type):
            continue
        present = {member.name for member in column.type}
        wanted = [field.name for field in fields_of(kind) if field.name in present]
        if kind is AddFile and PARSED in present:
            wanted.append(PARSED)
        columns.extend(f"{column.name}.{name}" for name in wanted)
    return columns


def _parts(metadata: Any, wanted: Sequence[str]) -> Iterator[_Part]:  # noqa: ANN401 - a footer
    """Yields columns, and the row groups of which they are read.

    A row group mostly has actions of one kind, without most of their members. A column of nulls would take
    the time and the memory of one with values.
    """
    leaves: dict[str, dict[int, bool]] = {name: {} for name in wanted}
    for index in range(metadata.num_columns):
        leaf = metadata.schema.column(index)
        name = _member(leaf.path)
        if name in leaves:
            leaves[name][index] = leaf.max_repetition_level > 0
    each = (_needed(metadata.row_group(number), leaves) for number in range(metadata.num_row_groups))
    for columns, numbered in groupby(enumerate(each), lambda pair: pair[1]):
        if columns:
            yield columns, [number for number, _ in numbered]


def _needed(group: Any, leaves: Mapping[str, Mapping[int, bool]]) -> list[str]:  # noqa: ANN401 - a row group
    """Returns the columns of a row group that have values.

    `leaves`: the indices of a column's leaves, and whether they are of a list or a map. One that is empty
    counts as null in the statistics of the row group. So those of actions that are present are all read.
    """
    filled = {name for name, own in leaves.items() if any(_has_values(group.column(index)) for index in own)}
    kinds = {_kind(name) for name in filled}
    needed = [
        name for name, own in leaves.items() if name in filled or (_kind(name) in kinds and any(own.values()))
    ]
    if {_PATH, _STATS, _PARSED} <= filled:
        paths, texts = (group.column(next(iter(leaves[name]))).statistics for name in (_PATH, _STATS))
        # Each file has its statistics as JSON if these are null for as many rows as the paths.
        if paths and texts and paths.has_null_count and paths.null_count == texts.null_count:
            needed.remove(_PARSED)
    return needed


def _has_values(chunk: Any) -> bool:  # noqa: ANN401 - a column of a row group
    """Returns whether a column has values, or does not say it."""
    statistics = chunk.statistics
    return statistics is None or not statistics.has_null_count or statistics.null_count < chunk.num_values


def _member(column: str) -> str:
    """Returns the member of an action to which a column belongs, with the action's name."""
    return ".".join(column.split(".")[:2])


def _kind(column: str) -> str:
    return column.partition(".")[0]


def _actions(name: str, column: Any, where: str) -> Iterator[Action | FileGroup]:  # noqa: ANN401 - an Arrow array
    rows = column.filter(column.is_valid()) if column.null_count else column
    if not len(rows):
        return
    # A checkpoint of a large table is almost nothing but files.
    files = _files(name, rows, where) if name in _FILES else None
    if files is None:
        yield from _each_row(name, rows, where)
    else:
        yield from files.groups() if name == AddFile.NAME else files.actions()


def _files(name: str, rows: Any, where: str) -> FileColumns | None:  # noqa: ANN401 - an Arrow array
    """Returns the actions about files if they can stay columns, otherwise None."""
    names = {member.name: at for at, member in enumerate(rows.type)}
    if PARSED in names and (STATS not in names or rows.field(names[STATS]).null_count):
        return None
    return FileColumns.of(BY_NAME[name], rows, where)


def _each_row(name: str, rows: Any, where: str) -> Iterator[Action]:  # noqa: ANN401 - an Arrow array
    kinds = fields_of(BY_NAME[name])
    parts = (rows.slice(start, ROWS_AT_ONCE) for start in range(0, len(rows), ROWS_AT_ONCE))
    for members in map(members_present, chain.from_iterable(map(_members, parts))):
        # Writers that can't store null for a whole struct store one without any member.
        if not members:
            continue
        parsed = members.pop(PARSED, None)
        if parsed is not None and STATS not in members:
            members[STATS] = _stats_text(parsed)
        yield action_of(name, _plain(members, kinds, where), where)


def _members(rows: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - an Arrow array
    import pyarrow as pa

    try:
        return list(rows.to_pylist())
    except (OverflowError, ValueError):
        # Python has no times after the year 9999 or before the year 1. Only statistics may hold some.
        names = [member.name for member in rows.type if member.name != PARSED]
        if len(names) == rows.type.num_fields:
            raise
        kept = pa.StructArray.from_arrays([rows.field(name) for name in names], names=names)
        return list(kept.to_pylist())


def _plain(members: dict[str, Any], fields: tuple[ActionField, ...], where: str) -> dict[str, Any]:
    """Returns members as JSON has them: Arrow gives a map as a list of pairs, an absent member as None."""
    by_name = {field.name: field for field in fields}
    for name, content in members.items():
        field = by_name.get(name)
        if field is None:
            continue
        if field.kind is TEXT_MAP and isinstance(content, list):
            members[name] = _map_of(content, name, where)
        elif isinstance(content, dict):
            members[name] = members_present(content)
            if isinstance(members[name].get("options"), list):
                members[name]["options"] = _map_of(members[name]["options"], "options", where)
    return members


def _map_of(pairs: list[Any], name: str, where: str) -> dict[Any, Any]:
    if not all(isinstance(pair, tuple) for pair in pairs):
        raise DamagedError(f"{name} must be a map", where=where, hint=HINT)
    return dict(pairs)


def _stats_text(parsed: dict[str, Any]) -> str:
    """Returns the statistics of a file as JSON; values that JSON can't hold are left out.

    A table with `delta.checkpoint.writeStatsAsJson` = false has them in columns alone (Delta fact 4.2).
    """
    return exact_json(_stats_member(parsed))


def _stats_member(content: Any) -> Any:  # noqa: ANN401 - any value of a column
    match content:
        case dict():
            members = {name: _stats_member(each) for name, each in content.items()}
            return {name: each for name, each in members.items() if each is not None}
        case dt.datetime():
            text = content.replace(tzinfo=None).isoformat(timespec="milliseconds")
            return text if content.tzinfo is None else f"{text}Z"
        case dt.date():
            return content.isoformat()
        case float():
            return content if content - content == 0 else None
        case bytes():
            return None
        case _:
            return content
