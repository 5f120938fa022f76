"""The operations of the conflict matrix (Lance fact 5.2), and more of the same kinds, built by pylance."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import NAMESPACE_URL, uuid5

import pyarrow as pa
from lance import LanceOperation as Op
from lance.dataset import Index
from lance.fragment import write_fragments
from lance.schema import LanceSchema

from lakefold_protos.lance.table_pb2 import FragmentReuseIndexDetails, MemWalIndexDetails
from lakefold_protos.lance.transaction_pb2 import Transaction
from lakefold_table.bitmaps import Bitmap, encode_treemap
from lakefold_table.lance.indexing.indices import FRAGMENT_REUSE, MEM_WAL
from tests.oracle.pairs import ROWS, SCHEMA, rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tests.oracle.pairs import Base, Operation

BTREE = ("/lance.table.BTreeIndexDetails", b"")
Details = tuple[str, bytes]
SHARD = {"uuid": b"s" * 16}


KEYED = pa.schema(
    [
        pa.field("a", pa.int64(), nullable=False, metadata={"lance-schema:unenforced-primary-key": "true"}),
        pa.field("s", pa.string()),
    ]
)


def keyed(numbers: Sequence[int]) -> pa.Table:
    """Rows of a table whose column a is its primary key."""
    return pa.table(
        {"a": pa.array(numbers, pa.int64()), "s": [f"{number}" for number in numbers]}, schema=KEYED
    )


def index(name: str, field: int | None, fragments: Iterable[int], *, details: Details = BTREE) -> Index:
    """The entry of an index of which nothing is there but the name."""
    return Index(
        uuid=str(uuid5(NAMESPACE_URL, f"{name} {field} {fragments} {details}")),
        name=name,
        fields=[] if field is None else [field],
        dataset_version=2,
        fragment_ids=Bitmap(fragments),  # type: ignore[arg-type] # the type of older releases
        index_version=0,
        index_details=details,
    )


def reuse(version: int, old: Sequence[int], new: Sequence[int]) -> Index:
    """A fragment-reuse index that records where all rows of the old fragments went."""
    details = FragmentReuseIndexDetails()
    group = details.inline.versions.add(dataset_version=version).groups.add()
    group.changed_row_addrs = encode_treemap({fragment: Bitmap(range(ROWS)) for fragment in old})
    for fragment in old:
        group.old_fragments.add(id=fragment, physical_rows=ROWS)
    for fragment in new:
        group.new_fragments.add(id=fragment, physical_rows=ROWS)
    url = "/lance.table.FragmentReuseIndexDetails"
    return index(FRAGMENT_REUSE, None, new, details=(url, details.SerializeToString()))


def mem_wal(generation: int | None = None) -> Index:
    """The index of the write-ahead log, up to a generation of a shard."""
    details = MemWalIndexDetails()
    if generation is not None:
        details.compacted_sstables.add(shard_id=SHARD, generation=generation)
    return index(MEM_WAL, None, [], details=("/lance.table.MemWalIndexDetails", details.SerializeToString()))


def created(*added: Index, removed: Sequence[Index] = ()) -> Op.CreateIndex:
    """A CreateIndex."""
    return Op.CreateIndex(new_indices=list(added), removed_indices=list(removed))


def rewrite(base: Base, *groups: tuple[int, ...], first: int = 10) -> Op.Rewrite:
    """Groups of fragments, each made into one; where rows have stable ids they are numbered from `first`."""
    made = []
    for number, group in enumerate(groups):
        ids = [fragment * ROWS + row for fragment in group for row in range(ROWS)]
        new = base.with_ids(base.new(3000, len(ids)), ids, first + number if base.stable else 0)
        made.append(Op.RewriteGroup([base.fragments[entry] for entry in group], [new]))
    return Op.Rewrite(groups=made, rewritten_indices=[])


def update_rows(base: Base, fragment: int, offset: int = 0) -> Op.Update:
    """A row moved to a new fragment."""
    new = base.with_ids(base.new(4000, 1), [fragment * ROWS + offset])
    return Op.Update(
        updated_fragments=[base.without(fragment, [offset])], new_fragments=[new], update_mode="rewrite_rows"
    )


def update_column(base: Base, fragment: int, column: str = "s") -> Op.Update:
    """A column of a fragment in a new file."""
    return Op.Update(
        updated_fragments=[base.rewritten_column(fragment, column)],
        fields_modified=[SCHEMA.get_field_index(column)],
        update_mode="rewrite_columns",
    )


def replacement(base: Base, fragment: int, column: str = "s") -> Op.DataReplacement:
    """A column of a fragment replaced."""
    return Op.DataReplacement([Op.DataReplacementGroup(fragment, base.file(column, fragment))])


def overlay(base: Base, fragment: int, offsets: Sequence[int] = (3,), column: str = "s") -> Op.DataOverlay:
    """New values of a column for some rows."""
    (made,) = write_fragments(rows(7000, len(offsets)).select([column]), base.dataset, mode="append")
    return Op.DataOverlay([Op.DataOverlayGroup(fragment, [Op.DataOverlayFile(made.files[0], list(offsets))])])


def keys(*, replace: bool = False, **values: str | None) -> Op.UpdateMap:
    """Changes of a map of keys; None deletes a key."""
    return Op.UpdateMap(values, replace=replace)


def merge(base: Base, *, keeps: bool) -> Op.Merge:
    """The table's own fragments under a schema with another column."""
    schema = LanceSchema.from_pyarrow(SCHEMA.append(pa.field("x", pa.int64())))
    return Op.Merge(base.fragments, schema, preserves_nullability=keeps)


def project(*names: str, keeps: bool) -> Op.Project:
    """Only these columns are left."""
    schema = pa.schema([SCHEMA.field(name) for name in names])
    return Op.Project(LanceSchema.from_pyarrow(schema), preserves_nullability=keeps)


def by_hand(operation: str, **content: object) -> Transaction:
    """A transaction that pylance's Python can't build."""
    made = Transaction(read_version=2, uuid=str(uuid5(NAMESPACE_URL, f"{operation} {content}")))
    getattr(made, operation).SetInParent()
    getattr(made, operation).MergeFrom(type(getattr(made, operation))(**content))
    return made


def operations(base: Base) -> dict[str, Operation]:
    """The operations of the matrix that pylance's Python can make."""
    return {
        "append": Op.Append([base.new()]),
        "delete f0": Op.Delete([base.without(0)], [], "x"),
        "delete f0 same row": Op.Delete([base.without(0)], [], "x"),
        "delete f1": Op.Delete([base.without(1)], [], "x"),
        "delete all f0": Op.Delete([], [0], "x"),
        "update f0": update_rows(base, 0, 1),
        "update f1": update_rows(base, 1, 1),
        "update column f0": update_column(base, 0),
        "overwrite": Op.Overwrite(SCHEMA, [base.new()]),
        "index a f0 f1": created(index("a_idx", 0, [0, 1])),
        "index s f0": created(index("s_idx", 1, [0])),
        "rewrite f0 f1": rewrite(base, (0, 1), first=10),
        "rewrite f2 f3": rewrite(base, (2, 3), first=20),
        "merge": merge(base, keeps=False),
        "merge keeping": merge(base, keeps=True),
        "project": project("a", keeps=False),
        "project keeping": project("a", keeps=True),
        "restore": Op.Restore(1),
        "config k": Op.UpdateConfig(config_updates=keys(k="v")),
        "config k2": Op.UpdateConfig(config_updates=keys(k2="v")),
        "config without k": Op.UpdateConfig(config_updates=keys(k=None)),
        "table metadata": Op.UpdateConfig(table_metadata_updates=keys(m="v")),
        "schema metadata": Op.UpdateConfig(schema_metadata_updates=keys(m="v")),
        "field 0 metadata": Op.UpdateConfig(field_metadata_updates={0: keys(m="v")}),
        "field 1 metadata": Op.UpdateConfig(field_metadata_updates={1: keys(m="v")}),
        "replacement f0": replacement(base, 0),
        "replacement f1": replacement(base, 1),
        "overlay f0": overlay(base, 0),
        "overlay f1": overlay(base, 1),
    }


BY_HAND = {
    "reserve": by_hand("reserve_fragments", num_fragments=2),
    "mem wal": by_hand("update_mem_wal_state", compacted_sstables=[{"shard_id": SHARD, "generation": 3}]),
    "bases": by_hand("update_bases", new_bases=[{"id": 1, "name": "b", "path": "/b"}]),
    "clone": by_hand("clone", is_shallow=True, ref_version=2, ref_path="/x"),
}
"""Those that it can't; they can be theirs only."""


def on_columns(base: Base) -> dict[str, Operation]:
    """Operations that differ in the columns, rows and fragments they touch."""
    moved = [base.with_ids(base.new(1, 10), range(10))]
    two_of_them = Op.Update(
        updated_fragments=[base.without(0, [4])],
        new_fragments=[base.with_ids(base.new(1, 1), [4])],
        fields_modified=[1],
        update_mode="rewrite_rows",
    )
    return {
        "update without new rows": Op.Update(
            updated_fragments=[base.without(0, [4])], update_mode="rewrite_rows"
        ),
        "update of a whole fragment": Op.Update(
            removed_fragment_ids=[0], new_fragments=moved, update_mode="rewrite_rows"
        ),
        "update of a and s": two_of_them,
        "update of column a": update_column(base, 0, "a"),
        "update of column s": update_column(base, 0, "s"),
        "update of column s f1": update_column(base, 1, "s"),
        "update of column s, and new rows": Op.Update(
            updated_fragments=[base.rewritten_column(0)],
            new_fragments=[base.new(50, 1)],
            fields_modified=[1],
            update_mode="rewrite_columns",
        ),
        "delete all f0, some f1": Op.Delete([base.without(1)], [0], "x"),
        "all columns": project("a", "s", keeps=False),
        "all columns keeping": project("a", "s", keeps=True),
        "only s": project("s", keeps=False),
        "only s keeping": project("s", keeps=True),
        "only a keeping": project("a", keeps=True),
        "replacement of a": replacement(base, 0, "a"),
        "replacement of s": replacement(base, 0, "s"),
        "replacement of s f1": replacement(base, 1, "s"),
        "overlay of a": overlay(base, 0, [3], "a"),
        "overlay of s": overlay(base, 0, [3], "s"),
        "index of s f2": created(index("s_idx", 1, [2])),
        "restore": Op.Restore(1),
    }


def on_indices() -> dict[str, Operation]:
    """Operations on indices: names that meet, coverage that does, and the two with a meaning of their own."""
    return {
        "x": created(index("x", 0, [2])),
        "x over others": created(index("x", 0, [3])),
        "x of another column": created(index("x", 1, [0])),
        "x and y": created(index("x", 0, [0]), index("y", 1, [2])),
        "x dropped": created(removed=[index("x", 0, [0])]),
        "x and y dropped": created(removed=[index("x", 0, [0]), index("y", 1, [0])]),
        "y instead of x": created(index("y", 0, [2]), removed=[index("x", 0, [2])]),
        "over nothing": created(index("z", 0, [])),
        "n-grams": created(index("n", 1, [0, 1], details=("/lance.index.pb.NGramIndexDetails", b""))),
        "reuse": created(reuse(2, [0], [9])),
        "reuse trimmed": created(reuse(2, [0], [9]), removed=[reuse(3, [0], [9])]),
        "reuse and x": created(reuse(2, [0], [9]), index("x", 0, [2])),
        "reuse dropped": created(removed=[reuse(2, [0], [9])]),
        "mem wal": created(mem_wal()),
        "mem wal merged": created(mem_wal(generation=3)),
        "mem wal and x": created(mem_wal(), index("x", 0, [2])),
        "mem wal dropped": created(removed=[mem_wal()]),
    }


def on_keys() -> dict[str, Operation]:
    """Changes of keys: of the configuration, the table's metadata, the schema's, the fields'."""
    config, table = "config_updates", "table_metadata_updates"
    schema, fields = "schema_metadata_updates", "field_metadata_updates"
    changes: dict[str, dict[str, object]] = {
        "nothing": {},
        "k": {config: keys(k="v")},
        "k deleted": {config: keys(k=None)},
        "only k": {config: keys(k="v", replace=True)},
        "only k2": {config: keys(k2="v", replace=True)},
        "no key": {config: keys(replace=True)},
        "no change": {config: keys()},
        "m": {table: keys(m="v")},
        "m2": {table: keys(m2="v")},
        "m deleted": {table: keys(m=None)},
        "only m2": {table: keys(m2="v", replace=True)},
        "no m": {table: keys(replace=True)},
        "no change of m": {table: keys()},
        "schema m": {schema: keys(m="v")},
        "schema m2": {schema: keys(m2="v")},
        "schema m deleted": {schema: keys(m=None)},
        "schema emptied": {schema: keys(replace=True)},
        "no change of the schema": {schema: keys()},
        "field m": {fields: {0: keys(m="v")}},
        "field m2": {fields: {0: keys(m2="v")}},
        "field 1 m": {fields: {1: keys(m="v")}},
        "field emptied": {fields: {0: keys(replace=True)}},
        "no change of the field": {fields: {0: keys()}},
        "k3 and schema": {config: keys(k3="v"), schema: keys(m="v")},
    }
    return {name: Op.UpdateConfig(**change) for name, change in changes.items()}  # type: ignore[arg-type]


DEPRECATED = {
    "old k": by_hand("update_config", upsert_values={"k": "v"}),
    "old k deleted": by_hand("update_config", delete_keys=["k"]),
    "old schema": by_hand("update_config", schema_metadata={"m": "v"}),
    "old field": by_hand(
        "update_config",
        field_metadata={0: Transaction.UpdateConfig.FieldMetadataUpdate(metadata={"m": "v"})},
    ),
    "overwrite with k": by_hand("overwrite", config_upsert_values={"k": "v"}),
    "overwrite with k9": by_hand("overwrite", config_upsert_values={"k9": "v"}),
}
"""Changes of keys that pylance's Python doesn't make any more, or never did."""


def on_segments() -> dict[str, Operation]:
    """Indices of the same name that add to, replace or remove others of that name."""
    b, c = index("x", 0, [0]), index("x", 0, [1])
    return {
        "a new": created(index("x", 0, [2])),
        "a instead of b": created(index("x", 0, [2]), removed=[b]),
        "a instead of c": created(index("x", 0, [2]), removed=[c]),
        "a instead of both": created(index("x", 0, [2]), removed=[b, c]),
        "no b": created(removed=[b]),
        "no c": created(removed=[c]),
        "neither": created(removed=[b, c]),
        "d instead of b": created(index("x", 0, [3]), removed=[b]),
        "another name instead of b": created(index("y", 0, [3]), removed=[b]),
        "no other name": created(removed=[index("y", 0, [0])]),
    }
