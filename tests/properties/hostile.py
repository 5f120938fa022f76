"""Proposals of a few bytes that claim much, folded in a process of its own: what each takes.

`python tests/properties/hostile.py` prints a line of JSON for each: its name, the bytes it had, the bytes
that folding it took at most, the seconds, and the kind of its outcome.
"""

from __future__ import annotations

import ctypes
import gc
import json
import struct
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakefold_committer.fold.fold import FoldInputs, fold
from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_table.format import Fetched
from lakefold_table.lance.rows.rowids import row_id_range
from tests.folding import FORMAT, URI, add_fragment, append, created, entries

if TYPE_CHECKING:
    from collections.abc import Iterator

CLAIMED = (2**24, 2**27, 2**32 - 1)
"""Rows that a fragment says it has."""
CONTAINERS = 2**16
FIELDS = 20_000
ENTRIES = 50_000


def begun() -> Envelope:
    envelope = Envelope(table=URI)
    envelope.lance.uuid, envelope.lance.read_version = "hostile", 2
    return envelope


def update(rows: int, row_ids: bytes) -> Envelope:
    """Removes a fragment of three rows for a fragment that claims many."""
    envelope = begun()
    envelope.lance.update.removed_fragment_ids.append(0)
    fragment = envelope.lance.update.new_fragments.add(inline_row_ids=row_ids)
    if not row_ids:
        fragment.ClearField("inline_row_ids")
    add_fragment(fragment, "new", rows)
    return envelope


def rewrite(rows: int) -> Envelope:
    envelope = begun()
    group = envelope.lance.rewrite.groups.add()
    add_fragment(group.old_fragments.add(), "f-0")
    add_fragment(group.new_fragments.add(inline_row_ids=row_id_range(0, rows)), "new", rows)
    return envelope


def schema(operation: str, parents: str, fields: int) -> Envelope:
    """Another schema: one field below the other, in a ring, or all at the top."""
    envelope = begun()
    listed: Any = getattr(envelope.lance, operation).schema
    for number in range(fields):
        parent = {"chain": number - 1, "ring": (number + 1) % fields, "top": -1}[parents]
        listed.add(name=f"c{number}", id=number, parent_id=parent, logical_type="struct", nullable=True)
    return envelope


def every_number() -> bytes:
    """A bitmap of all numbers of 32 bits in runs: under a megabyte that expands to 512."""
    head = struct.pack("<I", (CONTAINERS - 1) << 16 | 0x303B) + b"\xff" * (CONTAINERS // 8)
    heads = b"".join(struct.pack("<HH", key, 65535) for key in range(CONTAINERS))
    first = len(head) + len(heads) + 4 * CONTAINERS
    offsets = b"".join(struct.pack("<I", first + 6 * key) for key in range(CONTAINERS))
    return head + heads + offsets + struct.pack("<HHH", 1, 0, 65535) * CONTAINERS


def bitmaps() -> Iterator[tuple[str, Envelope]]:
    full = every_number()
    envelope = begun()
    add_fragment(envelope.lance.delete.updated_fragments.add(), "f-0")
    envelope.affected_rows[0] = full
    yield "affected rows", envelope
    envelope = begun()
    index = envelope.lance.create_index.new_indices.add(name="i", fields=[0], fragment_bitmap=full)
    index.uuid.uuid, index.dataset_version = b"u" * 16, 2
    yield "bitmap of an index", envelope
    envelope = begun()
    envelope.lance.update.updated_fragment_offset_bitmaps[0] = full
    fragment = envelope.lance.update.updated_fragments.add(inline_row_ids=row_id_range(0, 3))
    add_fragment(fragment, "f-0")
    envelope.lance.update.update_mode = envelope.lance.REWRITE_COLUMNS
    yield "offsets", envelope


def lists() -> Iterator[tuple[str, Envelope]]:
    envelope = begun()
    for number in range(ENTRIES):
        envelope.lance.update_config.config_updates.update_entries.add(key=f"k{number}", value="v")
    yield "keys", envelope
    envelope = begun()
    envelope.lance.delete.deleted_fragment_ids.extend(range(10 * ENTRIES))
    yield "ids of fragments", envelope
    envelope = begun()
    fragment = envelope.lance.append.fragments.add()
    add_fragment(fragment, "new")
    fragment.files[0].fields.extend(range(10 * ENTRIES))
    fragment.files[0].column_indices.extend(range(10 * ENTRIES))
    yield "fields of a file", envelope
    envelope = begun()
    for number in range(ENTRIES):
        envelope.lance.data_replacement.replacements.add(fragment_id=number % 3).new_file.path = "x"
    yield "replacements", envelope
    envelope = begun()
    envelope.lance.reserve_fragments.num_fragments = 2**32 - 1
    yield "reserved ids", envelope


def hostile() -> Iterator[tuple[str, Envelope]]:
    """Each with its name."""
    for rows in CLAIMED:
        yield f"{rows} moved rows", update(rows, row_id_range(0, rows))
        yield f"{rows} inserted rows", update(rows, b"")
        yield f"{rows} rows, some moved", update(rows, row_id_range(0, 3))
        yield f"{rows} rewritten rows", rewrite(rows)
    for operation in ("overwrite", "merge", "project"):
        for parents in ("chain", "ring", "top"):
            yield f"{operation} with a {parents} of fields", schema(operation, parents, FIELDS)
    yield from bitmaps()
    yield from lists()


def folded(envelope: Envelope) -> str:
    """The kind of its outcome on a table of three fragments."""
    table = created(stable_row_ids=True)
    table.fold(append("f", fragments=3))
    group = entries([envelope], 50)
    needs = FORMAT.requirements(table.state, group)
    fetched = Fetched(
        sizes=dict.fromkeys(needs.sizes, 1000), schemas=dict.fromkeys(needs.schemas, table.state.schema)
    )
    (outcome,) = fold(FORMAT, table.table, group, fetched, FoldInputs(1, must_publish=True)).outcomes
    return type(outcome.result).__name__


def forget_peak() -> int:
    """Begins a new measurement. Returns the bytes that this process holds now.

    What was freed goes back to the system first: it would be taken again without being seen.
    """
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    return peak()


def peak() -> int:
    """The most bytes that this process has held since then.

    The kernel's account of this process: that of `resource` begins with what its parent held.
    """
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM:")).split()[1]) * 1024


def main() -> None:
    """Folds them all, each on a table of its own."""
    folded(begun())
    for name, envelope in hostile():
        before, start = forget_peak(), time.process_time()
        kind = folded(envelope)
        taken = {"took": peak() - before, "seconds": time.process_time() - start}
        sys.stdout.write(
            json.dumps({"name": name, "bytes": envelope.ByteSize(), "kind": kind, **taken}) + "\n"
        )


if __name__ == "__main__":
    main()
