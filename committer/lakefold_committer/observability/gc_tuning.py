"""How often Python's garbage collector runs in a committer or maintainer.

They create thousands of objects each second, which are freed when nothing refers to them any more. The
collector only frees cycles of references, of which there are almost none, and it took a tenth of all the work
at Python's own setting.
"""

from __future__ import annotations

import gc

GARBAGE_EVERY = 50_000
"""The newest objects are collected once this many more were created than freed: some milliseconds."""


def collect_seldom() -> None:
    """Sets how often garbage is collected. Objects that exist now are never checked again."""
    gc.collect()
    gc.freeze()
    _, *older = gc.get_threshold()
    gc.set_threshold(GARBAGE_EVERY, *older)
