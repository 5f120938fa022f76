"""Predicates as text of Delta's SQL: comparisons of columns with constants, AND, OR and NOT.

What is not understood is a condition that any row may meet (`Anything`). So a predicate that has a function,
or that compares two columns, is no error: less is decided by it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Final


@dataclass(frozen=True, slots=True)
class Time:
    """A constant that begins with the name of a type, as DATE '2026-11-23'."""

    text: str


Constant = str | int | Decimal | bool | Time
MOST_TEXT: Final = 64 << 10
"""The longest predicate that is read. Any row may meet a longer one."""
MOST_DEPTH: Final = 100
"""How deep parentheses and NOT may be nested."""


@dataclass(frozen=True, slots=True)
class Anything:
    """A condition of which it is not known which rows meet it."""


@dataclass(frozen=True, slots=True)
class Always:
    """A condition that each row meets, or none."""

    met: bool


@dataclass(frozen=True, slots=True)
class Comparison:
    """A column compared with a constant. `operator`: `=`, `!=`, `<`, `<=`, `>` or `>=`."""

    column: tuple[str, ...]
    operator: str
    constant: Constant


@dataclass(frozen=True, slots=True)
class NullCheck:
    """Whether a column is null, or is not."""

    column: tuple[str, ...]
    is_null: bool


@dataclass(frozen=True, slots=True)
class Both:
    """All of these conditions."""

    parts: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Either:
    """Any of these conditions."""

    parts: tuple[Predicate, ...]


Predicate = Anything | Always | Comparison | NullCheck | Both | Either

_TOKEN: Final = re.compile(
    r"""\s*(?:
        (?P<text>'(?:[^'\\]|''|\\.)*'|"(?:[^"\\]|""|\\.)*")
      | (?P<quoted>`(?:[^`]|``)*`)
      | (?P<number>(?:\d+\.?\d*|\.\d+)(?![\w.]))
      | (?P<name>[^\W\d]\w*)
      | (?P<sign><=>|<>|!=|<=|>=|==|[=<>!(),.-])
    )""",
    re.VERBOSE,
)
_OPPOSITE: Final = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
_TURNED: Final = {"=": "=", "!=": "!=", "<": ">", ">": "<", "<=": ">=", ">=": "<="}
_SAME: Final = {"==": "=", "<>": "!="}
_TYPED: Final = ("date", "timestamp", "timestamp_ntz", "timestamp_ltz")


class _UnknownError(Exception):
    """The text is not understood."""


def parse_predicate(text: str) -> Predicate:
    """Returns the predicate that a text says, `Anything` if it is not understood."""
    if len(text) > MOST_TEXT:
        return Anything()
    try:
        parser = _Parser(_tokens(text))
        predicate = parser.alternatives(0)
        parser.end()
    except _UnknownError:
        return Anything()
    return predicate


def opposite(predicate: Predicate) -> Predicate:
    """Returns the condition that is met by the rows for which NOT of this one is true."""
    match predicate:
        case Always():
            return Always(not predicate.met)
        case Comparison():
            return Comparison(predicate.column, _OPPOSITE[predicate.operator], predicate.constant)
        case NullCheck():
            return NullCheck(predicate.column, not predicate.is_null)
        case Both():
            return Either(tuple(map(opposite, predicate.parts)))
        case Either():
            return Both(tuple(map(opposite, predicate.parts)))
        case _:
            return predicate


def _tokens(text: str) -> list[tuple[str, str]]:
    tokens, at = [], 0
    text = text.strip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise _UnknownError
        kind = str(match.lastgroup)
        tokens.append((kind, match[kind]))
        at = match.end()
    return tokens


class _Parser:
    """Reads a predicate from its tokens. What is not understood inside parentheses ends the whole parse."""

    def __init__(self, tokens: list[tuple[str, str]]) -> None:
        self._tokens = tokens
        self._at = 0

    def end(self) -> None:
        if self._at < len(self._tokens):
            raise _UnknownError

    def alternatives(self, depth: int) -> Predicate:
        parts = [self._conditions(depth)]
        while self._word("or"):
            parts.append(self._conditions(depth))
        return parts[0] if len(parts) == 1 else Either(tuple(parts))

    def _conditions(self, depth: int) -> Predicate:
        parts = [self._condition(depth)]
        while self._word("and"):
            parts.append(self._condition(depth))
        return parts[0] if len(parts) == 1 else Both(tuple(parts))

    def _condition(self, depth: int) -> Predicate:
        if depth > MOST_DEPTH:
            raise _UnknownError
        if self._word("not") or self._sign("!"):
            return opposite(self._condition(depth + 1))
        if self._sign("("):
            inner = self.alternatives(depth + 1)
            self._expect(")")
            return inner
        for word, met in (("true", True), ("false", False)):
            if self._word(word):
                return Always(met)
        return self._comparison()

    def _comparison(self) -> Predicate:
        if (self._peek()[0] == "name" and self._peek()[1].lower() not in _TYPED) or self._peek()[
            0
        ] == "quoted":
            return self._of_column(self._column())
        constant = self._constant()
        operator = self._operator()
        column = self._column()
        return Anything() if constant is None else Comparison(column, _TURNED[operator], constant)

    def _of_column(self, column: tuple[str, ...]) -> Predicate:
        """Returns the condition that follows the name of a column."""
        if self._word("is"):
            negated = self._word("not")
            if not self._word("null"):
                raise _UnknownError
            return NullCheck(column, is_null=not negated)
        if self._sign("<=>"):
            same = self._constant()
            if same is None:
                return NullCheck(column, is_null=True)
            return Both((Comparison(column, "=", same), NullCheck(column, is_null=False)))
        negated = self._word("not")
        if self._word("in"):
            condition = self._list(column)
        elif self._word("between"):
            first = self._constant()
            if not self._word("and"):
                raise _UnknownError
            last = self._constant()
            if first is None or last is None:
                return Anything()
            condition = Both((Comparison(column, ">=", first), Comparison(column, "<=", last)))
        elif negated:
            raise _UnknownError
        else:
            operator = self._operator()
            constant = self._constant()
            # A comparison with NULL is never true, and neither is its opposite: no row meets either.
            return Anything() if constant is None else Comparison(column, operator, constant)
        return opposite(condition) if negated else condition

    def _list(self, column: tuple[str, ...]) -> Predicate:
        self._expect("(")
        constants = [self._constant()]
        while self._sign(","):
            constants.append(self._constant())
        self._expect(")")
        if None in constants:
            return Anything()
        return Either(tuple(Comparison(column, "=", each) for each in constants if each is not None))

    def _column(self) -> tuple[str, ...]:
        names = [self._name()]
        while self._sign("."):
            names.append(self._name())
        if self._peek() == ("sign", "("):
            raise _UnknownError
        return tuple(names)

    def _name(self) -> str:
        kind, text = self._next()
        if kind == "quoted":
            return text[1:-1].replace("``", "`")
        if kind != "name":
            raise _UnknownError
        return text

    def _constant(self) -> Constant | None:
        """Returns a constant, None for NULL."""
        kind, text = self._next()
        if kind == "text":
            if "\\" in text:
                raise _UnknownError
            quote = text[0]
            return text[1:-1].replace(quote * 2, quote)
        if (kind, text) == ("sign", "-"):
            kind, text = self._next()
            text = f"-{text}"
        if kind == "number":
            return int(text) if text.lstrip("-").isdigit() else Decimal(text)
        word = text.lower()
        if word in _TYPED and self._peek()[0] == "text":
            return Time(str(self._constant()))
        known: dict[str, Constant | None] = {"true": True, "false": False, "null": None}
        if kind != "name" or word not in known:
            raise _UnknownError
        return known[word]

    def _operator(self) -> str:
        kind, text = self._next()
        text = _SAME.get(text, text)
        if kind != "sign" or text not in _OPPOSITE:
            raise _UnknownError
        return text

    def _peek(self) -> tuple[str, str]:
        return self._tokens[self._at] if self._at < len(self._tokens) else ("", "")

    def _next(self) -> tuple[str, str]:
        token = self._peek()
        if not token[0]:
            raise _UnknownError
        self._at += 1
        return token

    def _word(self, word: str) -> bool:
        kind, text = self._peek()
        is_next = kind == "name" and text.lower() == word
        self._at += is_next
        return is_next

    def _sign(self, sign: str) -> bool:
        is_next = self._peek() == ("sign", sign)
        self._at += is_next
        return is_next

    def _expect(self, sign: str) -> None:
        if not self._sign(sign):
            raise _UnknownError
