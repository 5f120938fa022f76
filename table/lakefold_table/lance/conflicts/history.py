"""What is known of the versions after some version: enough to judge a proposal that was built on an old one.

Most rules ask for nothing but the other operation's kind, so for each kind the newest version is enough,
which the marks carry from committer to committer. Where a rule asks for more, the footprints of that kind's
versions are kept, as many as a proposal may lie behind; kinds of which no rule asks more (an Append) leave
none. Before `detailed_since` only kinds are known.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from lakefold_table.entry import Conflict
from lakefold_table.lance.conflicts.footprint import Footprint
from lakefold_table.lance.conflicts.judging import judge, severity_of, worse
from lakefold_table.lance.conflicts.matrix import DETAILED, RULES
from lakefold_table.lance.conflicts.reading import PLAIN
from lakefold_table.lance.conflicts.rule import Severity
from lakefold_table.lance.conflicts.verdicts import COMPATIBLE, Rebase
from lakefold_table.lance.operations import SCHEMA_CHANGING, Kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from lakefold_table.lance.conflicts.rule import Rule
    from lakefold_table.lance.conflicts.verdicts import Verdict

OLDEST_READ_VERSION = 10_000
"""How many versions a proposal may lie behind (architecture, The log), and so how many are remembered."""

BLOCK = 100
"""How many footprints lie in one tuple: one more copies fewer than that."""
MOST_BYTES = 48 << 20
"""What the footprints of one table may take. Beyond it the oldest are forgotten: who asks for them brings
them from the versions themselves."""

Step = tuple[int, Footprint]
"""A version and what it did."""


@dataclass(frozen=True, slots=True)
class Chain:
    """The steps of one kind, oldest first. One more costs the same however many there are."""

    blocks: tuple[tuple[Step, ...], ...] = ((),)
    size: int = 0

    def added(self, step: Step, oldest: int) -> Chain:
        """With a newer step; forgets blocks that lie wholly before the version `oldest`."""
        kept = self
        while len(kept.blocks) > 1 and kept.blocks[0][-1][0] < oldest:
            kept, _ = kept.shortened()
        blocks = kept.blocks if len(kept.blocks[-1]) < BLOCK else (*kept.blocks, ())
        return Chain((*blocks[:-1], (*blocks[-1], step)), kept.size + step[1].size)

    @property
    def oldest(self) -> int | None:
        """The first step's version; None where it is the only one, which is never forgotten."""
        return self.blocks[0][0][0] if len(self.blocks) > 1 or len(self.blocks[0]) > 1 else None

    def shortened(self) -> tuple[Chain, int]:
        """Without the first block, of a single one without half of it; and the last version forgotten."""
        first = self.blocks[0]
        cut = len(first) if len(self.blocks) > 1 else len(first) // 2
        blocks = tuple(filter(None, (first[cut:], *self.blocks[1:])))
        return Chain(blocks, self.size - _size(first[:cut])), first[cut - 1][0]

    def before(self, older: list[Step]) -> Chain:
        """With older steps, oldest first."""
        steps = [*older, *(step for block in self.blocks for step in block)]
        cut = tuple(tuple(steps[at : at + BLOCK]) for at in range(0, len(steps), BLOCK))
        return Chain(cut or ((),), _size(steps))

    def after(self, version: int) -> Iterator[Step]:
        """The steps after this version, newest first."""
        for block in reversed(self.blocks):
            for step in reversed(block):
                if step[0] <= version:
                    return
                yield step


@dataclass(frozen=True, slots=True)
class History:
    """For each kind of operation the newest version that was one, complete for the versions after `since`.

    `detailed_since`: the footprints of all versions after it are known; None where none is. `undetailed`: for
    each kind a version up to that one which no older one of the kind comes after. Two histories are equal
    where they tell the same of the kinds.
    """

    since: int
    latest: Mapping[Kind, int]
    detailed_since: int | None = field(default=None, compare=False)
    chains: Mapping[Kind, Chain] = field(default_factory=dict, repr=False, compare=False)
    undetailed: Mapping[Kind, int] = field(default_factory=dict, repr=False, compare=False)
    _plain: dict[tuple[Kind, int], Verdict] = field(
        init=False, default_factory=dict, repr=False, compare=False
    )

    def extended(self, version: int, did: Footprint | Kind) -> History:
        """With the version that comes next. Where only its kind is told, the footprints begin behind it."""
        if isinstance(did, Kind):
            return History(self.since, {**self.latest, did: version})
        began = version - 1 if self.detailed_since is None else self.detailed_since
        oldest = version - OLDEST_READ_VERSION
        chains = self.chains
        if did.kind in DETAILED:
            chains = {**chains, did.kind: chains.get(did.kind, Chain()).added((version, did), oldest)}
        since, undetailed = began, self._undetailed
        chains, forgotten = _lighter(chains)
        least = max(oldest - 1, forgotten)
        if since < least:
            since = least
            undetailed = {kind: min(newest, since) for kind, newest in self.latest.items()}
        return History(self.since, {**self.latest, did.kind: version}, since, chains, undetailed)

    def reaching(self, since: int, older: Mapping[Kind, int]) -> History:
        """With the operations of the versions from `since` (not included) to where this history began."""
        return replace(
            self,
            since=since,
            latest={**older, **self.latest},
            undetailed={**older, **self._undetailed},
        )

    def detailed(self, older: Iterable[Step]) -> History:
        """With the footprints of the versions before those that are known, newest first and without a gap.

        The first one is the version `detailed_since`; where no footprint is known yet, the newest version.
        """
        steps = list(older)
        if not steps:
            return self
        latest: dict[Kind, int] = {}
        found: dict[Kind, list[Step]] = {}
        for version, footprint in steps:
            latest.setdefault(footprint.kind, version)
            if footprint.kind in DETAILED:
                found.setdefault(footprint.kind, []).append((version, footprint))
        chains = {kind: self.chains.get(kind, Chain()).before(each[::-1]) for kind, each in found.items()}
        since = steps[-1][0] - 1
        newest = {kind: max(version, self.latest.get(kind, 0)) for kind, version in latest.items()}
        undetailed = {**self._undetailed, **dict.fromkeys(latest, since)}
        return History(
            min(self.since, since), {**self.latest, **newest}, since, {**self.chains, **chains}, undetailed
        )

    @property
    def _undetailed(self) -> Mapping[Kind, int]:
        """The newest version of each kind whose footprint isn't known."""
        return self.latest if self.detailed_since is None else self.undetailed

    @property
    def schema_since(self) -> int:
        """The oldest version from which field ids are known to mean what they mean now."""
        return max((self.latest[kind] for kind in SCHEMA_CHANGING if kind in self.latest), default=self.since)

    def needs_details(self, ours: Kind, read_version: int) -> int | None:
        """The version after which footprints must be known to judge such a proposal; None: all is told."""
        return read_version if any(self._untold(ours, read_version)) else None

    def rewritten_since(self, read_version: int) -> bool:
        """Whether a Rewrite came after this version."""
        return self.latest.get(Kind.REWRITE, 0) > read_version

    def needs_rewrites(self, read_version: int) -> bool:
        """Whether a Rewrite came after this version of which it isn't known which files it replaced."""
        if self.detailed_since is not None and read_version >= self.detailed_since:
            return False
        return self._undetailed.get(Kind.REWRITE, 0) > read_version

    def rewritten(self, names: Iterable[str], read_version: int) -> tuple[str, int] | None:
        """The first of these data files that a Rewrite after this version replaced, and in which version.

        Returns None if no such Rewrite is known. `names`: as of `name_of_file`.
        """
        if not self.rewritten_since(read_version):
            return None
        steps = list(self.chains.get(Kind.REWRITE, Chain()).after(read_version))
        found = ((name, version) for name in names for version, theirs in steps if name in theirs.rewritten)
        return next(found, None)

    def verdict(self, ours: Footprint, read_version: int) -> Verdict:
        """What becomes of a proposal built on `read_version`.

        An incompatible conflict goes before a retryable one: trying again must not be advised where it is
        wrong. Of equal ones the newest is named. What `needs_details` asked for and nobody could tell is a
        retryable conflict.
        """
        if ours is not PLAIN[ours.kind]:
            return self._judged(ours, read_version)
        known = self._plain.get((ours.kind, read_version))
        if known is None:
            known = self._plain[ours.kind, read_version] = self._judged(ours, read_version)
        return known

    def _judged(self, ours: Footprint, read_version: int) -> Verdict:
        verdict: Verdict = COMPATIBLE
        for kind, rules in RULES.get(ours.kind, {}).items():
            newest = self.latest.get(kind, 0)
            if newest <= read_version:
                continue
            if any(rule.reads_theirs for rule in rules):
                verdict = worse(verdict, self._verdict_on(kind, rules, ours, read_version))
            else:
                verdict = worse(verdict, judge(ours, Footprint(kind), newest))
        for kind in self._untold(ours.kind, read_version):
            verdict = worse(verdict, self._untold_conflict(ours.kind, kind))
        return verdict

    def named(self, conflict: Conflict, ours: Footprint, read_version: int) -> Conflict:
        """A conflict of rows that were to be joined, with the newest version that took rows of its fragments.

        Which rows were taken is known from the table alone; by whom, from here.
        """
        ids = frozenset(conflict.fragment_ids)
        kinds = RULES.get(ours.kind, {})
        last = {self._joined_last(kind, ours, read_version, ids): kind.value for kind in kinds}
        version = max(last, default=0)
        if not version or conflict.other_version:
            return conflict
        message = f"{conflict.message} (the {last[version]} of version {version} was the last to take some)"
        return replace(conflict, message=message, other_version=version, other_operation=last[version])

    def _joined_last(self, kind: Kind, ours: Footprint, read_version: int, ids: frozenset[int]) -> int:
        """The newest version of this kind that took rows of these fragments, 0 where none did."""
        for version, theirs in self.chains.get(kind, Chain()).after(read_version):
            verdict = judge(ours, theirs, version)
            if isinstance(verdict, Rebase) and verdict.merges & ids:
                return version
        return 0

    def _verdict_on(self, kind: Kind, rules: Iterable[Rule], ours: Footprint, read_version: int) -> Verdict:
        """The verdict on the versions of one kind, which ends with the first that no older one can outdo."""
        worst = max(rule.severity for rule in rules)
        verdict: Verdict = COMPATIBLE
        for version, theirs in self.chains.get(kind, Chain()).after(read_version):
            verdict = worse(verdict, judge(ours, theirs, version))
            if severity_of(verdict) == worst > Severity.REBASE:
                break
        return verdict

    def _untold(self, ours: Kind, read_version: int) -> Iterator[Kind]:
        """The kinds whose rules ask for footprints that aren't known."""
        if self.detailed_since is None or read_version < self.detailed_since:
            for kind, rules in RULES.get(ours, {}).items():
                if self._undetailed.get(kind, 0) > read_version and any(rule.reads_theirs for rule in rules):
                    yield kind

    def _untold_conflict(self, ours: Kind, theirs: Kind) -> Conflict:
        newest = self.latest[theirs]
        version = newest if self.detailed_since is None else min(newest, self.detailed_since)
        return Conflict(
            retryable=True,
            message=f"the {ours} can't follow versions of which nobody can tell what they touched, up to "
            f"version {version}, a {theirs} perhaps among them; build it again on the newest version",
            other_version=version,
            other_operation=theirs.value,
        )


def _size(steps: Iterable[Step]) -> int:
    return sum(footprint.size for _, footprint in steps)


def _lighter(chains: Mapping[Kind, Chain]) -> tuple[Mapping[Kind, Chain], int]:
    """The chains without their oldest steps where all take too much; the newest version forgotten, or 0."""
    total = sum(chain.size for chain in chains.values())
    forgotten = 0
    while total > MOST_BYTES:
        oldest = {one.oldest: kind for kind, one in chains.items() if one.oldest is not None}
        if not oldest:
            break
        kind = oldest[min(oldest)]
        lighter, last = chains[kind].shortened()
        total += lighter.size - chains[kind].size
        chains, forgotten = {**chains, kind: lighter}, max(forgotten, last)
    return chains, forgotten
