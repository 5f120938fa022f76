"""Deletes a person's rows for good, and proves in the data files that nothing of them is left.

A delete marks rows; their values stay in the files until a compaction has rewritten the files and a clean-up
has removed the versions that need the old files. Run `lakefold up` and `lakefold committer` in this folder
first. Usage: python forget_a_person.py
"""

import subprocess
from pathlib import Path

import pyarrow as pa

import lakefold

TABLE = "people.lance"
PERSON = "erika.mustermann@example.org"


def files_with(text: str) -> list[Path]:
    """Returns the data files that contain the text."""
    return [file for file in Path(TABLE, "data").iterdir() if text.encode() in file.read_bytes()]


def main() -> None:
    for batch in range(5):
        emails = [PERSON] + [f"customer-{batch}-{number}@example.org" for number in range(99)]
        lakefold.append(TABLE, pa.table({"email": emails, "batch": [batch] * 100}))
    print(f"{len(files_with(PERSON))} files contain the address")

    outcome = lakefold.delete(TABLE, where=f"email = '{PERSON}'")
    print(f"deleted in version {outcome.version}; {len(files_with(PERSON))} files still contain it")

    lakefold.compact(TABLE)
    print(f"compacted; {len(files_with(PERSON))} files still contain it, for older versions need them")

    subprocess.run(["lakefold", "cleanup", TABLE, "--older-than", "0s"], check=True)
    left = files_with(PERSON)
    rows = lakefold.open(TABLE).count_rows()
    print(f"cleaned up; {len(left)} files contain it, and {rows} rows of others are there")
    assert left == []
    assert rows == 5 * 99


if __name__ == "__main__":
    main()
