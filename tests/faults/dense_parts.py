"""Proposals in which one list is very long, one for each list of each operation: what folding them takes.

`python -m tests.faults.dense_parts OPERATION` prints as JSON, for each list, what becomes of the proposal.
Few of them are sound. Each is as dense as its list can be: what a claim takes is bounded for those, too.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from google.protobuf.descriptor import FieldDescriptor

from lakefold_log.codec.envelope import encode
from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_protos.lance.transaction_pb2 import Transaction
from tests.faults.many_parts import measured
from tests.folding import URI, append, created

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from google.protobuf.descriptor import Descriptor
    from google.protobuf.message import Message

MESSAGES, NUMBERS = 10_000, 50_000
"""How many of either are in a list."""
DEEPEST = 5
OPERATIONS = [field.name for field in Transaction.DESCRIPTOR.oneofs_by_name["operation"].fields]


def lists(descriptor: Descriptor, seen: Sequence[Descriptor] = ()) -> Iterator[list[FieldDescriptor]]:
    """The ways from a message to each list in it, not twice through one kind of message."""
    for field in descriptor.fields:
        if field.is_repeated:
            yield [field]
        inner = field.message_type
        if inner is not None and inner not in seen and len(seen) < DEEPEST:
            if field.is_repeated and inner.GetOptions().map_entry:
                continue
            yield from ([field, *rest] for rest in lists(inner, [*seen, descriptor]))


def fill(message: Message, path: Sequence[FieldDescriptor], count: int) -> None:
    """Makes the list at the end of the path very long."""
    field, *rest = path
    target: Any = getattr(message, field.name)
    if rest:
        fill(target.add() if field.is_repeated else target, rest, count)
    elif field.message_type is None:
        target.extend(_value(field, number) for number in range(count))
    elif field.message_type.GetOptions().map_entry:
        key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        for number in range(count):
            if value.message_type is None:
                target[_value(key, number)] = _value(value, number)
            else:
                target[_value(key, number)].SetInParent()
    else:
        for number in range(count):
            _set(target.add(), number)


def _set(message: Message, number: int) -> None:
    """Something in each field that is a single number or text, and in each list of them."""
    for field in message.DESCRIPTOR.fields:
        if field.message_type is None and field.containing_oneof is None:
            if field.is_repeated:
                getattr(message, field.name).append(_value(field, number))
            else:
                setattr(message, field.name, _value(field, number))


def _value(field: Any, number: int) -> object:  # noqa: ANN401 - protobuf has two types for it
    if field.type in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES):
        text = f"{number:x}"
        return text if field.type == FieldDescriptor.TYPE_STRING else text.encode()
    if field.enum_type is not None:
        return field.enum_type.values[0].number
    if field.type == FieldDescriptor.TYPE_BOOL:
        return False
    return number if field.cpp_type != FieldDescriptor.CPPTYPE_FLOAT else float(number)


def main(operation: str) -> None:
    """Prints them."""
    values: dict[str, object] = {}
    for path in lists(type(getattr(Transaction(), operation)).DESCRIPTOR):
        table = created()
        table.fold(append("f"))
        envelope = Envelope(table=URI)
        envelope.lance.uuid, envelope.lance.read_version = operation, 2
        getattr(envelope.lance, operation).SetInParent()
        count = NUMBERS if path[-1].message_type is None else MESSAGES
        fill(getattr(envelope.lance, operation), path, count)
        data = encode(envelope)
        del envelope
        values[".".join(field.name for field in path)] = measured(table, data)
    sys.stdout.write(json.dumps(values) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
