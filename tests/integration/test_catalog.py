"""Clients that know nothing of Lakefold commit through the log: pylance by an object and by REST.

Promise: clients-versions (docs/operations/promises.md).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import lance
import lance_namespace as interface
import pyarrow as pa
import pytest
from lance.namespace import RestNamespace
from lance_namespace.errors import (
    ConcurrentModificationError,
    InvalidInputError,
    LanceNamespaceError,
    TableAlreadyExistsError,
    TableNotFoundError,
)

import lakefold
from lakefold_ingest.writing.log_client import close_clients
from lakefold_table.lance.manifests.codec import decode_file
from tests.integration.committers import ready_committer, running_committer
from tests.integration.own_log import OwnLog
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future
    from pathlib import Path

    from pydantic import BaseModel

    from lakefold import WriteOptions
    from lakefold.namespace.namespace import LakefoldNamespace
    from tests.integration.conftest import TopicNames

TOKEN = "a word"  # noqa: S105 - of these tests alone
STEPS: dict[str, Callable[[Any], object]] = {
    "append": lambda table: lance.write_dataset(rows(100, 10), table, mode="append"),
    "delete": lambda table: table.delete("id < 5"),
    "update": lambda table: table.update({"text": "'new'"}, where="id = 7"),
    "merge": lambda table: (
        table.merge_insert("id")
        .when_matched_update_all()
        .when_not_matched_insert_all()
        .execute(rows(105, 20))
    ),
    "index": lambda table: table.create_scalar_index("id", "BTREE"),
    "add a column": lambda table: table.add_columns({"more": "id + 1"}),
    "rename it": lambda table: table.alter_columns({"path": "more", "name": "most"}),
    "drop it": lambda table: table.drop_columns(["most"]),
    "compact": lambda table: table.optimize.compact_files(),
    "bring the index up to date": lambda table: table.optimize.optimize_indices(),
    "restore": lambda table: table.checkout_version(2).restore(),
    "overwrite": lambda table: lance.write_dataset(rows(0, 3), table, mode="overwrite"),
}
"""What pylance does to a table, in turn."""


def rows(first: int, count: int) -> pa.Table:
    ids = range(first, first + count)
    return pa.table({"id": ids, "text": [f"row {each}" for each in ids]})


def stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def content(table: lance.LanceDataset) -> list[dict[str, Any]]:
    return sorted(pa.table(table.to_table()).to_pylist(), key=lambda row: row["id"])


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "lake"
    folder.mkdir()
    return folder


@pytest.fixture
def namespace(root: Path, options: WriteOptions) -> Iterator[LakefoldNamespace]:
    opened = lakefold.catalog(root, **cast("Any", options))
    yield opened
    opened.close()


class Served:
    """A running `lakefold catalog`; started again after `kill`, at the same port."""

    def __init__(self, root: Path, options: WriteOptions, group: str) -> None:
        self._names = ("bootstrap_servers", "transactions_topic", "outcomes_topic")
        self._variables = {f"LAKEFOLD_{name.upper()}": str(options[name]) for name in self._names}  # type: ignore[literal-required]
        self._variables["LAKEFOLD_GROUP"] = group
        self._root = root
        self._port = 0
        self.process: subprocess.Popen[str]
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        command = (sys.executable, "-m", "lakefold", "catalog", "--root", str(self._root), "--json")
        self.process = subprocess.Popen(
            (*command, "--port", str(self._port)),
            env={**os.environ, **self._variables, "LAKEFOLD_CATALOG_TOKEN": TOKEN},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self._port = json.loads(self.process.stdout.readline())["port"]

    def end(self, how: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(how)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return self.process.wait(60)

    def client(self) -> RestNamespace:
        header = {"header.authorization": f"Bearer {TOKEN}", "headers.authorization": f"Bearer {TOKEN}"}
        return RestNamespace(uri=self.url, **header)

    def post(self, path: str, body: bytes, **headers: str) -> tuple[int, Any]:
        """The status and the answer of a request."""
        request = urllib.request.Request(f"{self.url}/v1/{path}", body, {"x-api-key": TOKEN, **headers})  # noqa: S310 - of this machine
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 - of this machine
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())


@contextmanager
def serving(root: Path, options: WriteOptions, group: str = "committers") -> Iterator[Served]:
    served = Served(root, options, group)
    try:
        yield served
    finally:
        if served.process.poll() is None:
            served.end()


@pytest.mark.parametrize(
    "client_of", [lambda namespace, _: namespace, lambda _, served: served.client()], ids=["object", "REST"]
)
def test_each_kind_of_commit_goes_through_the_log(
    client_of: Callable[[LakefoldNamespace, Served], Any],
    root: Path,
    namespace: LakefoldNamespace,
    options: WriteOptions,
    tmp_path: Path,
) -> None:
    """The rows are those of the same steps on a folder that no catalog knows."""
    bare = lance.write_dataset(rows(0, 50), tmp_path / "bare.lance")
    with serving(root, options) as served:
        client = client_of(namespace, served)
        table = lance.write_dataset(rows(0, 50), namespace_client=client, table_id=["sales", "orders"])
        for step, do in STEPS.items():
            do(table)
            do(bare)
            table = lance.dataset(namespace_client=client, table_id=["sales", "orders"])
            bare = lance.dataset(tmp_path / "bare.lance")
            assert content(table) == content(bare), step
    path = root / "sales" / "orders.lance"
    assert table.version == bare.version
    assert content(lance.dataset(path)) == content(bare)
    through = list(lakefold.history(path))
    assert len(through) == bare.version
    assert all(version.positions for version in through), "each version names the entry that it has"
    assert not [*(path / "_versions").glob("*manifest-*")], "nothing that was staged is left"


def test_racing_clients_lose_and_double_nothing(
    root: Path, namespace: LakefoldNamespace, options: WriteOptions
) -> None:
    """Two catalogs serve one root; our own stream writes beside their clients."""
    lance.write_dataset(rows(0, 1), namespace_client=namespace, table_id=["t"])
    with serving(root, options) as served:
        clients = [namespace, served.client(), namespace, served.client()]

        def write(number: int) -> None:
            for batch in range(6):
                more = rows(1000 * (number + 1) + 10 * batch, 10)
                lance.write_dataset(more, namespace_client=clients[number], table_id=["t"], mode="append")

        def stream_beside() -> None:
            for batch in range(20):
                lakefold.append(
                    root / "t.lance", rows(100_000 + batch, 1), app_id="ours", batch_id=batch, **options
                )

        with ThreadPoolExecutor(5) as pool:
            done = [pool.submit(write, number) for number in range(4)]
            done.append(pool.submit(stream_beside))
            for each in done:
                each.result()
    ids = [row["id"] for row in content(lance.dataset(root / "t.lance"))]
    expected = {0, *range(100_000, 100_020)}
    expected |= {1000 * (number + 1) + each for number in range(4) for each in range(60)}
    assert sorted(expected) == ids


def staged_by(namespace: LakefoldNamespace, path: Path) -> tuple[int, Path, bytes]:
    """The version, the file and the manifest that pylance stages for an append, which isn't created."""
    kept: list[tuple[int, bytes, str]] = []

    def keep(_: LakefoldNamespace, request: BaseModel) -> None:
        asked = request.model_dump()
        name = asked["manifest_path"].rpartition("/")[2]
        kept.append((asked["version"], (path / "_versions" / name).read_bytes(), name))
        raise InvalidInputError("stop")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(type(namespace), "create_table_version", keep)
        with pytest.raises(OSError, match="unknown"):
            lance.write_dataset(rows(500, 1), namespace_client=namespace, table_id=[path.stem], mode="append")
    version, data, name = kept[0]
    return version, path / "_versions" / name, data


LIES: dict[str, Callable[[int, Path, bytes], tuple[int, str, bytes]]] = {
    "another version": lambda version, file, data: (version + 1, str(file), data),
    "far ahead": lambda version, file, data: (version + 10**6, str(file), data),
    "no manifest": lambda version, file, _: (version, str(file), b"nothing" * 20),
    "a cut manifest": lambda version, file, data: (version, str(file), data[: len(data) // 2]),
    "an empty file": lambda version, file, _: (version, str(file), b""),
    "another table's folder": lambda version, file, data: (
        version,
        str(file.parents[2] / "u.lance" / "_versions" / file.name),
        data,
    ),
    "a file outside": lambda version, file, data: (version, f"/etc/{file.name}", data),
    "a way outside": lambda version, file, data: (version, f"{file.parent}/../../../{file.name}", data),
    "no staged name": lambda version, file, data: (version, str(file.parent / "1.manifest"), data),
}
"""What a client says of a version that it has staged, and what is in the file."""


@pytest.mark.parametrize("lie", LIES)
def test_a_staged_version_that_lies_is_refused(lie: str, root: Path, namespace: LakefoldNamespace) -> None:
    """Nothing is committed, and the table goes on."""
    lance.write_dataset(rows(0, 5), namespace_client=namespace, table_id=["t"])
    version, file, data = staged_by(namespace, root / "t.lance")
    asked, path, written = LIES[lie](version, file, data)
    file.write_bytes(written)
    request = interface.CreateTableVersionRequest(id=["t"], version=asked, manifest_path=path)
    with pytest.raises((InvalidInputError, ConcurrentModificationError)):
        namespace.create_table_version(request)
    assert lance.dataset(root / "t.lance").version == version - 1
    lance.write_dataset(rows(5, 5), namespace_client=namespace, table_id=["t"], mode="append")
    assert len(content(lance.dataset(root / "t.lance"))) == 10


def test_files_that_never_were_are_refused_by_the_committer(root: Path, namespace: LakefoldNamespace) -> None:
    """The answer is a conflict, as only that makes a client look; the reason is in the dead letters."""
    lance.write_dataset(rows(0, 5), namespace_client=namespace, table_id=["t"])
    version, file, data = staged_by(namespace, root / "t.lance")
    transaction = decode_file(data, "staged").transaction
    assert transaction is not None
    (added,) = transaction.append.fragments
    (root / "t.lance" / "data" / added.files[0].path).unlink()
    file.write_bytes(data)
    request = interface.CreateTableVersionRequest(id=["t"], version=version, manifest_path=str(file))
    with pytest.raises(ConcurrentModificationError, match=r"(does not exist|missing)"):
        namespace.create_table_version(request)
    assert lance.dataset(root / "t.lance").version == version - 1


def test_a_version_that_was_committed_is_told_by_its_transaction(
    root: Path, namespace: LakefoldNamespace
) -> None:
    """`describe_transaction` with the names of the table."""
    table = lance.write_dataset(rows(0, 5), namespace_client=namespace, table_id=["t"])
    transaction = table.read_transaction(1)
    assert transaction is not None
    uuid = transaction.uuid
    confirmed = namespace.describe_transaction(interface.DescribeTransactionRequest(id=["t", uuid]))
    assert confirmed.status == "Succeeded"
    assert (confirmed.properties or {})["version"] == "1"
    with pytest.raises(InvalidInputError, match="names no table"):
        namespace.describe_transaction(interface.DescribeTransactionRequest(id=[uuid]))
    assert (root / "t.lance").exists()


def test_rows_of_many_clients_share_files_and_versions(root: Path, namespace: LakefoldNamespace) -> None:
    create = partial(namespace.create_table, interface.CreateTableRequest(id=["t"], mode="create"))
    create(stream(rows(0, 1)))
    with pytest.raises(TableAlreadyExistsError):
        create(stream(rows(0, 1)))
    start = threading.Barrier(16)

    def insert(number: int) -> list[int | None]:
        start.wait()
        return [
            namespace.insert_into_table(
                interface.InsertIntoTableRequest(id=["t"]), stream(rows(100 * number + 10 * each + 1, 10))
            ).version
            for each in range(10)
        ]

    with ThreadPoolExecutor(16) as pool:
        versions = [version for each in pool.map(insert, range(16)) for version in each]
    table = lance.dataset(root / "t.lance")
    assert [row["id"] for row in content(table)] == [*range(1601)]
    assert table.version == max(each or 0 for each in versions)
    assert len(set(versions)) < 80
    assert len(table.get_fragments()) < 80


def test_a_request_with_its_own_key_is_done_once(
    root: Path, namespace: LakefoldNamespace, options: WriteOptions
) -> None:
    namespace.create_table(interface.CreateTableRequest(id=["t"]), stream(rows(0, 1)))
    with serving(root, options) as served:
        insert = partial(served.post, "table/t/insert")
        for _ in range(2):
            assert insert(stream(rows(10, 5)), **{"Idempotency-Key": "loader:7"})[0] == 200
        status, answer = insert(stream(rows(90, 5)), **{"Idempotency-Key": "loader:7"})
        assert status == 400
        assert "loader" in answer["error"]
        status, answer = insert(stream(rows(90, 5)), **{"Idempotency-Key": "any text"})
        assert status == 400
        assert "loader:12" in answer["error"]
        delete = partial(served.post, "table/t/delete", json.dumps({"predicate": "id = 0"}).encode())
        for _ in range(2):
            assert delete(**{"Idempotency-Key": "loader:8"})[0] == 200
    assert len(content(lance.dataset(root / "t.lance"))) == 5


def test_rows_are_changed_by_the_interface(root: Path, namespace: LakefoldNamespace) -> None:
    namespace.create_table(interface.CreateTableRequest(id=["t"]), stream(rows(0, 10)))
    merged = namespace.merge_insert_into_table(
        interface.MergeInsertIntoTableRequest(
            id=["t"], on=["id"], when_matched_update_all=True, when_not_matched_insert_all=True
        ),
        stream(pa.table({"id": [9, 10], "text": ["nine", "ten"]})),
    )
    assert (merged.num_updated_rows, merged.num_inserted_rows) == (1, 1)
    updated = namespace.update_table(
        interface.UpdateTableRequest(id=["t"], updates=[["text", "upper(text)"]], predicate="id >= 9")
    )
    assert updated.updated_rows == 2
    namespace.delete_from_table(interface.DeleteFromTableRequest(id=["t"], predicate="id < 9"))
    assert content(lance.dataset(root / "t.lance")) == [
        {"id": 9, "text": "NINE"},
        {"id": 10, "text": "TEN"},
    ]
    assert namespace.count_table_rows(interface.CountTableRowsRequest(id=["t"])).count == 2
    count = namespace.count_table_rows(interface.CountTableRowsRequest(id=["t"], predicate="text = 'TEN'"))
    assert count.count == 1
    stats = namespace.get_table_stats(interface.GetTableStatsRequest(id=["t"]))
    assert stats.num_rows == 2


def test_a_dropped_table_is_gone_and_can_be_made_again(root: Path, namespace: LakefoldNamespace) -> None:
    for first in (0, 100):
        namespace.create_table(interface.CreateTableRequest(id=["t"]), stream(rows(first, 3)))
        namespace.insert_into_table(interface.InsertIntoTableRequest(id=["t"]), stream(rows(first + 3, 2)))
        assert [row["id"] for row in content(lance.dataset(root / "t.lance"))] == [*range(first, first + 5)]
        namespace.drop_table(interface.DropTableRequest(id=["t"]))
        assert not (root / "t.lance").exists()
        with pytest.raises(TableNotFoundError):
            namespace.describe_table(interface.DescribeTableRequest(id=["t"]))
        with pytest.raises(TableNotFoundError):
            namespace.insert_into_table(interface.InsertIntoTableRequest(id=["t"]), stream(rows(0, 1)))


def test_versions_are_removed_if_nothing_needs_them(root: Path, namespace: LakefoldNamespace) -> None:
    table = lance.write_dataset(rows(0, 5), namespace_client=namespace, table_id=["t"])
    for each in range(5):
        table = lance.write_dataset(rows(10 * each, 1), table, mode="append")
    namespace.create_table_tag(interface.CreateTableTagRequest(id=["t"], tag="kept", version=3))
    ranges = [{"start_version": 1, "end_version": 100}]
    removed = namespace.batch_delete_table_versions({"id": ["t"], "ranges": ranges})
    assert removed.deleted_count == 4
    listed = namespace.list_table_versions(interface.ListTableVersionsRequest(id=["t"])).versions
    assert [each.version for each in listed] == [3, 6]
    assert len(content(lance.dataset(root / "t.lance"))) == 10


def test_a_killed_catalog_says_yes_only_for_what_is_there(root: Path, options: WriteOptions) -> None:
    """A client that got no answer may be in the table or not; one that was confirmed is."""
    with serving(root, options) as served:
        lance.write_dataset(rows(0, 1), namespace_client=served.client(), table_id=["t"])
        confirmed: list[int] = []
        unknown: list[int] = []
        ended = threading.Event()

        def write(number: int) -> None:
            batch = 0
            while not ended.is_set():
                batch += 1
                first = 10_000 * (number + 1) + batch
                try:
                    client = served.client()
                    lance.write_dataset(
                        rows(first, 1), namespace_client=client, table_id=["t"], mode="append"
                    )
                    confirmed.append(first)
                except (OSError, LanceNamespaceError):
                    unknown.append(first)

        def has_confirmed(count: int) -> bool:
            return len(confirmed) >= count

        with ThreadPoolExecutor(3) as pool:
            writing = [pool.submit(write, number) for number in range(3)]
            for each in range(4):
                until(partial(has_confirmed, 6 * (each + 1)), "commits")
                served.end(signal.SIGKILL)
                served.start()
            until(partial(has_confirmed, 30), "commits after the last kill")
            ended.set()
            for done in writing:
                done.result()
    ids = [row["id"] for row in content(lance.dataset(root / "t.lance"))]
    assert len(set(ids)) == len(ids)
    assert {0, *confirmed} <= set(ids) <= {0, *confirmed, *unknown}


def test_killed_committers_leave_no_commit_unanswered(
    root: Path, bootstrap: str, topic_names: TopicNames
) -> None:
    """Clients wait while no committer runs; then each has its answer, and the table has these rows."""
    OwnLog.make(bootstrap, topic_names)
    namespace = lakefold.catalog(
        root,
        bootstrap_servers=bootstrap,
        transactions_topic=topic_names.transactions,
        outcomes_topic=topic_names.outcomes,
        timeout=120,
    )
    confirmed: list[int] = []
    ended = threading.Event()

    def write(number: int) -> None:
        first = 10_000 * (number + 1)
        while not ended.is_set():
            first += 1
            if number:
                lance.write_dataset(rows(first, 1), namespace_client=namespace, table_id=["t"], mode="append")
            else:
                namespace.insert_into_table(
                    interface.InsertIntoTableRequest(id=["t"]), stream(rows(first, 1))
                )
            confirmed.append(first)

    def has_confirmed(count: int) -> bool:
        return len(confirmed) >= count

    with ThreadPoolExecutor(4) as pool:
        created = pool.submit(
            lance.write_dataset, rows(0, 1), namespace_client=namespace, table_id=["t"], mode="create"
        )
        working: list[Future[None]] = []
        for kill in range(8):
            with running_committer(bootstrap, topic_names, root) as committer:
                committer.wait_until_ready()
                created.result(120)
                working = working or [pool.submit(write, number) for number in range(3)]
                until(partial(has_confirmed, 4 * (kill + 1)), "commits")
                committer.kill()
        with ready_committer(bootstrap, topic_names, root):
            ended.set()
            for each in working:
                each.result(240)
            namespace.close()
    assert [row["id"] for row in content(lance.dataset(root / "t.lance"))] == sorted([0, *confirmed])
    close_clients()


def test_the_verb_serves_until_it_is_stopped(root: Path, options: WriteOptions) -> None:
    with serving(root, options) as served:
        assert served.post("namespace/$/exists", b"{}")[0] == 200
        assert served.post("namespace/$/exists", b"{}", **{"x-api-key": "wrong"})[0] == 401
        assert served.end() == 0
