"""The operations of Lance's Transaction message: what each requires of the table, and how it changes it.

`rules` names two functions for each operation. `needs` returns which files must be fetched before the
proposal can be folded (`Requirements`). `change` checks the proposal against the version in the making
(`VersionBuilder`) and returns a `TableChange`, or the refusal as a value; it modifies nothing. The draft then
has the version builder apply the change, and only then is the proposal part of the version.

Each operation has its own module. `change` has the types that they share; `lance.kinds` names the operations.
"""
