"""pylance commits through a namespace that has each of its versions folded: it can't tell the difference.

The namespace is a small one in this process. It does what a catalog does: the transaction in the staged
manifest becomes a proposal for the version that the client names.

Promise: clients-versions (docs/operations/promises.md).
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import lance
import pytest
from lance_namespace import (
    CreateTableVersionResponse,
    DeclareTableResponse,
    DescribeTableResponse,
    DescribeTableVersionResponse,
    LanceNamespace,
    ListTableVersionsResponse,
    TableVersion,
)
from lance_namespace.errors import ConcurrentModificationError, TableNotFoundError

from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_table.entry import Committed, Result
from lakefold_table.lance.manifests.codec import decode_file
from lakefold_table.storage.local import LocalStorage
from lakefold_table.versions.versions import Versions
from tests.folding import FORMAT
from tests.oracle import committing

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pyarrow as pa
    from lance_namespace import (
        CreateTableVersionRequest,
        DeclareTableRequest,
        DescribeTableRequest,
        DescribeTableVersionRequest,
        ListTableVersionsRequest,
    )

    from lakefold_table.lance.state import LanceState


class Folding(LanceNamespace):
    """One table, whose versions are folded. `results`: of each proposal. `lose`: so many answers get lost."""

    def __init__(self, table: Path) -> None:
        self.table, self.results, self.lose = table, list[Result](), 0
        self.before: Callable[[], object] = lambda: None
        self.offset = 0
        self._committer = committing.owned(table)

    def namespace_id(self) -> str:
        return str(self.table)

    def describe_table(self, request: DescribeTableRequest) -> DescribeTableResponse:
        if not self.table.exists():
            raise TableNotFoundError(str(request.id))
        return DescribeTableResponse(location=str(self.table), managed_versioning=True)

    def declare_table(self, request: DeclareTableRequest) -> DeclareTableResponse:
        del request
        return DeclareTableResponse(location=str(self.table), managed_versioning=True)

    def list_table_versions(self, request: ListTableVersionsRequest) -> ListTableVersionsResponse:
        versions = Versions(LocalStorage(self.table), FORMAT.folder, FORMAT.detect)
        newest = versions.latest()
        numbers = range(newest, 0, -1)[: request.model_dump().get("limit")] if newest else ()
        return ListTableVersionsResponse(versions=[self._version(number) for number in numbers])

    def describe_table_version(self, request: DescribeTableVersionRequest) -> DescribeTableVersionResponse:
        return DescribeTableVersionResponse(version=self._version(request.model_dump()["version"]))

    def create_table_version(self, request: CreateTableVersionRequest) -> CreateTableVersionResponse:
        self.before()
        asked = request.model_dump()
        staged = decode_file(
            self.table.joinpath("_versions", asked["manifest_path"].rpartition("/")[2]).read_bytes()
        )
        assert staged.transaction is not None
        envelope = Envelope(table=f"file://{self.table}", as_version=asked["version"])
        if asked["version"] == 1:
            envelope.create.SetInParent()
        envelope.lance.CopyFrom(staged.transaction)
        result = self.fold(envelope)
        if not isinstance(result, Committed):
            raise ConcurrentModificationError(str(result))
        if self.lose:
            self.lose -= 1
            raise ConnectionError("the answer was lost")
        return CreateTableVersionResponse(version=self._version(asked["version"]))

    def fold(self, envelope: Envelope) -> Result:
        (result,) = committing.fold(self._committer, [envelope], self.offset)
        self.offset += 1
        self.results.append(result)
        return result

    def open(self) -> lance.LanceDataset:
        return lance.dataset(namespace_client=self, table_id=["t"])

    def write(self, rows: pa.Table, mode: str = "append") -> lance.LanceDataset:
        return lance.write_dataset(rows, namespace_client=self, table_id=["t"], mode=mode)

    def _version(self, number: int) -> TableVersion:
        path = next(self.table.glob(f"_versions/{2**64 - 1 - number:020d}.manifest"))
        return TableVersion(version=number, manifest_path=str(path), manifest_size=path.stat().st_size)


@pytest.fixture
def namespace(tmp_path: Path) -> Folding:
    namespace = Folding(tmp_path / "t.lance")
    namespace.write(committing.rows(0, 100), "create")
    return namespace


def newest(namespace: Folding) -> LanceState:
    return committing.state(namespace.table)


def test_its_operations_are_folded_as_the_versions_that_it_names(namespace: Folding) -> None:
    table = namespace.write(committing.rows(100, 20))
    table.delete("a < 5")
    table.update({"s": "'changed'"}, where="a = 7")
    table.merge_insert("a").when_matched_update_all().when_not_matched_insert_all().execute(
        committing.rows(110, 20)
    )
    table.create_scalar_index("a", "BTREE")
    table.add_columns({"b": "a + 1"})
    table.drop_columns(["b"])
    namespace.write(committing.rows(200, 10))
    table.checkout_latest()
    table.optimize.compact_files()
    table.optimize.optimize_indices()
    table.update_config({"k": "v"})
    seen, other = table.to_table().sort_by("a"), namespace.open().to_table().sort_by("a")
    assert seen == other
    assert lance.dataset(str(namespace.table)).to_table(filter="a = 125").num_rows == 1
    assert {type(result) for result in namespace.results} == {Committed}
    assert [result.version for result in namespace.results if isinstance(result, Committed)] == [
        *range(1, table.version + 1)
    ]
    lance.dataset(str(namespace.table)).validate()


@pytest.mark.parametrize("operation", ["append", "delete", "update", "overwrite", "index", "compact"])
def test_a_lost_answer_is_a_success_to_it(namespace: Folding, operation: str) -> None:
    namespace.write(committing.rows(100, 20))
    table, count = namespace.open(), len(namespace.results)
    namespace.lose = 1
    actions: dict[str, Callable[[], object]] = {
        "append": lambda: namespace.write(committing.rows(120, 5)),
        "delete": lambda: table.delete("a < 5"),
        "update": lambda: table.update({"s": "'x'"}, where="a = 7"),
        "overwrite": lambda: namespace.write(committing.rows(0, 3), "overwrite"),
        "index": lambda: table.create_scalar_index("a", "BTREE"),
        "compact": table.optimize.compact_files,
    }
    actions[operation]()
    assert not namespace.lose
    assert all(isinstance(result, Committed) for result in namespace.results[count:])
    assert len(namespace.results) == count + (2 if operation == "compact" else 1), "it wasn't sent again"


def test_it_comes_again_as_the_next_version_if_its_number_is_taken(namespace: Folding) -> None:
    overtaken = []

    def overtake() -> None:
        namespace.before = lambda: None
        envelope = Envelope(table=f"file://{namespace.table}")
        envelope.lance.uuid, envelope.lance.read_version = "ours", newest(namespace).version
        envelope.lance.append.SetInParent()
        overtaken.append(namespace.fold(envelope))

    table = namespace.open()
    namespace.before = overtake
    table.delete("a < 5")
    assert isinstance(overtaken[0], Committed)
    assert table.version == overtaken[0].version + 1
    assert namespace.open().count_rows() == 95


def test_versions_before_and_after_are_cleaned_up_and_restored_by_it(namespace: Folding) -> None:
    table = namespace.write(committing.rows(100, 20))
    namespace.write(committing.rows(0, 3), "overwrite")
    table = namespace.open().checkout_version(2)
    table.restore()
    assert namespace.open().count_rows() == 120
    namespace.open().cleanup_old_versions(timedelta(0), delete_unverified=True)
    assert namespace.open().count_rows() == 120
