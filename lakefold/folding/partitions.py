"""Computes the partitions that a committer process folds, from its settings and the name of its host.

Processes that are made from the same template have the same settings. They differ by the number at the end of
the host's name, as in the pods of a StatefulSet of Kubernetes, or by the setting `ordinal`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from lakefold.console.settings import SHARED
from lakefold.errors import SettingError

if TYPE_CHECKING:
    from lakefold.console.settings import Settings
    from lakefold_committer.process.ordinals import Turn

_COUNTED: Final = re.compile(r"-(\d+)$")


def shares(settings: Settings) -> bool:
    """Returns whether processes divide the partitions among themselves by a consumer group."""
    return settings.partitions == SHARED


def fixed(settings: Settings, hostname: str) -> tuple[int, ...] | Turn | None:
    """Returns the partitions that only this process folds, or None for all of them.

    Raises `SettingError` if the setting is `ordinal/N` and this process has no ordinal, or one of N or more.
    """
    partitions = settings.partitions
    if not isinstance(partitions, str) or partitions == SHARED:
        return None if isinstance(partitions, str) else partitions
    from lakefold_committer.process.ordinals import Turn

    replicas = int(partitions.partition("/")[2])
    ordinal = _ordinal(settings, hostname)
    if ordinal >= replicas:
        message = (
            f"the ordinal {ordinal} is too high for partitions {partitions}: the highest is {replicas - 1}"
        )
        hint = f"set N of ordinal/N to the number of processes; the host of this one is {hostname}"
        raise SettingError(message, where="partitions", hint=hint)
    return Turn(ordinal, replicas)


def _ordinal(settings: Settings, hostname: str) -> int:
    if settings.ordinal is not None:
        return settings.ordinal
    if match := _COUNTED.search(hostname):
        return int(match[1])
    message = (
        f"partitions {settings.partitions} needs an ordinal, and the host's name {hostname} ends in no number"
    )
    hint = "run it as a StatefulSet, or set --ordinal or LAKEFOLD_ORDINAL: 0 for the first process"
    raise SettingError(message, where="ordinal", hint=hint)
