"""Reads the log without a gap: entries, outcomes and dead letters.

Also checks that it is still the same log.
"""
