"""Readers on a store with damaged objects, a refusing or an absent server: errors that say what to do.

A real S3 server, behind a proxy for what a server doesn't do by itself. Rows come by pylance's own client, so
its words are what is judged here.
"""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import lance
import pytest

import lakefold
from lakefold import cli
from lakefold_table.errors import DamagedError, InvalidError, LakefoldError, RetryError, VersionExpiredError
from lakefold_table.storage import open_storage
from tests.proposals import rows
from tests.servers.fault_proxy import Answer, CutBody, FaultProxy, LoseRequest, Request
from tests.servers.s3 import BUCKET

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.servers.s3 import S3Server

IMPATIENT = {"client_max_retries": "0", "client_retry_timeout": "5"}
ROWS = 400
OPTIONS = dict[str, str]
READERS: dict[str, Callable[[str, OPTIONS], Any]] = {
    "rows": lambda uri, options: ids(lakefold.open(uri, storage_options=options).to_arrow()),
    "a filter": lambda uri, options: lakefold.open(uri, storage_options=options).count_rows("id >= 0"),
    "an older version": lambda uri, options: ids(lakefold.open(uri, 2, storage_options=options).to_arrow()),
    "tail": lambda uri, options: [
        ids(change.inserted())
        for change in lakefold.tail(uri, start="earliest", storage_options=options)
        if change.only_inserts
    ],
    "changes": lambda uri, options: ids(lakefold.changes(uri, 1, 4, storage_options=options).read_all()),
}
VERBS = {
    "show": ["show", "{}"],
    "log": ["log", "{}"],
    "tail": ["tail", "{}", "--from", "1", "--rows"],
    "changes": ["changes", "{}", "--from", "1"],
}
USAGE, DAMAGED, AGAIN = 2, 4, 5


def ids(actual: Any) -> list[int]:  # noqa: ANN401 - a table or a batch
    """The ids among rows."""
    return sorted(actual["id"].to_pylist())


def given(read: Callable[[str, OPTIONS], Any], uri: str, options: OPTIONS) -> Any:  # noqa: ANN401 - what it gives
    """What a reader gives, or how it says that it can't."""
    try:
        return read(uri, options)
    except LakefoldError as error:
        return error


def of_data(request: Request) -> bool:
    """Whether a data file is asked for."""
    return "/data/" in request.path


@pytest.fixture
def proxy(s3: S3Server) -> Iterator[FaultProxy]:
    with FaultProxy(s3.port) as proxy:
        yield proxy


@pytest.fixture
def uri(s3: S3Server) -> str:
    """A table of four versions: two Appends to an empty version, and a Delete."""
    uri, options = f"s3://{BUCKET}/{uuid.uuid4().hex}", s3.options()
    lance.write_dataset(rows([]), uri, storage_options=options)
    for first in (0, ROWS // 2):
        more = rows(range(first, first + ROWS // 2))
        lance.write_dataset(more, uri, mode="append", max_rows_per_file=100, storage_options=options)
    lance.dataset(uri, storage_options=options).delete("id = 5")
    return uri


@pytest.fixture
def verbs(uri: str) -> Callable[[OPTIONS], dict[str, int]]:
    """The exit code of each verb."""

    def run(options: OPTIONS) -> dict[str, int]:
        more = [word for key, value in options.items() for word in ("--storage-option", f"{key}={value}")]
        return {name: cli.run([*(word.format(uri) for word in verb), *more]) for name, verb in VERBS.items()}

    return run


HARMS: dict[str, Callable[[bytes], bytes] | None] = {
    "half": lambda data: data[: len(data) // 2],
    "empty": lambda _: b"",
    "zeros": lambda data: bytes(len(data)),
    "gone": None,
}


@pytest.mark.parametrize(
    ("kind", "what"),
    [(kind, what) for kind in ("data", "_deletions", "_versions") for what in HARMS][:-1],
)
def test_a_damaged_object_is_named_and_never_tried_again(
    s3: S3Server, uri: str, kind: str, what: str
) -> None:
    harm = HARMS[what]
    options = s3.options(**IMPATIENT)
    expected = {name: read(uri, options) for name, read in READERS.items()}
    storage, failed = open_storage(uri, options), set()
    for path in [file.path for file in storage.list(kind)][:2]:
        data = storage.get(path)
        if harm is None:
            storage.delete(path)
        else:
            storage.put(path, [harm(data)])
        for name, read in READERS.items():
            error = given(read, uri, options)
            if isinstance(error, LakefoldError):
                assert isinstance(error, DamagedError), (path, name, error)
                assert uri in error.where
                assert path in str(error) or harm is not None, (path, name, error)
                assert error.hint
                failed.add(name)
            else:
                assert error == expected[name], (path, name)
        storage.put(path, [data])
    assert failed


def test_a_wrong_key_is_reported_by_every_reader(
    s3: S3Server, uri: str, verbs: Callable[[OPTIONS], dict[str, int]], capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = {**s3.options(**IMPATIENT), "aws_secret_access_key": "wrong"}
    for name, read in READERS.items():
        error = given(read, uri, wrong)
        assert isinstance(error, InvalidError), (name, error)
        assert uri in error.where
        assert "aws_" in error.hint
    assert set(verbs(wrong).values()) == {USAGE}
    err = capsys.readouterr().err
    assert "Traceback" not in err
    assert err.count("SignatureDoesNotMatch") == len(VERBS)


@pytest.mark.parametrize("code", ["AccessDenied", "RequestTimeTooSkewed"])
def test_a_refusal_of_the_rows_alone_is_reported(proxy: FaultProxy, uri: str, code: str) -> None:
    """The versions may be read, the data may not, or the clock goes wrong in between."""
    proxy.plan(Answer(403, code), of_data, times=-1)
    for name, read in READERS.items():
        error = given(read, uri, proxy.options(**IMPATIENT))
        assert isinstance(error, InvalidError), (name, error)
        assert "clock" in error.hint
        assert "credentials" in error.hint


@pytest.mark.parametrize("fault", [Answer(503, "SlowDown"), LoseRequest(), CutBody(10)], ids=str)
def test_a_store_that_is_unwell_is_to_be_tried_again(
    proxy: FaultProxy,
    uri: str,
    verbs: Callable[[OPTIONS], dict[str, int]],
    fault: Any,  # noqa: ANN401 - any of the proxy's
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = proxy.options(**IMPATIENT)
    proxy.plan(fault, of_data, times=-1)
    for name, read in READERS.items():
        error = given(read, uri, options)
        assert isinstance(error, RetryError), (name, error)
        assert error.hint
    codes = verbs(options)
    assert codes["tail"] == codes["changes"] == AGAIN
    assert codes["show"] == codes["log"] == 0
    assert "Traceback" not in capsys.readouterr().err


def test_a_version_that_is_removed_under_its_reader(s3: S3Server, uri: str) -> None:
    options = s3.options(**IMPATIENT)
    lance.write_dataset(rows([1]), uri, mode="overwrite", storage_options=options)
    table = lakefold.open(uri, 3, storage_options=options)
    batches = iter(lakefold.open(uri, 3, storage_options=options).to_reader())
    seen = next(batches).num_rows
    (_, change, *_) = lakefold.tail(uri, start="earliest", storage_options=options)
    lance.dataset(uri, storage_options=options).cleanup_old_versions(timedelta(0), delete_unverified=True)
    for read in (table.to_arrow, change.inserted, lambda: lakefold.open(uri, 3, storage_options=options)):
        with pytest.raises(VersionExpiredError) as expired:
            read()
        assert expired.value.oldest == 5
    try:
        seen += sum(batch.num_rows for batch in batches)
    except VersionExpiredError:
        return
    assert seen == ROWS
