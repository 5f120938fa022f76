"""What producers do: write the files of a proposal, and append it to the log.

Each message is one of a few kinds, whose outcome the `model` computes. A proposal that deletes rows is built
on one of the newest versions, as a writer sees it that was slow.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from lakefold_log.codec.envelope import encode
from lakefold_protos.lakefold.log_pb2 import DeleteBranch, Envelope, Tag
from lakefold_protos.lance.table_pb2 import DataFragment, DeletionFile
from lakefold_table.bitmaps import Bitmap, encode_bitmap
from lakefold_table.branch_names import root_of
from lakefold_table.lance.rows.deletions import ARRAY, BITMAP, deletion_path, encode_deletions
from lakefold_table.lance.rows.row_order import KEPT, ROW_ORDER
from tests.folding import add_fragment, append, creation, reserve
from tests.memory_storage import MemoryStorage
from tests.simulation.claiming import FATES, LATE, THERE
from tests.simulation.model import BRANCHES, DELETE_BRANCH, DELETING, OUTSIDE, REWRITE, TAG, Sent
from tests.simulation.rows import Live, count, written_fragments

if TYPE_CHECKING:
    from lakefold_table.lance.state import LanceState
    from tests.simulation.broker import Broker
    from tests.simulation.claiming import Claimer
    from tests.simulation.ledger import Ledger, Line
    from tests.simulation.runtime import Hub

FILE: Final = b"x" * 1000
SLOWEST_WRITER: Final = 4
"""One of so many newest versions is the one that a proposal to delete rows was built on."""
BELOVED: Final = 2
"""Half of those delete from the first few fragments, where others delete too."""


class Producer:
    """Sends proposals. `late_s`: how late the files of a `late file` come, at most.

    `removes`: whether whole fragments are removed by their ids, which mean nothing to a table that was
    created again. `claims`: how often an envelope is stored beside its table.
    """

    def __init__(self, hub: Hub, ledger: Ledger, broker: Broker, claimer: Claimer) -> None:
        self.late_s = 4.0
        self.removes = True
        self.claims = 0.0
        self._claimer = claimer
        self._hub = hub
        self._ledger = ledger
        self._broker = broker
        self._names = 0

    def send(self, kind: str, uri: str, app: str = "", batch: int | None = None, branch: str = "") -> Sent:
        """Append one entry of this kind to the log, its files written first.

        If no rows exist yet that it could delete, it is an entry that adds rows.
        """
        self._names += 1
        line = root_of(uri, branch)
        kind, envelope, picked = self._picked_or_new(kind, line, app, batch)
        envelope.table, envelope.branch = uri, branch
        if kind in BRANCHES:
            kind = self._begin_branch(envelope, uri)
        elif kind == "bad branch":
            envelope.branch = "../x"
        if kind == "late file":
            self._hub.later(
                self._hub.random.random() * self.late_s, partial(self.write_files, line, envelope)
            )
        elif kind != "missing":
            self.write_files(line, envelope)
        claim = self._fate(kind)
        deletes, rewrites = ({}, picked) if kind == REWRITE else (picked, {})
        return self._append(Sent(0, kind, line, envelope, deletes, rewrites), claim)

    def _picked_or_new(
        self, kind: str, line: str, app: str, batch: int | None
    ) -> tuple[str, Envelope, dict[int, Live]]:
        """Returns the kind, its envelope, and the rows that it deletes or rewrites.

        If no rows exist yet, it is an entry that adds rows.
        """
        known = self._ledger.line(line)
        if kind not in DELETING and kind != REWRITE:
            return kind, self._envelope(kind, line, app, batch), {}
        picked, read = self._picked(known) if kind in DELETING else self._to_rewrite(known)
        if not picked:
            return "keyless", self._envelope("keyless", line, app, batch), {}
        if kind == REWRITE:
            return kind, self._rewriting(known, read, picked), picked
        envelope = self._deleting(kind, known, read, picked)
        envelope.app_id = app
        if batch is not None:
            envelope.batch_id = batch
        if not envelope.lance.delete.updated_fragments and kind == "lost deletes":
            kind = "delete"
        return kind, envelope, picked

    def send_again(self, sent: Sent) -> Sent:
        """Append the same once more: as a writer does, or the very message."""
        if sent.claim and self._hub.random.random() < 1 / 2:
            return self._append(sent, THERE)
        return self._append(sent)

    def send_tag(self, uri: str, name: str, version: int | None) -> Sent:
        """Append a tag of this version of a table, or its removal if that is None."""
        self._names += 1
        tag = Tag(name=name, version=version, delete=version is None, move=version is not None)
        tag.uuid = self._name
        return self._append(Sent(0, TAG, uri, Envelope(table=uri, tag=tag)))

    def send_branch_deletion(self, uri: str, branch: str) -> Sent:
        """Append the deletion of a branch."""
        self._names += 1
        envelope = Envelope(table=uri, branch=branch, delete_branch=DeleteBranch(uuid=self._name))
        return self._append(Sent(0, DELETE_BRANCH, root_of(uri, branch), envelope))

    def write_files(self, uri: str, envelope: Envelope) -> None:
        """The data files that an entry names."""
        storage = MemoryStorage(uri)
        for fragment in written_fragments(envelope):
            for file in fragment.files:
                storage.put(f"data/{file.path}", [FILE])

    def _fate(self, kind: str) -> str:
        """Returns what happens to the claim of an entry; empty if it has none."""
        if kind in OUTSIDE or not self.claims or self._hub.random.random() >= self.claims:
            return ""
        fate = self._hub.random.choice(FATES)
        # Where no version is there yet, none keeps a committer that saw the file from making one, while
        # another, which saw none, refuses.
        return THERE if fate == LATE and (kind == "create" or kind in BRANCHES) else fate

    @property
    def _name(self) -> str:
        """Of what is sent now: no other producer gives it."""
        return f"p{self._broker.log.partition}n{self._names}"

    def _append(self, each: Sent, claim: str = "") -> Sent:
        """Appends it, as a claim with this fate if one is given."""
        if claim:
            each = replace(each, claim=claim, message=self._claimer.claim(each.envelope, claim))
        key, value = each.envelope.table.encode(), encode(each.message or each.envelope)
        if each.kind == "garbage":
            value = b"\xff\xff\xff"
        elif each.kind == "wrong key":
            key = b"memory://elsewhere/t"
        sent = replace(each, offset=self._broker.end)
        self._ledger.add(sent)
        self._broker.append(key, value)
        rows = "".join(f", {sorted(gone.rows)} of {number}" for number, gone in sent.deletes.items())
        claimed = f", claim {sent.claim}" if sent.claim else ""
        what = f"{sent.offset}: {sent.kind} for {sent.uri.rpartition('/')[2]}, key {sent.key}{rows}{claimed}"
        self._hub.note("log", what)
        return sent

    def _envelope(self, kind: str, uri: str, app: str, batch: int | None) -> Envelope:
        read = max(1, self._ledger.line(uri).newest)
        name = self._name
        if kind == "create":
            envelope = creation(uuid=name)
        elif kind == "reserve":
            envelope = reserve(3, read)
            envelope.lance.uuid = name
        elif kind in BRANCHES:
            envelope = Envelope()
            envelope.lance.uuid = name
        else:
            envelope = append(name, read=read, app=app, batch=batch, fragments=0 if kind == "empty" else 1)
            for fragment in envelope.lance.append.fragments:
                fragment.physical_rows = self._hub.random.choice([1, 3, 12])
        if kind == "nowhere":
            envelope.lance.append.fragments[0].files[0].base_id = 77
        elif kind == "bad":
            envelope.lance.append.fragments[0].files[0].fields[1] = 77
        elif kind == "future":
            envelope.lance.read_version = 10**9
        elif kind == "tagged":
            envelope.lance.tag = name
        elif kind == "nameless":
            envelope.lance.uuid = ""
        return envelope

    def _begin_branch(self, envelope: Envelope, uri: str) -> str:
        """Makes it the beginning of a branch; returns its kind."""
        newest = self._ledger.line(uri).newest
        envelope.lance.read_version = max(1, newest)
        clone = envelope.lance.clone
        clone.is_shallow, clone.ref_version, clone.ref_path = True, max(1, newest), uri
        clone.branch_name = envelope.branch
        return "branch" if newest else "early branch"

    def _picked(self, line: Line) -> tuple[dict[int, Live], int]:
        """Some rows of a version that is not old, by fragment, and that version; maybe no rows."""
        random, left = self._hub.random, 0 if self.removes else 1
        read = random.choice(sorted(line.states)[-SLOWEST_WRITER:] or [0])
        rows = line.rows.get(read, {})
        numbers = [number for number, fragment in rows.items() if len(fragment.rows) > left]
        if random.random() < 1 / 2:
            numbers = numbers[:BELOVED]
        picked: dict[int, Live] = {}
        for number in random.sample(numbers, min(len(numbers), random.choice([1, 1, 2]))):
            values = sorted(rows[number].rows)
            some = random.sample(values, min(random.choice([1, 1, 2, 6]), len(values) - left))
            picked[number] = Live(rows[number].file, frozenset(some))
        return picked, read

    def _to_rewrite(self, line: Line) -> tuple[dict[int, Live], int]:
        """Some fragments of a version that is not old, with their rows, and that version; maybe none."""
        random = self._hub.random
        read = random.choice(sorted(line.states)[-SLOWEST_WRITER:] or [0])
        rows = line.rows.get(read, {})
        numbers = sorted(random.sample(sorted(rows), min(len(rows), random.choice([1, 2, 2, 4]))))
        return {number: rows[number] for number in numbers if rows[number].rows}, read

    def _rewriting(self, line: Line, read: int, rewrites: dict[int, Live]) -> Envelope:
        """Returns a Rewrite of these fragments into one, which keeps the order of the rows."""
        envelope = Envelope()
        lance = envelope.lance
        lance.uuid, lance.read_version = self._name, read
        lance.transaction_properties[ROW_ORDER] = KEPT
        group = lance.rewrite.groups.add()
        fragments = line.states[read].fragments.get(rewrites)
        group.old_fragments.extend(fragments[number] for number in rewrites)
        add_fragment(group.new_fragments.add(), f"{self._name}-0", count(rewrites))
        return envelope

    def _deleting(self, kind: str, line: Line, read: int, deletes: dict[int, Live]) -> Envelope:
        """Returns a Delete of rows, or an Update that adds as many new rows, built on the version `read`."""
        envelope = Envelope()
        lance = envelope.lance
        lance.uuid, lance.read_version = self._name, read
        state, rows = line.states[read], line.rows[read]
        updated, removed = lance.delete.updated_fragments, lance.delete.deleted_fragment_ids
        if kind == "update":
            updated, removed = lance.update.updated_fragments, lance.update.removed_fragment_ids
            number = sum(len(fragment.rows) for fragment in deletes.values())
            add_fragment(lance.update.new_fragments.add(), f"{self._name}-0", number)
        else:
            lance.delete.predicate = "some"
        for number, gone in deletes.items():
            left = rows[number].rows - gone.rows
            if left:
                updated.append(self._without(line.uri, state, number, left, written=kind != "lost deletes"))
            else:
                removed.append(number)
            if kind != "blind delete":
                envelope.affected_rows[number] = encode_bitmap(Bitmap(gone.rows))
        return envelope

    def _without(
        self, uri: str, state: LanceState, number: int, left: frozenset[int], *, written: bool
    ) -> DataFragment:
        """A fragment with a new deletion file, after which these rows are left."""
        fragment = DataFragment()
        fragment.CopyFrom(state.fragments.get([number])[number])
        deleted = Bitmap(range(fragment.physical_rows)) - Bitmap(left)
        kind = BITMAP if self._hub.random.random() < 1 / 2 else ARRAY
        self._names += 1
        file = DeletionFile(
            file_type=kind, read_version=state.version, id=self._names, num_deleted_rows=len(deleted)
        )
        if written:
            MemoryStorage(uri).put(deletion_path(number, file), [encode_deletions(deleted, kind)])
        fragment.deletion_file.CopyFrom(file)
        return fragment
