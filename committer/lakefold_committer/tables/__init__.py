"""A table that this committer writes: what the fold needs of it, its branches, and its next version."""
