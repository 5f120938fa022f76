"""What every store promises, asked of S3: a real server on loopback."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from lakefold_table.storage import open_storage
from tests.contracts.behaviour import *  # noqa: F403 - the tests that all kinds of store have in common
from tests.servers.s3 import BUCKET, S3Server

if TYPE_CHECKING:
    from lakefold_table.storage.base import Storage


@dataclass(frozen=True)
class Bucket:
    """A key prefix that no other test uses."""

    server: S3Server
    name: str
    cheap_size: bool = False
    tick_us: int = 1_000_000
    rounds: int = 20

    def open(self, below: str = "") -> Storage:
        return open_storage(f"s3://{BUCKET}/{self.name}/table{below}", self.server.options())


@pytest.fixture
def site(s3: S3Server) -> Bucket:
    return Bucket(s3, uuid.uuid4().hex)
