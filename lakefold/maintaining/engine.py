"""The engine that rewrites fragments: `--engine`, and the option `engine` of `lakefold.compact`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from lakefold_table.errors import InvalidError, OptionName

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakefold_maintenance.rewriting.engines import RewriteEngine

HERE: Final = "process"
SPARK: Final = "spark"
ENGINES: Final = (HERE, SPARK)


def engine_option(command: Callable[..., None]) -> Callable[..., None]:
    """Adds `--engine` to a verb."""
    option = click.option(
        "--engine",
        type=click.Choice(ENGINES),
        default=HERE,
        show_default=True,
        help="Where fragments are rewritten: in this process, or each rewrite by a task of Spark's, which "
        "rewrites no Delta tables: below the roots this process does.",
    )
    return option(command)


def engine_of(name: str, threads: int, *, for_any_format: bool = False) -> RewriteEngine:
    """Returns the engine with this name; a session of Spark's is begun if none is active.

    `threads`: those that read and write data files in each task. `for_any_format`: this process rewrites
    tables that Spark doesn't. Raises `InvalidError` for another name.
    """
    from lakefold_maintenance.format import TaskLimits
    from lakefold_maintenance.rewriting.engines import InProcess

    limits = TaskLimits(threads)
    if name == SPARK:
        from lakefold_maintenance.rewriting.on_spark import OnSpark, session_for_maintenance

        others = InProcess(limits) if for_any_format else None
        return OnSpark(session_for_maintenance(), limits, others=others)
    if name != HERE:
        hint = f"the engines are: {', '.join(ENGINES)}"
        raise InvalidError(f"there is no engine {name!r}", where=OptionName("engine"), hint=hint)
    return InProcess(limits)
