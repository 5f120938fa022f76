"""Finds the version that a number, a tag's name or a branch's name means, as both sides of a diff name it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lakefold_reader.snapshot.snapshot import Table, find_version, table_of
from lakefold_reader.versions.branches import main_and_branch
from lakefold_table.errors import InvalidError, NotATableError
from lakefold_table.versions.refs import UnknownRefError
from lakefold_table.whole_numbers import integer

if TYPE_CHECKING:
    from lakefold_reader.format.source import Source

Name = int | str
"""A version's number or its digits, a tag's name, a branch's name, `NAME@12`, `tag:NAME`, `branch:NAME`."""
_MAIN: Final = "main"
_FORMS: Final = "give a version's number, a tag's name, a branch's name, or a branch's version as main@12"


def named_table(source: Source, name: object, branch: str | None) -> tuple[Source, Table]:
    """Returns the branch and the version that `name` means. `branch`: in which a number is looked up.

    A tag is meant if a tag and a branch have the name. A branch's name means its newest version. Raises
    `UnknownRefError` if there is none of the name, `InvalidError` for something else, and as
    `lakefold.open`.
    """
    number = integer(name) if not isinstance(name, str) else int(name) if _is_digits(name) else None
    if number is not None:
        return _opened(source, number, branch)
    if not isinstance(name, str) or not name:
        raise InvalidError(f"{name!r} names no version", where=source.uri, hint=_FORMS)
    kind, colon, rest = name.partition(":")
    if colon and kind == "tag":
        return _opened(source, None, None, tag=rest)
    if colon and kind == "branch":
        return _on_branch(source, rest)
    head, at, _ = name.rpartition("@")
    if name == _MAIN or (at and head):
        return _on_branch(source, name)
    try:
        return _opened(source, None, None, tag=name)
    except UnknownRefError:
        pass
    try:
        return _on_branch(source, name)
    except (UnknownRefError, NotATableError) as error:
        message = f"the table has no tag and no branch {name!r}"
        hint = f"`lakefold refs` lists them; {_FORMS}" if source.format.has_refs else _FORMS
        raise UnknownRefError(message, where=source.uri, hint=hint) from error


def branch_name(source: Source) -> str:
    """Returns the name of a branch, `main` for the main branch."""
    return main_and_branch(source)[1] or _MAIN


def _on_branch(source: Source, name: str) -> tuple[Source, Table]:
    """Returns a branch's newest version, or with `NAME@12` its version 12."""
    head, at, digits = name.rpartition("@")
    if not at:
        return _opened(source, None, name)
    if not head or not _is_digits(digits):
        message = f"{digits!r} is not the number of a version" if head else f"{name!r} names no branch"
        raise InvalidError(message, where=source.uri, hint=_FORMS)
    return _opened(source, int(digits), head)


def _is_digits(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _opened(
    source: Source, number: int | None, branch: str | None, *, tag: str | None = None
) -> tuple[Source, Table]:
    branch_source, version = find_version(source, number, branch=branch, tag=tag)
    return branch_source, table_of(branch_source, version)
