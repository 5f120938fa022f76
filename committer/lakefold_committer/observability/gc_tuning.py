"""How often a committer's process looks for garbage: thousands of values come and go each second.

What an entry leaves goes at once when nothing names it any more. Only loops of names are left to be looked
for, and there are next to none; to look as often as Python does by itself took a tenth of all the work.
"""

from __future__ import annotations

import gc

GARBAGE_EVERY = 50_000
"""So many more values than went before the newest are looked through: some milliseconds."""


def collect_seldom() -> None:
    """For a process that serves for long, once all is loaded: that is never looked through again."""
    gc.collect()
    gc.freeze()
    _, *older = gc.get_threshold()
    gc.set_threshold(GARBAGE_EVERY, *older)
