"""Finds the version to which `tag`, `branch` or `restore` is applied, by the options that choose it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import click

from lakefold.console.options import Point, check_one_of, point_options

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lakefold_reader.format.source import Source

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class VersionChoice:
    """How a version was chosen on the command line; no field is set for the newest version."""

    number: int | None
    tag: str | None
    branch: str | None
    point: Point

    @property
    def is_newest(self) -> bool:
        """Whether nothing but a branch was named."""
        return (self.number, self.tag, self.point.as_of, self.point.at_position) == (None, None, None, None)

    @property
    def named(self) -> dict[str, Any]:
        """Returns the choice as `lakefold.open` takes it."""
        position, as_of = self.point.at_position, self.point.as_of
        chosen = {"version": self.number, "tag": self.tag, "as_of": as_of, "at_position": position}
        return {**chosen, "branch": self.branch}

    def find(self, table: str, storage_options: Mapping[str, str]) -> ChosenVersion:
        """Returns the version of a table of any format. Raises as `lakefold.open` does."""
        from lakefold_reader.formats import in_its_format, open_source

        return in_its_format(open_source(table, storage_options), self._find)

    def find_with_refs(self, table: str, storage_options: Mapping[str, str]) -> ChosenVersion:
        """Returns the version of a table that can have tags and branches.

        Raises as `find`, and `OtherFormatError` if the table's format has none.
        """
        from lakefold_reader.formats import open_source

        return self._find(open_source(table, storage_options))

    def _find(self, opened: Source) -> ChosenVersion:
        from lakefold_reader.snapshot.snapshot import find_version, table_of
        from lakefold_reader.versions.branches import main_and_branch
        from lakefold_table.version_mark import mark_of

        source, number = find_version(opened, **self.named)
        # Opening it shows that it exists and is not a late version.
        table_id = newest_id(source)
        version = table_of(source, number).version
        main, branch = main_and_branch(source)
        main_id = newest_id(main) if branch else table_id
        summary = source.summary(version, whole=True)
        mark = "" if summary is None else mark_of(summary)
        return ChosenVersion(source, main, branch, version, mark, table_id, main_id)


@dataclass(frozen=True, slots=True)
class ChosenVersion:
    """A version that exists, the name of its branch (empty: the main one), and the two branches' sources.

    `mark`: the version's (`mark_of`). `table_id`: the `Marks.full_id` of the branch as it was chosen, and
    `main_id` that of the main one. Proposals name them, so that no other version and table is meant.
    """

    source: Source
    main: Source
    branch: str
    version: int
    mark: str
    table_id: str
    main_id: str


def newest_id(source: Source) -> str:
    """Returns the `Marks.full_id` of a branch's newest version, "" if it has no marks."""
    from lakefold_reader.snapshot.snapshot import table_of

    marks = table_of(source).marks
    return "" if marks is None else marks.full_id


def version_options(lead: str) -> Callable[[Callable[..., Result]], Callable[..., Result]]:
    """Gives a verb the options that choose a version, which it gets as `choice`; see `point_options`."""

    def decorate(function: Callable[..., Result]) -> Callable[..., Result]:
        @wraps(function)
        def call(
            *args: object,
            number: int | None,
            tag: str | None,
            branch: str | None,
            point: Point,
            **rest: object,
        ) -> Result:
            check_one_of(point, version=number, tag=tag)
            if tag is not None and branch is not None:
                raise click.UsageError("a tag belongs to one branch already; leave --branch out")
            return function(*args, choice=VersionChoice(number, tag, branch, point), **rest)

        decorated: Callable[..., Result] = point_options(lead)(call)
        decorated = click.option("--tag", metavar="TAG", help=f"{lead} this tag names, on its branch.")(
            decorated
        )
        text = "The branch that has the version.  [default: main, or the branch at TABLE]"
        decorated = click.option("--branch", metavar="NAME", help=text)(decorated)
        number = click.option(
            "--version", "number", type=click.IntRange(min=0), help=f"{lead} has this number."
        )
        return number(decorated)

    return decorate
