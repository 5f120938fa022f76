"""Actions and logs of Delta tables made by hand, for what no library writes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakefold_table.delta.log_segment.names import FOLDER, SIDECARS, commit_path
from lakefold_table.delta.log_segment.segment import segment_of
from lakefold_table.delta.state import load_snapshot, missing_files
from lakefold_table.delta.table_features.features import BY_NAME

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from lakefold_table.delta.snapshot.snapshot import DeltaSnapshot

Members = dict[str, Any]
UUID = "80a083e8-7026-4e79-81be-64bd76c43a11"
SCHEMA = json.dumps(
    {"type": "struct", "fields": [{"name": "x", "type": "long", "nullable": True, "metadata": {}}]}
)
PROTOCOL: Members = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}


def protocol_with(*features: str) -> Members:
    """A protocol action that lists these features, and for readers those of them that readers need."""
    readers = [name for name in features if name in BY_NAME and BY_NAME[name].readers]
    versions = {"minReaderVersion": 3, "minWriterVersion": 7}
    return {"protocol": {**versions, "readerFeatures": readers, "writerFeatures": list(features)}}


LISTED = protocol_with("v2Checkpoint", "deletionVectors", "domainMetadata")
PRIMITIVES = [
    "byte",
    "short",
    "integer",
    "long",
    "float",
    "double",
    "string",
    "boolean",
    "binary",
    "date",
    "timestamp",
    "timestamp_ntz",
]
"""The types of columns without parts or parameters."""
VECTORS = {"delta.enableDeletionVectors": "true"}
"""The property of a table whose writers may make deletion vectors."""


def metadata(schema: str = SCHEMA, **configuration: str) -> Members:
    """A metaData action."""
    return {
        "metaData": {
            "id": "af23c9d7-fff1-4a5a-a2c8-55c59bd782aa",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": schema,
            "partitionColumns": [],
            "configuration": configuration,
        }
    }


def add(path: str, vector: Members | None = None, **more: object) -> Members:
    """An add action of a file of 10 bytes."""
    members: Members = {"path": path, "partitionValues": {}, "size": 10, "modificationTime": 1}
    return {"add": {**members, "dataChange": True, **more, **({"deletionVector": vector} if vector else {})}}


def data_file(root: Path, name: str, *rows: int) -> Members:
    """Writes a data file of the table at `root` with these values of `x`, and returns the add action."""
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"x": pa.array(rows, pa.int64())}), path)
    return add(name, size=path.stat().st_size, stats=json.dumps({"numRecords": len(rows)}))


def remove(path: str, vector: Members | None = None, at: int = 5, **more: object) -> Members:
    """A remove action."""
    members: Members = {"path": path, "deletionTimestamp": at, "dataChange": True, **more}
    return {"remove": {**members, **({"deletionVector": vector} if vector else {})}}


def txn(app: str, version: int) -> Members:
    """A txn action."""
    return {"txn": {"appId": app, "version": version}}


def domain(name: str, configuration: str = "{}", *, removed: bool = False) -> Members:
    """A domainMetadata action."""
    members: Members = {"domain": name, "configuration": configuration, "removed": removed}
    return {"domainMetadata": members}


def vector(name: str = "abcde", cardinality: int = 1) -> Members:
    """A deletion vector by its description alone."""
    return {"storageType": "i", "pathOrInlineDv": name, "sizeInBytes": 4, "cardinality": cardinality}


def text(actions: Iterable[Mapping[str, Any]]) -> bytes:
    """The text of a commit."""
    return "".join(f"{json.dumps(action)}\n" for action in actions).encode()


def commits(*versions: Sequence[Members]) -> dict[str, bytes]:
    """The files of these versions from 0 on."""
    return {commit_path(number): text(actions) for number, actions in enumerate(versions)}


def parquet(actions: Iterable[Members], schema: pa.Schema | None = None) -> bytes:
    """A Parquet file with a row for each action, as in checkpoints."""
    sink = pa.BufferOutputStream()
    rows = [{**dict.fromkeys(CHECKPOINT.names), **action} for action in actions]
    for row in rows:
        row.update({name: arrow_maps(content) for name, content in row.items() if content is not None})
    pq.write_table(pa.Table.from_pylist(rows, schema or CHECKPOINT), sink)
    return bytes(sink.getvalue())


def arrow_maps(members: Members) -> Members:
    """The members with maps as Arrow takes them."""
    return {
        name: content
        if not isinstance(content, dict)
        else list(content.items())
        if name in MAPS
        else arrow_maps(content)
        for name, content in members.items()
    }


MAPS = {"partitionValues", "configuration", "tags", "options"}
TEXTS = pa.map_(pa.string(), pa.string())
VECTOR = pa.struct(
    [
        ("storageType", pa.string()),
        ("pathOrInlineDv", pa.string()),
        ("offset", pa.int32()),
        ("sizeInBytes", pa.int32()),
        ("cardinality", pa.int64()),
        ("maxRowIndex", pa.int64()),
    ]
)
FILE = [
    ("path", pa.string()),
    ("partitionValues", TEXTS),
    ("size", pa.int64()),
    ("dataChange", pa.bool_()),
    ("tags", TEXTS),
    ("deletionVector", VECTOR),
    ("baseRowId", pa.int64()),
]
CHECKPOINT = pa.schema(
    [
        ("add", pa.struct([*FILE, ("modificationTime", pa.int64()), ("stats", pa.string())])),
        ("remove", pa.struct([*FILE, ("deletionTimestamp", pa.int64())])),
        (
            "metaData",
            pa.struct(
                [
                    ("id", pa.string()),
                    ("format", pa.struct([("provider", pa.string()), ("options", TEXTS)])),
                    ("schemaString", pa.string()),
                    ("partitionColumns", pa.list_(pa.string())),
                    ("configuration", TEXTS),
                ]
            ),
        ),
        (
            "protocol",
            pa.struct(
                [
                    ("minReaderVersion", pa.int32()),
                    ("minWriterVersion", pa.int32()),
                    ("readerFeatures", pa.list_(pa.string())),
                    ("writerFeatures", pa.list_(pa.string())),
                ]
            ),
        ),
        ("txn", pa.struct([("appId", pa.string()), ("version", pa.int64())])),
        (
            "domainMetadata",
            pa.struct([("domain", pa.string()), ("configuration", pa.string()), ("removed", pa.bool_())]),
        ),
        ("checkpointMetadata", pa.struct([("version", pa.int64()), ("tags", TEXTS)])),
        (
            "sidecar",
            pa.struct([("path", pa.string()), ("sizeInBytes", pa.int64()), ("modificationTime", pa.int64())]),
        ),
    ]
)


def sidecar(name: str, data: bytes) -> Members:
    """A sidecar action."""
    return {"sidecar": {"path": name, "sizeInBytes": len(data), "modificationTime": 1}}


def snapshot_of(files: Mapping[str, bytes], version: int | None = None) -> DeltaSnapshot:
    """The version that the files of a log make; reads what is named as missing, step by step."""
    names = [path.removeprefix(f"{FOLDER}/") for path in files if not path.startswith(SIDECARS)]
    segment = segment_of(names, version, "mem:")
    read: dict[str, bytes | None] = {}
    while missing := missing_files(segment, read, "mem:"):
        read.update({path: files.get(path) for path in missing})
    return load_snapshot(segment, read, "mem:")


def snapshot_in(table: Path, version: int | None = None) -> DeltaSnapshot:
    """A version of the table in a folder."""
    files = {
        path.relative_to(table).as_posix(): path.read_bytes()
        for path in (table / FOLDER).rglob("*")
        if path.is_file()
    }
    return snapshot_of(files, version)
