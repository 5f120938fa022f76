"""Writers of the same keys take turns: a batch that was refused goes before others that change its keys.

Only the order of attempts depends on it, so a batch that waits for too long goes on (`read.turns`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from lakefold_ingest.formats import format_of
from lakefold_ingest.writing.operation import ChangesKeys
from lakefold_log.read.turns import TURN

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakefold_ingest.proposals.key import Key
    from lakefold_ingest.view import View
    from lakefold_ingest.writing.log_client import LogClient
    from lakefold_ingest.writing.operation import Operation
    from lakefold_log.read.consumer import Headers
    from lakefold_protos.lakefold.log_pb2 import Envelope

MOST_WAIT_S: Final = 60.0
"""How many seconds a batch waits at most, in all, for others that were refused; less if its timeout is."""


@dataclass(slots=True)
class BatchTurn:
    """When a batch may be built.

    `timeout_s`: for how many seconds it waits for others at most, `waited_s`: for how many it has waited.
    """

    key: Key
    operation: Operation
    timeout_s: float = MOST_WAIT_S
    waited_s: float = 0.0

    def has_waited(self, view: View, client: Callable[[], LogClient]) -> bool:
        """Waits for batches that were refused earlier and change the same keys.

        Returns whether there were any: the table has changed then. Raises `RetryError` if no broker answers.
        """
        if not isinstance(self.operation, ChangesKeys):
            return False
        turn = partial(self.operation.turn, view, self.key)
        most_s = min(self.timeout_s, MOST_WAIT_S) - self.waited_s
        waited_s = client().await_turn(view.uri, view.partition, turn, max(most_s, 0.0))
        self.waited_s += waited_s
        return waited_s > 0

    def headers(self, view: View, envelope: Envelope, build_s: float) -> Headers:
        """Returns the header by which others wait for this proposal if it is refused; none if it can't be.

        `build_s`: how many seconds it took to build.
        """
        if not isinstance(self.operation, ChangesKeys):
            return ()
        turn = replace(self.operation.turn(view, self.key), build_s=build_s)
        if turn.keys and not format_of(envelope).depends_on_parts(envelope):
            turn = replace(turn, parts=frozenset())
        return ((TURN, turn.encode()),)
