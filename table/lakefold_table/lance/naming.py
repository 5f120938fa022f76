"""Where a Lance table keeps its files, relative to its root (format facts, section 1).

A table uses one of two manifest naming schemes for all its versions; the scheme is read off the names that are there.
"""

from __future__ import annotations

from enum import Enum

VERSIONS = "_versions"
DATA = "data"
MAX_U64 = 2**64 - 1
DETACHED_BIT = 1 << 63
SUFFIX = ".manifest"
V2_DIGITS = 20


class Scheme(Enum):
    """How versions are named: `V1` counts up (`7.manifest`), `V2` counts down so that the newest lists first."""

    V1 = "v1"
    V2 = "v2"


def manifest_path(version: int, scheme: Scheme) -> str:
    """The path of a version's manifest, relative to the table's root."""
    if scheme is Scheme.V1:
        return f"{VERSIONS}/{version}{SUFFIX}"
    return f"{VERSIONS}/{MAX_U64 - version:0{V2_DIGITS}d}{SUFFIX}"


def parse_manifest_name(name: str) -> tuple[int, Scheme] | None:
    """The version and scheme that a file name in `_versions/` stands for; None for anything else.

    Detached manifests (`d….manifest`), staged and temporary files and the version hint are not versions of the line.
    """
    stem = name.removesuffix(SUFFIX)
    if stem == name or not (stem.isascii() and stem.isdigit()):
        return None
    number = int(stem)
    if len(stem) == V2_DIGITS and number > MAX_U64 - DETACHED_BIT:
        return (MAX_U64 - number, Scheme.V2) if number <= MAX_U64 else None
    return (number, Scheme.V1) if number < DETACHED_BIT else None


def data_path(path: str) -> str:
    """The path of a data file that lies in the table itself, relative to the table's root."""
    return f"{DATA}/{path}"


def is_inside(path: str) -> bool:
    """Whether a data file's path stays inside its base: relative, no empty, `.` or `..` segment, no control characters."""
    if not path or "\\" in path or not path.isprintable():
        return False
    return all(segment not in {"", ".", ".."} for segment in path.split("/"))
