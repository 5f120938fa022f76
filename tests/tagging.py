"""Tags that a test sets beside the log, as another client of Lance does."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from lakefold_table.versions.refs import Refs

if TYPE_CHECKING:
    from lakefold_table.ref_files import Tag
    from lakefold_table.storage.base import Storage


def set_tag(storage: Storage, name: str, version: int, *, branch: str | None = None) -> Tag:
    """Makes a tag name a version, whether it existed or not."""
    refs = Refs(storage)
    now_ns = time.time_ns()
    assert refs.set_tag(name, version, branch=branch, at_ns=now_ns, is_new=False, is_late=lambda: False)
    return refs.tag(name)
