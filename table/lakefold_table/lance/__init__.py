"""The rules of Lance tables: what a version is, and what each operation makes of it. Pure.

A manifest file is decoded to a state (`codec`, `state`, `fragments`); a proposal is held against what is
wrong in itself (`validity`) and against what was committed since it was built (`conflicts`); what fits
changes a draft of the next version (`draft`), which is encoded with the change first. `table` answers the
seam of `lakefold_table.format` with these rooms.
"""
