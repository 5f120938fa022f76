"""The key of a batch: what makes the same batch the same proposal, whichever process sends it."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Final

from lakefold_log.write.producer import transaction_uuid
from lakefold_table.errors import InvalidError, OptionName

APP_ID: Final = OptionName("app_id")
MAX_APP_ID = 200
MAX_BATCH_ID = 2**64 - 1


@dataclass(frozen=True, slots=True)
class Key:
    """Identifies a batch: (app id, batch id), or a uuid alone if it has neither (`new_key`).

    The committer folds a key once. Raises `InvalidError` if app id or batch id can't be a key.
    """

    app_id: str
    batch_id: int | None
    own_uuid: str = ""

    def __post_init__(self) -> None:
        if not self.own_uuid:
            check_app_id(self.app_id)
            number: Any = self.batch_id
            is_number = isinstance(number, Integral) and not isinstance(number, bool)
            if not is_number or not 0 <= number <= MAX_BATCH_ID:
                message = f"{self.batch_id!r} can't be a batch id"
                raise InvalidError(message, where=OptionName("batch_id"), hint="batches count from 0")
            # A number of NumPy is written as no JSON.
            object.__setattr__(self, "batch_id", int(number))

    def uuid(self, table: str) -> str:
        """Returns the uuid of the transaction for the canonical URI `table`: the same in each process."""
        if self.own_uuid or self.batch_id is None:
            return self.own_uuid
        return transaction_uuid(self.app_id, self.batch_id, table)

    def __str__(self) -> str:
        return f"transaction {self.own_uuid}" if self.own_uuid else f"batch {self.batch_id} of {self.app_id}"


def new_key() -> Key:
    """Returns a key that no other batch has, a random uuid: for rows that only this process sends."""
    return Key("", None, str(uuid.uuid4()))


def check_app_id(app_id: str) -> None:
    """Raises `InvalidError` if this can't name an app: it is empty, too long or not printable."""
    if not isinstance(app_id, str):
        raise InvalidError(f"{app_id!r} can't be an app id", where=APP_ID, hint="give a text")
    if not app_id or len(app_id) > MAX_APP_ID or not app_id.isprintable() or app_id != app_id.strip():
        raise InvalidError(
            f"{app_id[:MAX_APP_ID]!r} can't be an app id",
            where=APP_ID,
            hint=f"give from 1 to {MAX_APP_ID} printable characters that stay the same when the job restarts",
        )
