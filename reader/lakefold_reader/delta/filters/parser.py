"""Parses filters: SQL conditions on the columns of a table, in the dialect of Lance tables as far as it goes.

Names may be in backticks; texts are in single or double quotes. A constant is converted to the type of the
column that it is compared with.
"""

from __future__ import annotations

import datetime as dt
import re
from contextlib import suppress
from decimal import Decimal
from typing import TYPE_CHECKING, Final, NoReturn

import pyarrow as pa

from lakefold_reader.delta.filters.nodes import (
    COMPARISONS,
    FUNCTIONS,
    CallNode,
    CastNode,
    ColumnNode,
    InNode,
    LiteralNode,
    fitted,
    time_literal,
)
from lakefold_reader.delta.schema import column_named
from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lakefold_reader.delta.filters.nodes import Node
    from lakefold_reader.delta.schema import DeltaColumn

MOST_DEPTH: Final = 100
"""How deep a filter may be nested."""
MOST_TEXT: Final = 1 << 20
_TOKEN: Final = re.compile(
    r"""\s*(?:
        (?P<bytes>[xX]'(?:[0-9A-Fa-f]{2})*')
      | (?P<text>'(?:[^']|'')*'|"(?:[^"]|"")*")
      | (?P<quoted>`(?:[^`]|``)+`)
      | (?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?![\w.]))
      | (?P<name>[^\W\d]\w*)
      | (?P<sign><=>|<>|!=|<=|>=|==|[=<>!(),.*/+-])
    )""",
    re.VERBOSE,
)
_SAME: Final = {"==": "=", "<>": "!="}
_TYPES: Final = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "varchar": pa.string(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
}
_HINT: Final = (
    "write comparisons, AND, OR, NOT, IN, BETWEEN, LIKE, IS NULL, + - * /, CAST(… AS …) and the functions "
    f"{', '.join(FUNCTIONS)}"
)


def parsed(text: str, columns: Sequence[DeltaColumn]) -> tuple[Node, list[DeltaColumn]]:
    """Returns a filter, and the columns that it needs. Raises `InvalidError`."""
    if len(text) > MOST_TEXT:
        raise InvalidError(f"the filter has more than {MOST_TEXT} characters", where="filter")
    parser = _Parser(text, columns)
    node = parser.whole()
    return node, list(parser.used.values())


class _Parser:
    def __init__(self, text: str, columns: Sequence[DeltaColumn]) -> None:
        self._text = text
        self._columns = columns
        self._tokens = list(self._split())
        self._at = 0
        self._depth = 0
        self.used: dict[str, DeltaColumn] = {}

    def whole(self) -> Node:
        node = self._alternatives()
        if self._at < len(self._tokens):
            self._fail(f"{self._tokens[self._at][1]!r} was not expected")
        return node

    def _split(self) -> list[tuple[str, str]]:
        tokens, at, text = [], 0, self._text.rstrip()
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                self._fail(f"{text[at:].strip()[:20]!r} was not expected")
            kind = str(match.lastgroup)
            tokens.append((kind, match[kind]))
            at = match.end()
        return tokens

    def _fail(self, what: str) -> NoReturn:
        raise InvalidError(f"the filter can't be read: {what}", where=self._text[:200], hint=_HINT)

    def _nested(self, read: Callable[[], Node]) -> Node:
        self._depth += 1
        if self._depth > MOST_DEPTH:
            self._fail(f"it is nested more than {MOST_DEPTH} times")
        node = read()
        self._depth -= 1
        return node

    def _alternatives(self) -> Node:
        parts = [self._conditions()]
        while self._word("or"):
            parts.append(self._conditions())
        return parts[0] if len(parts) == 1 else CallNode("or", tuple(parts))

    def _conditions(self) -> Node:
        parts = [self._negation()]
        while self._word("and"):
            parts.append(self._negation())
        return parts[0] if len(parts) == 1 else CallNode("and", tuple(parts))

    def _negation(self) -> Node:
        if self._word("not") or self._sign("!"):
            return CallNode("not", (self._nested(self._negation),))
        return self._comparison()

    def _comparison(self) -> Node:
        left = self._sum()
        kind, text = self._peek()
        operator = _SAME.get(text, text)
        if kind == "sign" and operator in COMPARISONS:
            self._at += 1
            return self._compared(operator, left, self._sum())
        if self._word("is"):
            negated = self._word("not")
            word = next((word for word in ("null", "true", "false") if self._word(word)), None)
            if word is None:
                self._fail("IS needs NULL, TRUE or FALSE")
            if word == "null":
                return CallNode("is not null" if negated else "is null", (left,))
            truth = CallNode(f"is {word}", (left,))
            return CallNode("not", (truth,)) if negated else truth
        negated = self._word("not")
        member = self._membership(left)
        if member is None and negated:
            self._fail("NOT needs IN, BETWEEN or LIKE here")
        if member is None:
            return left
        return CallNode("not", (member,)) if negated else member

    def _membership(self, left: Node) -> Node | None:
        if self._word("in"):
            return self._list(left)
        if self._word("between"):
            least = self._sum()
            if not self._word("and"):
                self._fail("BETWEEN needs AND")
            most = self._sum()
            return CallNode("and", (self._compared(">=", left, least), self._compared("<=", left, most)))
        for word in ("like", "ilike"):
            if self._word(word):
                return CallNode(word, (left, self._sum()))
        return None

    def _list(self, left: Node) -> Node:
        self._expect("(")
        items = [self._sum()]
        while self._sign(","):
            items.append(self._sum())
        self._expect(")")
        kind = left.column.field.type if isinstance(left, ColumnNode) else None
        constants = [item.scalar for item in self._constants(items, kind)]
        valid = [scalar.as_py() for scalar in constants if scalar.is_valid]
        try:
            among = pa.array(valid) if kind is None else _of_type(valid, kind)
        except (pa.ArrowException, TypeError, ValueError) as error:
            self._fail(f"the constants of a list differ in type: {error}")
        return InNode(left, among, has_null=len(valid) < len(constants))

    def _constants(self, items: Sequence[Node], kind: pa.DataType | None) -> list[LiteralNode]:
        constants = []
        for item in items:
            if not isinstance(item, LiteralNode):
                self._fail("IN needs a list of constants")
            constants.append(item if kind is None else fitted(item, kind))
        return constants

    def _compared(self, operator: str, left: Node, right: Node) -> Node:
        if isinstance(right, LiteralNode) and isinstance(left, ColumnNode):
            right = fitted(right, left.column.field.type)
        elif isinstance(left, LiteralNode) and isinstance(right, ColumnNode):
            left = fitted(left, right.column.field.type)
        return CallNode(operator, (left, right))

    def _sum(self) -> Node:
        node = self._product()
        while True:
            operator = next((sign for sign in "+-" if self._sign(sign)), None)
            if operator is None:
                return node
            node = CallNode(operator, (node, self._product()))

    def _product(self) -> Node:
        node = self._signed()
        while True:
            operator = next((sign for sign in "*/" if self._sign(sign)), None)
            if operator is None:
                return node
            node = CallNode(operator, (node, self._signed()))

    def _signed(self) -> Node:
        if not self._sign("-"):
            return self._primary()
        node = self._nested(self._signed)
        if isinstance(node, LiteralNode) and node.number is not None:
            return _number(-node.number)
        return CallNode("negative", (node,))

    def _primary(self) -> Node:
        kind, text = self._next()
        if (kind, text) == ("sign", "("):
            inner = self._nested(self._alternatives)
            self._expect(")")
            return inner
        if kind == "number":
            return _number(Decimal(text))
        if kind == "text":
            return LiteralNode(pa.scalar(_unquoted(text)))
        if kind == "bytes":
            return LiteralNode(pa.scalar(bytes.fromhex(text[2:-1])))
        if kind == "name":
            return self._named(text)
        if kind != "quoted":
            self._fail(f"{text!r} was not expected" if text else "it ends too early")
        return self._column(_unquoted(text))

    def _named(self, text: str) -> Node:
        word = text.lower()
        following = self._peek()
        constants = {"true": pa.scalar(True), "false": pa.scalar(False), "null": pa.scalar(None)}  # noqa: FBT003 - values
        if word in constants and following != ("sign", "."):
            return LiteralNode(constants[word])
        if word in ("date", "timestamp") and following[0] == "text":
            self._at += 1
            return self._time(word, _unquoted(following[1]))
        if following != ("sign", "("):
            return self._column(text)
        if word == "decimal":
            return self._decimal()
        self._at += 1
        if word == "cast":
            return self._cast()
        if word not in FUNCTIONS:
            self._fail(f"the function {text!r} is not known")
        parts = [self._nested(self._alternatives)]
        while self._sign(","):
            parts.append(self._nested(self._alternatives))
        self._expect(")")
        return CallNode(word, tuple(parts))

    def _column(self, first: str) -> Node:
        names = [first]
        while self._sign("."):
            kind, text = self._next()
            if kind not in ("name", "quoted"):
                self._fail("a name was expected after '.'")
            names.append(_unquoted(text) if kind == "quoted" else text)
        name = ".".join(names)
        column = column_named(self._columns, name) or self._any_case(name)
        if column is None:
            self._fail(f"there is no column {name!r}")
        self.used[column.field.name] = column
        return ColumnNode(column)

    def _any_case(self, name: str) -> DeltaColumn | None:
        same = [column for column in self._columns if column.field.name.lower() == name.lower()]
        return same[0] if len(same) == 1 else None

    def _time(self, word: str, text: str) -> Node:
        try:
            if word == "date":
                return LiteralNode(pa.scalar(dt.date.fromisoformat(text.strip())))
            return LiteralNode(time_literal(text))
        except ValueError:
            self._fail(f"{text!r} is no {word}")

    def _decimal(self) -> Node:
        """Reads `decimal(p, s) 'text'`."""
        self._expect("(")
        digits = [self._next()[1]]
        while self._sign(","):
            digits.append(self._next()[1])
        self._expect(")")
        kind, text = self._next()
        try:
            number = Decimal(_unquoted(text)) if kind == "text" else None
            if number is None or not number.is_finite():
                self._fail("decimal(p, s) needs a number in quotes")
            return LiteralNode(pa.scalar(number, pa.decimal128(*map(int, digits))), number)
        except (ArithmeticError, pa.ArrowException, TypeError, ValueError):
            self._fail(f"{text} is no decimal({', '.join(digits)})")

    def _cast(self) -> Node:
        node = self._nested(self._alternatives)
        if not self._word("as"):
            self._fail("CAST needs AS and a type")
        kind, text = self._next()
        target = _TYPES.get(text.lower()) if kind == "name" else None
        if target is None:
            self._fail(f"{text!r} is no type: {', '.join(_TYPES)}")
        self._expect(")")
        return CastNode(node, target)

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
            self._fail(f"{sign!r} was expected")


def _unquoted(text: str) -> str:
    return text[1:-1].replace(text[0] * 2, text[0])


def _number(number: Decimal) -> LiteralNode:
    """Returns a number: an integer of 64 bits if it is one, else a decimal or a floating-point number."""
    is_whole = number.as_tuple().exponent == 0
    if is_whole:
        kind = pa.int64() if _holds(pa.int64(), int(number)) else None
        return LiteralNode(pa.scalar(int(number), kind) if kind else pa.scalar(float(number)), number)
    return LiteralNode(pa.scalar(float(number)), number)


def _of_type(constants: Sequence[object], kind: pa.DataType) -> pa.Array:
    """Returns the constants that a type has, in it: others are in no row."""
    held = []
    for constant in constants:
        with suppress(pa.ArrowException, OverflowError):
            held.append(pa.scalar(constant, kind))
    return pa.array(held, kind)


def _holds(kind: pa.DataType, number: int) -> bool:
    """Returns whether a signed integer type has a number."""
    limit = 2 ** (kind.bit_width - 1)
    return bool(-limit <= number < limit)
