"""Completes entries of the index section with what their files contain.

pylance does so with each commit. It lists the files, so that readers don't have to request their sizes. For a
vector index it also reads from the files how the vectors are stored; for other types it adds nothing (Lance
fact 10.6).
"""

from __future__ import annotations

import json
import struct
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from google.protobuf.message import DecodeError

from lakefold_protos.lance.file_pb2 import FileDescriptor
from lakefold_protos.lance.index_pb2 import VectorIndexDetails
from lakefold_protos.lance.table_pb2 import IndexMetadata
from lakefold_table.entry import Invalid
from lakefold_table.expansion import check_expansion
from lakefold_table.format import Fetched, Requirements, Tail
from lakefold_table.lance.indexing.indices import FRAGMENT_REUSE, MEM_WAL, type_of
from lakefold_table.lance.manifests.naming import index_path

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakefold_protos.lance.file_pb2 import Field

VECTOR: Final = "VectorIndexDetails"
TYPE_URL: Final = "/lance.index.pb.VectorIndexDetails"
MAIN, QUANTIZED = "index.idx", "auxiliary.idx"
TAIL_BYTES: Final = 1 << 20
"""How much of a file's end is read: its metadata is there, and grows with the index's partitions."""
UUID_BYTES: Final = 16
FOOTER: Final = struct.Struct("<QQQIIHH4s")
"""Three offsets (the last one is that of the table of global buffers), two counts, the version, the magic
bytes."""
BUFFER: Final = struct.Struct("<QQ")
"""The offset and the size of a global buffer. The first buffer describes the file."""
MAGIC: Final = b"LANC"
METRICS: Final = MappingProxyType(
    {
        "L2": VectorIndexDetails.L2,
        "EUCLIDEAN": VectorIndexDetails.L2,
        "COSINE": VectorIndexDetails.COSINE,
        "DOT": VectorIndexDetails.DOT,
        "HAMMING": VectorIndexDetails.HAMMING,
    }
)


def needs_of(fields: Sequence[Field], index: IndexMetadata) -> Requirements:
    """Returns the requirements for completing an entry. `fields`: the table's schema."""
    if not _is_in_table(index):
        return Requirements()
    folders = frozenset() if index.files else frozenset({_folder(index)})
    tails = (
        {_path(index, name): TAIL_BYTES for name in (MAIN, QUANTIZED)} if lacks_details(fields, index) else {}
    )
    return Requirements(folders=folders, tails=tails)


def completed(fields: Sequence[Field], index: IndexMetadata, fetched: Fetched) -> IndexMetadata | Invalid:
    """Returns the entry with its files and details, as far as these were fetched.

    Returns the same object if nothing is missing in it, and `Invalid` if its folder has no files.
    """
    if not _is_in_table(index):
        return index
    listing = None if index.files else fetched.folders.get(_folder(index))
    if listing is not None and not listing:
        return Invalid(
            f"every file of index {index.name!r} is missing: its folder {_folder(index)} is empty",
            "write the index before you send the transaction",
        )
    details = _details(index, fetched.tails) if lacks_details(fields, index) else None
    if listing is None and details is None:
        return index
    complete = IndexMetadata()
    complete.CopyFrom(index)
    for name, size in sorted((listing or {}).items()):
        complete.files.add(path=name, size_bytes=size)
    if details is not None:
        complete.index_details.type_url = TYPE_URL
        complete.index_details.value = details.SerializeToString(deterministic=True)
    return complete


def lacks_details(fields: Sequence[Field], index: IndexMetadata) -> bool:
    """Returns whether the entry is for a vector index and doesn't state how its vectors are stored."""
    if index.HasField("index_details"):
        return type_of(index) == VECTOR and not index.index_details.value
    return any(
        field.id in index.fields and field.logical_type.startswith("fixed_size_list:") for field in fields
    )


def _is_in_table(index: IndexMetadata) -> bool:
    describes_columns = index.name not in {FRAGMENT_REUSE, MEM_WAL}
    return describes_columns and not index.HasField("base_id") and len(index.uuid.uuid) == UUID_BYTES


def _folder(index: IndexMetadata) -> str:
    return index_path(index.uuid.uuid, "").rstrip("/")


def _path(index: IndexMetadata, name: str) -> str:
    return index_path(index.uuid.uuid, name)


def _details(index: IndexMetadata, tails: Mapping[str, Tail | None]) -> VectorIndexDetails | None:
    """Returns how the vectors are stored, None if the files don't state it, as in the oldest releases."""
    main = _metadata(tails.get(_path(index, MAIN)))
    if main is None:
        return None
    try:
        stored = json.loads(main.get("lance:index", b"{}"))
        kind = str(stored.get("type", "IVF_FLAT")).removeprefix("IVF_")
        metric = METRICS.get(str(stored.get("distance_type", "")).upper(), VectorIndexDetails.L2)
        details = VectorIndexDetails(metric_type=metric)
        if kind.startswith("HNSW_"):
            graph, stored = details.hnsw_index_config, json.loads(json.loads(main["lance:hnsw"])[0])["params"]
            graph.max_connections, graph.max_level = stored["m"], stored["max_level"]
            graph.construction_ef = stored["ef_construction"]
        _compression(details, kind.removeprefix("HNSW_"), _metadata(tails.get(_path(index, QUANTIZED))))
    except (AttributeError, IndexError, KeyError, RecursionError, TypeError, ValueError):
        # The metadata is not JSON, or not in the form that pylance writes.
        return None
    return details


def _compression(details: VectorIndexDetails, kind: str, quantized: Mapping[str, bytes] | None) -> None:
    """Adds how vectors are compressed. Raises `KeyError` and others if the file doesn't state it."""
    if kind not in {"PQ", "SQ", "RQ"}:
        details.flat.SetInParent()
        return
    stored = json.loads(json.loads((quantized or {})["storage_metadata"])[0])
    if kind == "PQ":
        details.pq.num_bits, details.pq.num_sub_vectors = stored["nbits"], stored["num_sub_vectors"]
    elif kind == "SQ":
        details.sq.num_bits = stored["num_bits"]
    else:
        details.rq.num_bits = stored["num_bits"]
        if str(stored["rotation_type"]).upper() == "MATRIX":
            details.rq.rotation_type = VectorIndexDetails.Rabit.MATRIX


def _metadata(tail: Tail | None) -> Mapping[str, bytes] | None:
    """Returns the schema metadata of a Lance file (2.0 and later), None if it is not within the tail."""
    if tail is None:
        return None
    data, size = tail
    begin = size - len(data)
    try:
        *_, buffers, _, _, _, _, magic = FOOTER.unpack_from(data, len(data) - FOOTER.size)
        start, length = BUFFER.unpack_from(data, buffers - begin)
        if magic != MAGIC or min(buffers, start) < begin or start + length > size:
            return None
        described = data[start - begin : start - begin + length]
        check_expansion(described, FileDescriptor)
        return FileDescriptor.FromString(described).schema.metadata
    except (DecodeError, struct.error):
        return None
