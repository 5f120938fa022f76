"""The history of the versions after some version: enough to judge a proposal built on an old version.

Most rules need nothing but the other operation's kind, so for each kind the newest version is enough, which
the marks carry from committer to committer. For kinds of which a rule needs more, the footprints of their
versions are kept, for as many versions as a proposal may be behind. Kinds of which no rule needs more (an
Append) leave no footprint. Of versions up to `detailed_since` only the kinds are known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from lakefold_table.entry import Conflict
from lakefold_table.lance.conflicts.footprint import Footprint
from lakefold_table.lance.conflicts.fragment_conditions import rows_carried
from lakefold_table.lance.conflicts.judgement import effect_of, judge, worse
from lakefold_table.lance.conflicts.rule import Rule, RuleEffect
from lakefold_table.lance.conflicts.rules import DETAILED, RULES
from lakefold_table.lance.conflicts.transaction_footprint import PLAIN
from lakefold_table.lance.kinds import SCHEMA_CHANGING, Kind
from lakefold_table.lance.verdicts import COMPATIBLE, Rebase, Verdict

if TYPE_CHECKING:
    from lakefold_table.bitmaps import Bitmap

OLDEST_READ_VERSION = 10_000
"""How many versions a proposal may be behind, and so how many versions are remembered."""

BLOCK = 100
"""How many footprints are in one tuple. Adding a footprint copies fewer than that."""
MOST_BYTES = 48 << 20
"""Bytes of memory that the footprints of a table may take. Beyond it the oldest are forgotten; if they are
needed they are read from the versions again."""

VersionFootprint = tuple[int, Footprint]
"""A version and what it changed."""
Landed = Mapping[int, Mapping[int, "Bitmap"]]
"""By the version of a Rewrite: the rows that it moved, as row offsets by the id of a new fragment."""


@dataclass(frozen=True, slots=True)
class Chain:
    """The footprints of a kind, oldest first. Adding one costs the same however many there are."""

    blocks: tuple[tuple[VersionFootprint, ...], ...] = ((),)
    size: int = 0

    def added(self, step: VersionFootprint, oldest: int) -> Chain:
        """Returns the chain with a newer step, without blocks whose versions are all before `oldest`."""
        chain = self
        while len(chain.blocks) > 1 and chain.blocks[0][-1][0] < oldest:
            chain, _ = chain.shortened()
        blocks = chain.blocks if len(chain.blocks[-1]) < BLOCK else (*chain.blocks, ())
        return Chain((*blocks[:-1], (*blocks[-1], step)), chain.size + step[1].size)

    @property
    def oldest(self) -> int | None:
        """The first step's version. None if there is only one step, which is never forgotten."""
        return self.blocks[0][0][0] if len(self.blocks) > 1 or len(self.blocks[0]) > 1 else None

    def shortened(self) -> tuple[Chain, int]:
        """Returns the chain without its first block (half of an only block), and the last version removed."""
        first = self.blocks[0]
        cut = len(first) if len(self.blocks) > 1 else len(first) // 2
        blocks = tuple(filter(None, (first[cut:], *self.blocks[1:])))
        return Chain(blocks, self.size - _size(first[:cut])), first[cut - 1][0]

    def before(self, older: list[VersionFootprint]) -> Chain:
        """Returns the chain with these older steps, oldest first, before its own."""
        steps = [*older, *(step for block in self.blocks for step in block)]
        cut = tuple(tuple(steps[at : at + BLOCK]) for at in range(0, len(steps), BLOCK))
        return Chain(cut or ((),), _size(steps))

    def after(self, version: int) -> Iterator[VersionFootprint]:
        """Yields the steps after this version, newest first."""
        for block in reversed(self.blocks):
            for step in reversed(block):
                if step[0] <= version:
                    return
                yield step


@dataclass(frozen=True, slots=True)
class Stage:
    """What a proposal touches between two Rewrites: it is compared with the versions in (`since`, `until`].

    `rewrite`: what was done by the version `until`, which moved rows of the proposal. The last stage has none
    and no end.
    """

    ours: Footprint
    since: int
    until: int = 0
    rewrite: Footprint | None = None


@dataclass(frozen=True, slots=True)
class History:
    """For each kind of operation the newest version of that kind, complete for the versions after `since`.

    `detailed_since`: the footprints of all versions after it are known; None if no footprint is known.
    `undetailed`: for each kind a version, not after `detailed_since`, that no older version of the kind comes
    after. Two histories are equal if their kinds are.
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
        """Returns the history with the next version. If only its kind is given, footprints start after it."""
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

    def detailed(self, older: Iterable[VersionFootprint]) -> History:
        """Returns the history with the footprints of older versions, given newest first and without a gap.

        The first of them is the version `detailed_since`, or the newest version if no footprint is known yet.
        """
        steps = list(older)
        if not steps:
            return self
        latest: dict[Kind, int] = {}
        by_kind: dict[Kind, list[VersionFootprint]] = {}
        for version, footprint in steps:
            latest.setdefault(footprint.kind, version)
            if footprint.kind in DETAILED:
                by_kind.setdefault(footprint.kind, []).append((version, footprint))
        chains = {kind: self.chains.get(kind, Chain()).before(each[::-1]) for kind, each in by_kind.items()}
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
        """The oldest version since which no field id has changed its meaning, as far as known."""
        return max((self.latest[kind] for kind in SCHEMA_CHANGING if kind in self.latest), default=self.since)

    def rewrites(self, read_version: int) -> list[VersionFootprint]:
        """Returns the Rewrites after this version, oldest first, as far as their footprints are known."""
        return list(self.chains.get(Kind.REWRITE, Chain()).after(read_version))[::-1]

    def needs_details(self, ours: Kind, read_version: int) -> int | None:
        """Returns the version after which footprints are needed to judge such a proposal, or None."""
        return read_version if any(self._unknown_kinds(ours, read_version)) else None

    def rewritten_since(self, read_version: int) -> bool:
        """Returns whether a Rewrite came after this version."""
        return self.latest.get(Kind.REWRITE, 0) > read_version

    def needs_rewrites(self, read_version: int) -> bool:
        """Returns whether a Rewrite came after this version, and the files that it replaced are not known."""
        if self.detailed_since is not None and read_version >= self.detailed_since:
            return False
        return self._undetailed.get(Kind.REWRITE, 0) > read_version

    def rewritten(self, names: Iterable[str], read_version: int) -> tuple[str, int] | None:
        """Returns the first of these data files that a later Rewrite replaced, and that Rewrite's version.

        Returns None if no such Rewrite is known. `names`: as returned by `name_of_file`.
        """
        if not self.rewritten_since(read_version):
            return None
        steps = list(self.chains.get(Kind.REWRITE, Chain()).after(read_version))
        replaced = (
            (name, version) for name in names for version, theirs in steps if name in theirs.rewritten
        )
        return next(replaced, None)

    def verdict(self, ours: Footprint, read_version: int, landed: Landed | None = None) -> Verdict:
        """Returns the verdict on a proposal that was built on `read_version`.

        `landed`: where the rows of a Delete or an Update are after each Rewrite that moved them; None if that
        isn't known, then they may be in any new fragment.

        An incompatible conflict counts before a retryable conflict, so that no writer is advised to try again
        if that would be wrong. Of equal conflicts the newest is returned. If footprints are missing that
        `needs_details` asked for, the verdict is a retryable conflict.
        """
        if ours is not PLAIN[ours.kind]:
            return self._judged(ours, read_version, landed)
        verdict = self._plain.get((ours.kind, read_version))
        if verdict is None:
            verdict = self._plain[ours.kind, read_version] = self._judged(ours, read_version)
        return verdict

    def carried(self, ours: Footprint, read_version: int) -> list[tuple[int, Footprint]]:
        """Returns the Rewrites, oldest first, that moved rows of a Delete or an Update and can be followed.

        Each has its version. Later ones may have moved the rows again.
        """
        return [(stage.until, stage.rewrite) for stage in self._stages(ours, read_version) if stage.rewrite]

    def _stages(self, ours: Footprint, read_version: int, landed: Landed | None = None) -> list[Stage]:
        """Returns what a proposal touches before and after each Rewrite over which it is carried."""
        stages: list[Stage] = []
        if ours.rows is not None and self.rewritten_since(read_version):
            for version, theirs in self.rewrites(read_version):
                if rows_carried(ours, theirs, version) is not None:
                    stages.append(Stage(ours, read_version, version, theirs))
                    rows = None if landed is None else landed.get(version, {})
                    ours, read_version = ours.carried_over(theirs, rows), version
        return [*stages, Stage(ours, read_version)]

    def _judged(self, ours: Footprint, read_version: int, landed: Landed | None = None) -> Verdict:
        verdict: Verdict = COMPATIBLE
        stages = self._stages(ours, read_version, landed)
        for kind, rules in RULES.get(ours.kind, {}).items():
            newest = self.latest.get(kind, 0)
            if newest <= read_version:
                continue
            if any(rule.reads_theirs for rule in rules):
                for stage in stages:
                    verdict = worse(verdict, self._verdict_on(kind, rules, stage))
            else:
                verdict = worse(verdict, judge(ours, Footprint(kind), newest))
        for kind in self._unknown_kinds(ours.kind, read_version):
            verdict = worse(verdict, self._unknown_conflict(ours.kind, kind))
        return verdict

    def named(self, conflict: Conflict, ours: Footprint, read_version: int) -> Conflict:
        """Adds to a conflict of rows that could not be merged the newest version that deleted or moved some.

        The table says which rows these are; only the history knows which version it was.
        """
        ids = frozenset(conflict.fragment_ids)
        last: dict[int, str] = {}
        for stage in self._stages(ours, read_version):
            last |= {self._joined_last(kind, stage, ids): kind.value for kind in RULES.get(ours.kind, {})}
            if stage.rewrite is not None:
                ids = replace(ours, touched=ids).carried_over(stage.rewrite).touched
        version = max(last, default=0)
        if not version or conflict.other_version:
            return conflict
        message = f"{conflict.message} (the {last[version]} of version {version} changed them last)"
        return replace(conflict, message=message, other_version=version, other_operation=last[version])

    def _joined_last(self, kind: Kind, stage: Stage, ids: frozenset[int]) -> int:
        """Returns the newest version of this kind that deleted or moved rows of these fragments, or 0."""
        for version, theirs in self._within(kind, stage):
            verdict = judge(stage.ours, theirs, version)
            if isinstance(verdict, Rebase) and verdict.merges & ids:
                return version
        return 0

    def _verdict_on(self, kind: Kind, rules: Iterable[Rule], stage: Stage) -> Verdict:
        """Returns the verdict on the versions of a kind. Stops as soon as no older version can be worse."""
        worst = max(rule.effect for rule in rules)
        verdict: Verdict = COMPATIBLE
        for version, theirs in self._within(kind, stage):
            verdict = worse(verdict, judge(stage.ours, theirs, version))
            if effect_of(verdict) == worst > RuleEffect.CARRIED:
                break
        return verdict

    def _within(self, kind: Kind, stage: Stage) -> Iterator[VersionFootprint]:
        """Yields the versions of a kind in a stage, newest first."""
        steps = self.chains.get(kind, Chain()).after(stage.since)
        return (step for step in steps if not stage.until or step[0] <= stage.until)

    def _unknown_kinds(self, ours: Kind, read_version: int) -> Iterator[Kind]:
        """Yields the kinds whose rules need footprints that are not known."""
        if self.detailed_since is None or read_version < self.detailed_since:
            for kind, rules in RULES.get(ours, {}).items():
                if self._undetailed.get(kind, 0) > read_version and any(rule.reads_theirs for rule in rules):
                    yield kind

    def _unknown_conflict(self, ours: Kind, theirs: Kind) -> Conflict:
        newest = self.latest[theirs]
        version = newest if self.detailed_since is None else min(newest, self.detailed_since)
        return Conflict(
            retryable=True,
            message=f"the {ours} can't be checked against the versions up to {version}, perhaps a {theirs} "
            f"among them: what they changed is not known; build it again on the newest version",
            other_version=version,
            other_operation=theirs.value,
        )


def _size(steps: Iterable[VersionFootprint]) -> int:
    return sum(footprint.size for _, footprint in steps)


def _lighter(chains: Mapping[Kind, Chain]) -> tuple[Mapping[Kind, Chain], int]:
    """Returns the chains, shortened if they take too much memory, and the newest version forgotten or 0."""
    total = sum(chain.size for chain in chains.values())
    forgotten = 0
    while total > MOST_BYTES:
        oldest = {chain.oldest: kind for kind, chain in chains.items() if chain.oldest is not None}
        if not oldest:
            break
        kind = oldest[min(oldest)]
        lighter, last = chains[kind].shortened()
        total += lighter.size - chains[kind].size
        chains, forgotten = {**chains, kind: lighter}, max(forgotten, last)
    return chains, forgotten
