"""The schemas that Kafka Connect puts before JSON messages, `{"schema": …, "payload": …}`.

Nearly all messages of a batch have the same schema, often longer than the payload, so each schema is parsed
once, and the messages without it.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from lakefold_ingest.cdc.debezium_types import fields_of, type_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakefold_ingest.cdc.debezium_types import DebeziumType

_SCHEMA_BEGIN: Final = rb'\s*\{\s*"schema"\s*:\s*'
_PAYLOAD_BEGIN: Final = re.compile(r'\s*,\s*"payload"\s*:')
_JSON: Final = json.JSONDecoder()


def without_schemas(column: pa.ChunkedArray) -> tuple[pa.ChunkedArray, list[object]]:
    """Returns the messages without their schemas, and each of the schemas once.

    `column` has texts or bytes. A message that begins otherwise stays as it is.
    """
    data = column.cast(pa.large_binary())
    begins = pc.match_substring_regex(data, "^" + _SCHEMA_BEGIN.decode())
    if not pc.any(begins).as_py():
        return column, []
    schemas: dict[bytes, object] = {}
    messages = [
        message if not has_schema else _without_schema(message, schemas)
        for message, has_schema in zip(data.to_pylist(), begins.to_pylist(), strict=True)
    ]
    return pa.chunked_array([pa.array(messages, pa.large_binary())]), list(schemas.values())


def _without_schema(message: bytes, schemas: dict[bytes, object]) -> bytes:
    """Returns a message without its schema, which is added to `schemas` by the text that it begins with."""
    for head in schemas:
        if message.startswith(head):
            return b'{"payload":' + message[len(head) :]
    try:
        text = message.decode()
        start = re.match(_SCHEMA_BEGIN.decode(), text)
        schema, end = _JSON.raw_decode(text, 0 if start is None else start.end())
    except (ValueError, RecursionError):
        # The parser of the message reports that it is not JSON.
        return message
    middle = _PAYLOAD_BEGIN.match(text, end)
    if middle is None:
        return message
    schemas[text[: middle.end()].encode()] = schema
    return b'{"payload":' + text[middle.end() :].encode()


def type_at(schemas: Sequence[object], path: Sequence[str]) -> DebeziumType | None:
    """Returns the type of the field with this path in the first of the schemas that has it."""
    for schema in schemas:
        inner: object = schema
        for name in path:
            inner = next((each for each in fields_of(inner) if each.get("field") == name), None)
        if inner is not None:
            return type_of(inner)
    return None
