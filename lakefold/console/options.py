"""Turns settings into options of verbs, so that each setting has the same flag and help text in every verb.

@verb("lakefold verb TABLE")
@settings_options(*KAFKA, *TOPICS)
@json_option
def command(settings: Settings, as_json: bool) -> None: ...
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
import structlog
from pydantic_core import PydanticUndefined

from lakefold.console.masking import is_secret
from lakefold.console.settings import PREFIX, TABLES, Settings, read_settings, variable_of
from lakefold_table.errors import options_named

if TYPE_CHECKING:
    from collections.abc import Callable

KAFKA: Final = ("bootstrap_servers", "kafka")
"""Settings of every verb that connects to a broker."""

TOPICS: Final = ("transactions_topic", "outcomes_topic", "dead_letters_topic")
"""Settings that name the topics."""

STORE: Final = ("storage_options",)
"""Settings of every verb that opens a table."""

_SINGULAR: Final = {"storage_options": "--storage-option", "roots": "--root"}
_METAVARS: Final = {
    "kafka": "KEY=VALUE",
    "storage_options": "KEY=VALUE",
    "maintenance": "KEY=VALUE",
    "roots": "URI",
    "partitions": "LIST",
}
_TYPES: Final[dict[Any, str]] = {
    bool: "BOOLEAN",
    int: "INTEGER",
    int | None: "INTEGER",
    float: "SECONDS",
    str: "TEXT",
    str | None: "TEXT",
}

_CONFIG: Final = click.option(
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    envvar=f"{PREFIX}CONFIG",
    help=f"A TOML file of settings.  [env: {PREFIX}CONFIG]",
)

Result = TypeVar("Result")

LOG = structlog.get_logger("lakefold")


def settings_options(*names: str) -> Callable[[Callable[..., Result]], Callable[..., Result]]:
    """Returns a decorator that gives a verb `--config` and an option for each named setting.

    The verb is called with `settings`, under their umask. Settings that are not named here still come
    from the environment or the file. Raises `SettingError` on call if a value is wrong.
    """

    def decorate(function: Callable[..., Result]) -> Callable[..., Result]:
        @wraps(function)
        def call(*args: object, config: Path | None, **rest: object) -> Result:
            values = {name: rest.pop(name) for name in names}
            flags = {name: value for name, value in values.items() if value not in (None, ())}
            _warn_of_secrets(flags)
            if isinstance(roots := flags.get("roots"), tuple):
                flags["roots"] = list(roots)
            settings = read_settings(flags, config)
            settings.apply_umask()
            return function(*args, settings=settings, **rest)

        decorated: Callable[..., Result] = call
        for name in reversed(names):
            decorated = _option(name)(decorated)
        return _CONFIG(decorated)

    return decorate


def json_option(function: Callable[..., Result]) -> Callable[..., Result]:
    """Gives a verb the option `--json`, which it gets as `as_json`."""
    text = "Print JSON on stdout: one document, or one line for each item of a stream."
    return click.option("--json", "as_json", is_flag=True, help=text)(function)


@dataclass(frozen=True, slots=True)
class Point:
    """How a version was chosen: by a time, by a position in the log, or by neither. See `lakefold.open`."""

    as_of: str | None
    at_position: str | None


def point_options(lead: str) -> Callable[[Callable[..., Result]], Callable[..., Result]]:
    """Gives a verb the options `--as-of` and `--at-position`, which it gets as `point`.

    `lead` is the beginning of both help texts, as in "The version that".
    """
    time = f"{lead} was the newest at this time: ISO 8601, in UTC if it names no zone."
    position = (
        f"{lead} was the first to contain the log up to this position: an offset, "
        "TOPIC/PARTITION@OFFSET, or a position's JSON."
    )

    def decorate(function: Callable[..., Result]) -> Callable[..., Result]:
        @wraps(function)
        def call(*args: object, as_of: str | None, at_position: str | None, **rest: object) -> Result:
            return function(*args, point=Point(as_of, at_position), **rest)

        with_position = click.option("--at-position", metavar="POSITION", help=position)(call)
        return click.option("--as-of", metavar="TIME", help=time)(with_position)

    return decorate


def check_one_of(point: Point, **given: object) -> None:
    """Raises `click.UsageError` if more than one option is given that chooses a version."""
    options = {**given, "as-of": point.as_of, "at-position": point.at_position}
    named = [f"--{name}" for name, value in options.items() if value is not None]
    if len(named) > 1:
        raise click.UsageError(f"{' and '.join(named)} each choose a version; give only one of them")


class _Flags(dict[str, str]):
    """The flags of a verb by the parameters in Python; what the verb lacks is named as of Python."""

    def get(self, name: str, default: object = None) -> str:
        """Returns the flag, or the parameter with where it can be given."""
        del default
        return super().get(name) or f"{name} (in Python)"


class _Verb(click.Command):
    """A verb whose errors name options as they are given to it."""

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - as click has it
        """Runs the verb."""
        given = (each for each in self.params if each.opts[0].startswith("--"))
        flags = _Flags({each.name or "": each.opts[0] for each in given})
        if "when_matched_update" in flags:
            flags["clauses"] = "the clauses --when-…"
        with options_named(flags):
            return super().invoke(ctx)


def verb(*examples: str) -> Callable[[Callable[..., Any]], click.Command]:
    """Returns the decorator of a verb's function. Its help ends with these examples, each on its own line."""
    return click.command(cls=_Verb, epilog="\b\nExamples:\n" + "\n".join(f"  {line}" for line in examples))


def _warn_of_secrets(flags: dict[str, object]) -> None:
    """Logs a warning if a secret was given as a flag, because every user of the machine can see flags."""
    for setting in TABLES.keys() & flags.keys():
        given = flags[setting]
        for text in given if isinstance(given, tuple) else ():
            option = str(text).partition("=")[0].strip()
            if is_secret(option):
                LOG.warning(
                    "a secret given as a flag shows in the process list and the shell's history",
                    flag=_SINGULAR.get(setting, f"--{setting}"),
                    option=option,
                    hint=f"set {variable_of(setting, option)}, or the option in the table [{setting}] of the "
                    "--config file",
                )


def _option(name: str) -> Callable[[Callable[..., Result]], Callable[..., Result]]:
    """Returns the click option of a setting.

    `Settings` checks the value, so that all errors have the same form.
    """
    field = Settings.model_fields[name]
    default = "" if field.default in (PydanticUndefined, None, "", {}) else f"  [default: {field.default}]"
    text = (field.description or "").replace(" [", "  [")
    flags = [f"--{name.replace('_', '-')}", *([_SINGULAR[name]] if name in _SINGULAR else [])]
    return click.option(
        *flags,
        name,
        multiple=name in _METAVARS and name != "partitions",
        metavar=_METAVARS.get(name) or _TYPES.get(field.annotation, "TEXT"),
        help=f"{text[:1].upper()}{text[1:]}.{default}" if "  [" not in text else text[:1].upper() + text[1:],
    )
