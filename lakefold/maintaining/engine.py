"""Where fragments are rewritten: `--engine`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from collections.abc import Callable

HERE: Final = "process"


def engine_option(command: Callable[..., None]) -> Callable[..., None]:
    """Adds `--engine` to a verb, which gets no value: the only one that is built is the default."""
    option = click.option(
        "--engine",
        type=click.Choice([HERE, "spark"]),
        default=HERE,
        show_default=True,
        expose_value=False,
        callback=_checked,
        help="Where fragments are rewritten: in this process. spark isn't built yet.",
    )
    return option(command)


def _checked(_context: click.Context, _option: click.Parameter, value: str) -> str:
    """Returns the value. Raises `click.UsageError` for an engine that isn't built."""
    if value != HERE:
        raise click.UsageError(
            f"--engine {value} isn't built yet; leave it out, and fragments are rewritten in this process"
        )
    return value
