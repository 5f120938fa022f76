"""Reads and writes the JSON files of tags and branches (Lance facts 1.6 and 1.7).

They are written byte for byte as pylance 14 writes them, and read as leniently as it reads them. Keys that
another writer added are kept. Names and paths are in `names`.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

from lakefold_table.errors import DamagedError
from lakefold_table.lance.manifests.codec import decode_head
from lakefold_table.lance.manifests.naming import Scheme, detect
from lakefold_table.lance.refs import names
from lakefold_table.ref_files import Branch, BranchOrigin, RefFiles, Tag

MAX_SIZE = 1 << 20
"""No file of a tag or branch is larger. A larger one would take more memory than a name is worth."""
MAX_U64 = 2**64 - 1
NANOS = 1_000_000_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIRST_NS = -62_135_596_800 * NANOS
LAST_NS = 253_402_300_800 * NANOS - 1
"""The first and the last time that can be written: the years 1 to 9999."""
_TIME = re.compile(r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(?:\.(\d+))?([Zz]|[+-]\d\d:\d\d)", re.ASCII)
T = TypeVar("T")


def encode_tag(tag: Tag) -> bytes:
    """Returns the content of a tag's file."""
    return _bytes(
        {
            "branch": tag.branch,
            "version": tag.version,
            "createdAt": None if tag.created_ns is None else _text_of(tag.created_ns),
            "updatedAt": None if tag.updated_ns is None else _text_of(tag.updated_ns),
            "manifestSize": tag.manifest_size,
            "metadata": dict(sorted(tag.metadata.items())),
            **tag.unknown,
        }
    )


def encode_branch(branch: Branch) -> bytes:
    """Returns the content of a branch's file."""
    lineage = branch.lineage
    identifier = (
        {} if lineage is None else {"identifier": {"version_mapping": [list(fork) for fork in lineage]}}
    )
    return _bytes(
        {
            "parentBranch": branch.parent,
            **identifier,
            "parentVersion": branch.parent_version,
            "createAt": branch.created_s,
            "manifestSize": branch.manifest_size,
            "metadata": dict(sorted(branch.metadata.items())),
            **branch.unknown,
        }
    )


def decode_tag(data: bytes, where: str = "") -> Tag:
    """Returns the tag that a file describes. Raises `DamagedError`.

    `version` and `manifestSize` are required; writers before pylance 14 omit the rest.
    """
    keys = _Keys(data, where)
    return Tag(
        version=keys.number("version"),
        branch=keys.text("branch"),
        created_ns=keys.time("createdAt"),
        updated_ns=keys.time("updatedAt"),
        manifest_size=keys.number("manifestSize"),
        metadata=keys.metadata(),
        unknown=keys.rest(),
    )


def decode_branch(data: bytes, where: str = "") -> Branch:
    """Returns the branch that a file describes. Raises `DamagedError`.

    `parentVersion`, `createAt` and `manifestSize` are required, as in pylance 14.
    """
    keys = _Keys(data, where)
    return Branch(
        parent_version=keys.number("parentVersion"),
        parent=keys.text("parentBranch"),
        lineage=keys.lineage(),
        created_s=keys.number("createAt"),
        manifest_size=keys.number("manifestSize"),
        metadata=keys.metadata(),
        unknown=keys.rest(),
    )


def decode_origin(data: bytes, where: str = "") -> BranchOrigin | None:
    """Returns what a branch's first version says of its beginning, None if it is not a clone.

    `data`: the file of that version. Raises `DamagedError`.
    """
    head, transaction = decode_head(data, where)
    if transaction is None or not transaction.HasField("clone"):
        return None
    clone = transaction.clone
    return BranchOrigin(
        clone.branch_name, clone.ref_name or None, clone.ref_version, transaction.uuid, head.timestamp.seconds
    )


class _Keys:
    """The keys of a file. Each is taken out once; the remaining keys are unknown."""

    def __init__(self, data: bytes, where: str) -> None:
        self._where = where
        self._remaining = self._parsed(data)

    def number(self, key: str) -> int:
        if key not in self._remaining:
            raise self._damaged(f"{key} is missing")
        value = self._remaining.pop(key)
        if type(value) is not int or not 0 <= value <= MAX_U64:
            raise self._damaged(f"{key} is {_short(value)}, not a number from 0 to 2^64 - 1")
        return value

    def text(self, key: str) -> str | None:
        value = self._remaining.pop(key, None)
        if value is not None and not isinstance(value, str):
            raise self._damaged(f"{key} is {_short(value)}, not text")
        return value

    def time(self, key: str) -> int | None:
        text = self.text(key)
        if text is None:
            return None
        nanos = _nanos_of(text)
        if nanos is None:
            raise self._damaged(f"{key} is {_short(text)}, not a time as in RFC 3339")
        return nanos

    def metadata(self) -> dict[str, str]:
        values = self._remaining.pop("metadata", {})
        if not isinstance(values, dict) or not all(isinstance(value, str) for value in values.values()):
            raise self._damaged(f"metadata is {_short(values)}, not a map of texts")
        return values

    def lineage(self) -> tuple[tuple[int, str], ...] | None:
        if "identifier" not in self._remaining:
            return None
        identifier = self._remaining.pop("identifier")
        steps = identifier.get("version_mapping") if isinstance(identifier, dict) else None
        if not isinstance(steps, list) or not all(_is_step(step) for step in steps):
            raise self._damaged(f"identifier is {_short(identifier)}, not versions with ids")
        return tuple((version, name) for version, name in steps)

    def rest(self) -> dict[str, Any]:
        return self._remaining

    def _parsed(self, data: bytes) -> dict[str, Any]:
        if len(data) > MAX_SIZE:
            raise self._damaged(f"{len(data)} bytes are more than such a file may have ({MAX_SIZE})")
        try:
            parsed = json.loads(data.decode(), object_pairs_hook=_once_each, parse_constant=_no_constant)
            _bytes(parsed)
        except (ValueError, RecursionError) as error:
            raise self._damaged(f"it is not JSON: {error}") from error
        if not isinstance(parsed, dict):
            raise self._damaged("it is not a JSON object")
        return parsed

    def _damaged(self, what: str) -> DamagedError:
        hint = "remove the file and create the tag or branch again"
        return DamagedError(f"this is not a tag or branch: {what}", where=self._where, hint=hint)


def _bytes(keys: dict[str, Any]) -> bytes:
    return json.dumps(keys, ensure_ascii=False, indent=2).encode()


def _once_each(pairs: list[tuple[str, T]]) -> dict[str, T]:
    keys = dict(pairs)
    if len(keys) < len(pairs):
        raise ValueError("a key is given twice")
    return keys


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is not a number")


def _is_step(item: object) -> bool:
    match item:
        case [int(version), str()]:
            return type(version) is int and 0 <= version <= MAX_U64
    return False


def _short(value: object) -> str:
    text = ascii(value)
    return text if len(text) <= 40 else f"{text[:40]}…"  # noqa: PLR2004 - enough to recognize it


def _nanos_of(text: str) -> int | None:
    """Returns an RFC 3339 time as nanoseconds since 1970 (further digits are cut), or None for other text."""
    match = _TIME.fullmatch(text)
    if match is None:
        return None
    zone = "+00:00" if match[4] in "Zz" else match[4]
    try:
        seconds = (datetime.fromisoformat(f"{match[1]}T{match[2]}{zone}") - EPOCH) // timedelta(seconds=1)
    except (ValueError, OverflowError):
        return None
    return seconds * NANOS + int((match[3] or "")[:9].ljust(9, "0"))


def _text_of(nanos: int) -> str:
    """Returns a time as pylance writes it: in UTC, with 0, 3, 6 or 9 digits of a second."""
    # A zone may have moved a time that was read out of the years that have four digits.
    seconds, rest = divmod(min(max(nanos, FIRST_NS), LAST_NS), NANOS)
    digits = f"{rest:09d}"
    while digits.endswith("000"):
        digits = digits[:-3]
    moment = (EPOCH + timedelta(seconds=seconds)).replace(tzinfo=None).isoformat(timespec="seconds")
    return f"{moment}.{digits}Z" if digits else f"{moment}Z"


REFS: Final = RefFiles(
    tags=names.TAGS,
    branches=names.BRANCHES,
    tag_path=names.tag_path,
    branch_path=names.branch_path,
    ref_name=names.ref_name,
    check_tag_name=names.check_tag_name,
    check_new_tag_name=names.check_new_tag_name,
    decode_tag=decode_tag,
    encode_tag=encode_tag,
    decode_branch=decode_branch,
    encode_branch=encode_branch,
    decode_origin=decode_origin,
    naming=lambda listed: detect(listed) or Scheme.V2,
)
