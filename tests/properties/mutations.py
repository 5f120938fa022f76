"""A change in a message, of any kind: a number, some bytes, an element too many or too few."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from google.protobuf.descriptor import FieldDescriptor
from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Iterator

    from google.protobuf.message import Message

MessageField = tuple[Any, FieldDescriptor, Any]
"""A message, one of its fields, and the place or key in that where it has several values (else None)."""
WIDTHS = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
}


def fields_of(message: Message, path: str = "") -> Iterator[tuple[str, MessageField]]:
    """Yields all parts of a message, from the top down, each with its path."""
    for field, value in message.ListFields():
        name = f"{path}.{field.name}"
        keys = list(value) if hasattr(value, "items") else range(len(value)) if field.is_repeated else [None]
        for key in keys:
            yield name, (message, field, key)
            inner = value if key is None else value[key]
            if hasattr(inner, "ListFields"):
                yield from fields_of(inner, name)


@st.composite
def mutated(draw: st.DrawFn, message: Message) -> str:
    """Changes one thing in the message; the path of what was changed, empty if there is nothing."""
    actual = list(fields_of(message))
    if not actual:
        return ""
    path, (owner, field, key) = actual[draw(st.integers(0, len(actual) - 1))]
    values = getattr(owner, field.name)
    if field.is_repeated and (key is None or draw(st.booleans())):
        _list_changed(draw, values, key)
    elif field.message_type is not None and not hasattr(values, "items"):
        owner.ClearField(field.name) if key is None else values.pop(key)
    elif key is None:
        setattr(owner, field.name, _other(draw, field, values))
    elif not hasattr(values[key], "ListFields"):
        entry = field.message_type
        kind = field if entry is None else entry.fields_by_name["value"]
        values[key] = _other(draw, kind, values[key])
    return path


def _list_changed(draw: st.DrawFn, values: Any, key: Any) -> None:  # noqa: ANN401 - of any type
    """An element less, or one twice."""
    if hasattr(values, "items") or draw(st.booleans()):
        del values[key]
    else:
        values.append(values[key])


def _other(draw: st.DrawFn, field: FieldDescriptor, value: Any) -> Any:  # noqa: ANN401 - of any type
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        return not value
    if field.cpp_type == FieldDescriptor.CPPTYPE_ENUM:
        return draw(st.sampled_from([0, 1, 2, 77]))
    if field.cpp_type in WIDTHS:
        low, high = WIDTHS[field.cpp_type]
        around = [value + 1, value - 1, value ^ 4, 0, 1, high, low, high // 2 + 1]
        return draw(st.sampled_from([each for each in around if low <= each <= high]))
    if hasattr(value, "isalnum"):  # text or bytes
        cut = draw(st.integers(0, len(value)))
        return draw(st.sampled_from([value[:cut], value[cut:] + value, value[:cut] + value[cut + 1 :]]))
    return value
