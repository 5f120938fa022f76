"""The rules of Lance tables: what a version is, and how each operation changes it. Pure functions, no IO.

A manifest file is decoded to a state (`manifests`, `state`). A proposal is checked by itself (`validity`),
against what was committed since it was built (`proposal_footprint`, `conflicts`) and against what its field
ids meant then (`identity`). Its operation (`operations`) then compares it with the version in the
making (`version_builder`) and returns a change or a refusal. The draft (`draft`) applies changes, combines
their transactions (`combine_transactions`), checks the result against what must always be true
(`invariants`) and encodes it, the transaction first. What operations share has packages of its own: `rows`,
`indexing`, `schemas`, `refs`. `format` implements the interface of `lakefold_table.format` with all of these.
"""
