"""Rows from files on this machine: Arrow, Parquet, CSV and JSON lines, by their names."""

from __future__ import annotations

import json
import mmap
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from lakefold_ingest.cdc.json_events import name_patterns
from lakefold_ingest.formats import read_view
from lakefold_ingest.rows.fitting import is_unknown
from lakefold_ingest.rows.json_depth import check_depth
from lakefold_ingest.rows.text_numbers import (
    floats_of,
    has_beyond,
    has_infinity,
    lost_error,
    lost_whole,
    narrowed,
    too_large,
)
from lakefold_table.errors import InvalidError
from lakefold_table.storage.os_errors import failure

if TYPE_CHECKING:
    from pathlib import Path

    from lakefold_ingest.writing.settings import WriteSettings

Batches = tuple[pa.Schema, Iterator[pa.RecordBatch]]
_JSON_BLOCK: Final = 1 << 20
"""The bytes at the beginning of a file by which Arrow decides which columns it has."""
_LATE: Final = ("unexpected field", "changed from null")
_LATE_HINT: Final = "give the table the column first, or have a line of the file's first MiB a value of it"
_MAY_BE_NULL: Final = re.compile(rb"(?:\A|[}\n])\s*null\b")
_NO_SPACE: Final = re.compile(r"\S")
_TEXTS: Final = (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())


def rows_for(settings: WriteSettings, paths: Sequence[Path]) -> pa.RecordBatchReader:
    """Returns the rows of the files with the types of the table, if it exists. Raises as `file_rows`."""
    view = read_view(settings.table, settings.storage_options)
    return file_rows(paths, None if view is None else view.schema)


def messages_or_rows(settings: WriteSettings, paths: Sequence[Path], *, are_messages: bool) -> pa.Table:
    """Returns change events: `rows_for` the files, or if `are_messages`, the JSON lines as Kafka's messages.

    Those are texts in a column `value`; a line `null` is a tombstone, as Kafka's own tools print it. Files of
    other formats have columns in any case. Raises as `file_rows`.
    """
    if not are_messages or any(FORMATS.get(path.suffix.lower()) is not _json_lines for path in paths):
        return rows_for(settings, paths).read_all()
    lines: list[bytes | None] = []
    for path in paths:
        with _errors_of(path):
            texts = (line.strip() for line in path.read_bytes().splitlines())
            lines += [None if text == b"null" else text for text in texts if text]
    return pa.table({"value": pa.array(lines, pa.binary())})


def file_rows(paths: Sequence[Path], table: pa.Schema | None) -> pa.RecordBatchReader:
    """Returns the rows of the files in their order, as one stream.

    `table` is the schema of the table, None if it does not exist: CSV and JSON have no types, so their
    columns are read with the table's types. A column that one of the files lacks is null there. Raises
    `InvalidError` if a file's format is unknown, a file can't be read, or two files disagree about a type.
    """
    read = [_open(path, table) for path in paths]
    try:
        schema = pa.unify_schemas([schema for schema, _ in read], promote_options="permissive")
    except pa.ArrowException as error:
        message = f"the files have different types: {error}"
        raise InvalidError(message, where=", ".join(map(str, paths))) from error

    def batches() -> Iterator[pa.RecordBatch]:
        for path, (_, rows) in zip(paths, read, strict=True):
            with _errors_of(path):
                for batch in rows:
                    yield _as(schema, batch)

    return pa.RecordBatchReader.from_batches(schema, batches())


def _as(schema: pa.Schema, batch: pa.RecordBatch) -> pa.RecordBatch:
    if batch.schema.equals(schema):
        return batch
    given = set(batch.schema.names)
    columns = [
        batch.column(field.name).cast(field.type)
        if field.name in given
        else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _arrow(path: Path, _: pa.Schema | None) -> Batches:
    """Reads Arrow's file format, or its stream format."""
    source = pa.memory_map(str(path))
    try:
        file = pa.ipc.open_file(source)
    except pa.ArrowInvalid:
        source.seek(0)
        stream = pa.ipc.open_stream(source)
        return stream.schema, iter(stream)
    return file.schema, (file.get_batch(number) for number in range(file.num_record_batches))


def _parquet(path: Path, _: pa.Schema | None) -> Batches:
    import pyarrow.parquet as pq

    file = pq.ParquetFile(path)
    return file.schema_arrow, file.iter_batches()


def _csv(path: Path, table: pa.Schema | None) -> Batches:
    import pyarrow.csv

    types = {field.name: field.type for field in table or () if not is_unknown(field.type)}
    floats = {name: kind for name, kind in types.items() if pa.types.is_floating(kind)}
    # With strings_can_be_null=True the texts "NA", "null" and "nan" would be null as well.
    options = pyarrow.csv.ConvertOptions(column_types=types | dict.fromkeys(floats, pa.string()))
    reader = pyarrow.csv.open_csv(path, convert_options=options)
    schema = _with_types(reader.schema, floats)
    guessed = [field.name for field in schema if field.type == pa.float64() and field.name not in floats]
    nulls = pa.array(options.null_values)
    # NaN is a number where the table has floats.
    no_floats = pa.array([text for text in options.null_values if text.lower().lstrip("-") != "nan"])

    def batches() -> Iterator[pa.RecordBatch]:
        checked = set[str]()
        for batch in reader:
            for name in {*guessed} - checked:
                if has_beyond(batch.column(name)):
                    checked.add(name)
                    _check_csv_numbers(path, name, nulls)
            columns = [
                floats_of(_without(column, no_floats), floats[name], name) if name in floats else column
                for name, column in zip(batch.schema.names, batch.columns, strict=True)
            ]
            yield _without_empty_texts(pa.RecordBatch.from_arrays(columns, schema=schema))

    return schema, batches()


def _without(texts: pa.Array, nulls: pa.Array) -> pa.Array:
    """Returns the texts with null for those that stand for one."""
    import pyarrow.compute as pc

    is_null = pc.is_in(texts, value_set=nulls)
    return pc.if_else(is_null, pa.scalar(None, texts.type), texts)


def _check_csv_numbers(path: Path, name: str, nulls: pa.Array) -> None:
    """Raises `InvalidError` if doubles don't have the numbers of a column of the file."""
    import pyarrow.csv

    options = pyarrow.csv.ConvertOptions(column_types={name: pa.string()}, include_columns=[name])
    texts = _without(pyarrow.csv.read_csv(path, convert_options=options).column(name).combine_chunks(), nulls)
    floats_of(texts, pa.float64(), name)


def _with_types(schema: pa.Schema, kinds: Mapping[str, pa.DataType]) -> pa.Schema:
    return pa.schema([field.with_type(kinds.get(field.name, field.type)) for field in schema])


def _without_empty_texts(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Returns the batch with null for each empty text, as for empty fields of the other types."""
    return pa.RecordBatch.from_arrays(list(map(_empty_as_null, batch.columns)), schema=batch.schema)


def _empty_as_null(column: pa.Array) -> pa.Array:
    import pyarrow.compute as pc

    if pa.types.is_dictionary(column.type):
        return _empty_as_null(column.dictionary_decode()).dictionary_encode()
    if column.type not in _TEXTS:
        return column
    return pc.if_else(pc.equal(pc.binary_length(column), 0), pa.scalar(None, column.type), column)


def _json_lines(path: Path, table: pa.Schema | None) -> Batches:
    import pyarrow.json

    with path.open("rb") as file:
        check_depth(file, str(path))
    _check_objects(path)
    arrow_schema = pyarrow.json.open_json(path).schema
    inferred = {field.name: field.type for field in arrow_schema}
    if path.stat().st_size > _JSON_BLOCK:
        later = _later_names(path, set(() if table is None else table.names) - inferred.keys())
        inferred |= dict.fromkeys(later, pa.null())
    known = {
        field.name: field.with_type(_with_more(field.type, inferred[field.name]))
        for field in table or ()
        if field.name in inferred and not is_unknown(field.type)
    }
    read = {name: _json_type(field.type, inferred[name], name) for name, field in known.items()}
    # Of a list whose type it finds out while it reads, Arrow loses the nulls at the beginning.
    options = pyarrow.json.ParseOptions(
        explicit_schema=pa.schema({field.name: field.type for field in arrow_schema} | read)
    )
    reader = pyarrow.json.open_json(path, parse_options=options)
    kinds = {name: field.type for name, field in known.items() if field.type != read[name]}
    schema = _with_types(reader.schema, kinds)

    def batches() -> Iterator[pa.RecordBatch]:
        checked = set[str]()
        for batch in reader:
            for name in (name for name in batch.schema.names if has_infinity(batch.column(name))):
                _check_json_range(path, name)
            for name in {*batch.schema.names} - checked:
                if has_beyond(batch.column(name)):
                    checked.add(name)
                    _check_json_numbers(path, batch.schema.field(name))
            columns = [
                narrowed(column, kinds[name], name) if name in kinds else column
                for name, column in zip(batch.schema.names, batch.columns, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)

    return schema, batches()


def _with_more(kind: pa.DataType, inferred: pa.DataType) -> pa.DataType:
    """Returns a table's type with the fields of structs that only the file has, which a cast would drop."""
    types = pa.types
    if types.is_struct(kind) and types.is_struct(inferred):
        inner = {field.name: field.type for field in inferred}
        fields = [field.with_type(_with_more(field.type, inner.get(field.name, pa.null()))) for field in kind]
        names = {field.name for field in kind}
        return pa.struct([*fields, *(field for field in inferred if field.name not in names)])
    is_large, is_fixed = types.is_large_list(kind), types.is_fixed_size_list(kind)
    if (types.is_list(kind) or is_large or is_fixed) and types.is_list(inferred):
        item = kind.value_field.with_type(_with_more(kind.value_type, inferred.value_type))
        if is_fixed:
            return pa.list_(item, kind.list_size)
        return pa.large_list(item) if is_large else pa.list_(item)
    return kind


def _json_type(kind: pa.DataType, inferred: pa.DataType, name: str) -> pa.DataType:
    """Returns the type as which Arrow reads values of a column from JSON, which are cast to `kind` then.

    `inferred`: the type that Arrow gives the column by itself. Raises `InvalidError` naming the column if
    Arrow can't read such values from JSON.
    """
    types = pa.types
    if types.is_struct(kind):
        inner = {field.name: field.type for field in inferred} if types.is_struct(inferred) else {}
        return pa.struct(
            [
                field.with_type(_json_type(field.type, inner.get(field.name, pa.null()), name))
                for field in kind
            ]
        )
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        item = inferred.value_type if types.is_list(inferred) else pa.null()
        return pa.list_(kind.value_field.with_type(_json_type(kind.value_type, item, name)))
    if types.is_dictionary(kind):
        return _json_type(kind.value_type, inferred, name)
    if kind == pa.json_() or (types.is_date(kind) and not types.is_integer(inferred)):
        return pa.string()
    if types.is_fixed_size_binary(kind):
        return pa.binary()
    if types.is_duration(kind):
        return pa.int64()
    if (
        isinstance(kind, pa.BaseExtensionType)
        or types.is_map(kind)
        or (types.is_time(kind) and inferred == pa.string())
    ):
        message, hint = (
            f"values of {kind} are not read from JSON lines",
            "give the rows as Parquet, Arrow or CSV",
        )
        raise InvalidError(message, where=f"column {name}", hint=hint)
    return pa.float64() if types.is_floating(kind) else kind


def _check_objects(path: Path) -> None:
    """Raises `InvalidError` if a value of the file is null, which Arrow takes for a row, or crashes at."""
    if not path.stat().st_size:
        return
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        if _MAY_BE_NULL.search(content) is None:
            return
        text = content[:].decode()
    decoder, end = json.JSONDecoder(), 0
    # What is no JSON is reported where it is parsed.
    with suppress(ValueError):
        while (begin := _NO_SPACE.search(text, end)) is not None:
            value, end = decoder.raw_decode(text, begin.start())
            if value is None:
                line = text.count("\n", 0, begin.start()) + 1
                hint = "leave it out; `lakefold apply-changes` takes it for a tombstone"
                raise InvalidError(f"line {line} is null, which is no row", where=str(path), hint=hint)


def _later_names(path: Path, names: set[str]) -> set[str]:
    """Returns those of these names that are members of an object that is a line of a file.

    Arrow refuses columns that its first block lacks. Not all columns of the table can be assumed: an upsert
    leaves one as it is that the file lacks. Only lines are parsed that have a name as a text before a colon.
    """
    later, end = set[str](), 0
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        while later < names:
            missing = "|".join(name_patterns(names - later))
            match = re.compile(f"(?:{missing})[ \t]*:".encode()).search(content, end)
            if match is None:
                break
            start = content.rfind(b"\n", 0, match.start()) + 1
            end = content.find(b"\n", match.end())
            end = end if end >= 0 else len(content)
            # If the line is no JSON, Arrow's own error says what is wrong.
            with suppress(ValueError):
                row = json.loads(content[start:end])
                later |= names & set(row if isinstance(row, dict) else ())
    return later


def _check_json_range(path: Path, name: str) -> None:
    """Raises `InvalidError` if the file has a number beyond the range of doubles. `name`: of a column."""
    number = too_large(path.read_text())
    if number is not None:
        message = f"the number {number} is beyond the range of double (column {name})"
        raise InvalidError(message, where=str(path), hint="correct or leave out such rows")


def _check_json_numbers(path: Path, field: pa.Field) -> None:
    """Raises `InvalidError` if a column, which was read as doubles, has a whole number that these lack."""
    number = lost_whole(path.read_text(), pa.struct([field]))
    if number is not None:
        raise lost_error(number, field.name, str(path))


FORMATS: Final[dict[str, Callable[[Path, pa.Schema | None], Batches]]] = {
    ".arrow": _arrow,
    ".arrows": _arrow,
    ".ipc": _arrow,
    ".feather": _arrow,
    ".parquet": _parquet,
    ".csv": _csv,
    ".jsonl": _json_lines,
    ".ndjson": _json_lines,
    ".json": _json_lines,
}
"""The formats by the last part of a file's name, and what reads each."""


def _open(path: Path, table: pa.Schema | None) -> Batches:
    read = FORMATS.get(path.suffix.lower())
    if read is None:
        hint = f"name it with one of these endings: {', '.join(FORMATS)}"
        raise InvalidError("the format of this file is not known by its name", where=str(path), hint=hint)
    with _errors_of(path):
        schema, rows = read(path, table)
        _ = schema.names  # decodes them
        return schema, rows


@contextmanager
def _errors_of(path: Path) -> Iterator[None]:
    """Turns Arrow's errors while a file is read into `InvalidError`, which names the file."""
    try:
        yield
    except (pa.ArrowException, UnicodeDecodeError) as error:
        # The name of a column that is not UTF-8 fails when it is decoded.
        is_late = any(text in str(error) for text in _LATE)
        raise InvalidError(
            f"the file can't be read: {error}", where=str(path), hint=_LATE_HINT if is_late else ""
        ) from error
    except OSError as error:
        raise failure(error, str(path)) from error
