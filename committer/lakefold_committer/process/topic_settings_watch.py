"""Checks the settings of the topics repeatedly while a committer runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import structlog

from lakefold_committer.process.watch_threads import watching
from lakefold_log.client.topic_policies import PolicyWarning, check_policies
from lakefold_table.errors import LakefoldError, RetryError

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from lakefold_log.client.admin import Admin
    from lakefold_log.client.topic_names import Topics

LOG: Final = structlog.get_logger("lakefold.committer")
EVERY_SECONDS: Final = 10.0
"""Shorter than the 15 seconds after which Kafka's cleaner notices a changed setting."""


class PolicyWatch:
    """Checks the topics' settings. `failure` is the error that must end the committer, or None.

    `stop` is called once there is a failure, on another thread.
    """

    def __init__(
        self, admin: Admin, topics: Topics, stop: Callable[[], None], *, every_s: float = EVERY_SECONDS
    ) -> None:
        self._admin, self._topics, self._stop, self._every_s = admin, topics, stop, every_s
        self._warned: tuple[PolicyWarning, ...] = ()
        self.failure: LakefoldError | None = None

    def watching(self) -> AbstractContextManager[None]:
        """Returns a context in which the settings are checked, at once and every `every_s` seconds."""
        return watching("topic settings", [self._watch])

    def _watch(self, over: threading.Event) -> None:
        while True:
            try:
                self._warn(check_policies(self._admin, self._topics))
            except RetryError:
                # The partitions report whether a broker answers.
                pass
            except LakefoldError as error:
                self.failure = error
                self._stop()
                LOG.warning("stopped", error=str(error))
                return
            if over.wait(self._every_s):
                return

    def _warn(self, warnings: tuple[PolicyWarning, ...]) -> None:
        """Logs each warning once, and again if it had passed."""
        for warning in warnings:
            if warning not in self._warned:
                LOG.warning(
                    "topic setting",
                    topic=warning.topic,
                    setting=warning.setting or None,
                    value=warning.value or None,
                    reason=warning.reason,
                    hint=warning.hint,
                )
        self._warned = warnings
