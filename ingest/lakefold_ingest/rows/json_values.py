"""Texts of JSON columns, read by the parser with which pylance stores them.

That parser takes more than JSON (an empty text is null, `TRUE` is true) and less (no object with a name
twice), so no other parser says which texts can be stored. pylance has no function for it alone, so the column
is written as a file in memory: a tenth of a millisecond, and about a microsecond for each text. So rows are
checked only after pylance has refused to write them, if those that don't fit are left out, and in merges.
Malformed and truncated texts, and objects with a name twice, are recognised without a file
(`surely_refused`).

The parser calls itself for each level of nesting, and some thousand levels end the process (SIGSEGV). So the
depth of each text is checked before.
"""

from __future__ import annotations

import json
import re
import string
from collections import Counter
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from lakefold_ingest.rows.json_depth import MOST_DEPTH, TOO_DEEP, depth_of
from lakefold_reader.pylance.process import check_process
from lakefold_table.columns.extension_names import ARROW_JSON, EXTENSION_NAME
from lakefold_table.errors import InvalidError
from lakefold_table.packages import explained_imports

if TYPE_CHECKING:
    from collections.abc import Iterator

_REFUSED: Final = re.compile(r"Failed to encode JSON: (.*?)(?:, pos (\d+))?(?:, /|$)", re.MULTILINE)
_NOT_STORED: Final = "a text can't be stored as JSON"
_HINT: Final = "correct or leave out such rows: the column has JSON"
_WRITTEN: Final = frozenset(string.ascii_letters + string.digits + string.punctuation) - {"\\"}
"""pylance takes a backslash with a letter as white space."""
_NO_VALUE: Final = _WRITTEN - set("{[\"'+-.,]}" + string.digits + "tTfFnNiI")
"""Characters with which no value begins, and which don't end an array: an item may be missing there."""
_LETTERS: Final = frozenset(string.ascii_letters)
_WORD: Final = re.compile(r"null|true|false|nan|inf", re.IGNORECASE)
_REFUSED_AT: Final = {
    "Expecting ':' delimiter": _WRITTEN,
    # A number may go on in another dialect: pylance takes 01.
    "Expecting ',' delimiter": _WRITTEN - set(".xXeE_+-'" + string.digits),
    # pylance takes names without quotes.
    "Expecting property name enclosed in double quotes": _WRITTEN - _LETTERS - set("'\"_$"),
}
"""Characters at which pylance has the same error as Python's parser."""


class _NameTwiceError(ValueError):
    """An object has a name twice."""


def _unique_names(pairs: list[tuple[str, object]]) -> None:
    """Raises `_NameTwiceError` if the object with these names and values has a name twice."""
    if len({name for name, _ in pairs}) < len(pairs):
        twice = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        raise _NameTwiceError(f'duplicate object attribute "{twice}"')


_DECODE: Final = json.JSONDecoder(parse_int=str, object_pairs_hook=_unique_names).decode


def json_error(error: Exception, where: str) -> InvalidError | None:
    """Returns what an error of pylance's says of a text of a JSON column; None if it says nothing of one.

    `where`: the column, or the table if the column is not known.
    """
    refused = _REFUSED.search(str(error))
    if refused is None:
        return None
    reason, at = refused.groups()
    position = f" (character {at})" if at else ""
    return InvalidError(f"{_NOT_STORED}: {reason}{position}", where=where, hint=_HINT)


def check_json(rows: pa.RecordBatch | pa.Table) -> None:
    """Raises `InvalidError`, which names the column, if a text of a JSON column can't be stored.

    `rows` are in the types of the table, and their fields have its metadata. JSON may be inside of structs
    and lists.
    """
    for column, field in zip(rows.columns, rows.schema, strict=True):
        if rows.num_rows and _has_json(field):
            _check(column, field)


def check_depth(column: pa.Array, field: pa.Field) -> None:
    """Raises `InvalidError`, which names the column, if a text of JSON in it is nested too deeply."""
    if not _has_json(field):
        return
    for each in _texts(column, field):
        texts = each.filter(pc.greater(pc.binary_length(each), MOST_DEPTH))
        brackets = pc.add(pc.count_substring(texts, "["), pc.count_substring(texts, "{"))
        if any(
            depth_of(text.encode()) > MOST_DEPTH
            for text in texts.filter(pc.greater(brackets, MOST_DEPTH)).to_pylist()
        ):
            raise InvalidError(f"{_NOT_STORED}: {TOO_DEEP}", where=field.name, hint=_HINT)


def _texts(column: pa.Array, field: pa.Field) -> Iterator[pa.Array]:
    """Yields the texts of JSON in a column, and in the structs and lists of it."""
    kind = field.type
    if pa.types.is_struct(kind):
        for child, values in zip(kind, column.flatten(), strict=True):
            yield from _texts(values, child)
    elif pa.types.is_map(kind):
        yield from _texts(column.cast(pa.list_(kind.field(0))).flatten(), kind.field(0))
    elif pa.types.is_nested(kind) and not pa.types.is_dictionary(kind):
        yield from _texts(column.flatten(), kind.value_field)
    elif _has_json(field):
        yield column


def is_json(field: pa.Field) -> bool:
    """Returns whether a column itself has JSON, not only fields or items of it."""
    return bool((field.metadata or {}).get(EXTENSION_NAME.encode()) == ARROW_JSON.encode())


def surely_refused(column: pa.Array) -> dict[int, str]:
    """Returns which texts of a column of JSON can't be stored, each with the reason; the others may be such.

    No file is written, so this takes microseconds for each text. Where a text is wrong for Python's parser,
    pylance's has read the same up to there. At many such points it takes no more than Python's does.
    """
    refused = {}
    for index, each in enumerate(column):
        try:
            text = each.as_py()
            if isinstance(text, str):
                _DECODE(text)
        except json.JSONDecodeError as error:
            if _is_sure(error):
                refused[index] = f"{_NOT_STORED}: {error.msg} (character {error.pos + 1})"
        except _NameTwiceError as error:
            # Names with escapes are equal in Python, and may differ in another dialect.
            if "\\" not in each.as_py():
                refused[index] = f"{_NOT_STORED}: {error}"
        except (ValueError, RecursionError):
            # It is not UTF-8, or nested too deeply, which others find.
            continue
    return refused


def _is_sure(error: json.JSONDecodeError) -> bool:
    """Returns whether pylance refuses the text as well."""
    begins, rest = error.doc.lstrip()[:1], error.doc[error.pos :]
    if error.msg == "Extra data":
        # A number may go on in another dialect.
        return begins in {"{", "[", '"'} and rest[0] in _WRITTEN
    if error.msg.startswith("Unterminated string"):
        return True
    if not rest.strip():
        # Something is open. An empty text is null for pylance.
        return bool(begins)
    if error.msg == "Expecting value":
        return rest[0] in _NO_VALUE or (rest[0] in _LETTERS and _WORD.match(rest) is None)
    if error.msg.startswith(r"Invalid \escape"):
        return rest[1:2] != "u"
    # Python 3.13 names the comma before the end of an object.
    return error.msg.endswith("before end of object") or rest[0] in _REFUSED_AT.get(error.msg, ())


def _has_json(field: pa.Field) -> bool:
    if is_json(field):
        return True
    kind = field.type
    # A dictionary has no fields.
    return not pa.types.is_dictionary(kind) and any(
        _has_json(kind.field(index)) for index in range(kind.num_fields)
    )


def _check(column: pa.Array | pa.ChunkedArray, field: pa.Field) -> None:
    with explained_imports():
        from lance import LanceFragment

    check_process()
    if pa.types.is_nested(field.type):
        # pylance parses all texts that a list refers to, also those beyond a slice of it.
        column = column.take(pa.array(range(len(column)), pa.int64()))
    schema = pa.schema([field])
    rows = pa.table([column], schema=schema)
    try:
        LanceFragment.create("memory://json", rows.to_reader(), schema=schema, mode="overwrite")
    except (OSError, ValueError, RuntimeError, pa.ArrowException) as error:
        refused = json_error(error, field.name)
        if refused is not None:
            raise refused from error
