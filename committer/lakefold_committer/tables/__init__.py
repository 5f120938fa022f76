"""A table that this committer writes.

What the fold needs to see of it, its next version, and what a lost put means.
"""
