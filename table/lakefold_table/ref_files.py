"""Tags and branches as values, and the files in which a format keeps them.

`versions.refs` reads and writes these files; a format says which they are.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from lakefold_table.version_names import Naming


CONSUMER_TAG: Final = "lakefold-consumer-"
"""How the names of consumers' tags begin."""


@dataclass(frozen=True, slots=True)
class Tag:
    """A name for a version, which stays until it is moved.

    `branch`: the branch of the version, None for the main branch. Times in nanoseconds since 1970, None if
    the file contains none. `manifest_size` in bytes, 0 if it isn't known. `unknown`: the keys of the file
    that this release doesn't know.
    """

    version: int
    branch: str | None = None
    created_ns: int | None = None
    updated_ns: int | None = None
    manifest_size: int = 0
    metadata: Mapping[str, str] = field(default_factory=dict)
    unknown: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Branch:
    """A branch: from which version it was made.

    `parent`: the branch that it was made from, None for the main branch, at `parent_version`. `lineage`: the
    forks that lead to it, the first from the main branch; for each the version that was forked and an id
    of 32 hex digits; None if the file contains none. `created_s` in seconds since 1970; `manifest_size`, in
    bytes, is that of the parent version.
    """

    parent_version: int
    parent: str | None = None
    lineage: tuple[tuple[int, str], ...] | None = None
    created_s: int = 0
    manifest_size: int = 0
    metadata: Mapping[str, str] = field(default_factory=dict)
    unknown: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BranchOrigin:
    """The origin of a branch, by its first version: a clone of `version` of the branch `parent`.

    `name`: the branch's own name. `parent`: None for the main branch. `uuid`: that of the version's
    transaction. `created_s`: in seconds since 1970.
    """

    name: str
    parent: str | None
    version: int
    uuid: str
    created_s: int


@dataclass(frozen=True, slots=True)
class RefFiles:
    """The files of tags and branches, below the root of the table's main branch.

    `tags`, `branches`: their folders. `ref_name`: the tag or branch that has a file of this name, None for
    other files. The functions `check_` raise `InvalidError` for a name that no tag, or no new tag, can have.
    Those that decode a file are called with its content and its URI, and raise `DamagedError`;
    `decode_origin`: with the file of a branch's first version, None if that is not a clone. `naming`: how the
    versions of a branch are named, by the names of their files.
    """

    tags: str
    branches: str
    tag_path: Callable[[str], str]
    branch_path: Callable[[str], str]
    ref_name: Callable[[str], str | None]
    check_tag_name: Callable[[str], None]
    check_new_tag_name: Callable[[str], None]
    decode_tag: Callable[[bytes, str], Tag]
    encode_tag: Callable[[Tag], bytes]
    decode_branch: Callable[[bytes, str], Branch]
    encode_branch: Callable[[Branch], bytes]
    decode_origin: Callable[[bytes, str], BranchOrigin | None]
    naming: Callable[[Iterable[str]], Naming]
