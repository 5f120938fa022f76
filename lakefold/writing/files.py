"""Rows from files on this machine: Arrow, Parquet, CSV and JSON lines, by their names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from lakefold_ingest.formats import read_view
from lakefold_ingest.rows.json_depth import check_depth
from lakefold_table.errors import InvalidError
from lakefold_table.storage.os_errors import failure

if TYPE_CHECKING:
    from pathlib import Path

    from lakefold_ingest.writing.settings import WriteSettings

Batches = tuple[pa.Schema, Iterator[pa.RecordBatch]]
_TEXTS: Final = (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())


def rows_for(settings: WriteSettings, paths: Sequence[Path]) -> pa.RecordBatchReader:
    """Returns the rows of the files with the types of the table, if it exists. Raises as `file_rows`."""
    view = read_view(settings.table, settings.storage_options)
    return file_rows(paths, None if view is None else view.schema)


def messages_or_rows(settings: WriteSettings, paths: Sequence[Path], *, are_messages: bool) -> pa.Table:
    """Returns change events: `rows_for` the files, or if `are_messages`, the JSON lines as Kafka's messages.

    Those are texts in a column `value`. Files of other formats have columns in any case. Raises as
    `file_rows`.
    """
    if not are_messages or any(FORMATS.get(path.suffix.lower()) is not _json_lines for path in paths):
        return rows_for(settings, paths).read_all()
    lines: list[bytes] = []
    for path in paths:
        with _errors_of(path):
            lines += [line for line in path.read_bytes().splitlines() if line.strip()]
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

    types = {field.name: field.type for field in table or ()}
    # With strings_can_be_null=True the texts "NA", "null" and "nan" would be null as well.
    options = pyarrow.csv.ConvertOptions(column_types=types)
    reader = pyarrow.csv.open_csv(path, convert_options=options)
    return reader.schema, map(_without_empty_texts, reader)


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
    inferred = set(pyarrow.json.open_json(path).schema.names)
    known = [field for field in table or () if field.name in inferred]
    options = pyarrow.json.ParseOptions(explicit_schema=pa.schema(known))
    reader = pyarrow.json.open_json(path, parse_options=options)
    return reader.schema, iter(reader)


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
        raise InvalidError(f"the file can't be read: {error}", where=str(path)) from error
    except OSError as error:
        raise failure(error, str(path)) from error
