"""Makes an envelope from files: a transaction or actions of a tool, and what Lance's message lacks.

The message lacks the affected rows of a Delete or an Update, for example. With them two proposals can change
the same fragment; without them the later proposal is refused.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from google.protobuf.message import DecodeError

from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_table.bitmaps import Bitmap, encode_bitmap, encode_treemap
from lakefold_table.branch_names import MAIN, check_branch_name
from lakefold_table.errors import InvalidError
from lakefold_table.uri import canonical

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from google.protobuf.message import Message

LIMIT = 2**32
"""Fragment ids and row offsets are smaller than this."""
SHAPE = 'write an object of fragment ids with lists of row offsets, as {"0": [3, 17], "4": [0]}'
SHAPE_OF_PATHS = (
    'write an object of the paths that add actions have, with lists of row offsets, as {"a.parquet": [3, 17]}'
)


def envelope_of(table: str, transaction: Path, branch: str = "") -> Envelope:
    """Returns an envelope for the table with the Lance Transaction in a file, as in `_transactions/`.

    `branch` is empty or `main` for the main branch. Raises `InvalidError` if the file has no such message, or
    if it sets a key of the maintenance policy to an invalid value.
    """
    envelope = Envelope(table=canonical(table))
    if branch not in {"", MAIN}:
        check_branch_name(branch)
        envelope.branch = branch
    hint = "name a file as in a table's _transactions/"
    _parse(envelope.lance, transaction, hint)
    if envelope.lance.WhichOneof("operation") is None:
        message = "the transaction names no operation that this release knows"
        raise InvalidError(message, where=str(transaction), hint=hint)
    _check_policy(envelope)
    return envelope


def _check_policy(envelope: Envelope) -> None:
    """Raises `InvalidError`, which names the key, if a transaction sets an invalid maintenance policy."""
    from lakefold_maintenance.planning.policy import policy_of

    update = envelope.lance.update_config
    entries = update.config_updates.update_entries
    config = {entry.key: entry.value for entry in entries if entry.HasField("value")}
    policy_of({**config, **update.upsert_values, **envelope.lance.overwrite.config_upsert_values})


def delta_envelope(table: str, actions: Path, more: Mapping[str, Any]) -> Envelope:
    """Returns an envelope for a Delta table with the actions in a file, one JSON object on each line.

    `more`: other options of `propose` about the actions, by their names. Raises `InvalidError` if the file
    has a line that is not a JSON object; the content of the actions is checked when they are folded.
    """
    envelope = Envelope(table=canonical(table))
    proposal = envelope.delta
    proposal.actions = _read(actions)
    if more["read_version"] is not None:
        proposal.read_version = more["read_version"]
    proposal.read_whole_table = more["read_table"]
    proposal.read_files.extend(more["read_files"])
    proposal.read_predicates.extend(more["read_predicates"])
    proposal.read_app_ids.extend(more["read_app_ids"])
    proposal.operation = more["operation"]
    proposal.isolation = more["isolation"] or ""
    for number, line in enumerate(proposal.actions.splitlines(), 1):
        if line.strip() and not _is_object(line):
            message = f"line {number} of the file is not a JSON object"
            raise InvalidError(
                message, where=str(actions), hint='write an action on each line, as {"add": {…}}'
            )
    return envelope


def add_affected_rows(envelope: Envelope, file: Path) -> None:
    """Adds the rows that the proposal deletes or moves, from JSON: fragment ids with physical row offsets.

    Raises `InvalidError` if the file is not such JSON.
    """
    for name, offsets in _rows_in(file, SHAPE).items():
        number = int(name) if name.isascii() and name.isdigit() else LIMIT
        if number >= LIMIT or str(number) != name:
            raise InvalidError(f"{name!r} is not a fragment id", where=str(file), hint=SHAPE)
        envelope.affected_rows[number] = encode_bitmap(
            Bitmap(_offsets(offsets, f"fragment {name}", file, SHAPE))
        )


def add_rows_of_files(envelope: Envelope, file: Path) -> None:
    """Adds the rows that a proposal for a Delta table deletes, from JSON: paths with positions of rows.

    Raises `InvalidError` if the file is not such JSON.
    """
    for path, offsets in _rows_in(file, SHAPE_OF_PATHS).items():
        rows = Bitmap(_offsets(offsets, path, file, SHAPE_OF_PATHS))
        envelope.delta.affected_rows[path] = encode_treemap({0: rows})


def _rows_in(file: Path, shape: str) -> dict[str, object]:
    """Returns the members of the JSON object in a file."""
    try:
        rows = json.loads(_read(file), object_pairs_hook=_without_repetition)
    except (ValueError, RecursionError) as error:
        raise InvalidError(f"the file is not JSON: {error}", where=str(file), hint=shape) from error
    if not isinstance(rows, dict):
        raise InvalidError("the affected rows are not a JSON object", where=str(file), hint=shape)
    return rows


def _offsets(offsets: object, name: str, file: Path, shape: str) -> list[int]:
    if not isinstance(offsets, list) or not all(map(_is_offset, offsets)):
        raise InvalidError(f"{name} has no list of row offsets", where=str(file), hint=shape)
    return offsets


def add_reuse_index(envelope: Envelope, file: Path) -> None:
    """Adds the fragment-reuse index of a compaction with deferred remapping: an IndexMetadata message.

    Raises `InvalidError` if the file has no such message.
    """
    hint = "name a file with the entry __lance_frag_reuse of an index section"
    _parse(envelope.fragment_reuse_index, file, hint)


def _parse(part: Message, file: Path, hint: str) -> None:
    """Sets a part of an envelope to the message in a file."""
    data = _read(file)
    part.SetInParent()
    try:
        part.ParseFromString(data)
    except DecodeError as error:
        message = f"the file contains no Lance {part.DESCRIPTOR.name}: {error}"
        raise InvalidError(message, where=str(file), hint=hint) from error


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        message = f"the file can't be read: {error.strerror}"
        raise InvalidError(message, where=str(file), hint="name a readable file") from error


def _without_repetition(pairs: Iterable[tuple[str, object]]) -> dict[str, object]:
    members: dict[str, object] = {}
    for name, value in pairs:
        if name in members:
            raise ValueError(f"{name!r} is repeated")
        members[name] = value
    return members


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _is_offset(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < LIMIT
