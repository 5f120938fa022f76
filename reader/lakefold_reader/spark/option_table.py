"""Options as a table: what they are called, what they mean, and how what a user gave is read by it.

Their names are those that users of Delta and Kafka know. Spark passes every option as text and compares names
without regard to case. An unknown name can only be a mistake and is refused with the nearest known name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final

from lakefold_reader.spark.option_kinds import SECONDS
from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakefold_reader.spark.option_kinds import OptionKind

STORAGE_PREFIXES: Final = ("storage.", "storageoptions.")
"""Options with these prefixes are passed to the store, without the prefix."""
_OF_CATALOG: Final = frozenset({"owner", "provider"})
"""The options that Spark's catalog adds to those of `CREATE TABLE`."""


@dataclass(frozen=True, slots=True)
class Option:
    """An option: a line of a table of options.

    `name` is its name in Spark. `uses` and `modes` say to what it can be given; empty: to all. `default` is
    its value if it is not given, `default_text` the same in words. `in_python`: its name there, if that is
    not the same words. `others`: its names in other products.
    """

    name: str
    kind: OptionKind
    meaning: str
    uses: frozenset[str] = frozenset()
    modes: frozenset[str] = frozenset()
    default: Any = None
    default_text: str = ""
    in_python: str = ""
    others: tuple[str, ...] = ()

    @property
    def parameter(self) -> str:
        """Its name as a parameter of Python."""
        return self.in_python or re.sub("[A-Z]", lambda letter: f"_{letter[0].lower()}", self.name)

    def is_for(self, use: str) -> bool:
        """Returns whether it has a meaning for this use."""
        return not self.uses or use in self.uses

    def is_of_mode(self, mode: str) -> bool:
        """Returns whether it has a meaning in this mode."""
        return not self.modes or mode in self.modes

    @property
    def setting(self) -> str:
        """Its name as a field of settings, which name the unit of a time."""
        return f"{self.parameter}_s" if self.kind is SECONDS else self.parameter

    @property
    def default_in_words(self) -> str:
        """The default in words, empty if there is none."""
        if self.default_text or self.default is None:
            return self.default_text
        return str(self.default).lower() if isinstance(self.default, bool) else str(self.default)

    def read(self, text: str) -> Any:  # noqa: ANN401 - each option has a type of its own
        """Returns the value that a text gives it. Raises `InvalidError`."""
        try:
            return self.kind.read(text)
        except ValueError as error:
            hint = f"give {error}"
            raise InvalidError(f"{text!r} is none of its values", where=self.name, hint=hint) from error
        except InvalidError as error:
            raise InvalidError(f"{text!r}: {error.message}", where=self.name, hint=error.hint) from error


@dataclass(frozen=True, slots=True)
class OptionTable:
    """The options of reads or of writes.

    `unknown` is what is said of another name, `by_prefix` which options are known by a prefix alone. `hints`
    say what to do instead of options of other products, by patterns of their names.
    """

    options: tuple[Option, ...]
    unknown: str
    by_prefix: str
    hints: Mapping[str, str] = field(default_factory=dict)

    def of(self, use: str) -> list[Option]:
        """Returns the options for a use, in the order of the table."""
        return [option for option in self.options if option.is_for(use)]

    def known(self, name: str) -> Option:
        """Returns the option with this name, in any case.

        Raises `InvalidError` with what to do instead, or with the nearest option.
        """
        names = {option.name.lower(): option for option in self.options}
        option = names.get(name.lower())
        if option is not None:
            return option
        instead = (hint for pattern, hint in self.hints.items() if fnmatchcase(name.lower(), pattern.lower()))
        hint = next(instead, "").format(name=name)
        if not hint:
            every = ", ".join(sorted(each.name for each in self.options))
            hint = f"the options are {every}, {self.by_prefix}"
            near = get_close_matches(name.lower(), names, n=1, cutoff=0.6)
            if near:
                hint = f"do you mean {names[near[0]].name}? {hint[0].upper()}{hint[1:]}"
        raise InvalidError(self.unknown, where=name, hint=hint)

    def read(self, texts: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
        """Returns the values that these texts give, and the options of the store.

        Raises `InvalidError` for an unknown name or a wrong value, and for a table of Spark's catalog.
        """
        _refuse_catalog(texts)
        values: dict[str, Any] = {}
        storage: dict[str, str] = {}
        for name, text in texts.items():
            store_option = without_prefix(name, STORAGE_PREFIXES)
            if store_option is not None:
                storage[store_option] = text
            else:
                option = self.known(name)
                values[option.name] = option.read(text)
        return values, storage


def refuse_together(values: Mapping[str, Any], *names: str, hint: str = "leave one out") -> None:
    """Raises `InvalidError` if more than one of these options is given. A flag that is off counts as none."""
    given = [name for name in names if values.get(name, False) is not False]
    if len(given) > 1:
        raise InvalidError("only one of these options may be given", where=" and ".join(given), hint=hint)


def without_prefix(name: str, prefixes: tuple[str, ...]) -> str | None:
    """Returns the rest of an option's name after one of these prefixes, or None if it has none of them."""
    prefix = next((each for each in prefixes if name.lower().startswith(each)), None)
    return None if prefix is None else name[len(prefix) :]


def _refuse_catalog(texts: Mapping[str, str]) -> None:
    """Raises `InvalidError` for a table of Spark's catalog, since Spark 4 passes no options for these."""
    named = {name.lower(): text for name, text in texts.items()}
    if named.keys() >= _OF_CATALOG:
        path = named.get("path", "s3://lake/flights")
        raise InvalidError(
            "a table of Spark's catalog can't be read by a Python source: Spark doesn't hand on its options",
            where="CREATE TABLE",
            hint=f"name it in SQL by CREATE TEMPORARY VIEW flights USING lakefold OPTIONS (path '{path}')",
        )
