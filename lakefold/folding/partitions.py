"""Which partitions a committer process folds, by its settings and the name of its host.

Processes made from one template have the same settings. What tells them apart is the number at the end of the
host's name, as Kubernetes gives it to the pods of a StatefulSet, or a setting of their own.
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
    """Whether processes share the partitions out among each other."""
    return settings.partitions == SHARED


def fixed(settings: Settings, hostname: str) -> tuple[int, ...] | Turn | None:
    """The partitions that are this process's alone, None for all.

    Raises `SettingError` where they go by ordinals and this process has none, or one that is too high.
    """
    said = settings.partitions
    if not isinstance(said, str) or said == SHARED:
        return None if isinstance(said, str) else said
    from lakefold_committer.process.ordinals import Turn

    replicas = int(said.partition("/")[2])
    ordinal = _ordinal(settings, hostname)
    if ordinal >= replicas:
        message = f"ordinal {ordinal} has no part: partitions {said} counts {replicas}, from 0"
        hint = f"let N of ordinal/N be the number of processes; this one's host is {hostname}"
        raise SettingError(message, where="partitions", hint=hint)
    return Turn(ordinal, replicas)


def _ordinal(settings: Settings, hostname: str) -> int:
    if settings.ordinal is not None:
        return settings.ordinal
    if found := _COUNTED.search(hostname):
        return int(found[1])
    message = (
        f"partitions {settings.partitions} needs an ordinal, and the host's name {hostname} ends in none"
    )
    hint = "run it as a StatefulSet, or set --ordinal or LAKEFOLD_ORDINAL: 0 for the first"
    raise SettingError(message, where="ordinal", hint=hint)
