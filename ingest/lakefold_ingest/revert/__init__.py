"""Undoing single batches: one proposal that takes out what they did and keeps everything else.

`named_entries` finds the entries in the versions that a user names. `row_history` is the seam to the formats:
which rows a version removed and added, where rows are in later versions, and their values. `following` finds
where rows are now by bisection. `effects` joins both to what entries did. `plan` makes of that which rows go
and which come back, and `conflicts` are the rows that later entries changed. `batch_revert` is the operation
that proposes it. `formats` is the registry.
"""
