"""Arrays of any type that Lance can store, drawn from a seed: with nulls and empty lists among them."""

from __future__ import annotations

from decimal import Decimal
from random import Random

import pyarrow as pa

NULL_IN = 5
"""One value of so many is null, where it may be."""
TEXTS = ["", "a", "déjà vu", "a longer text that doesn't fit into a view", "🦆"]


def rows(schema: pa.Schema, length: int, seed: int = 0) -> pa.Table:
    """A table of this schema."""
    random = Random(seed)
    arrays = [array_of(column.type, length, random, nullable=column.nullable) for column in schema]
    return pa.table(arrays, schema=schema)


def array_of(kind: pa.DataType, length: int, random: Random, *, nullable: bool = True) -> pa.Array:
    """An array of this type."""
    if isinstance(kind, pa.BaseExtensionType):
        if isinstance(kind, pa.JsonType):
            documents = [f'{{"n":{random.randrange(9)}}}' for _ in range(length)]
            return pa.ExtensionArray.from_storage(kind, pa.array(documents, kind.storage_type))
        storage = array_of(kind.storage_type, length, random, nullable=nullable)
        return pa.ExtensionArray.from_storage(kind, storage)
    nulls = [nullable and random.randrange(NULL_IN) == 0 for _ in range(length)]
    if pa.types.is_dictionary(kind):
        values = array_of(kind.value_type, 3, random, nullable=False)
        indices = [None if null else random.randrange(3) for null in nulls]
        return pa.DictionaryArray.from_arrays(
            pa.array(indices, kind.index_type), values, ordered=kind.ordered, safe=False
        )
    if pa.types.is_nested(kind):
        return _nested(kind, nulls, random)
    return pa.array([None if null else _value(kind, random) for null in nulls], kind)


def _nested(kind: pa.DataType, nulls: list[bool], random: Random) -> pa.Array:
    mask = pa.array(nulls, pa.bool_())
    length = len(nulls)
    if pa.types.is_struct(kind):
        fields = [kind.field(number) for number in range(kind.num_fields)]
        below = [array_of(field.type, length, random, nullable=field.nullable) for field in fields]
        return pa.StructArray.from_arrays(below, fields=fields, mask=mask) if fields else _empty(nulls)
    if pa.types.is_fixed_size_list(kind):
        field = kind.field(0)
        values = array_of(field.type, length * kind.list_size, random, nullable=field.nullable)
        return pa.FixedSizeListArray.from_arrays(values, type=kind, mask=mask)
    counts = [0 if null else random.randrange(4) for null in nulls]
    offsets = [sum(counts[:end]) for end in range(length + 1)]
    starts = pa.array(
        [None if null else at for null, at in zip([*nulls, False], offsets, strict=True)], pa.int32()
    )
    if pa.types.is_map(kind):
        keys = array_of(kind.key_type, offsets[-1], random, nullable=False)
        items = array_of(kind.item_type, offsets[-1], random, nullable=kind.item_field.nullable)
        return pa.MapArray.from_arrays(starts, keys, items, type=kind)
    field = kind.field(0)
    values = array_of(field.type, offsets[-1], random, nullable=field.nullable)
    if pa.types.is_large_list(kind):
        return pa.LargeListArray.from_arrays(starts.cast(pa.int64()), values, type=kind)
    return pa.ListArray.from_arrays(starts, values, type=kind)


def _empty(nulls: list[bool]) -> pa.Array:
    return pa.array([None if null else {} for null in nulls], pa.struct([]))


def _value(kind: pa.DataType, random: Random) -> object:
    """A value of a type without children."""
    if pa.types.is_null(kind):
        return None
    if pa.types.is_boolean(kind):
        return random.random() < 0.5
    if pa.types.is_decimal(kind):
        return Decimal(random.randrange(-99, 99)).scaleb(-kind.scale)
    if pa.types.is_floating(kind):
        return random.choice([0.0, -1.5, float("inf"), 2.25])
    if pa.types.is_fixed_size_binary(kind):
        return random.randbytes(kind.byte_width)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return random.randbytes(random.randrange(20))
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return random.choice(TEXTS)
    if pa.types.is_date64(kind):
        return pa.scalar(random.randrange(30_000) * 86_400_000, pa.int64()).cast(kind)
    bits = min(kind.bit_width, 32) - 1
    number = random.randrange(min(2**bits, 80_000))
    return pa.scalar(number, pa.int32() if kind.bit_width <= 32 else pa.int64()).cast(kind)
