"""The address of a verb that serves a page or an interface: its flags, its URL, the error if it is taken."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from lakefold.errors import SettingError

if TYPE_CHECKING:
    from collections.abc import Callable


def address_options(what: str, port: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Returns a decorator that gives a verb `--host` and `--port` (default: `port`). `what` is served."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        served = click.option(
            "--port",
            type=click.IntRange(0, 65_535),
            default=port,
            show_default=True,
            help=f"The port of {what}; 0: any free one.",
        )(function)
        return click.option(
            "--host",
            default="127.0.0.1",
            show_default=True,
            help=f"The address on which {what} is served; other machines reach 0.0.0.0.",
        )(served)

    return decorate


def unserved(host: str, port: int, error: OSError) -> SettingError:
    """Returns the error for an address that is taken, or none of this machine."""
    message = f"{host}:{port} can't be served: {error.strerror}"
    hint = "give another --port, or 0 for any free one; --host must be an address of this machine"
    return SettingError(message, where="--port", hint=hint)


def url_of(host: str, port: int) -> str:
    """Returns the URL by which this machine reaches what is served at an address."""
    name = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)  # noqa: S104 - compared, not bound
    return f"http://{name}:{port}"
