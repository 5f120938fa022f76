"""Rows of a file that several writers delete, and rows that a compaction moved meanwhile."""
