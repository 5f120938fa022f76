"""Who sent a proposal: what a version says of the authors of its entries. It decides nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lakefold_protos.lakefold.log_pb2 import Author as AuthorMessage
from lakefold_table.values import value

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_MESSAGE: Final = 500
"""How many characters a version keeps of a message."""
MAX_NAME: Final = 200
"""How many characters a version keeps of any other field."""
_MOST_NAMED: Final = 5


@value()
class Author:
    """The sender of a proposal, as far as it said: any field may be empty.

    `name`: a person or service, e.g. `anna@ingest-7`. `program`: what sent it, with the release of Lakefold.
    `query`: the streaming query of Spark. `message`: why, in the sender's words.
    """

    name: str = ""
    program: str = ""
    query: str = ""
    message: str = ""

    @classmethod
    def of(cls, message: AuthorMessage) -> Author:
        """Returns the author that a message names. Texts that are too long for each version are cut."""
        return cls(
            message.name[:MAX_NAME],
            message.program[:MAX_NAME],
            message.query[:MAX_NAME],
            message.message[:MAX_MESSAGE],
        )

    def as_message(self) -> AuthorMessage:
        """Returns the author as envelopes and records have it."""
        return AuthorMessage(name=self.name, program=self.program, query=self.query, message=self.message)

    def __str__(self) -> str:
        inside = ", ".join(part for part in (self.program, self.query and f"query {self.query}") if part)
        who = f"{self.name} ({inside})" if self.name and inside else self.name or inside
        return f"{who}: {self.message}" if who and self.message else who or self.message


def text_of(authors: Iterable[Author]) -> str:
    """Returns some authors for people, e.g. `anna@ingest-7 (load.py): late rows; 3 more`."""
    texts = list(dict.fromkeys(str(author) for author in authors))
    more = len(texts) - _MOST_NAMED
    return "; ".join([*texts[:_MOST_NAMED], *([f"{more} more"] if more > 0 else [])])
