"""Parses SQL conditions on the columns of a table: predicates of proposals, constraints, filters of reads.

Names may be in backticks; texts are in single or double quotes. Nothing is known of the table here: whether a
column or a function exists, and what a part of the condition decides, is up to the caller.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_DEPTH: Final = 150
"""How deep the parts of a condition may be in each other. Each takes up to four calls of Python."""
TIMES: Final = frozenset({"date", "timestamp", "timestamp_ntz", "timestamp_ltz"})
"""The types whose name may precede a text that is a constant of the type."""
COMPARISONS: Final = frozenset({"=", "!=", "<", "<=", ">", ">=", "<=>"})
DOUBLE: Final = "double"
_TOKEN: Final = re.compile(
    r"""\s*(?:
        (?P<bytes>[xX]'(?:[0-9A-Fa-f]{2})*')
      | (?P<text>'(?:[^']|'')*'|"(?:[^"]|"")*")
      | (?P<quoted>`(?:[^`]|``)*`)
      | (?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?:[lLsSyYdD]|[bB][dD])?(?![\w.]))
      | (?P<name>[^\W\d]\w*)
      | (?P<sign><=>|<>|!=|<=|>=|==|[=<>!(),.*/+-])
    )""",
    re.VERBOSE,
)
_BITS: Final = {"l": 64, "s": 16, "y": 8}
"""How many bits an integer has that ends with this letter."""
_SAME: Final = {"==": "=", "<>": "!="}
_OR, _AND, _NOT, _COMPARED, _SUM, _PRODUCT, _SIGNED = range(1, 8)
"""How tightly operators bind, the loosest first."""
_INFIX: Final = {
    "or": _OR,
    "and": _AND,
    **dict.fromkeys((*COMPARISONS, *_SAME, "is", "not", "in", "between", "like", "ilike"), _COMPARED),
    **dict.fromkeys("+-", _SUM),
    **dict.fromkeys("*/", _PRODUCT),
}


class ConditionError(Exception):
    """A text is not a condition that is understood here. Its text says why."""


@dataclass(frozen=True, slots=True)
class ColumnTerm:
    """A column by its name, or a field inside of one by its path."""

    path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LiteralTerm:
    """A constant. `kind`: empty, or the type that the text names, as "date" or "decimal(10, 2)".

    An integer is an `int`, another number a `Decimal`. As in Spark, one with an exponent or a D at its end is
    a `DOUBLE`, one with BD is not, and L, S and Y are for integers.
    """

    value: str | bytes | bool | int | Decimal | None
    kind: str = ""


@dataclass(frozen=True, slots=True)
class OperatorTerm:
    """An operator: its sign or words in lower case, as "in" with a value and the items of a list."""

    name: str
    parts: tuple[Term, ...]


@dataclass(frozen=True, slots=True)
class FunctionTerm:
    """A call of a function, by its name in lower case."""

    name: str
    parts: tuple[Term, ...]


@dataclass(frozen=True, slots=True)
class CastTerm:
    """A value in the type of this name, in lower case."""

    part: Term
    kind: str


Term = ColumnTerm | LiteralTerm | OperatorTerm | FunctionTerm | CastTerm


def parse_condition(text: str) -> Term:
    """Returns the parts of a condition. Raises `ConditionError`."""
    parser = _Parser(text)
    term = parser.term()
    parser.end()
    return term


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    at, text = 0, text.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise ConditionError(f"{text[at:].strip()[:20]!r} was not expected")
        kind = str(match.lastgroup)
        yield kind, match[kind]
        at = match.end()


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens = list(_tokens(text))
        self._at = 0
        self._depth = 0

    def end(self) -> None:
        if self._at < len(self._tokens):
            raise ConditionError(f"{self._tokens[self._at][1]!r} was not expected")

    def term(self, loosest: int = _OR) -> Term:
        """Reads a term whose operators outside of parentheses bind at least as tightly as `loosest`."""
        self._depth += 1
        before, highest = self._depth, _PRODUCT
        node = self._first(loosest)
        while loosest <= (level := self._following()) <= highest:
            if level == _COMPARED:
                # The result of a comparison is compared with nothing.
                node, highest = self._comparison(node), _NOT
            elif level in (_OR, _AND):
                node, highest = self._chain(level, node), level
            else:
                # A sum of many parts is as deep as it is long.
                self._depth += 1
                node, highest = OperatorTerm(self._next()[1], (node, self.term(level + 1))), level
            self._check_depth()
        self._depth = before - 1
        return node

    def _check_depth(self) -> None:
        if self._depth > MOST_DEPTH:
            raise ConditionError(f"it is nested more than {MOST_DEPTH} times")

    def _following(self) -> int:
        """Returns how tightly the next operator binds, 0 if no operator is next."""
        kind, text = self._peek()
        return _INFIX.get(text.lower(), 0) if kind in ("name", "sign") else 0

    def _chain(self, level: int, first: Term) -> Term:
        word, parts = "or" if level == _OR else "and", [first]
        while self._word(word):
            parts.append(self.term(level + 1))
        return OperatorTerm(word, tuple(parts))

    def _comparison(self, left: Term) -> Term:
        kind, text = self._peek()
        if kind == "sign":
            self._at += 1
            return OperatorTerm(_SAME.get(text, text), (left, self.term(_SUM)))
        if self._word("is"):
            return self._is(left)
        negated = self._word("not")
        member = self._membership(left)
        return OperatorTerm("not", (member,)) if negated else member

    def _is(self, left: Term) -> Term:
        negated = self._word("not")
        word = next((word for word in ("null", "true", "false") if self._word(word)), None)
        if word is None:
            raise ConditionError("IS needs NULL, TRUE or FALSE")
        if word == "null":
            return OperatorTerm("is not null" if negated else "is null", (left,))
        truth = OperatorTerm(f"is {word}", (left,))
        return OperatorTerm("not", (truth,)) if negated else truth

    def _membership(self, left: Term) -> Term:
        if self._word("in"):
            self._expect("(")
            return OperatorTerm("in", (left, *self._list(_SUM)))
        if self._word("between"):
            least = self.term(_SUM)
            if not self._word("and"):
                raise ConditionError("BETWEEN needs AND")
            most = self.term(_SUM)
            return OperatorTerm("and", (OperatorTerm(">=", (left, least)), OperatorTerm("<=", (left, most))))
        for word in ("like", "ilike"):
            if self._word(word):
                return OperatorTerm(word, (left, self.term(_SUM)))
        raise ConditionError("NOT needs IN, BETWEEN or LIKE here")

    def _list(self, loosest: int = _OR) -> list[Term]:
        """Reads what is left of a list after its first parenthesis."""
        items = [self.term(loosest)]
        while self._sign(","):
            items.append(self.term(loosest))
        self._expect(")")
        return items

    def _first(self, loosest: int) -> Term:
        """Reads what an operator may follow."""
        self._check_depth()
        if loosest <= _NOT and (self._word("not") or self._sign("!")):
            return OperatorTerm("not", (self.term(_NOT),))
        kind, text = self._next()
        if (kind, text) == ("sign", "-"):
            return _negative(self.term(_SIGNED))
        if (kind, text) == ("sign", "("):
            inner = self.term()
            self._expect(")")
            return inner
        if kind == "number":
            return _number(text)
        if kind == "text":
            return LiteralTerm(_unquoted(text))
        if kind == "bytes":
            return LiteralTerm(bytes.fromhex(text[2:-1]))
        if kind == "name":
            return self._named(text)
        if kind != "quoted":
            raise ConditionError(f"{text!r} was not expected" if text else "it ends too early")
        return self._column(_unquoted(text))

    def _named(self, text: str) -> Term:
        word, following = text.lower(), self._peek()
        constants = {"true": True, "false": False, "null": None}
        if word in constants and following != ("sign", "."):
            return LiteralTerm(constants[word])
        if word in TIMES and following[0] == "text":
            return LiteralTerm(_unquoted(self._next()[1]), word)
        if following != ("sign", "("):
            return self._column(text)
        self._at += 1
        if word == "decimal":
            return self._decimal()
        return self._cast() if word == "cast" else FunctionTerm(word, tuple(self._list()))

    def _column(self, first: str) -> ColumnTerm:
        names = [first]
        while self._sign("."):
            kind, text = self._next()
            if kind not in ("name", "quoted"):
                raise ConditionError("a name was expected after '.'")
            names.append(_unquoted(text) if kind == "quoted" else text)
        return ColumnTerm(tuple(names))

    def _decimal(self) -> LiteralTerm:
        """Reads what is left of `decimal(p, s) 'text'`."""
        digits = [self._next()[1]]
        while self._sign(","):
            digits.append(self._next()[1])
        self._expect(")")
        kind, text = self._next()
        if kind != "text":
            raise ConditionError("decimal(p, s) needs a number in quotes")
        return LiteralTerm(_unquoted(text), f"decimal({', '.join(digits)})")

    def _cast(self) -> CastTerm:
        node = self.term()
        if not self._word("as"):
            raise ConditionError("CAST needs AS and a type")
        kind, text = self._next()
        if kind != "name":
            raise ConditionError(f"{text!r} is not a type")
        self._expect(")")
        return CastTerm(node, text.lower())

    def _peek(self) -> tuple[str, str]:
        return self._tokens[self._at] if self._at < len(self._tokens) else ("", "")

    def _next(self) -> tuple[str, str]:
        token = self._peek()
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
            raise ConditionError(f"{sign!r} was expected")


def _unquoted(text: str) -> str:
    return text[1:-1].replace(text[0] * 2, text[0])


def _number(text: str) -> LiteralTerm:
    digits = text.rstrip("lLsSyYbBdD")
    suffix = text[len(digits) :].lower()
    try:
        number = Decimal(digits)
    except InvalidOperation as error:
        raise ConditionError(f"the exponent of {text[:40]} is too large") from error
    # The sign is not read yet.
    if suffix in _BITS and not (digits.isdigit() and number <= 2 ** (_BITS[suffix] - 1)):
        raise ConditionError(f"{text[:40]} is not an integer of {_BITS[suffix]} bits")
    # A `Decimal` becomes an integer however many digits it has; Python refuses a text of thousands of digits.
    value = int(number) if digits.isdigit() else number
    is_double = suffix == "d" or (not suffix and "e" in digits.lower())
    return LiteralTerm(value, DOUBLE if is_double else "")


def _negative(term: Term) -> Term:
    value = term.value if isinstance(term, LiteralTerm) else None
    if isinstance(term, LiteralTerm) and isinstance(value, Decimal):
        # A minus sign would round it to the digits of Python's context.
        return LiteralTerm(value.copy_negate(), term.kind)
    if isinstance(term, LiteralTerm) and isinstance(value, int) and not isinstance(value, bool):
        return LiteralTerm(-value, term.kind)
    return OperatorTerm("negative", (term,))
