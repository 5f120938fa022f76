"""The names of columns as a caller gives them."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from lakefold_table.errors import InvalidError, OptionName

if TYPE_CHECKING:
    from collections.abc import Sequence


def check_list(names: Sequence[str] | None) -> None:
    """Raises `InvalidError` if this is not a list of names. A text would count as a list of characters."""
    if names is None:
        return
    if isinstance(names, str):
        raise InvalidError(
            f"{names!r} is one text", where=OptionName("columns"), hint=f"give a list: [{names!r}]"
        )
    if not isinstance(names, Collection):
        raise InvalidError(
            f"{names!r} is not a list of names", where=OptionName("columns"), hint="give a list of texts"
        )
    for name in names:
        if not isinstance(name, str):
            raise InvalidError(
                f"{name!r} is not a name", where=OptionName("columns"), hint="give a list of texts"
            )
