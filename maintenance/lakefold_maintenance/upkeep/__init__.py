"""Maintains tables again and again: compaction and clean-up by each table's policy."""
