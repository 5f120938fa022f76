"""A version of a Lance table: its rows, its indices, and what it did compared with the version before."""
