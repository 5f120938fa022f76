"""Errors of the command line and of `lakefold.spark`: this machine or its settings are not suitable."""

from __future__ import annotations

from lakefold_table.errors import InvalidError


class SetupError(InvalidError):
    """The machine lacks something that is needed (Java, a library, a port), or has an unsuitable version."""

    exit_code = 2


class SettingError(InvalidError):
    """A setting is wrong or missing.

    The message names it; `where` is the flag, variable or file it comes from.
    """

    exit_code = 2
