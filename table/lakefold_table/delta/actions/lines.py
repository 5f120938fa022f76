"""The lines of a commit: one action each, as a JSON object with the action's name as its only member."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from lakefold_table.delta.actions.fields import members_of, read_fields
from lakefold_table.delta.actions.file_lines import STARTS, files_in
from lakefold_table.delta.actions.table_actions import BY_NAME, Action, UnknownAction
from lakefold_table.delta.json_text import MOST_BYTES, parse_object, to_json, type_name
from lakefold_table.errors import DamagedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

BATCH: Final = 1 << 18
"""About how many bytes of lines are decoded together; longer lines are decoded alone."""
LENGTH: Final = "lakefoldLength"
"""The first member of a committer's commitInfo: how many bytes its line has, in so many `DIGITS`."""
DIGITS: Final = 10
PREFIX: Final = f'{{"commitInfo":{{"{LENGTH}":"'.encode()
HINT: Final = "write each action in a line of its own, as Delta's protocol says"


def parse_actions(data: bytes, where: str = "") -> Iterator[Action]:
    """Yields the actions of a commit in their order. Blank lines are passed over.

    Many lines about files are decoded together. Raises `DamagedError`, which names the line, if the text is
    cut off or is not what the protocol says. A file that ends after a whole line can't be recognised as cut
    off.
    """
    number = 0
    for lines in _batches(data):
        together: Mapping[int, Action] | None = None
        for index, line in enumerate(lines):
            number += 1
            if together is None and line.startswith(STARTS):
                together = files_in(lines)
            action = together.get(index) if together else None
            if action is not None:
                yield action
            elif line.strip():
                at = f"{where} line {number}".lstrip()
                # A committer's own first line has the answers to a group of any size.
                most = MOST_BYTES if len(line) <= MOST_BYTES else max(MOST_BYTES, head_length(line))
                yield from actions_of(parse_object(line, at, most), at)


def head_length(start: bytes) -> int:
    """Returns how many bytes the first line of a commit takes, 0 if a committer did not write it."""
    digits = start[len(PREFIX) : len(PREFIX) + DIGITS]
    return int(digits) if start.startswith(PREFIX) and len(digits) == DIGITS and digits.isdigit() else 0


def actions_of(members: Mapping[str, Any], where: str) -> Iterator[Action]:
    """Yields the actions that the members of a line's object name: one that is known, and unknown ones."""
    named = {name: content for name, content in members.items() if content is not None}
    known = [name for name in named if name in BY_NAME]
    if not named:
        raise DamagedError("the line holds no action", where=where, hint=HINT)
    if len(known) > 1:
        raise DamagedError(f"the line holds several actions: {', '.join(known)}", where=where, hint=HINT)
    for name, content in named.items():
        yield action_of(name, content, where)


def action_of(name: str, content: object, where: str) -> Action:
    """Returns the action of this name. Raises `DamagedError` if its content is not what the protocol says."""
    kind = BY_NAME.get(name)
    if kind is None:
        return UnknownAction(name, content)
    if not isinstance(content, dict):
        message = f"{name} must be an object, not {type_name(content)}"
        raise DamagedError(message, where=where, hint=HINT)
    return cast("Action", read_fields(kind, content, f"{where}, {name}"))


def line_of(action: Action) -> str:
    """Returns the line of an action, without its end."""
    if isinstance(action, UnknownAction):
        return to_json({action.name: action.content})
    return to_json({action.NAME: members_of(action)})


def lines_of(actions: Iterable[Action]) -> bytes:
    """Returns the text of a commit with these actions."""
    return "".join(f"{line_of(action)}\n" for action in actions).encode()


def _batches(data: bytes) -> Iterator[list[bytes]]:
    """Yields the lines in batches, without copying all of them at once."""
    start = 0
    while start < len(data):
        end = data.rfind(b"\n", start, start + BATCH) if start + BATCH < len(data) else len(data)
        end = data.find(b"\n", start) if end < 0 else end
        end = len(data) if end < 0 else end
        yield data[start:end].split(b"\n")
        start = end + 1
