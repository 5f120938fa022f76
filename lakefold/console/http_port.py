"""The HTTP port of the daemons: the committer's and the maintainer's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefold.errors import SettingError
from lakefold_table.errors import OptionName

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakefold.console.settings import Settings
    from lakefold_committer.observability.health import HealthServer, ServedMetrics
    from lakefold_committer.observability.web_server import Responder


def open_port(
    settings: Settings,
    metrics: ServedMetrics,
    trouble: Callable[[], str],
    role: Callable[[], str],
    detail: Callable[[], str] = str,
    others: Responder | None = None,
) -> HealthServer:
    """Serves health and metrics as the settings say; `others` answers for other pages. See `HealthServer`.

    Raises `SettingError` if the port is taken, or the address is none of this machine.
    """
    from lakefold_committer.observability.health import HealthServer
    from lakefold_committer.observability.web_server import NOT_FOUND

    host, port = settings.http_host, settings.http_port
    try:
        return HealthServer(
            host, port, metrics, trouble, role, detail, others=others or (lambda _: NOT_FOUND)
        )
    except OSError as error:
        message = f"{settings.http_host}:{settings.http_port} can't be served: {error.strerror}"
        port_option, host_option = OptionName("http_port"), OptionName("http_host")
        free = " to a free port, or to 0 for none; "
        hint = "set ", port_option, free, host_option, " must be an address of this machine"
        raise SettingError(message, where=port_option, hint=hint) from error
