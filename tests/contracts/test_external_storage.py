"""What every store promises, asked of a store whose versions are in a manifest store."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

from tests.contracts.behaviour import *  # noqa: F403 - the tests that all kinds of store have in common
from tests.contracts.manifest_stores import Kept

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakefold_table.storage.base import Storage


class KeptSite:
    """A name in memory."""

    cheap_size = True
    tick_us = 20_000
    rounds = 50

    def __init__(self) -> None:
        self.kept = Kept(uuid.uuid4().hex)

    def open(self, below: str = "") -> Storage:
        return self.kept.open(below)


@pytest.fixture
def site() -> Iterator[KeptSite]:
    site = KeptSite()
    yield site
    site.kept.close()
