"""The rules of Lance tables: what a version is, and what each operation makes of it. Pure.

A manifest file is decoded to a state (`manifests`, `state`). A proposal is held against what is wrong in
itself (`validity`), against what was committed since it was built (`judged`, `conflicts`) and against what
its field ids meant then (`schemas.identity`). Its operation (`operations`) then looks at the table on
its way to the next version (`working`) and gives a change or a refusal. The draft (`draft`) takes changes
up, tells all of them as one transaction (`merging`), holds the result against what must always be true
(`invariants`) and encodes it with the transaction first. What operations share lies in rooms of its own:
`rows`, `indexing`, `schemas`, `refs`. `table` answers the seam of `lakefold_table.format` with all of these.
"""
