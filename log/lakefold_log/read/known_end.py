"""The end of a partition for those that must not wait for brokers, e.g. a page of metrics.

The client of a reader knows an end too, but asking it (`get_watermark_offsets(cached=True)`) holds Python's
interpreter while it waits for a lock of librdkafka (2.16). If the threads of that client wait for each other,
which happens when a broker goes (librdkafka issue 5476), the whole process would stand still for ever.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from lakefold_table.errors import LakefoldError, NoThreadsError
from lakefold_table.new_threads import start_thread
from lakefold_table.own_process import ProcessLock

if TYPE_CHECKING:
    from collections.abc import Callable

_WAIT_S: Final = 0.1
"""A broker of the same network answers within some milliseconds."""


class KnownEnd:
    """The end as the brokers said it last; for any thread.

    `ask` requests it, and may raise `LakefoldError`.
    """

    def __init__(self, ask: Callable[[], int]) -> None:
        self._ask = ask
        self._changing = ProcessLock()
        self._asking: threading.Thread | None = None
        self._end = 0

    def read(self) -> int:
        """Returns the end, 0 if no broker has said it yet. Waits for a tenth of a second at most.

        If the brokers don't answer within that, this returns what they said before, and so do the next calls
        until an answer has come or the request has failed.
        """
        with self._changing.current:
            if self._asking is not None:
                return self._end
            asking = threading.Thread(target=self._request, name="lakefold-known-end", daemon=True)
            # The thread removes it, maybe before it is seen as started.
            self._asking = asking
            try:
                start_thread(asking)
            except NoThreadsError:
                self._asking = None
                return self._end
        asking.join(_WAIT_S)
        return self._end

    def _request(self) -> None:
        try:
            self._end = self._ask()
        except LakefoldError:
            # The reader itself reports that the brokers don't answer.
            return
        finally:
            self._asking = None
