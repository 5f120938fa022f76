"""Proves the settings of the topics again and again while a committer runs, beside its work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import structlog

from lakefold_committer.process.watch_threads import watching
from lakefold_log.client.topic_policies import check_policies
from lakefold_table.errors import LakefoldError, RetryError

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from lakefold_log.client.admin import Admin
    from lakefold_log.client.topic_names import Topics
    from lakefold_log.client.topic_policies import PolicyWarning

LOG: Final = structlog.get_logger("lakefold.committer")
EVERY_SECONDS: Final = 10.0
"""Compaction begins later than this after its setting was changed: Kafka's cleaner looks every 15 seconds."""


class PolicyWatch:
    """Watches the topics' settings. `failure` is why the committer must not go on, None while it may.

    `stop` is called once there is a failure, on another thread.
    """

    def __init__(
        self, admin: Admin, topics: Topics, stop: Callable[[], None], *, every_s: float = EVERY_SECONDS
    ) -> None:
        self._admin, self._topics, self._stop, self._every_s = admin, topics, stop, every_s
        self._warned: tuple[PolicyWarning, ...] = ()
        self.failure: LakefoldError | None = None

    def watching(self) -> AbstractContextManager[None]:
        """Meanwhile the settings are proven, at once and every `every_s` seconds."""
        return watching("topic settings", [self._watch])

    def _watch(self, over: threading.Event) -> None:
        while True:
            try:
                self._warn(check_policies(self._admin, self._topics))
            except RetryError:
                # Whether a broker answers, the partitions tell.
                pass
            except LakefoldError as error:
                self.failure = error
                self._stop()
                LOG.warning("stopped", error=str(error))
                return
            if over.wait(self._every_s):
                return

    def _warn(self, found: tuple[PolicyWarning, ...]) -> None:
        """Tell of each warning once, and again if it had passed."""
        for one in found:
            if one not in self._warned:
                LOG.warning(
                    "topic",
                    topic=one.topic,
                    setting=one.setting or None,
                    value=one.value or None,
                    reason=one.reason,
                    hint=one.hint,
                )
        self._warned = found
