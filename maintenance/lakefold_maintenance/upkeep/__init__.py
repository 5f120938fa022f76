"""Maintains tables repeatedly: compaction and clean-up by each table's policy."""
