"""The settings that the committer needs of its topics, as a table, and the check of them.

Any user with the right can change a setting at any time. Some changes lose entries without a trace
(compaction keeps the last message of each table), others let a client's clock into the versions. So the
settings are checked when a committer starts and repeatedly while it runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lakefold_log.client.questions import settings_of
from lakefold_table.errors import InvalidError, StopError

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakefold_log.client.admin import Admin
    from lakefold_log.client.topic_names import Topics

LEAST_MESSAGE_BYTES: Final = 1_000_000
"""A topic whose limit is smaller may not accept an outcome, or a claim."""


@dataclass(frozen=True, slots=True)
class Policy:
    """A setting by Kafka's name, its right value, and what goes wrong with another value.

    If `must`, the committer stops at another value. `holds` returns whether a value is as good as `value`.
    """

    setting: str
    value: str
    reason: str
    must: bool = False
    holds: Callable[[str], bool] | None = None

    def allows(self, value: str) -> bool:
        """Returns whether the topic's value is acceptable."""
        return value == self.value or (self.holds is not None and self.holds(value))


@dataclass(frozen=True, slots=True)
class PolicyWarning:
    """A setting that may do harm; `value` is empty if the brokers don't show the settings."""

    topic: str
    setting: str
    value: str
    reason: str
    hint: str


def _is_large_enough(value: str) -> bool:
    return value.isdecimal() and int(value) >= LEAST_MESSAGE_BYTES


_KEPT: Final = (
    Policy("cleanup.policy", "delete", "compaction removes all but a table's last message", must=True),
    Policy("retention.ms", "-1", "messages are removed after a time, read or not"),
    Policy("retention.bytes", "-1", "messages are removed beyond a size, read or not"),
    Policy("max.message.bytes", "1048588", "it may be too small for a message", holds=_is_large_enough),
    Policy("compression.type", "uncompressed", "a message may unpack to more than any reader can hold"),
)
_TIME: Final = "message.timestamp.type"
_TRANSACTIONS: Final = (
    *_KEPT,
    Policy(_TIME, "LogAppendTime", "the time of a version would come from a client's clock", must=True),
)
_ANSWERS: Final = (*_KEPT, Policy(_TIME, "LogAppendTime", "the times of messages come from clients' clocks"))


def check_policies(admin: Admin, topics: Topics) -> tuple[PolicyWarning, ...]:
    """Check the settings of the three topics; returns those that may do harm.

    Raises `StopError` for a setting with which entries or answers can be lost: it names the setting, its
    value and the command that corrects it. Raises `RetryError` if no broker answers. If the ACLs refuse to
    show the settings, that is a warning.
    """
    warnings: list[PolicyWarning] = []
    for name, policies in (
        (topics.transactions, _TRANSACTIONS),
        (topics.outcomes, _ANSWERS),
        (topics.dead_letters, _ANSWERS),
    ):
        try:
            settings = settings_of(admin, name)
        except InvalidError as error:
            hint = f"allow DescribeConfigs on topic {name}; until then a wrong setting goes unnoticed"
            warnings.append(PolicyWarning(name, "", "", f"its settings can't be checked: {error}", hint))
            continue
        warnings.extend(_wrong(name, policies, settings))
    return tuple(warnings)


def _wrong(name: str, policies: tuple[Policy, ...], settings: dict[str, str]) -> list[PolicyWarning]:
    warnings = []
    for policy in policies:
        value = settings.get(policy.setting, "")
        if policy.allows(value):
            continue
        command = f"kafka-configs.sh --alter --entity-type topics --entity-name {name} --add-config"
        hint = f"{command} {policy.setting}={policy.value}"
        if policy.must:
            message = f"the topic's setting {policy.setting} is {value}, it must be {policy.value}"
            raise StopError(f"{message}: {policy.reason}", where=name, hint=hint)
        warnings.append(PolicyWarning(name, policy.setting, value, policy.reason, hint))
    return warnings
