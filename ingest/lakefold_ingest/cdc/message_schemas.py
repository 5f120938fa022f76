"""Schemas that Kafka Connect puts before each JSON message: `{"schema": …, "payload": …}`.

They are the same for nearly all messages and often longer than the payload, so each is parsed once. The
messages are parsed without them.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from lakefold_ingest.cdc.debezium_types import common_types, types_in_schema

if TYPE_CHECKING:
    from lakefold_ingest.cdc.debezium_types import DebeziumType

_BEGIN: Final = rb'\s*\{\s*"schema"\s*:\s*'
_MIDDLE: Final = re.compile(r'\s*,\s*"payload"\s*:')
_DECODER: Final = json.JSONDecoder()


def without_schemas(column: pa.ChunkedArray) -> tuple[pa.ChunkedArray, dict[str, DebeziumType]]:
    """Returns the messages without their schemas, and the types of Debezium that these name by column.

    `column` has texts or bytes. A message that begins otherwise stays as it is. Raises `InvalidError` if two
    schemas disagree about a type.
    """
    data = column.cast(pa.large_binary())
    begins = pc.match_substring_regex(data, "^" + _BEGIN.decode())
    if not pc.any(begins).as_py():
        return column, {}
    known: dict[bytes, dict[str, DebeziumType]] = {}
    messages = [
        message if not has_schema else _without(message, known)
        for message, has_schema in zip(data.to_pylist(), begins.to_pylist(), strict=True)
    ]
    return pa.chunked_array([pa.array(messages, pa.large_binary())]), common_types(known.values())


def _without(message: bytes, known: dict[bytes, dict[str, DebeziumType]]) -> bytes:
    for head in known:
        if message.startswith(head):
            return b'{"payload":' + message[len(head) :]
    try:
        text = message.decode()
        start = re.match(_BEGIN.decode(), text)
        schema, end = _DECODER.raw_decode(text, 0 if start is None else start.end())
    except ValueError:
        # Who parses the message reports that it is no JSON.
        return message
    middle = _MIDDLE.match(text, end)
    if middle is None:
        return message
    known[text[: middle.end()].encode()] = types_in_schema(schema)
    return b'{"payload":' + text[middle.end() :].encode()
