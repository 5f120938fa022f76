"""What pylance's errors mean: its own words, of damaged files and of stores that were away."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lakefold_reader.pylance.errors import meaning, translated_errors
from lakefold_table.errors import DamagedError, InvalidError, LakefoldError, RetryError

LANCE = "/ci/lance/rust"
SAID: list[tuple[Exception, type[Exception]]] = [
    (
        pa.ArrowInvalid(
            "External error: LanceError(IO): Generic memory error: Invalid range 0..12866 for object of size "
            "0 bytes, /rustc/48a229ceaefd4985c50990b14116b6d856af0985/library/core/src/ops/function.rs:250:5"
        ),
        DamagedError,
    ),
    (
        pa.ArrowInvalid(
            "External error: Invalid user input: file does not appear to be a Lance file (invalid magic: "
            f"[76, 65, 78, 67]), {LANCE}/lance-file/src/reader.rs:797:24"
        ),
        DamagedError,
    ),
    (
        pa.ArrowInvalid(
            "External error: LanceError(Arrow): Parser error: Arrow file does not contain correct footer, "
            f"{LANCE}/lance-table/src/io/deletion.rs:157:49"
        ),
        DamagedError,
    ),
    (
        OSError(f"Error reading file metadata: bad, {LANCE}/lance-file/src/reader.rs:1:2"),
        DamagedError,
    ),
    (RuntimeError("Task was aborted"), DamagedError),
    (
        pa.ArrowInvalid("External error: Lance reader producer terminated before end of stream"),
        DamagedError,
    ),
    (
        OSError(
            "Invalid user input: Error parsing function: Error during planning: Invalid function 'foo'.\n"
            f"Did you mean 'pow'?, {LANCE}/lance-datafusion/src/planner.rs:584:26"
        ),
        InvalidError,
    ),
    (RuntimeError("Field 'nope' not found.\nAvailable fields: ['id']"), InvalidError),
    (
        OSError(f"Invalid user input: invalid data file, {LANCE}/lance-encoding/src/decoder.rs:1:2"),
        DamagedError,
    ),
    (
        pa.ArrowInvalid(
            f"External error: Not found: t/_deletions/0-1-2.arrow, {LANCE}/lance-io/src/x.rs:1:2"
        ),
        FileNotFoundError,
    ),
    (
        ValueError(f"Not found: t/data/1.lance, {LANCE}/lance-io/src/object_store.rs:1721:12"),
        FileNotFoundError,
    ),
    (
        ValueError(
            "LanceError(IO): Generic MicrosoftAzure error: Error performing GET "
            "http://127.0.0.1:1/a/b?sig=s3cret in 59ms - "
            f"Server returned non-2xx status code: 403 Forbidden: <?xml, {LANCE}/lance-io/src/x.rs:1:2"
        ),
        InvalidError,
    ),
    (
        OSError(
            "LanceError(IO): The operation lacked the necessary privileges to complete for path t/1: Error "
            "performing HEAD http://127.0.0.1:1/a/b?sig=s3cret"
        ),
        InvalidError,
    ),
    (
        ValueError(
            "LanceError(IO): Generic S3 error: GET http://127.0.0.1:1/a?sig=s3cret in 363µs - "
            f"HTTP error: error sending request, {LANCE}/lance-io/src/x.rs:1:2"
        ),
        RetryError,
    ),
    (
        OSError(f"LanceError(IO): Permission denied (os error 13), {LANCE}/lance-io/src/x.rs:1:2"),
        InvalidError,
    ),
    (
        OSError(f"LanceError(IO): Too many open files (os error 24), {LANCE}/lance-io/src/x.rs:1:2"),
        RetryError,
    ),
    (
        pa.ArrowInvalid(
            "External error: Not found: No data files found for schema: , fragment_id=0, "
            f"{LANCE}/lance/src/dataset/fragment.rs:1239:24"
        ),
        InvalidError,
    ),
    (PermissionError(13, "Permission denied"), InvalidError),
    (ValueError("LanceError(Schema): Column nope does not exist"), InvalidError),
    (
        ValueError(f"Schema error: No field named nope., {LANCE}/lance/src/dataset/scanner.rs:1:2"),
        InvalidError,
    ),
]


@pytest.mark.parametrize(("error", "expected"), SAID, ids=[str(error)[:60] for error, _ in SAID])
def test_each_error_says_what_to_do(error: Exception, expected: type[Exception]) -> None:
    actual = meaning(error, "s3://lake/t")
    assert type(actual) is expected
    assert "s3cret" not in str(actual)
    assert "rust" not in str(actual)
    if isinstance(actual, LakefoldError):
        assert actual.where == "s3://lake/t"
        assert actual.hint


def test_a_panic_is_damage_and_what_stops_a_program_is_not() -> None:
    class PanicException(BaseException):
        pass

    with pytest.raises(DamagedError, match="panicked: called"), translated_errors("t"):
        raise PanicException("called `Option::unwrap()` on a `None` value\nstack backtrace")
    for ends in (KeyboardInterrupt, SystemExit, GeneratorExit):
        with pytest.raises(ends), translated_errors("t"):
            raise ends
    # What pylance 14 says if its call of Python was interrupted.
    interrupted = (
        "Invalid user input: Failed to call begin() on WriteFragmentProgress: KeyboardInterrupt: , src/d"
    )
    with pytest.raises(KeyboardInterrupt), translated_errors("t"):
        raise OSError(interrupted)
    own = RetryError("the store is away")
    with pytest.raises(RetryError) as passed, translated_errors("t"):
        raise own
    assert passed.value is own
