"""What a dry run has folded in memory: the versions, tags and branches that its later entries find.

The branches of a table are folded by writers of their own, which see of each other what is stored. A dry run
stores nothing, so its writers share this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lakefold_table.branch_names import main_of
from lakefold_table.roots import below
from lakefold_table.versions.refs import RefChanges

if TYPE_CHECKING:
    from lakefold_committer.fold.fold import Folded, FoldedTable
    from lakefold_table.format import State
    from lakefold_table.marks.marks import Marks
    from lakefold_table.ref_files import RefFiles


class Previews:
    """The versions, files, tags and branches that a dry run would have stored. Roots are canonical."""

    def __init__(self) -> None:
        self._stored: dict[str, int] = {}
        self._states: dict[tuple[str, int], State] = {}
        self._newest: dict[str, Marks] = {}
        self._files: dict[str, bytes] = {}
        self._refs: dict[str, RefChanges] = {}

    def begin(self, table: FoldedTable) -> None:
        """Notes which version of a table is stored, before anything is folded on it."""
        self._stored[table.uri] = table.version

    def add(self, files: RefFiles | None, before: FoldedTable, folded: Folded) -> None:
        """Adds what was folded on the table `before`. `files`: as of `Format.refs`."""
        after, publication = folded.table, folded.publication
        for tag in folded.tags:
            self._changed(after.uri).tags[tag.name] = "" if tag.target is None else tag.target.branch
        if publication is None or after.state is None:
            return
        self._states[after.uri, after.version] = after.state
        self._newest[after.uri] = after.marks
        self._files.update((below(after.uri, file.path), file.data) for file in publication.before)
        branch = after.state.branch
        if before.state is None and branch and files is not None:
            first = b"".join(publication.buffers)
            origin = files.decode_origin(first, below(after.uri, publication.path))
            main = main_of(after.uri, branch)
            if origin is not None and main != after.uri:
                self._changed(main).branches[branch] = origin.parent or ""

    def stored(self, root: str, newest: int) -> int:
        """Returns the newest stored version of a table: `newest`, unless later ones are only in memory."""
        return self._stored.get(root, newest)

    def state(self, root: str, version: int) -> State | None:
        """Returns a version that was folded in memory, or None."""
        return self._states.get((root, version))

    def marks(self, root: str) -> Marks | None:
        """Returns the marks of the newest version that was folded in memory, or None."""
        return self._newest.get(root)

    def file(self, path: str) -> bytes | None:
        """Returns a file of such a version by its whole name, or None."""
        return self._files.get(path)

    def refs(self, main: str) -> RefChanges:
        """Returns the tags and branches that were changed of the table whose main branch is at `main`."""
        return self._refs.get(main) or RefChanges()

    def _changed(self, main: str) -> RefChanges:
        return self._refs.setdefault(main, RefChanges())


NOTHING: Final = Previews()
"""What is folded in memory if nothing is previewed."""
