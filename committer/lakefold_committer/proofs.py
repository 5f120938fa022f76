"""What proves a table's marks from outside of it: how far its log reaches, and what was answered there.

A table alone can't tell that it was set back to a backup, or that its log lost entries. Whoever opens one for
a partition of Kafka's hands these in; a file that is folded, and a test, may do without.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakefold_table.entry import LogId


@dataclass(frozen=True, slots=True)
class Proofs:
    """For the tables of one partition, `log`.

    `end` asks for the offset after the log's last message. `answered`: every entry below this offset has its
    outcome, by the group's stamp.
    """

    log: LogId
    end: Callable[[], int]
    answered: int = 0
