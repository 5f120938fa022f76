"""Classes with connections or threads that end with the block in which they are used."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self


class Closing(ABC):
    """A context manager that is closed when its block ends, also by an error."""

    @abstractmethod
    def close(self) -> None:
        """Ends its connections and threads."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
