"""Requests of the Lance Namespace as operations read them, and the answers that LanceDB's clients read.

Clients in the same process give models of the interface or, as pylance does, other objects with
`model_dump`; over HTTP some requests of LanceDB's clients have fields that no model of the interface has.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, TypeVar, cast

import lance_namespace as interface

from lakefold.namespace.failures import as_interface_errors
from lakefold_table.branch_names import MAIN
from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

MOST_LISTED: Final = 1000
"""How many names or versions an answer has at most."""
_Self = TypeVar("_Self")
_Rest = ParamSpec("_Rest")
_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class Asked:
    """The fields of a request that are set, by their names."""

    fields: Mapping[str, Any]

    @property
    def names(self) -> list[str]:
        """The names of the id, outermost first."""
        return [str(name) for name in self.fields.get("id") or []]

    @property
    def branch(self) -> str:
        """The branch that is meant, empty for the main one."""
        branch = str(self.fields.get("branch") or "")
        return "" if branch == MAIN else branch

    def get(self, name: str, default: Any = None) -> Any:  # noqa: ANN401 - a field is what its model says
        """Returns a field, or the default if it isn't set."""
        return self.fields.get(name, default)

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - a field is what its model says
        """Returns a field. Raises `InvalidError` if it isn't set."""
        if name not in self.fields:
            raise InvalidError(f"the request has no {name}", hint=f"give {name}")
        return self.fields[name]

    def page(self, names: Sequence[str]) -> tuple[list[str], str | None]:
        """Returns the names of a page, and after which name the next page begins, None if there is none."""
        after = [name for name in names if name > self.get("page_token", "")]
        shown = after[: self.limit]
        return shown, shown[-1] if len(after) > len(shown) else None

    @property
    def limit(self) -> int:
        """How many names or versions are asked for. Raises `InvalidError` if it isn't positive."""
        limit = self.get("limit", MOST_LISTED)
        if not isinstance(limit, int) or limit < 1:
            raise InvalidError(f"the limit is {limit}", hint="give a number from 1")
        return min(limit, MOST_LISTED)


def asked(request: object) -> Asked:
    """Returns the fields of a model or a dictionary."""
    given = request if isinstance(request, dict) else cast("Any", request).model_dump()
    return Asked({name: each for name, each in given.items() if each is not None})


def operation(
    method: Callable[Concatenate[_Self, Asked, _Rest], _Answer],
) -> Callable[Concatenate[_Self, Any, _Rest], _Answer]:
    """Gives an operation the fields of its request, and has its errors be the interface's."""

    @wraps(method)
    def answered(self: _Self, request: object, /, *args: _Rest.args, **kwargs: _Rest.kwargs) -> _Answer:
        with as_interface_errors():
            return method(self, asked(request), *args, **kwargs)

    return cast("Callable[Concatenate[_Self, Any, _Rest], _Answer]", answered)


class DatedVersion(interface.TableVersion):
    """A version with its time as LanceDB's clients read it."""

    timestamp: str | None = None


class UpdatedRows(interface.UpdateTableResponse):
    """The number of rows by the name that LanceDB's clients read."""

    rows_updated: int


class DeletedRows(interface.DeleteFromTableResponse):
    """With the number of rows, which LanceDB's clients read."""

    num_deleted_rows: int
