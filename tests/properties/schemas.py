"""Arrow schemas that Lance can store, drawn at random, and what Lance keeps of them."""

import pyarrow as pa
from hypothesis import strategies as st

Kinds = st.SearchStrategy[pa.DataType]

UNITS = ["s", "ms", "us", "ns"]
NAMES = st.text("abc_é.", min_size=1, max_size=4)
WORDS = st.sampled_from(["k", "unit", ""])
METADATA = st.none() | st.dictionaries(WORDS, WORDS, min_size=1)
VIEWS = {pa.string_view(): pa.utf8(), pa.binary_view(): pa.binary()}
# The values that a dictionary can have.
PLAIN = st.sampled_from(
    [
        *[pa.null(), pa.bool_(), pa.int8(), pa.uint64(), pa.float16(), pa.float64()],
        *[pa.utf8(), pa.large_binary(), pa.string_view(), pa.binary_view()],
    ]
)
LEAVES = st.one_of(
    PLAIN,
    st.sampled_from([pa.date32(), pa.date64(), pa.time32("ms"), pa.time64("ns")]),
    st.sampled_from([pa.json_(), pa.uuid(), pa.bool8(), pa.fixed_shape_tensor(pa.float32(), [2, 3])]),
    st.builds(pa.timestamp, st.sampled_from(UNITS), st.sampled_from([None, "UTC", "Europe/Rome", "-03:30"])),
    st.builds(pa.duration, st.sampled_from(UNITS)),
    st.builds(pa.decimal128, st.integers(1, 38), st.integers(-5, 5)),
    st.builds(pa.binary, st.integers(0, 20)),
    st.builds(pa.dictionary, st.sampled_from([pa.int8(), pa.uint32()]), PLAIN, st.booleans()),
)


def _field(name: str, kind: pa.DataType, nullable: object, metadata: dict[str, str] | None) -> pa.Field:
    return pa.field(name, kind, nullable=bool(nullable) or pa.types.is_null(kind), metadata=metadata)


def fields(kinds: Kinds) -> st.SearchStrategy[pa.Field]:
    """A field of any of these types."""
    return st.builds(_field, NAMES, kinds, st.booleans(), METADATA)


def _nested(kinds: Kinds) -> Kinds:
    structs = st.lists(fields(kinds), max_size=3).map(pa.struct)
    sizes = st.integers(1, 4)
    keys = st.builds(
        pa.field, NAMES, st.sampled_from([pa.utf8(), pa.int32()]), st.just(value=False), METADATA
    )
    return st.one_of(
        structs,
        fields(kinds).map(pa.list_),
        fields(kinds).map(pa.large_list),
        st.builds(pa.list_, fields(structs | PLAIN), sizes),
        st.builds(pa.map_, keys, fields(kinds)),
    )


COLUMNS = st.builds(
    lambda column, name: column.with_name(name),
    fields(st.recursive(LEAVES, _nested, max_leaves=6)),
    NAMES.filter(lambda name: "." not in name),
)
SCHEMAS = st.builds(pa.schema, st.lists(COLUMNS, max_size=4, unique_by=lambda column: column.name), METADATA)


def kept(field: pa.Field) -> pa.Field:
    """The field as Lance gives it back."""
    return field.with_type(_kept_type(field.type))


def _kept_type(kind: pa.DataType) -> pa.DataType:
    """The type without views, the order of a dictionary, and the name and nullability of fixed-size items."""
    if kind in VIEWS:
        return VIEWS[kind]
    if pa.types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, _kept_type(kind.value_type))
    if pa.types.is_fixed_size_list(kind):
        of_structs = pa.types.is_struct(kind.value_type)
        return pa.list_(kept(kind.value_field) if of_structs else _kept_type(kind.value_type), kind.list_size)
    return _kept_below(kind)


def _kept_below(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([kept(child) for child in kind])
    if pa.types.is_map(kind):
        return pa.map_(kept(kind.key_field).with_name("key"), kept(kind.item_field).with_name("value"))
    if pa.types.is_list(kind):
        return pa.list_(kept(kind.value_field))
    return pa.large_list(kept(kind.value_field)) if pa.types.is_large_list(kind) else kind
