"""The paths of a Lance table's files, relative to its root (Lance facts 1.1 to 1.5).

A table uses one of two manifest naming schemes for all its versions; which one is read from the existing
names. A detached version, which is not in the sequence of versions and is known by its number alone, has a
name of its own.
"""

from __future__ import annotations

import hashlib
import re
import string
from enum import Enum
from typing import TYPE_CHECKING

from lakefold_table.errors import DamagedError
from lakefold_table.values import uuid_form

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

VERSIONS = "_versions"
DATA = "data"
TRANSACTIONS = "_transactions"
INDICES = "_indices"
MAX_U64 = 2**64 - 1
DETACHED_BIT = 1 << 63
SUFFIX = ".manifest"
DETACHED = "d"
V2_DIGITS = 20
_USUAL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")
"""Names of a single segment that need no further check. Most data files have such a name."""
PLAIN = frozenset(string.ascii_letters + string.digits + " !$&'()+,-.:;=@_")
"""The characters that Lance clients leave as they are in the name of a file (Lance fact 1.5)."""
MAX_PATH, MAX_SEGMENT = 1000, 255
_NAMES = re.compile(r"(?:(?!\.)[{}]{{1,{}}}\n)*".format(re.escape("".join(sorted(PLAIN))), MAX_SEGMENT))


class Scheme(Enum):
    """How versions are named: `V1` counts up (`7.manifest`), `V2` down, so that the newest lists first."""

    V1 = "v1"
    V2 = "v2"

    @staticmethod
    def of(name: str, version: int) -> Scheme | None:
        """Returns the scheme in which this file name is that of this version, or None.

        pylance makes detached versions only if names count down (Lance fact 1.2), so those are of `V2`.
        """
        if is_detached(version):
            return Scheme.V2 if parse_detached(name) == version else None
        return next((scheme for scheme in Scheme if scheme.parse(name) == version), None)

    def path(self, version: int) -> str:
        """Returns the path of a version's manifest, detached or not, relative to the table's root."""
        if is_detached(version):
            return f"{VERSIONS}/{DETACHED}{version}{SUFFIX}"
        if self is Scheme.V1:
            return f"{VERSIONS}/{version}{SUFFIX}"
        return f"{VERSIONS}/{MAX_U64 - version:0{V2_DIGITS}d}{SUFFIX}"

    def parse(self, name: str) -> int | None:
        """Returns the version that a file name belongs to in this scheme, or None for any other name.

        Detached manifests (`d….manifest`), staged and temporary files and the version hint belong to none.
        """
        stem = name.removesuffix(SUFFIX)
        if stem == name or not (stem.isascii() and stem.isdigit()):
            return None
        number = int(stem)
        counts_down = len(stem) == V2_DIGITS and MAX_U64 - DETACHED_BIT < number < MAX_U64
        if self is Scheme.V2:
            return MAX_U64 - number if counts_down else None
        canonical = stem[0] != "0"
        return number if canonical and not counts_down and number < DETACHED_BIT else None


def is_detached(version: int) -> bool:
    """Returns whether a version's number is that of a detached version (bit 63)."""
    return bool(version & DETACHED_BIT)


def parse_detached(name: str) -> int | None:
    """Returns the detached version that a file name belongs to, or None for any other name."""
    digits = name.removeprefix(DETACHED).removesuffix(SUFFIX)
    if not (digits.isascii() and digits.isdigit() and len(digits) <= V2_DIGITS):
        return None
    number = int(digits)
    named = f"{DETACHED}{number}{SUFFIX}"
    return number if name == named and DETACHED_BIT <= number <= MAX_U64 else None


def version_of(name: str) -> int | None:
    """Returns the version that a manifest's name denotes, detached or not; None for any other name."""
    parsed = (scheme.parse(name) for scheme in Scheme)
    number = next((number for number in parsed if number is not None), None)
    return parse_detached(name) if number is None else number


def detect(names: Iterable[str]) -> Scheme | None:
    """Returns the scheme of the names in `_versions/`, or None if no manifest is among them.

    Raises `DamagedError` if both schemes are used: pylance refuses such a table too (Lance fact 1.1).
    """
    # The length of a name already excludes a scheme, so each of a hundred thousand is parsed once.
    down: list[str] = []
    up: list[str] = []
    for name in names:
        (down if len(name) == V2_DIGITS + len(SUFFIX) else up).append(name)
    candidates = ((Scheme.V2, down), (Scheme.V1, up))
    schemes = [scheme for scheme, some in candidates if any(scheme.parse(name) is not None for name in some)]
    if len(schemes) > 1:
        raise DamagedError(
            "manifests are named by two schemes",
            where=VERSIONS,
            hint="pylance's migrate_manifest_paths_v2() names them all alike",
        )
    return schemes.pop() if schemes else None


def data_path(path: str) -> str:
    """Returns the path of a data file of the table itself, relative to the table's root."""
    return f"{DATA}/{path}"


def transaction_path(name: str) -> str:
    """Returns the path of a transaction file by its name in the manifest, or "" if that isn't valid."""
    return f"{TRANSACTIONS}/{name}" if is_inside(name) and "/" not in name else ""


def transaction_name(read_version: int, encoded: Sequence[bytes]) -> str:
    """Returns the name of a version's transaction file: `{read version}-{UUID}.txn`, as Lance clients do.

    The UUID is a hash of the file's bytes, so two committers that write the same file write it under the same
    name, and a file of this name never holds other bytes.
    """
    digest = hashlib.sha256()
    for part in encoded:
        digest.update(part)
    return f"{read_version}-{uuid_form(digest.hexdigest())}.txn"


def is_inside(path: str) -> bool:
    """Returns whether every store accepts a data file's path and the path stays inside its base.

    It is relative, has no empty, `.` or `..` segment, no control characters, no segment that begins with a
    dot (stores reserve such names for files being written), and is not longer than file systems and object
    stores allow.
    """
    if _USUAL.fullmatch(path):
        return True
    if not path or "\\" in path or not path.isprintable() or len(path.encode()) > MAX_PATH:
        return False
    segments = path.split("/")
    return all(segment and segment[0] != "." and len(segment.encode()) <= MAX_SEGMENT for segment in segments)


def is_usual_name(path: str) -> bool:
    """Returns whether a data file's name is one segment of common characters.

    Such a name needs no other check.
    """
    return _USUAL.fullmatch(path) is not None


def is_data_name(path: str) -> bool:
    """Returns whether Lance clients find a data file of this name.

    They take it for one segment and encode what isn't in `PLAIN`, `sub/a` as `sub%2Fa` (Lance fact 1.5). So
    such a file may exist, and yet no client can read its rows.
    """
    return _USUAL.fullmatch(path) is not None or (is_inside(path) and PLAIN.issuperset(path))


def are_data_names(paths: Sequence[str]) -> bool:
    """Returns whether `is_data_name` holds for all of these. Many times faster than a call for each."""
    joined = "".join(f"{path}\n" for path in paths)
    return joined.count("\n") == len(paths) and _NAMES.fullmatch(joined) is not None


def index_path(uuid: bytes, path: str) -> str:
    """Returns the path of a file of the index with this uuid, relative to the table's root."""
    number = uuid.hex()
    folder = "-".join((number[:8], number[8:12], number[12:16], number[16:20], number[20:]))
    return f"{INDICES}/{folder}/{path}"
