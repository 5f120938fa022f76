"""A catalogue of columns: what Lance can store, and what it refuses."""

from itertools import product

import pyarrow as pa
from lance import blob_field

METADATA = {"unit": "m"}
BLOB = {"lance-encoding:blob": "true", "k": "v"}
EXTENSION = "ARROW:extension:name"
PRIMARY = "lance-schema:unenforced-primary-key"
CLUSTERING = "lance-schema:unenforced-clustering-key"
UNITS = ("s", "ms", "us", "ns")
INT8, INT32, FLOAT = pa.int8(), pa.int32(), pa.float32()
POINT = pa.struct([("x", INT32), pa.field("y", pa.utf8(), nullable=False)])
EMPTY = pa.struct([])


def column(kind: pa.DataType, metadata: dict[str, str] | None = None, *, nullable: bool = True) -> pa.Field:
    return pa.field("c", kind, nullable=nullable, metadata=metadata)


def item(kind: pa.DataType, name: str = "item", *, nullable: bool = True) -> pa.Field:
    return pa.field(name, kind, nullable=nullable, metadata=METADATA)


NUMBERS = [
    *[pa.int8(), pa.int16(), pa.int32(), pa.int64()],
    *[pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()],
    *[pa.float16(), pa.float32(), pa.float64()],
    *[pa.decimal128(10, 2), pa.decimal128(38, -3), pa.decimal256(76, 0)],
]
TEXTS = [
    *[pa.utf8(), pa.large_utf8(), pa.string_view()],
    *[pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(7), pa.binary(0)],
]
TIMES = [
    *[pa.date32(), pa.date64(), pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")],
    *[pa.duration(unit) for unit in UNITS],
    *[pa.timestamp(unit, zone) for unit, zone in product(UNITS, (None, "UTC", "America/New_York", "+05:30"))],
]
SIMPLE = [pa.null(), pa.bool_(), *NUMBERS, *TEXTS, *TIMES]
STRUCTS = [
    POINT,
    EMPTY,
    pa.struct([("p", POINT), ("e", EMPTY), ("l", pa.list_(POINT))]),
    pa.struct([("a.b", INT8), ("", INT8)]),
]
LISTS = [
    pa.list_(INT32),
    pa.list_(item(INT32, "element", nullable=False)),
    pa.large_list(pa.utf8()),
    pa.list_(pa.list_(INT8)),
    pa.list_(pa.large_list(POINT)),
    pa.list_(POINT),
    pa.large_list(item(POINT, nullable=False)),
]
FIXED_SIZE_LISTS = [
    pa.list_(FLOAT, 4),
    pa.list_(item(FLOAT, "f", nullable=False), 4),
    pa.list_(pa.list_(item(pa.float16(), "f"), 3), 2),
    pa.list_(pa.timestamp("us", "UTC"), 2),
    pa.list_(pa.timestamp("ms", "+05:30"), 2),
    pa.list_(pa.decimal128(5, 2), 3),
    pa.list_(pa.binary(3), 2),
    pa.list_(pa.utf8(), 2),
    pa.list_(pa.null(), 3),
    pa.list_(pa.bool_(), 8),
    pa.list_(pa.dictionary(INT8, pa.utf8()), 2),
    pa.list_(pa.uuid(), 2),
    pa.list_(pa.json_(), 2),
]
FIXED_SIZE_LISTS_OF_STRUCTS = [
    pa.list_(POINT, 3),
    pa.list_(item(POINT, "p", nullable=False), 3),
    pa.list_(EMPTY, 2),
    pa.list_(pa.struct([("inner", pa.list_(POINT, 4))]), 2),
    pa.list_(pa.list_(pa.list_(POINT, 2))),
]
MAPS = [
    pa.map_(pa.utf8(), INT32),
    pa.map_(INT32, POINT),
    pa.map_(POINT, pa.list_(INT8)),
    pa.list_(pa.map_(pa.utf8(), INT8)),
    pa.map_(pa.utf8(), item(INT32, "value", nullable=False)),
    pa.map_(item(pa.utf8(), "k", nullable=False), item(INT32, "v")),
]
DICTIONARIES = [
    pa.dictionary(INT8, pa.utf8()),
    pa.dictionary(pa.uint64(), pa.large_utf8(), ordered=True),
    pa.dictionary(INT32, pa.binary_view()),
    pa.dictionary(pa.int16(), pa.bool_()),
    pa.dictionary(pa.int64(), pa.float16()),
    pa.dictionary(pa.int64(), pa.null()),
    pa.dictionary(INT8, pa.json_()),
]
EXTENSIONS = [
    *[pa.json_(), pa.json_(pa.large_utf8()), pa.list_(pa.json_()), pa.map_(pa.utf8(), pa.json_())],
    *[pa.uuid(), pa.bool8(), pa.opaque(INT8, "t", "v"), pa.list_(pa.uuid())],
    pa.fixed_shape_tensor(FLOAT, [2, 2], dim_names=["a", "b"]),
    pa.struct([("j", pa.json_()), ("u", pa.uuid())]),
]
WITH_METADATA = [
    column(INT8, METADATA, nullable=False),
    column(INT8, {"": ""}),
    column(INT8, {EXTENSION: "no.such"}),
    column(pa.large_binary(), {EXTENSION: "lance.json"}),
    column(pa.binary(), {EXTENSION: "lance.json"}),
    column(pa.utf8(), {EXTENSION: "arrow.json"}),
    column(POINT, {"lance-encoding:packed": "true"}),
    column(pa.uuid(), METADATA),
    column(pa.list_(item(POINT)), METADATA),
]
TRUTHS = ["true", "TRUE", "1", "Yes", "on", "y", "t", "", " true", "2", "false"]
POSITIONS = ["0", "+3", "03", "4294967295", "4294967296", "-1", "1_0", "x", ""]
KEYS = [
    *[{PRIMARY: text} for text in TRUTHS],
    *[{f"{PRIMARY}:position": text} for text in POSITIONS],
    *[{f"{CLUSTERING}:position": text} for text in POSITIONS],
    {PRIMARY: "false", f"{PRIMARY}:position": "2"},
    {PRIMARY: "true", f"{PRIMARY}:position": "x"},
    {CLUSTERING: "true"},
]
BLOBS = [
    column(pa.large_binary(), BLOB),
    column(pa.binary(), BLOB, nullable=False),
    column(pa.large_binary(), {**BLOB, EXTENSION: "no.such"}),
    blob_field("c"),
    column(pa.list_(pa.field("b", pa.large_binary(), metadata=BLOB))),
    column(pa.list_(blob_field("b"))),
    column(pa.struct([pa.field("b", pa.large_binary(), metadata=BLOB)])),
    column(pa.struct([blob_field("b")])),
]
KINDS = [
    *[*SIMPLE, *STRUCTS, *LISTS, *FIXED_SIZE_LISTS, *FIXED_SIZE_LISTS_OF_STRUCTS],
    *[*MAPS, *DICTIONARIES, *EXTENSIONS],
]
STORED = [
    *[column(kind) for kind in KINDS],
    *[column(pa.int64(), metadata, nullable=False) for metadata in KEYS],
    *WITH_METADATA,
    *BLOBS,
    column(pa.struct([pa.field("k", INT8, nullable=False, metadata={PRIMARY: "true"})]), nullable=False),
]

UNION = pa.dense_union([pa.field("a", INT8)])
REFUSED_KINDS = [
    *[pa.decimal32(5, 2), pa.decimal64(5, 2), pa.month_day_nano_interval(), UNION],
    *[pa.list_view(INT8), pa.large_list_view(INT8), pa.run_end_encoded(INT32, pa.utf8())],
    *[pa.list_(kind, 2) for kind in (pa.list_(INT8), pa.map_(INT8, INT8), pa.list_(POINT, 2), UNION)],
    *[pa.list_(INT8, 0), pa.map_(INT8, INT8, keys_sorted=True)],
    *[pa.dictionary(INT8, kind) for kind in (pa.date32(), pa.binary(3), POINT, pa.list_(INT8), pa.uuid())],
]
RESERVED = ["_rowid", "_rowaddr", "_rowoffset", "_row_created_at_version", "_row_last_updated_at_version"]
# Each refused column, and the path that the refusal names.
REFUSED = [
    *[(column(kind), "c") for kind in REFUSED_KINDS],
    (column(pa.struct([("x", pa.list_(pa.list_view(INT8)))])), "c.x.item"),
    (column(pa.map_(INT8, UNION)), "c.entries.value"),
    (pa.field("c", INT8, metadata={b"k": b"\xff"}), "c"),
    (column(pa.struct([("data", pa.binary())]), {EXTENSION: "lance.blob.v2"}), "c"),
    (column(pa.int64(), {PRIMARY: "true"}), "c"),
    (column(pa.list_(INT8), {PRIMARY: "true"}, nullable=False), "c"),
    (column(pa.list_(pa.field("i", INT8, nullable=False, metadata={PRIMARY: "1"})), nullable=False), "c.i"),
    (pa.field("c.d", INT8), "c.d"),
    *[(pa.field(name, INT8), name) for name in RESERVED],
]
