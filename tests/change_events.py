"""Change events of rows `id`, `name`, in each envelope, and what they mean, as a plain dictionary."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from lakefold_ingest.cdc.change_format import ChangeFormat, change_format

if TYPE_CHECKING:
    from collections.abc import Sequence

MOVED: Final = 0.4
"""The share of rows with changing keys."""
Model = dict[int, tuple[int, str]]
"""The order and the name of each row."""

FORMATS: Final = {
    "plain": change_format("id", "at", operation_column="what", operations={"put": "upsert", "gone": "d"}),
    "debezium": change_format("id", "at", "debezium"),
    "debezium struct": change_format("id", "at", "debezium"),
    "debezium json": change_format("id", "source.at", "debezium"),
    "delta": change_format("id", "at", "delta"),
}
"""A format for each way in which `rendered` writes events."""
IMAGE: Final = pa.struct({"id": pa.int64(), "name": pa.string()})
TABLE: Final = pa.schema({"id": pa.int64(), "name": pa.string(), "at": pa.int64()})


@dataclass(frozen=True)
class Event:
    """What happened to a row at a time. Without a name it is deleted. `old`: it had this key before."""

    id: int
    at: int
    name: str | None = None
    has_tombstone: bool = False
    old: int | None = None

    @property
    def halves(self) -> list[Event]:
        """The event, or the deletion of the row with the old key and the event of the new one."""
        moves = self.name is not None and self.old not in {None, self.id}
        return [Event(self.old or 0, self.at), replace(self, old=None)] if moves else [self]


def applied(model: Model, batch: Sequence[Event], *, deletes_win: bool = True) -> None:
    """Changes the model as a batch changes a table that keeps `at`.

    `deletes_win`: a deletion has an effect on a row of the same time.
    """
    last: dict[int, Event] = {}
    for event in (half for whole in batch for half in whole.halves):
        known = last.get(event.id)
        if known is None or event.at >= known.at:
            last[event.id] = event
    for event in last.values():
        stored = model.get(event.id)
        if event.name is not None and (stored is None or event.at > stored[0]):
            model[event.id] = (event.at, event.name)
        elif event.name is None and stored and (event.at, deletes_win) > (stored[0], False):
            del model[event.id]


def rendered(form: str, batch: Sequence[Event]) -> tuple[pa.Table, ChangeFormat]:
    """The events as rows of one of `FORMATS`, and that format."""
    if form in {"plain", "delta"}:
        batch = [half for event in batch for half in event.halves]
    images = [{"id": event.id, "name": event.name} for event in batch]
    deletes = [event.name is None for event in batch]
    at = pa.array([event.at for event in batch], pa.int64())
    rows = pa.Table.from_pylist(images, schema=pa.schema(IMAGE))
    if form == "plain":
        what = ["gone" if delete else "PUT" for delete in deletes]
        return rows.append_column("what", pa.array(what)).append_column("at", at), FORMATS[form]
    if form == "delta":
        kinds = pa.array(["delete" if delete else "update_postimage" for delete in deletes], pa.string())
        rows = rows.append_column("_change_type", kinds).append_column("_commit_version", at)
        return rows.append_column("at", at), FORMATS[form]
    envelopes = [
        {
            "op": "d" if delete else "c" if event.old is None else "u",
            "before": image if delete else None if event.old is None else {"id": event.old, "name": "old"},
            "after": None if delete else image,
            "source": {"at": event.at, "db": "shop"},
        }
        for event, image, delete in zip(batch, images, deletes, strict=True)
    ]
    if form == "debezium json":
        messages: list[tuple[str, str | None]] = []
        for event, envelope in zip(batch, envelopes, strict=True):
            key = json.dumps({"id": event.id})
            messages.append((key, json.dumps(envelope)))
            if event.has_tombstone and event.name is None:
                messages.append((key, None))
        key_texts, values = ([message[index] for message in messages] for index in range(2))
        columns = {"key": pa.array(key_texts, pa.binary()), "value": pa.array(values, pa.binary())}
        return pa.table(columns), FORMATS[form]
    source = pa.struct({"at": pa.int64(), "db": pa.string()})
    kind = pa.struct({"op": pa.string(), "before": IMAGE, "after": IMAGE, "source": source})
    structs = pa.array(envelopes, kind)
    if form == "debezium struct":
        return pa.table({"value": structs, "at": at}), FORMATS[form]
    columns = {field.name: structs.field(field.name) for field in kind}
    return pa.table({**columns, "at": at}), FORMATS[form]


def debezium_history(
    seed: int, events: int = 300, keys: int = 25
) -> tuple[list[tuple[str, str | None]], Model]:
    """Keys and values of Debezium's messages, in the order of their changes, and the rows that they leave.

    Deletions have tombstones. Events of rows that are never deleted are repeated later, and come late. Some
    rows have another key for a while, and their messages have that of the first: it is the source's key.
    """
    chosen, rows = random.Random(seed), Model()
    other = keys + 100
    messages: list[tuple[int, dict[str, Any] | None]] = []
    for at in range(events):
        number = chosen.randrange(keys)
        image: dict[str, Any] = {"id": number, "name": f"name {at}"}
        event = {"before": None, "after": image, "op": "u", "source": {"at": at, "snapshot": "false"}}
        is_moved = number + other in rows
        if number % 3 == 0 and (is_moved or (number in rows and chosen.random() < MOVED)):
            last, new = (number + other, number) if is_moved else (number, number + other)
            image = {"id": new, "name": f"name {at}"}
            messages.append((number, event | {"before": {"id": last, "name": "old"}, "after": image}))
            del rows[last]
            rows[new] = (at, image["name"])
        elif number % 3 == 0 and number in rows:
            messages += [(number, event | {"op": "d", "before": image, "after": None}), (number, None)]
            del rows[number]
        else:
            messages.append((number, event))
            rows[number] = (at, image["name"])
        old = chosen.choice(messages)
        if old[0] % 3:
            messages.append(old)
    texts = [
        (json.dumps({"id": number}), None if value is None else json.dumps(value))
        for number, value in messages
    ]
    return texts, rows
