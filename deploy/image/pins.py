"""The part of requirements.lock that some extras need, with its hashes: what the image installs.

There is one lock, for all extras (decision 0004). The image wants the committer's part of it only, and a
second lock would be one that can disagree. The lock says beside each package who asked for it (`# via`),
so the part is found without a resolver and without the network. Where somebody asks for a package by an
extra of its own, the part may hold a little more than is needed, never less.

    python pins.py committer otel s3 objects < requirements.lock > pins.txt

It runs before anything is installed, so it needs nothing but Python.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

PIN = re.compile(r"^(?=[A-Za-z0-9][^\s=]*==)", re.MULTILINE)
NAME = re.compile(r"[A-Za-z0-9._-]+")
EXTRAS = re.compile(r"[A-Za-z0-9._-]+\[([^\]]*)\]")


def canonical(name: str) -> str:
    """A package's name as the lock writes it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def asked_for(project: Mapping[str, Any], *extras: str) -> set[str]:
    """The packages that the project asks for by name, with `extras` and the extras they are made of.

    Raises `KeyError` if the project has no such extra.
    """
    own = canonical(project["name"])
    packages: set[str] = set()
    wanted = list(project["dependencies"])
    for extra in extras:
        wanted.extend(project["optional-dependencies"][extra])
    while wanted:
        requirement = wanted.pop()
        name = NAME.match(requirement)
        if name is None:
            raise ValueError(f"not a requirement: {requirement!r}")
        if canonical(name[0]) != own:
            packages.add(canonical(name[0]))
        elif named := EXTRAS.match(requirement):
            for extra in named[1].split(","):
                wanted.extend(project["optional-dependencies"][extra.strip()])
    return packages


def part_of(lock: str, roots: Collection[str]) -> str:
    """The pins of `roots` and of all that they ask for.

    Raises `ValueError` if the lock doesn't have one of `roots`.
    """
    pins = [
        (canonical(re.split("==", text, maxsplit=1)[0]), text) for text in PIN.split(lock) if "==" in text
    ]
    askers: dict[str, set[str]] = {}
    for name, text in pins:
        askers.setdefault(name, set()).update(_askers(text))
    if missing := set(roots) - askers.keys():
        raise ValueError(f"the lock doesn't have {', '.join(sorted(missing))}")
    kept = set(roots)
    while more := {name for name, by in askers.items() if by & kept} - kept:
        kept |= more
    return "".join(re.sub(r"^ *#.*\n", "", text, flags=re.MULTILINE) for name, text in pins if name in kept)


def _askers(pin: str) -> set[str]:
    """Who asked for a pinned package: the words behind `# via`, on its line or on those below it."""
    names = re.findall(r"^ +#(?: +via)?(?: +(\S+))?", pin, re.MULTILINE)
    return {canonical(word) for word in names if word}


def main() -> None:
    """Reads the lock from stdin, the project from the file beside it, and prints the part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("extras", nargs="+")
    parser.add_argument("--project", type=Path, default=Path("pyproject.toml"))
    given = parser.parse_args()
    project = tomllib.loads(given.project.read_text(encoding="utf-8"))["project"]
    sys.stdout.write(part_of(sys.stdin.read(), asked_for(project, *given.extras)))


if __name__ == "__main__":
    main()
