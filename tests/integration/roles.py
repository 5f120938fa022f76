"""The rights of each role, as docs/operations/install.md lists them: what is documented is what is tested."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from lakefold_log.client.rights import Right

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.integration.conftest import TopicNames

DOCUMENT: Final = Path(__file__).parents[2] / "docs" / "operations" / "install.md"
_HEADER: Final = "role"
_NOTHING: Final = "\N{EN DASH}"
_PREFIX: Final = "…"
_OPERATIONS: Final[Mapping[str, AclOperation]] = {
    "Create": AclOperation.CREATE,
    "Describe": AclOperation.DESCRIBE,
    "DescribeConfigs": AclOperation.DESCRIBE_CONFIGS,
    "Read": AclOperation.READ,
    "Write": AclOperation.WRITE,
}
_KINDS: Final[Mapping[str, ResourceType]] = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional id": ResourceType.TRANSACTIONAL_ID,
}


@dataclass(frozen=True, slots=True)
class Role:
    """A role and its rights."""

    name: str
    rights: tuple[Right, ...]

    def without(self, right: Right) -> Role:
        """The same role, from which one right was taken."""
        return replace(self, rights=tuple(each for each in self.rights if each != right))


def documented(names: TopicNames) -> Mapping[str, Role]:
    """The roles of the table by their names, with the rights that they have on these topics and group."""
    rows = [
        [cell.strip() for cell in line.strip().strip("|").split("|")]
        for line in DOCUMENT.read_text().splitlines()
        if line.startswith("  |")
    ]
    header, _, *body = rows
    assert header[0] == _HEADER
    objects = [_object(cell, names) for cell in header[1:]]
    roles = [Role(name.replace("`", ""), _rights(objects, cells)) for name, *cells in body]
    return {role.name: role for role in roles}


def bindings(user: str, rights: Sequence[Right]) -> list[AclBinding]:
    """The ACLs that give a user these rights, and no others."""
    return [
        AclBinding(
            _KINDS[right.kind],
            right.name.removesuffix(_PREFIX),
            ResourcePatternType.PREFIXED if right.name.endswith(_PREFIX) else ResourcePatternType.LITERAL,
            f"User:{user}",
            "*",
            _OPERATIONS[right.operation],
            AclPermissionType.ALLOW,
        )
        for right in rights
    ]


def _object(cell: str, names: TopicNames) -> tuple[str, str]:
    """Kind and name of what a column is about."""
    topics = {
        "transactions": names.transactions,
        "outcomes": names.outcomes,
        "dead letters": names.dead_letters,
    }
    if cell in topics:
        return "topic", topics[cell]
    match = re.fullmatch(r"(group|transactional id)s? `(.*)`", cell)
    assert match is not None, cell
    return match[1], match[2].replace("GROUP", names.group)


def _rights(objects: Sequence[tuple[str, str]], cells: Sequence[str]) -> tuple[Right, ...]:
    return tuple(
        Right(operation.title().replace(" ", ""), kind, name)
        for (kind, name), cell in zip(objects, cells, strict=True)
        if cell != _NOTHING
        for operation in cell.split(", ")
    )
