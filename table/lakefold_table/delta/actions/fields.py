"""How the members of an action's JSON object become the fields of a value, and back.

A class of actions says for each field which member of the object it is (`member`). Members are written in the
order of the fields, unless one says otherwise. Members that a class doesn't have are kept in `extra`: a newer
protocol may have them, and they must not get lost if the action is written again (Delta fact 1.2).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from functools import cache, lru_cache
from types import MappingProxyType
from typing import Any, Final, TypeVar, cast, dataclass_transform

from lakefold_table.delta.json_text import is_long, type_name
from lakefold_table.errors import DamagedError
from lakefold_table.values import value

_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})
V = TypeVar("V")
_HINT: Final = "the writer of this file has to follow Delta's protocol; restore the file if it was changed"


def no_members() -> Mapping[str, Any]:
    """Returns an empty object, the same each time: most actions have no unknown members."""
    return _NOTHING


@dataclass(frozen=True, slots=True)
class FieldKind:
    """A type of members. `name`: as an error names it.

    `read`: checks a decoded value and returns it. `write`: returns the value as JSON has it. None: as it is.
    """

    name: str
    fits: Callable[[object], bool]
    read: Callable[[Any, str], Any] | None = None
    write: Callable[[Any], Any] | None = None


@dataclass(frozen=True, slots=True)
class ActionField:
    """A member of an action: its name in JSON, the attribute that holds it, its type."""

    name: str
    attribute: str
    kind: FieldKind
    required: bool


def member(
    name: str,
    kind: FieldKind,
    *,
    default: object = MISSING,
    default_factory: object = MISSING,
    required: bool = False,
    at: int | None = None,
) -> Any:  # noqa: ANN401 - as dataclasses have it
    """Returns the field that holds the member of this name and type.

    The member must be present if the field has no default, or if it is `required` in spite of one. `at`: its
    index among the members, if it isn't written in the order of the fields.
    """
    required = required or (default is MISSING and default_factory is MISSING)
    own: Any = {"metadata": {"name": name, "type": (kind, required), "at": at}}
    own |= {} if default is MISSING else {"default": default}
    own |= {} if default_factory is MISSING else {"default_factory": default_factory}
    return field(**own)


@dataclass_transform(frozen_default=True, field_specifiers=(member, field))
def action(kind: type[V]) -> type[V]:
    """Makes a class a `value` whose fields are the members of a JSON object. `FIELDS` lists them in order."""
    made: Any = value()(kind)
    held = [each for each in fields(made) if each.metadata]
    ordered = [each for each in held if each.metadata["at"] is None]
    out_of_order = (each for each in held if each.metadata["at"] is not None)
    for each in sorted(out_of_order, key=lambda each: each.metadata["at"]):
        ordered.insert(each.metadata["at"], each)
    made.FIELDS = tuple(
        ActionField(each.metadata["name"], each.name, *each.metadata["type"]) for each in ordered
    )
    return cast("type[V]", made)


def _all_texts(value: object) -> bool:
    return isinstance(value, dict) and all(each is None or isinstance(each, str) for each in value.values())


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


MOST_SHARED: Final = 4096
MOST_ITEMS: Final = 16
MOST_TEXT: Final = 1000
"""How many different objects of strings are kept, so that equal ones take their memory once; how many members
and characters the largest of them has."""


@lru_cache(MOST_SHARED)
def _texts_of(items: tuple[tuple[str, str | None], ...]) -> Mapping[str, str | None]:
    return dict(items)


def shared_texts(value: dict[str, str | None]) -> Mapping[str, str | None]:
    """Returns an equal object that others have as well: the files of a partition have equal values of it.

    Large objects are returned as they are. No object of an action is ever changed.
    """
    items = tuple(value.items())
    if not items:
        return _texts_of(items)
    if len(items) > MOST_ITEMS or sum(len(key) + len(text or "") for key, text in items) > MOST_TEXT:
        return value
    return _texts_of(items)


TEXT: Final = FieldKind("a string", lambda value: value.__class__ is str)
LONG: Final = FieldKind("a 64-bit integer", is_long)
FLAG: Final = FieldKind("a boolean", lambda value: value.__class__ is bool)
TEXT_MAP: Final = FieldKind("an object of strings", _all_texts, lambda value, _where: shared_texts(value))
TEXTS: Final = FieldKind("an array of strings", _is_texts, lambda value, _where: tuple(value), list)


def struct_of(kind: type[Any], name: str) -> FieldKind:
    """Returns the type of members that are objects with fields of their own."""
    return FieldKind(
        name,
        lambda value: isinstance(value, dict),
        lambda value, where: read_fields(kind, value, where),
        members_of,
    )


def fields_of(kind: object) -> tuple[ActionField, ...]:
    """Returns the members that the fields of a class hold."""
    return cast("tuple[ActionField, ...]", cast("Any", kind).FIELDS)


def read_fields(kind: type[V], members: Mapping[str, Any], where: str) -> V:
    """Returns the value that an object's members make. Raises `DamagedError`.

    A member that is null counts as absent (Delta fact 1.2).
    """
    by_name, required = _members_of_kind(cast("Any", kind))
    own: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    for name, content in members.items():
        known = by_name.get(name)
        if known is None:
            extra[name] = content
            continue
        if content is None:
            continue
        if not known.kind.fits(content):
            message = f"{name} must be {known.kind.name}, not {_shown(content)}"
            raise DamagedError(message, where=where, hint=_HINT)
        read = known.kind.read
        own[known.attribute] = content if read is None else read(content, where)
    for each in required:
        if each.attribute not in own:
            raise DamagedError(f"{each.name} is missing", where=where, hint=_HINT)
    if extra:
        own["extra"] = extra
    return kind(**own)


@cache
def _members_of_kind(kind: type[Any]) -> tuple[Mapping[str, ActionField], tuple[ActionField, ...]]:
    """Returns the members of a class by name, and those that must be present."""
    held = fields_of(kind)
    return {each.name: each for each in held}, tuple(each for each in held if each.required)


def members_of(made: Any) -> dict[str, Any]:  # noqa: ANN401 - a value with fields
    """Returns the members of the object that stores a value; those that are None are left out."""
    members = {}
    for each in fields_of(made):
        content = getattr(made, each.attribute)
        if content is not None:
            write = each.kind.write
            members[each.name] = content if write is None else write(content)
    members.update(made.extra)
    return members


def _shown(value: object) -> str:
    if isinstance(value, Sequence | Mapping):
        return type_name(value) if not isinstance(value, str) else f"the string {value[:40]!r}"
    return f"{type_name(value)} ({str(value)[:40]})"
