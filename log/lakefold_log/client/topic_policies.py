"""The settings that the committer needs of its topics, as a table, and the check of them and of the replicas.

Any user with the right can change a setting at any time. Some changes lose entries without a trace
(compaction keeps the last message of each table), others let a client's clock into the versions. So the
settings are checked when a committer starts and repeatedly while it runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lakefold_log.client.requests import settings_of, topic_of
from lakefold_table.errors import InvalidError, StopError

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakefold_log.client.admin import Admin
    from lakefold_log.client.topic_names import Topics

_LEAST_IN_SYNC: Final = "min.insync.replicas"
_TWO: Final = 2

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
    """A setting that may do harm; `value` is empty if the brokers don't show the settings.

    `replication.factor`, the number of replicas, counts as a setting here.
    """

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
    """Checks the settings of the three topics. Returns those that may do harm.

    Raises `StopError` for a setting with which entries or answers can be lost: it names the setting, its
    value and the command that corrects it. Raises `RetryError` if no broker answers. If the ACLs refuse to
    show the settings, that is a warning.
    """
    warnings: list[PolicyWarning] = []
    brokers = admin.broker_count()
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
        replicas = topic_of(admin, name).replicas
        warnings.extend(replication_warnings(name, replicas, brokers, settings.get(_LEAST_IN_SYNC, "")))
    return tuple(warnings)


def replication_warnings(
    topic: str, replicas: int, brokers: int, least_in_sync: str
) -> tuple[PolicyWarning, ...]:
    """Returns warnings about a topic's replicas on `brokers` brokers: what may be lost, or may stop.

    `least_in_sync` is the topic's `min.insync.replicas`, or empty if it is unknown. One replica on the only
    broker gives no warning, since nothing better is possible there.
    """
    more = "kafka-reassign-partitions.sh with three replicas for each partition"
    alter = (
        f"kafka-configs.sh --alter --entity-type topics --entity-name {topic} --add-config {_LEAST_IN_SYNC}"
    )
    if replicas == 1 and brokers > 1:
        reason = f"its messages are lost with one disk, although there are {brokers} brokers"
        return (PolicyWarning(topic, "replication.factor", "1", reason, more),)
    if not least_in_sync.isdecimal():
        return ()
    least = int(least_in_sync)
    if replicas > 1 and least == 1:
        reason = "a message that was confirmed may be on one broker only, and is lost with it"
        hint = f"{alter}=2" if replicas > _TWO else f"{more}, then {alter}=2"
        return (PolicyWarning(topic, _LEAST_IN_SYNC, least_in_sync, reason, hint),)
    if least > replicas:
        reason = f"nothing can be written: the topic has {replicas} replica{'s' * (replicas > 1)}"
    elif least == replicas and replicas > 1:
        reason = "nothing can be written while one broker can't be reached"
    else:
        return ()
    hint = f"{more}, or {alter}={max(1, replicas - 1)}"
    return (PolicyWarning(topic, _LEAST_IN_SYNC, least_in_sync, reason, hint),)


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
