"""Errors of the front door: what was asked for is right in itself, but not with this set-up or settings."""

from __future__ import annotations

from lakefold_table.errors import InvalidError


class SetupError(InvalidError):
    """The machine lacks something, or has it otherwise than asked: Java, a library, a free port."""

    exit_code = 2


class SettingError(InvalidError):
    """A setting is wrong or missing: the message names it, `where` says where it was said."""

    exit_code = 2
