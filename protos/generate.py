"""Makes the Python modules and their type stubs from the `.proto` files, so that nobody writes them by hand.

`python protos/generate.py` writes them beside their sources. With `--check` it writes nothing, and fails if
they differ from what it would make. They are committed, so that an installation needs no compiler.
"""

from __future__ import annotations

import argparse
import importlib.resources
import sys
import tempfile
from pathlib import Path

from grpc_tools import protoc  # type: ignore[import-untyped]

ROOT = Path(__file__).resolve().parent
MADE = ("*_pb2.py", "*_pb2.pyi")


def compile_into(folder: Path) -> None:
    """Compiles every message file below the root. Raises `SystemExit` if the compiler finds a fault."""
    sources = sorted(str(path.relative_to(ROOT)) for path in ROOT.rglob("*.proto"))
    well_known = importlib.resources.files("grpc_tools") / "_proto"
    plugin = Path(sys.executable).with_name("protoc-gen-mypy")
    status = protoc.main(
        [
            "protoc",
            f"--proto_path={ROOT}",
            f"--proto_path={well_known}",
            f"--python_out={folder}",
            f"--plugin=protoc-gen-mypy={plugin}",
            f"--mypy_out=quiet:{folder}",
            *sources,
        ]
    )
    if status:
        sys.exit(status)


def generated(folder: Path) -> dict[str, bytes]:
    """Returns the generated files below a folder, by their path relative to it."""
    return {
        str(path.relative_to(folder)): path.read_bytes() for pattern in MADE for path in folder.rglob(pattern)
    }


def differences(made: dict[str, bytes], present: dict[str, bytes]) -> list[str]:
    """Returns the paths of files that differ from what would be made: changed, missing or left over."""
    return sorted(path for path in made.keys() | present.keys() if made.get(path) != present.get(path))


def main(arguments: list[str] | None = None) -> int:
    """Makes the code, or with `--check` compares it. Returns the process's exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the code differs")
    check = parser.parse_args(arguments).check
    with tempfile.TemporaryDirectory() as temporary:
        compile_into(Path(temporary))
        made = generated(Path(temporary))
    stale = differences(made, generated(ROOT))
    for path in stale:
        sys.stderr.write(f"{'differs' if check else 'written'}: {path}\n")
        if check:
            continue
        if path in made:
            (ROOT / path).write_bytes(made[path])
        else:
            (ROOT / path).unlink()
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
