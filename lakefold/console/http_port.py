"""The HTTP port of the daemons: the committer's and the maintainer's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefold.errors import SettingError

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakefold.console.settings import Settings
    from lakefold_committer.observability.health import HealthServer, ServedMetrics


def open_port(
    settings: Settings,
    metrics: ServedMetrics,
    trouble: Callable[[], str],
    role: Callable[[], str],
    detail: Callable[[], str] = str,
) -> HealthServer:
    """Serves health and metrics as the settings say; see `HealthServer`.

    Raises `SettingError` if the port is taken, or the address is none of this machine.
    """
    from lakefold_committer.observability.health import HealthServer

    try:
        return HealthServer(settings.http_host, settings.http_port, metrics, trouble, role, detail)
    except OSError as error:
        message = f"{settings.http_host}:{settings.http_port} can't be served: {error.strerror}"
        hint = "set http_port to a free port, or to 0 for none; http_host must be an address of this machine"
        raise SettingError(message, where="http_port", hint=hint) from error
