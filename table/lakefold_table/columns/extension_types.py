"""Extension types: field metadata, as between Arrow's implementations, in Lance's schemas too.

pyarrow hides this metadata behind its own type objects, and some of these don't give access to it. Arrow's C
data interface shows all metadata of every field, and pyarrow turns metadata back into registered extension
types when it imports a schema from there.
"""

from __future__ import annotations

import ctypes
import struct
from dataclasses import dataclass

import pyarrow as pa

from lakefold_table.errors import DamagedError

# Members of the C interface's struct ArrowSchema: format, name, metadata, …
METADATA_MEMBER = 2

_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype = ctypes.c_void_p
_pointer_of.argtypes = [ctypes.py_object, ctypes.c_char_p]


@dataclass(frozen=True, slots=True)
class _Exported:
    """Exposes a schema through the C interface only, so that pyarrow imports it again."""

    schema: pa.Schema

    def __arrow_c_schema__(self) -> object:
        return self.schema.__arrow_c_schema__()


def complete_metadata(field: pa.Field) -> dict[bytes, bytes]:
    """Returns a field's metadata, including the keys that name its extension type."""
    capsule = field.__arrow_c_schema__()
    members = ctypes.cast(_pointer_of(capsule, b"arrow_schema"), ctypes.POINTER(ctypes.c_void_p))
    address = members[METADATA_MEMBER]
    return _decoded(address) if address else {}


def _decoded(address: int) -> dict[bytes, bytes]:
    """Decodes metadata of the C interface: a count, then for each pair two times a length and a text."""
    (pairs,) = struct.unpack("=i", ctypes.string_at(address, 4))
    texts, offset = [], address + 4
    for _ in range(2 * pairs):
        (length,) = struct.unpack("=i", ctypes.string_at(offset, 4))
        texts.append(ctypes.string_at(offset + 4, length))
        offset += 4 + length
    return dict(zip(texts[::2], texts[1::2], strict=True))


def storage_of(kind: pa.DataType) -> pa.DataType:
    """Returns the storage type of an extension type, and any other type unchanged."""
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind


def with_extension_types(schema: pa.Schema) -> pa.Schema:
    """Returns the schema with registered extension types instead of the metadata that names them.

    Raises `DamagedError` if the metadata doesn't fit the column's type.
    """
    try:
        return pa.schema(_Exported(schema))
    except (pa.ArrowException, TypeError) as error:
        raise DamagedError(f"the metadata of an extension type is wrong: {error}") from error
